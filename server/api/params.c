/* Reading the generation parameters that all doors share. Every number is proven in range here, so that nothing a client
 * sends can be out of range on the engine thread. */
#include "server/api/params.h"
#include "core/base/hash.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

enum { DEADLINE_MAX_MS = 24 * 60 * 60 * 1000, SALT_MAX = 256 };

/* 53 bits, so that a client whose numbers are doubles can send the seed back. */
static uint64_t draw_seed(void)
{
    uint64_t seed = 0;
    if (getrandom(&seed, sizeof seed, 0) != (ssize_t)sizeof seed) {
        seed = mono_now().us;
    }
    return seed >> 11;
}

void params_init(gen_params *p)
{
    *p = (gen_params){.sample = atn_sample_defaults(), .n_choices = 1};
    p->sample.seed = draw_seed();
}

void params_free(gen_params *p)
{
    free(p->bias);
    free(p->stop_bytes);
    p->bias = NULL;
    p->stop_bytes = NULL;
    p->sample.bias = NULL;
    p->sample.n_bias = 0;
    p->n_stops = 0;
}

/* A decimal token id without sign or leading zero, below n_vocab; -1 otherwise. */
static int32_t parse_id(const char *key, uint32_t n_vocab)
{
    size_t n = strlen(key);
    if (n == 0 || n > 9 || (n > 1 && key[0] == '0') || strspn(key, "0123456789") != n) {
        return -1;
    }
    unsigned long id = strtoul(key, NULL, 10);
    return id < n_vocab ? (int32_t)id : -1;
}

static atn_status read_logit_bias(fields *f, uint32_t n_vocab, gen_params *p, atn_err *err)
{
    json_t *obj;
    ATN_TRY(fields_object(f, "logit_bias", &obj, err));
    size_t n = json_object_size(obj);
    if (n == 0) {
        return ATN_OK;
    }
    if (n > ATN_MAX_LOGIT_BIAS) {
        return atn_fail(err, ATN_INVALID, "logit_bias", "logit_bias has %zu entries, at most %d are allowed", n,
                        ATN_MAX_LOGIT_BIAS);
    }
    p->bias = calloc(n, sizeof *p->bias);
    if (p->bias == NULL) {
        return atn_fail(err, ATN_NOMEM, "logit_bias", "no memory for logit_bias");
    }
    p->sample.bias = p->bias;
    const char *key;
    json_t *v;
    json_object_foreach(obj, key, v)
    {
        int32_t id = parse_id(key, n_vocab);
        if (id < 0) {
            return atn_fail(err, ATN_INVALID, "logit_bias", "logit_bias: keys must be token ids in 0 .. %u",
                            n_vocab - 1);
        }
        double d = json_number_value(v);
        if (!json_is_number(v) || !(d >= -100 && d <= 100)) {
            return atn_fail(err, ATN_INVALID, "logit_bias", "logit_bias: values must be numbers in -100 .. 100");
        }
        p->bias[p->sample.n_bias++] = (atn_logit_bias){id, (float)d};
    }
    return ATN_OK;
}

static atn_status read_stop_ids(fields *f, uint32_t n_vocab, gen_params *p, atn_err *err)
{
    json_t *array;
    ATN_TRY(fields_array(f, "stop_token_ids", &array, err));
    if (array == NULL) {
        return ATN_OK;
    }
    int32_t *ids;
    size_t n;
    ATN_TRY(json_token_ids(array, "stop_token_ids", n_vocab, ATN_MAX_STOP_IDS, &ids, &n, err));
    memcpy(p->stop_ids, ids, n * sizeof *ids);
    p->n_stop_ids = (uint32_t)n;
    free(ids);
    return ATN_OK;
}

atn_status params_read_sampling(fields *f, uint32_t n_vocab, gen_params *p, atn_err *err)
{
    atn_sample_params *s = &p->sample;
    int64_t top_k = s->top_k, seed = 0;
    ATN_TRY(fields_float(f, "temperature", 0, false, 100, &s->temperature, &p->has_temperature, err));
    ATN_TRY(fields_int(f, "top_k", -1, INT32_MAX, &top_k, NULL, err));
    s->top_k = top_k < 0 || top_k >= n_vocab ? 0 : (int32_t)top_k;
    ATN_TRY(fields_float(f, "top_p", 0, true, 1, &s->top_p, NULL, err));
    ATN_TRY(fields_float(f, "min_p", 0, false, 1, &s->min_p, NULL, err));
    ATN_TRY(fields_float(f, "typical_p", 0, true, 1, &s->typical_p, NULL, err));
    ATN_TRY(fields_float(f, "repetition_penalty", 0, true, 100, &s->repetition_penalty, NULL, err));
    ATN_TRY(fields_float(f, "frequency_penalty", -2, false, 2, &s->frequency_penalty, NULL, err));
    ATN_TRY(fields_float(f, "presence_penalty", -2, false, 2, &s->presence_penalty, NULL, err));
    ATN_TRY(fields_int(f, "seed", 0, INT64_MAX, &seed, &p->has_seed, err));
    if (p->has_seed) {
        s->seed = (uint64_t)seed;
    }
    ATN_TRY(fields_bool(f, "ignore_eos", &p->ignore_eos, err));
    ATN_TRY(read_stop_ids(f, n_vocab, p, err));
    return read_logit_bias(f, n_vocab, p, err);
}

