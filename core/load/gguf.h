/* GGUF files, versions 2 and 3 (ggml-org/ggml docs/gguf.md): metadata and tensor table, proven against the file's length.
 *
 * gguf_open reads the header (not the tensor data) into memory of its own and checks all of it before anything is
 * allocated for it: every count, string, offset and extent. Split files (-00001-of-00003.gguf) are opened together, by the
 * name of the first. Metadata strings point into that memory and die with gguf_close. Nothing is mapped: a file that
 * shrinks later gives ATN_IO, never SIGBUS.
 * Thread: one owner. */
#ifndef ATN_GGUF_H
#define ATN_GGUF_H

#include <attnd/status.h>
#include <attnd/tensor.h>

typedef struct gguf gguf;

/* Metadata value types, numbered as in the file. */
typedef enum gguf_type {
    GGUF_U8,
    GGUF_I8,
    GGUF_U16,
    GGUF_I16,
    GGUF_U32,
    GGUF_I32,
    GGUF_F32,
    GGUF_BOOL,
    GGUF_STRING,
    GGUF_ARRAY,
    GGUF_U64,
    GGUF_I64,
    GGUF_F64,
} gguf_type;

typedef struct gguf_str {
    const char *s; /* not NUL-terminated */
    size_t n;
} gguf_str;

/* s for an error text: cut to fit, every byte that is no printable ASCII as '?'. Returns out. */
const char *gguf_printable(gguf_str s, char *out, size_t size);

typedef struct gguf_tensor {
    gguf_str name;
    uint32_t n_dims;
    uint64_t ne[4];  /* ne[0] is the row length, the fastest; unused ones are 1 */
    uint32_t type;   /* GGUF id; atn_dtype_known() says whether it can be read */
    uint64_t offset; /* absolute, in its file */
    size_t bytes;    /* 0 when the type is not known */
    uint32_t file;   /* which split */
} gguf_tensor;

/* Errors: ATN_IO, ATN_FORMAT (param: the key or tensor; msg: what and the allowed range), ATN_UNSUPPORTED (another version
 * or byte order), ATN_NOMEM. msg begins with the file's name. */
atn_status gguf_open(const char *path, gguf **out, atn_err *err) ATN_MUST_CHECK;
/* The same from memory (fuzzing, an embedded model): bytes must outlive it. */
atn_status gguf_open_memory(const void *bytes, size_t n, gguf **out, atn_err *err) ATN_MUST_CHECK;
void gguf_close(gguf *g);

size_t gguf_file_bytes(const gguf *g);
size_t gguf_n_tensors(const gguf *g);
const gguf_tensor *gguf_tensor_at(const gguf *g, size_t i);
const gguf_tensor *gguf_find_tensor(const gguf *g, const char *name); /* NULL: absent */
/* Copies n bytes of a tensor's data from byte `from` on. ATN_IO when the file no longer has them. Thread: any. */
atn_status gguf_read(const gguf *g, const gguf_tensor *t, size_t from, void *dst, size_t n,
                     atn_err *err) ATN_MUST_CHECK;

/* Typed getters: absent gives ATN_NOT_FOUND (err untouched), a wrong type or a value outside [lo, hi] ATN_FORMAT naming the key.
 * Integers of any width and sign are accepted where the value fits. */
bool gguf_has(const gguf *g, const char *key);
atn_status gguf_u32(const gguf *g, const char *key, uint32_t lo, uint32_t hi, uint32_t *out,
                    atn_err *err) ATN_MUST_CHECK;
atn_status gguf_f32(const gguf *g, const char *key, float lo, float hi, float *out, atn_err *err) ATN_MUST_CHECK;
atn_status gguf_bool(const gguf *g, const char *key, bool *out, atn_err *err) ATN_MUST_CHECK;
atn_status gguf_string(const gguf *g, const char *key, gguf_str *out, atn_err *err) ATN_MUST_CHECK;
/* Arrays: n and element type; then elements one by one. ATN_FORMAT when the element type is not `type`. */
atn_status gguf_array(const gguf *g, const char *key, gguf_type type, size_t *n, atn_err *err) ATN_MUST_CHECK;
/* malloc'ed copies, the caller frees; ints are widened to i32 (from any integer type whose values fit), floats to f32.
 * Strings point into the file. */
atn_status gguf_array_strings(const gguf *g, const char *key, gguf_str **out, size_t *n, atn_err *err) ATN_MUST_CHECK;
atn_status gguf_array_i32(const gguf *g, const char *key, int32_t **out, size_t *n, atn_err *err) ATN_MUST_CHECK;
atn_status gguf_array_f32(const gguf *g, const char *key, float **out, size_t *n, atn_err *err) ATN_MUST_CHECK;

#endif
