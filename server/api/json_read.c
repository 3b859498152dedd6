/* Reading untrusted JSON: a scan that bounds what parsing may cost, jansson, and typed getters with ranges.
 *
 * jansson 2.14 takes 20 to 77 bytes of heap for each byte of `1,1,...` or `{},{},...`; the scan counts what costs before
 * anything is allocated. Its error text quotes the input, so only its code, line and column are used. */
#include "server/api/json.h"
#include "core/base/log.h"
#include "server/api/json_load.h"
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { IGNORED_NAMES_LOGGED = 16 };

static atn_status count_limit(atn_err *err, size_t have, size_t limit, const char *what)
{
    if (have <= limit) {
        return ATN_OK;
    }
    return atn_fail(err, ATN_INVALID, NULL, "the JSON holds more than %zu %s", limit, what);
}

/* End of the string that opens at bytes[i]: index of its closing quote, n when there is none. */
static size_t string_end(const char *bytes, size_t n, size_t i)
{
    for (i++; i < n && bytes[i] != '"'; i++) {
        if (bytes[i] == '\\') {
            i++;
        }
    }
    return i < n ? i : n;
}

atn_status body_scan(const char *bytes, size_t n, atn_err *err)
{
    size_t depth = 0, deepest = 0, containers = 0, members = 0, values = 0;
    for (size_t i = 0; i < n; i++) {
        switch (bytes[i]) {
        case '"':
            i = string_end(bytes, n, i);
            break;
        case '{':
        case '[':
            containers++;
            values++;
            depth++;
            deepest = depth > deepest ? depth : deepest;
            break;
        case '}':
        case ']':
            depth -= depth > 0;
            break;
        case ':':
            members++;
            break;
        case ',':
            values++;
            break;
        default:
            break;
        }
        if (deepest > JSON_MAX_DEPTH) {
            return atn_fail(err, ATN_INVALID, NULL, "the JSON is nested deeper than %d levels", JSON_MAX_DEPTH);
        }
    }
    ATN_TRY(count_limit(err, containers, JSON_MAX_CONTAINERS, "objects and arrays"));
    ATN_TRY(count_limit(err, members, JSON_MAX_MEMBERS, "members"));
    return count_limit(err, values, JSON_MAX_VALUES, "values");
}

static const char *parse_error_words(enum json_error_code code)
{
    switch (code) {
    case json_error_premature_end_of_input:
        return "the JSON ends too early";
    case json_error_end_of_input_expected:
        return "something follows the JSON value";
    case json_error_duplicate_key:
        return "duplicate key in the JSON";
    case json_error_numeric_overflow:
        return "a number in the JSON is out of range";
    case json_error_invalid_utf8:
        return "the JSON is not valid UTF-8";
    case json_error_null_character:
    case json_error_null_byte_in_key:
        return "a string in the JSON holds a NUL character";
    default:
        return "invalid JSON";
    }
}

atn_status body_parse_bytes(const char *bytes, size_t n, json_t **root, atn_err *err)
{
    *root = NULL;
    if (n == 0) {
        return atn_fail(err, ATN_INVALID, NULL, "the body is empty; a JSON object is needed");
    }
    ATN_TRY(body_scan(bytes, n, err));
    json_error_t e;
    bool nomem;
    json_t *v = json_load_bytes(bytes, n, JSON_REJECT_DUPLICATES, &e, &nomem);
    if (nomem) {
        return atn_fail(err, ATN_NOMEM, NULL, "no memory to parse the body");
    }
    if (v == NULL) {
        return atn_fail(err, ATN_INVALID, NULL, "%s: line %d, column %d, byte %d",
                        parse_error_words(json_error_code(&e)), e.line, e.column, e.position);
    }
    if (!json_is_object(v)) {
        json_decref(v);
        return atn_fail(err, ATN_INVALID, NULL, "the body must be a JSON object");
    }
    *root = v;
    return ATN_OK;
}

/* "application/json" or "application/x+json", with or without parameters. */
static bool is_json_type(const char *type)
{
    size_t n = strcspn(type, "; \t");
    if (n == strlen("application/json") && strncasecmp(type, "application/json", n) == 0) {
        return true;
    }
    return n > 5 && strncasecmp(type, "application/", 12) == 0 && strncasecmp(type + n - 5, "+json", 5) == 0;
}

atn_status body_check_type(exchange *x, atn_err *err)
{
    const char *type = x->ops->header(x, "content-type");
    /* A page of another site may send a body without a type unasked, but never without its Origin. */
    if (type != NULL ? !is_json_type(type) : x->ops->header(x, "origin") != NULL) {
        return atn_fail(err, ATN_MEDIA_TYPE, NULL, "the content type must be application/json");
    }
    return ATN_OK;
}

void fields_open(fields *f, json_t *obj)
{
    f->obj = obj;
    f->n_asked = 0;
}

static bool was_asked(const fields *f, const char *name)
{
    for (unsigned i = 0; i < f->n_asked; i++) {
        if (strcmp(f->asked[i], name) == 0) {
            return true;
        }
    }
    return false;
}

