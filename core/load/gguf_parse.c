/* The walk over a GGUF header: counts, keys with their values, tensor infos.
 *
 * Nothing is allocated here. A length is compared with what is left of the *file* before it is compared with what is left of
 * the bytes at hand: a lie is an error at once, and an honest length asks for more bytes (walk.wanted). The first walk
 * only proves the header; the second fills arrays of the proven sizes. */
#include "core/load/gguf_file.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

const char *gguf_printable(gguf_str s, char *out, size_t size)
{
    size_t n = s.n < size - 1 ? s.n : size - 1;
    for (size_t i = 0; i < n; i++) {
        unsigned char byte = (unsigned char)s.s[i];
        out[i] = (char)(byte >= 0x20 && byte < 0x7F ? byte : '?');
    }
    out[n] = '\0';
    return out;
}

atn_status gguf_fail(const gguf_file *f, atn_err *err, atn_status code, const char *kind, gguf_str what,
                     const char *fmt, ...)
{
    char raw[160], text[160], name[64];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(raw, sizeof raw, fmt, ap);
    va_end(ap);
    gguf_printable(gguf_str_of(raw), text, sizeof text);
    gguf_printable(what, name, sizeof name);
    if (what.n == 0) {
        return atn_fail(err, code, NULL, "%s: %s", f->name, text);
    }
    return atn_fail(err, code, name, "%s: %s %s: %s", f->name, kind, name, text);
}

const char *gguf_type_name(uint32_t type)
{
    static const char *const names[] = {"u8",   "i8",     "u16",   "i16", "u32", "i32", "f32",
                                        "bool", "string", "array", "u64", "i64", "f64"};
    return type < sizeof names / sizeof *names ? names[type] : "unknown";
}