static atn_status add_stop(const json_t *v, const char *name, size_t i, gen_params *p, atn_err *err)
{
    size_t n = json_string_length(v);
    if (!json_is_string(v) || n == 0 || n > ATN_MAX_STOP_BYTES) {
        return atn_fail(err, ATN_INVALID, name, "%s: element %zu must be a string of 1 .. %d bytes", name, i,
                        ATN_MAX_STOP_BYTES);
    }
    char *at = p->stop_bytes + i * ATN_MAX_STOP_BYTES;
    memcpy(at, json_string_value(v), n);
    p->stops[p->n_stops++] = (atn_stop){at, n};
    return ATN_OK;
}

atn_status params_read_stop(fields *f, const char *name, gen_params *p, atn_err *err)
{
    json_t *v = fields_get(f, name);
    if (v == NULL) {
        return ATN_OK;
    }
    size_t n = json_is_string(v) ? 1 : json_array_size(v);
    if (!json_is_string(v) && !json_is_array(v)) {
        return atn_fail(err, ATN_INVALID, name, "%s must be a string or an array of strings", name);
    }
    if (n > PARAMS_MAX_STOPS) {
        return atn_fail(err, ATN_INVALID, name, "%s has %zu strings, at most %d are allowed", name, n,
                        PARAMS_MAX_STOPS);
    }
    if (n == 0) {
        return ATN_OK;
    }
    p->stop_bytes = malloc(n * ATN_MAX_STOP_BYTES);
    if (p->stop_bytes == NULL) {
        return atn_fail(err, ATN_NOMEM, name, "no memory for %s", name);
    }
    for (size_t i = 0; i < n; i++) {
        ATN_TRY(add_stop(json_is_string(v) ? v : json_array_get(v, i), name, i, p, err));
    }
    return ATN_OK;
}

atn_status params_read_max_new(fields *f, const char *name, gen_params *p, atn_err *err)
{
    int64_t n = p->max_new_tokens;
    ATN_TRY(fields_int(f, name, 0, INT32_MAX, &n, &p->has_max_new, err));
    p->max_new_tokens = (uint32_t)n;
    return ATN_OK;
}

static atn_domain salted(uint64_t key_hash, const char *salt, size_t n)
{
    return n > 0 ? hash_bytes(key_hash, 0x73616c7465646b65u, salt, n) : key_hash;
}

void request_head_read(exchange *x, request_head *out)
{
    const char *salt = x->ops->header(x, "x-cache-salt");
    const char *id = x->ops->header(x, "x-session-id");
    if (id == NULL) {
        id = x->ops->header(x, "x-conversation-id");
    }
    *out = (request_head){
        .key_hash = x->who.key_hash,
        .domain = salted(x->who.key_hash, salt, salt != NULL ? strlen(salt) : 0),
        .has_session_id = id != NULL,
    };
    (void)snprintf(out->session_id, sizeof out->session_id, "%s", id != NULL ? id : "");
    (void)snprintf(out->request_id, sizeof out->request_id, "%s", x->request_id);
}

/* The id from the body, else from a header; body and header may not disagree. */
static atn_status read_session_id(const request_head *head, fields *f, session_ref *out, atn_err *err)
{
    const char *id = head->has_session_id ? head->session_id : NULL;
    const char *named = NULL;
    size_t n = 0;
    if (f != NULL) {
        ATN_TRY(fields_string(f, "session_id", SESSION_ID_MAX, &named, &n, err));
    }
    if (named != NULL && id != NULL && strcmp(named, id) != 0) {
        return atn_fail(err, ATN_INVALID, "session_id", "session_id and the header name different sessions");
    }
    id = named != NULL ? named : id;
    if (id == NULL) {
        return ATN_OK;
    }
    if (!session_id_valid(id, strlen(id))) {
        return atn_fail(err, ATN_INVALID, "session_id",
                        "session_id must be 1 .. %d of A-Z a-z 0-9 . _ : -, not beginning with a dot", SESSION_ID_MAX);
    }
    memcpy(out->id, id, strlen(id) + 1);
    return ATN_OK;
}

atn_status params_read_session(const request_head *head, fields *f, session_ref *out, gen_params *p, atn_err *err)
{
    *out = (session_ref){0};
    ATN_TRY(read_session_id(head, f, out, err));
    const char *salt = NULL;
    size_t n_salt = 0;
    if (f != NULL) {
        int64_t n = 0;
        bool has_deadline = false;
        ATN_TRY(fields_bool(f, "create", &out->create, err));
        ATN_TRY(fields_int(f, "turn", 1, UINT32_MAX, &n, &out->has_turn, err));
        out->turn = (uint32_t)n;
        ATN_TRY(fields_string(f, "cache_salt", SALT_MAX, &salt, &n_salt, err));
        if (p != NULL) {
            ATN_TRY(fields_int(f, "deadline_ms", 1, DEADLINE_MAX_MS, &n, &has_deadline, err));
            p->deadline_ms = has_deadline ? (uint32_t)n : p->deadline_ms;
        }
    }
    if (out->has_turn && out->id[0] == '\0') {
        return atn_fail(err, ATN_INVALID, "turn", "turn needs a session_id");
    }
    out->domain = salt != NULL ? salted(head->key_hash, salt, n_salt) : head->domain;
    return ATN_OK;
}