unsigned fields_close(fields *f)
{
    unsigned ignored = 0;
    const char *key;
    json_t *value;
    json_object_foreach(f->obj, key, value)
    {
        if (!was_asked(f, key)) {
            if (ignored < IGNORED_NAMES_LOGGED) {
                log_debug("ignored field \"%.64s\"", key);
            }
            ignored++;
        }
    }
    return ignored;
}

json_t *fields_get(fields *f, const char *name)
{
    if (f->n_asked < FIELDS_MAX) {
        f->asked[f->n_asked++] = name;
    }
    json_t *v = json_object_get(f->obj, name);
    return json_is_null(v) ? NULL : v;
}

atn_status fields_bool(fields *f, const char *name, bool *out, atn_err *err)
{
    json_t *v = fields_get(f, name);
    if (v == NULL) {
        return ATN_OK;
    }
    if (!json_is_boolean(v)) {
        return atn_fail(err, ATN_INVALID, name, "%s must be true or false", name);
    }
    *out = json_is_true(v);
    return ATN_OK;
}

atn_status fields_int(fields *f, const char *name, int64_t min, int64_t max, int64_t *out, bool *given, atn_err *err)
{
    json_t *v = fields_get(f, name);
    if (v == NULL) {
        return ATN_OK;
    }
    int64_t i = json_integer_value(v);
    if (!json_is_integer(v) || i < min || i > max) {
        return atn_fail(err, ATN_INVALID, name, "%s must be an integer in %lld .. %lld", name, (long long)min,
                        (long long)max);
    }
    *out = i;
    if (given != NULL) {
        *given = true;
    }
    return ATN_OK;
}

atn_status fields_float(fields *f, const char *name, double min, bool above_min, double max, float *out, bool *given,
                        atn_err *err)
{
    json_t *v = fields_get(f, name);
    if (v == NULL) {
        return ATN_OK;
    }
    double d = json_number_value(v);
    if (!json_is_number(v) || !isfinite(d) || d < min || (above_min && d <= min) || d > max) {
        return atn_fail(err, ATN_INVALID, name, "%s must be a number %s %g and at most %g", name,
                        above_min ? "above" : "of at least", min, max);
    }
    float x = (float)d;
    if (d > 0 && x < FLT_MIN) {
        x = FLT_MIN; /* rounding to 0 would turn a tiny value into "off" or out of its range */
    }
    *out = x;
    if (given != NULL) {
        *given = true;
    }
    return ATN_OK;
}

atn_status fields_string(fields *f, const char *name, size_t max_bytes, const char **out, size_t *n, atn_err *err)
{
    json_t *v = fields_get(f, name);
    if (v == NULL) {
        return ATN_OK;
    }
    if (!json_is_string(v)) {
        return atn_fail(err, ATN_INVALID, name, "%s must be a string", name);
    }
    size_t len = json_string_length(v);
    if (len > max_bytes) {
        return atn_fail(err, ATN_INVALID, name, "%s has %zu bytes, at most %zu are allowed", name, len, max_bytes);
    }
    *out = json_string_value(v);
    *n = len;
    return ATN_OK;
}

atn_status fields_object(fields *f, const char *name, json_t **out, atn_err *err)
{
    *out = fields_get(f, name);
    if (*out != NULL && !json_is_object(*out)) {
        *out = NULL;
        return atn_fail(err, ATN_INVALID, name, "%s must be an object", name);
    }
    return ATN_OK;
}

atn_status fields_array(fields *f, const char *name, json_t **out, atn_err *err)
{
    *out = fields_get(f, name);
    if (*out != NULL && !json_is_array(*out)) {
        *out = NULL;
        return atn_fail(err, ATN_INVALID, name, "%s must be an array", name);
    }
    return ATN_OK;
}

atn_status fields_refuse(fields *f, const char *name, atn_err *err)
{
    json_t *v = fields_get(f, name);
    if (v == NULL || json_is_false(v)) {
        return ATN_OK;
    }
    return atn_fail(err, ATN_INVALID, name, "%s is not supported", name);
}

atn_status json_token_ids(const json_t *array, const char *param, uint32_t n_vocab, size_t max, int32_t **ids,
                          size_t *n_ids, atn_err *err)
{
    *ids = NULL;
    *n_ids = 0;
    size_t n = json_array_size(array);
    if (n > max) {
        return atn_fail(err, ATN_INVALID, param, "%s has %zu token ids, at most %zu are allowed", param, n, max);
    }
    int32_t *out = malloc((n > 0 ? n : 1) * sizeof *out);
    if (out == NULL) {
        return atn_fail(err, ATN_NOMEM, param, "no memory for %zu token ids", n);
    }
    for (size_t i = 0; i < n; i++) {
        const json_t *v = json_array_get(array, i);
        json_int_t id = json_integer_value(v);
        if (!json_is_integer(v) || id < 0 || id >= n_vocab) {
            free(out);
            return atn_fail(err, ATN_INVALID, param, "%s: element %zu must be a token id in 0 .. %u", param, i,
                            n_vocab - 1);
        }
        out[i] = (int32_t)id;
    }
    *ids = out;
    *n_ids = n;
    return ATN_OK;
}