/* Bytes of a value of fixed size; 0 for strings, arrays and what is no type. */
static size_t type_bytes(uint32_t type)
{
    static const uint8_t bytes[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
    return type < sizeof bytes ? bytes[type] : 0;
}

/* Are n more bytes at hand? If the file has them, more of it is asked for; if not, the file is at fault. */
static atn_status need(gguf_walk *w, uint64_t n, const char *kind, gguf_str what)
{
    if (n <= cursor_left(&w->c)) {
        return ATN_OK;
    }
    uint64_t in_file = w->f->size - w->c.at;
    if (n > in_file) {
        return gguf_fail(w->f, w->err, ATN_FORMAT, kind, what,
                         "needs %" PRIu64 " bytes at %zu, but the file has only %" PRIu64 " left", n, w->c.at, in_file);
    }
    if (n > GGUF_MAX_HEADER - w->c.at) {
        return gguf_fail(w->f, w->err, ATN_FORMAT, kind, what, "the header grows past %d bytes", GGUF_MAX_HEADER);
    }
    w->wanted = w->c.at + n;
    return ATN_IO;
}

/* A length and that many bytes, lo to hi of them. */
static atn_status walk_string(gguf_walk *w, uint64_t lo, uint64_t hi, const char *kind, gguf_str what, gguf_str *out)
{
    ATN_TRY(need(w, 8, kind, what));
    uint64_t n = cursor_u64(&w->c);
    if (n < lo || n > hi) {
        return gguf_fail(w->f, w->err, ATN_FORMAT, kind, what,
                         "length is %" PRIu64 ": %" PRIu64 " to %" PRIu64 " are allowed", n, lo, hi);
    }
    ATN_TRY(need(w, n, kind, what));
    out->n = (size_t)n;
    out->s = cursor_bytes(&w->c, n);
    return ATN_OK;
}

/* The elements of an array; each takes at least one byte, so that the walk ends with the file. */
static atn_status walk_array(gguf_walk *w, gguf_str key, uint32_t *element, uint64_t *n, int depth)
{
    ATN_TRY(need(w, 12, "key", key));
    *element = cursor_u32(&w->c);
    *n = cursor_u64(&w->c);
    if (*element > GGUF_F64) {
        return gguf_fail(w->f, w->err, ATN_FORMAT, "key", key, "array element type is %" PRIu32 ": 0 to %d are known",
                         *element, GGUF_F64);
    }
    size_t each = type_bytes(*element);
    size_t least = each > 0 ? each : *element == GGUF_STRING ? 8 : 12;
    uint64_t left = w->f->size - w->c.at;
    if (*n > left / least) {
        return gguf_fail(w->f, w->err, ATN_FORMAT, "key", key,
                         "array has %" PRIu64 " elements of type %s, but the file has only %" PRIu64 " bytes left", *n,
                         gguf_type_name(*element), left);
    }
    if (each > 0) {
        ATN_TRY(need(w, *n * each, "key", key));
        cursor_skip(&w->c, *n * each);
        return ATN_OK;
    }
    if (*element == GGUF_ARRAY && depth >= GGUF_MAX_NESTING) {
        return gguf_fail(w->f, w->err, ATN_FORMAT, "key", key, "arrays are nested more than %d deep", GGUF_MAX_NESTING);
    }
    for (uint64_t i = 0; i < *n; i++) {
        gguf_str ignored;
        uint32_t inner;
        uint64_t inner_n;
        if (*element == GGUF_STRING) {
            ATN_TRY(walk_string(w, 0, UINT64_MAX, "key", key, &ignored));
        } else {
            ATN_TRY(walk_array(w, key, &inner, &inner_n, depth + 1));
        }
    }
    return ATN_OK;
}

static atn_status walk_kv(gguf_walk *w, size_t i, gguf_kv *kv)
{
    char number[32];
    snprintf(number, sizeof number, "%zu", i);
    ATN_TRY(walk_string(w, 1, UINT16_MAX, "key number", gguf_str_of(number), &kv->key));
    ATN_TRY(need(w, 4, "key", kv->key));
    uint32_t type = cursor_u32(&w->c);
    if (type > GGUF_F64) {
        return gguf_fail(w->f, w->err, ATN_FORMAT, "key", kv->key, "value type is %" PRIu32 ": 0 to %d are known", type,
                         GGUF_F64);
    }
    kv->type = (gguf_type)type;
    kv->n = 1;
    if (type == GGUF_ARRAY) {
        size_t start = w->c.at + 12;
        uint32_t element;
        ATN_TRY(walk_array(w, kv->key, &element, &kv->n, 1));
        kv->element = (gguf_type)element;
        kv->data = w->c.base + start;
    } else if (type == GGUF_STRING) {
        gguf_str text;
        ATN_TRY(walk_string(w, 0, UINT64_MAX, "key", kv->key, &text));
        kv->n = text.n;
        kv->data = (const unsigned char *)text.s;
    } else {
        ATN_TRY(need(w, type_bytes(type), "key", kv->key));
        kv->data = cursor_bytes(&w->c, type_bytes(type));
    }
    kv->bytes = (size_t)(w->c.base + w->c.at - kv->data);
    return ATN_OK;
}

/* Are the sizes of t whole numbers that fit? Sets t->bytes. */
static atn_status check_shape(gguf_walk *w, gguf_tensor *t)
{
    uint64_t weights = 1;
    for (uint32_t d = 0; d < t->n_dims; d++) {
        if (t->ne[d] == 0 || t->ne[d] > INT64_MAX) {
            return gguf_fail(w->f, w->err, ATN_FORMAT, "tensor", t->name,
                             "dimension %u is %" PRIu64 ": 1 to %" PRId64 " are allowed", (unsigned)d, t->ne[d],
                             INT64_MAX);
        }
        if (__builtin_mul_overflow(weights, t->ne[d], &weights) || weights > INT64_MAX) {
            return gguf_fail(w->f, w->err, ATN_FORMAT, "tensor", t->name,
                             "the product of its dimensions exceeds %" PRId64, INT64_MAX);
        }
    }
    if (!atn_dtype_known(t->type)) {
        if (strcmp(atn_dtype_name(t->type), "unknown") == 0) {
            return gguf_fail(w->f, w->err, ATN_FORMAT, "tensor", t->name, "type %" PRIu32 " is not known", t->type);
        }
        return ATN_OK; /* a type that we cannot read: an error only when somebody asks for this tensor */
    }
    atn_dtype type = (atn_dtype)t->type;
    if (t->ne[0] % atn_dtype_block(type) != 0) {
        return gguf_fail(w->f, w->err, ATN_FORMAT, "tensor", t->name,
                         "row length %" PRIu64 " is no multiple of %" PRIu32 ", the block of %s", t->ne[0],
                         atn_dtype_block(type), atn_dtype_name(type));
    }
    size_t row;
    if (!atn_row_bytes(type, t->ne[0], &row) || !size_mul(row, (size_t)(weights / t->ne[0]), &t->bytes)) {
        return gguf_fail(w->f, w->err, ATN_FORMAT, "tensor", t->name, "its size in bytes does not fit 64 bits");
    }
    return ATN_OK;
}

static atn_status walk_tensor(gguf_walk *w, size_t i, gguf_tensor *t)
{
    char number[32];
    snprintf(number, sizeof number, "%zu", i);
    *t = (gguf_tensor){.ne = {1, 1, 1, 1}};
    ATN_TRY(walk_string(w, 1, 63, "tensor number", gguf_str_of(number), &t->name));
    ATN_TRY(need(w, 4, "tensor", t->name));
    t->n_dims = cursor_u32(&w->c);
    if (t->n_dims > 4) {
        return gguf_fail(w->f, w->err, ATN_FORMAT, "tensor", t->name, "has %" PRIu32 " dimensions: 0 to 4 are allowed",
                         t->n_dims);
    }
    ATN_TRY(need(w, 8 * (uint64_t)t->n_dims + 12, "tensor", t->name));
    for (uint32_t d = 0; d < t->n_dims; d++) {
        t->ne[d] = cursor_u64(&w->c);
    }
    t->type = cursor_u32(&w->c);
    t->offset = cursor_u64(&w->c);
    return check_shape(w, t);
}

static atn_status walk_start(gguf_walk *w)
{
    static const gguf_str none = {0};
    gguf_file *f = w->f;
    if (f->size < 24) {
        return gguf_fail(f, w->err, ATN_FORMAT, "", none, "the file has %" PRIu64 " bytes: a GGUF header needs 24",
                         f->size);
    }
    ATN_TRY(need(w, 24, "", none));
    uint32_t magic = cursor_u32(&w->c);
    if (magic != 0x46554747) {
        return gguf_fail(f, w->err, ATN_FORMAT, "", none,
                         "no GGUF file: it begins with 0x%08" PRIx32 ", not 0x46554747", magic);
    }
    uint32_t version = cursor_u32(&w->c);
    if (version != 0 && (version & 0xFFFF) == 0) {
        return gguf_fail(f, w->err, ATN_UNSUPPORTED, "", none,
                         "a big-endian GGUF file: only little-endian ones can be read");
    }
    if (version < 2 || version > 3) {
        return gguf_fail(f, w->err, ATN_UNSUPPORTED, "", none, "GGUF version %" PRIu32 ": 2 and 3 can be read",
                         version);
    }
    uint64_t n_tensors = cursor_u64(&w->c);
    uint64_t n_kvs = cursor_u64(&w->c);
    const uint64_t least_kv = 8 + 1 + 4 + 1, least_tensor = 8 + 1 + 4 + 4 + 8; /* bytes */
    uint64_t left = f->size - 24;
    if (n_kvs > GGUF_MAX_KEYS || n_kvs > left / least_kv) {
        return gguf_fail(f, w->err, ATN_FORMAT, "field", gguf_str_of("n_kv"),
                         "%" PRIu64 " keys: at most %d, and the file has %" PRIu64 " bytes", n_kvs, GGUF_MAX_KEYS,
                         f->size);
    }
    if (n_tensors > GGUF_MAX_TENSORS || n_tensors > left / least_tensor) {
        return gguf_fail(f, w->err, ATN_FORMAT, "field", gguf_str_of("n_tensors"),
                         "%" PRIu64 " tensors: at most %d, and the file has %" PRIu64 " bytes", n_tensors,
                         GGUF_MAX_TENSORS, f->size);
    }
    f->n_kvs = (size_t)n_kvs;
    f->n_tensors = (size_t)n_tensors;
    return ATN_OK;
}

atn_status gguf_walk_header(gguf_walk *w)
{
    w->wanted = 0;
    ATN_TRY(walk_start(w));
    for (size_t i = 0; i < w->f->n_kvs; i++) {
        gguf_kv kv = {0};
        ATN_TRY(walk_kv(w, i, &kv));
        if (w->kvs != NULL) {
            w->kvs[i] = kv;
        }
    }
    for (size_t i = 0; i < w->f->n_tensors; i++) {
        gguf_tensor t;
        ATN_TRY(walk_tensor(w, i, &t));
        if (w->tensors != NULL) {
            w->tensors[i] = t;
        }
    }
    return ATN_OK;
}
