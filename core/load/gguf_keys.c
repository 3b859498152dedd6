/* Typed access to metadata: every getter checks type and range before it hands out a value. */
#include "core/load/gguf_file.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* The i-th integer of type t at p; false when t is no integer type or the value exceeds int64. bool counts as 0 and 1. */
static bool integer_at(gguf_type t, const unsigned char *p, size_t i, int64_t *out)
{
    uint64_t bits = 0;
    switch (t) {
    case GGUF_U8:
    case GGUF_BOOL:
        *out = p[i];
        return t == GGUF_U8 || p[i] <= 1;
    case GGUF_I8:
        *out = (int8_t)p[i];
        return true;
    case GGUF_U16:
        memcpy(&bits, p + 2 * i, 2);
        *out = (int64_t)bits;
        return true;
    case GGUF_I16:
        memcpy(&bits, p + 2 * i, 2);
        *out = (int16_t)bits;
        return true;
    case GGUF_U32:
        memcpy(&bits, p + 4 * i, 4);
        *out = (int64_t)bits;
        return true;
    case GGUF_I32:
        memcpy(&bits, p + 4 * i, 4);
        *out = (int32_t)bits;
        return true;
    case GGUF_U64:
    case GGUF_I64:
        memcpy(&bits, p + 8 * i, 8);
        *out = (int64_t)bits;
        return t == GGUF_I64 || bits <= INT64_MAX;
    default:
        return false;
    }
}

static bool is_integer(gguf_type t)
{
    return t <= GGUF_I32 || t == GGUF_U64 || t == GGUF_I64;
}

static atn_status wrong_type(const gguf_file *f, const gguf_kv *kv, const char *wanted, atn_err *err)
{
    if (kv->type == GGUF_ARRAY) {
        return gguf_fail(f, err, ATN_FORMAT, "key", kv->key, "is an array of %s: it must be %s",
                         gguf_type_name(kv->element), wanted);
    }
    return gguf_fail(f, err, ATN_FORMAT, "key", kv->key, "has type %s: it must be %s", gguf_type_name(kv->type),
                     wanted);
}

atn_status gguf_file_integer(const gguf_file *f, const char *key, int64_t lo, int64_t hi, int64_t *out, atn_err *err)
{
    const gguf_kv *kv = gguf_file_find(f, key);
    if (kv == NULL) {
        return ATN_NOT_FOUND;
    }
    if (!is_integer(kv->type)) {
        return wrong_type(f, kv, "an integer", err);
    }
    int64_t v = 0;
    if (!integer_at(kv->type, kv->data, 0, &v)) {
        return gguf_fail(f, err, ATN_FORMAT, "key", kv->key,
                         "exceeds %" PRId64 ": %" PRId64 " to %" PRId64 " are allowed", INT64_MAX, lo, hi);
    }
    if (v < lo || v > hi) {
        return gguf_fail(f, err, ATN_FORMAT, "key", kv->key, "is %" PRId64 ": %" PRId64 " to %" PRId64 " are allowed",
                         v, lo, hi);
    }
    *out = v;
    return ATN_OK;
}

bool gguf_has(const gguf *g, const char *key)
{
    return gguf_file_find(&g->files[0], key) != NULL;
}

atn_status gguf_u32(const gguf *g, const char *key, uint32_t lo, uint32_t hi, uint32_t *out, atn_err *err)
{
    int64_t v = 0;
    ATN_TRY(gguf_file_integer(&g->files[0], key, lo, hi, &v, err));
    *out = (uint32_t)v;
    return ATN_OK;
}

atn_status gguf_f32(const gguf *g, const char *key, float lo, float hi, float *out, atn_err *err)
{
    const gguf_file *f = &g->files[0];
    const gguf_kv *kv = gguf_file_find(f, key);
    if (kv == NULL) {
        return ATN_NOT_FOUND;
    }
    float v;
    if (kv->type == GGUF_F32) {
        memcpy(&v, kv->data, sizeof v);
    } else if (kv->type == GGUF_F64) {
        double wide;
        memcpy(&wide, kv->data, sizeof wide);
        v = (float)wide;
    } else {
        return wrong_type(f, kv, "f32 or f64", err);
    }
    if (!(v >= lo && v <= hi)) { /* a NaN is in no range */
        return gguf_fail(f, err, ATN_FORMAT, "key", kv->key, "is %g: %g to %g are allowed", (double)v, (double)lo,
                         (double)hi);
    }
    *out = v;
    return ATN_OK;
}

atn_status gguf_bool(const gguf *g, const char *key, bool *out, atn_err *err)
{
    const gguf_file *f = &g->files[0];
    const gguf_kv *kv = gguf_file_find(f, key);
    if (kv == NULL) {
        return ATN_NOT_FOUND;
    }
    if (kv->type != GGUF_BOOL) {
        return wrong_type(f, kv, "bool", err);
    }
    if (kv->data[0] > 1) {
        return gguf_fail(f, err, ATN_FORMAT, "key", kv->key, "is %u: a bool is 0 or 1", (unsigned)kv->data[0]);
    }
    *out = kv->data[0] == 1;
    return ATN_OK;
}

