/* JSON at the edge: parsing untrusted bodies, reading typed and range-checked fields, writing answers.
 *
 * Parsing first walks the bytes once and refuses what would cost far more memory than it carries (depth, containers,
 * members, values), then gives them to jansson. Error text is fixed words and numbers: no byte of the body comes back.
 *
 * Reading goes through `fields`, one for each object: it remembers the names that were asked for, so that the rest can be
 * counted as ignored.
 *
 *     json_t *root = NULL;
 *     ATN_TRY(body_parse_bytes(x->body, x->body_len, &root, err));
 *     fields f;
 *     fields_open(&f, root);
 *     ATN_TRY(fields_int(&f, "max_new_tokens", 1, 100, &value, &given, err));
 *     ignored += fields_close(&f);
 *
 * A member whose value is null counts as absent. Every getter leaves its output alone when the field is absent.
 * Thread: any, but for body_check_type; a tree belongs to one. */
#ifndef ATTND_API_JSON_H
#define ATTND_API_JSON_H

#include "core/base/buf.h"
#include "server/api/exchange.h"
#include <jansson.h>

enum {
    JSON_MAX_DEPTH = 64,
    JSON_MAX_CONTAINERS = 32768, /* objects and arrays in one body */
    JSON_MAX_MEMBERS = 65536,    /* members of all objects */
    JSON_MAX_VALUES = 262144,    /* elements and members together */
    FIELDS_MAX = 64,             /* names that one reader may ask for */
};

/* ATN_INVALID with what exceeded which limit. Knows strings, nothing else of the grammar. */
atn_status body_scan(const char *bytes, size_t n, atn_err *err) ATN_MUST_CHECK;
/* bytes to a value of type object; the caller json_decref's it. ATN_INVALID with line and column. */
atn_status body_parse_bytes(const char *bytes, size_t n, json_t **root, atn_err *err) ATN_MUST_CHECK;
/* ATN_MEDIA_TYPE when x's content type is not JSON, or missing in what a web page sends. Loop thread. */
atn_status body_check_type(exchange *x, atn_err *err) ATN_MUST_CHECK;

typedef struct fields {
    json_t *obj; /* borrowed */
    const char *asked[FIELDS_MAX];
    unsigned n_asked;
} fields;

void fields_open(fields *f, json_t *obj);
/* Members nobody asked for; their names go to the debug log. */
unsigned fields_close(fields *f);
/* The member, NULL when absent or null. name must outlive f. */
json_t *fields_get(fields *f, const char *name);
atn_status fields_bool(fields *f, const char *name, bool *out, atn_err *err) ATN_MUST_CHECK;
/* given may be NULL. */
atn_status fields_int(fields *f, const char *name, int64_t min, int64_t max, int64_t *out, bool *given,
                      atn_err *err) ATN_MUST_CHECK;
/* above_min: min itself is outside. A positive number too small for a float becomes the smallest normal one. */
atn_status fields_float(fields *f, const char *name, double min, bool above_min, double max, float *out, bool *given,
                        atn_err *err) ATN_MUST_CHECK;
/* out is borrowed from the object. Longer than max_bytes: ATN_INVALID with both numbers. */
atn_status fields_string(fields *f, const char *name, size_t max_bytes, const char **out, size_t *n,
                         atn_err *err) ATN_MUST_CHECK;
/* ATN_INVALID when present and not an object (array); *out stays NULL when absent. */
atn_status fields_object(fields *f, const char *name, json_t **out, atn_err *err) ATN_MUST_CHECK;
atn_status fields_array(fields *f, const char *name, json_t **out, atn_err *err) ATN_MUST_CHECK;
/* A present member that we know and do not offer: ATN_INVALID by name. false, null and absent pass. */
atn_status fields_refuse(fields *f, const char *name, atn_err *err) ATN_MUST_CHECK;
/* An array of token ids, each in 0 .. n_vocab-1. ids: malloc'ed [n_ids], n_ids <= max. ATN_INVALID names param. */
atn_status json_token_ids(const json_t *array, const char *param, uint32_t n_vocab, size_t max, int32_t **ids,
                          size_t *n_ids, atn_err *err) ATN_MUST_CHECK;

/* Writing: appends to b, which remembers a failure by itself. */
/* A quoted JSON string; bytes that are no UTF-8 become U+FFFD, controls are escaped. */
void put_string(buf *b, const char *s, size_t n);
void put_cstring(buf *b, const char *s); /* NULL: null */
/* Shortest of 6 to 9 digits that read back as the same float; null when not finite. */
void put_float(buf *b, float v);
/* ["a",1] separators: a comma unless b ends with an opening bracket. */
void put_comma(buf *b);

#endif