atn_status gguf_string(const gguf *g, const char *key, gguf_str *out, atn_err *err)
{
    const gguf_file *f = &g->files[0];
    const gguf_kv *kv = gguf_file_find(f, key);
    if (kv == NULL) {
        return ATN_NOT_FOUND;
    }
    if (kv->type != GGUF_STRING) {
        return wrong_type(f, kv, "a string", err);
    }
    *out = (gguf_str){(const char *)kv->data, (size_t)kv->n};
    return ATN_OK;
}

/* ---- arrays ---- */

static atn_status find_array(const gguf *g, const char *key, const gguf_kv **out, atn_err *err)
{
    *out = gguf_file_find(&g->files[0], key);
    if (*out == NULL) {
        return ATN_NOT_FOUND;
    }
    return (*out)->type == GGUF_ARRAY ? ATN_OK : wrong_type(&g->files[0], *out, "an array", err);
}

/* Memory for the copy of an array; never NULL for an empty one. */
static atn_status array_new(const gguf *g, const gguf_kv *kv, size_t each, void **out, atn_err *err)
{
    *out = calloc(kv->n > 0 ? (size_t)kv->n : 1, each);
    if (*out == NULL) {
        return gguf_fail(&g->files[0], err, ATN_NOMEM, "key", kv->key, "no memory for %" PRIu64 " elements", kv->n);
    }
    return ATN_OK;
}

atn_status gguf_array(const gguf *g, const char *key, gguf_type type, size_t *n, atn_err *err)
{
    const gguf_kv *kv;
    ATN_TRY(find_array(g, key, &kv, err));
    if (kv->element != type) {
        return gguf_fail(&g->files[0], err, ATN_FORMAT, "key", kv->key, "is an array of %s: it must be one of %s",
                         gguf_type_name(kv->element), gguf_type_name(type));
    }
    *n = (size_t)kv->n;
    return ATN_OK;
}

atn_status gguf_array_strings(const gguf *g, const char *key, gguf_str **out, size_t *n, atn_err *err)
{
    const gguf_kv *kv;
    void *copy;
    ATN_TRY(gguf_array(g, key, GGUF_STRING, n, err));
    ATN_TRY(find_array(g, key, &kv, err));
    ATN_TRY(array_new(g, kv, sizeof(gguf_str), &copy, err));
    *out = copy;
    cursor c = cursor_of(kv->data, kv->bytes);
    for (size_t i = 0; i < *n; i++) {
        uint64_t len = cursor_u64(&c);
        (*out)[i] = (gguf_str){cursor_bytes(&c, len), (size_t)len};
    }
    return ATN_OK;
}

atn_status gguf_array_i32(const gguf *g, const char *key, int32_t **out, size_t *n, atn_err *err)
{
    const gguf_kv *kv;
    void *copy;
    ATN_TRY(find_array(g, key, &kv, err));
    if (!is_integer(kv->element) && kv->element != GGUF_BOOL) {
        return wrong_type(&g->files[0], kv, "an array of integers", err);
    }
    ATN_TRY(array_new(g, kv, sizeof(int32_t), &copy, err));
    for (size_t i = 0; i < kv->n; i++) {
        int64_t v = 0;
        if (!integer_at(kv->element, kv->data, i, &v) || v < INT32_MIN || v > INT32_MAX) {
            free(copy);
            return gguf_fail(&g->files[0], err, ATN_FORMAT, "key", kv->key,
                             "element %zu does not fit 32 bits: %" PRId32 " to %" PRId32, i, INT32_MIN, INT32_MAX);
        }
        ((int32_t *)copy)[i] = (int32_t)v;
    }
    *out = copy;
    *n = (size_t)kv->n;
    return ATN_OK;
}

atn_status gguf_array_f32(const gguf *g, const char *key, float **out, size_t *n, atn_err *err)
{
    const gguf_kv *kv;
    void *copy;
    ATN_TRY(find_array(g, key, &kv, err));
    if (kv->element != GGUF_F32 && kv->element != GGUF_F64) {
        return wrong_type(&g->files[0], kv, "an array of f32", err);
    }
    ATN_TRY(array_new(g, kv, sizeof(float), &copy, err));
    for (size_t i = 0; i < kv->n; i++) {
        float *v = (float *)copy + i;
        if (kv->element == GGUF_F32) {
            memcpy(v, kv->data + 4 * i, sizeof *v);
        } else {
            double wide;
            memcpy(&wide, kv->data + 8 * i, sizeof wide);
            *v = (float)wide;
        }
    }
    *out = copy;
    *n = (size_t)kv->n;
    return ATN_OK;
}
