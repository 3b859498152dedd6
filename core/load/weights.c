/* Tensors to weights: found by name, shape and type checked, read once, handed to the backend. */
#include "core/load/weights.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

/* "[640, 1024]" of the dimensions in use. */
static void shape_text(const gguf_tensor *t, char *out, size_t size)
{
    size_t at = 0;
    for (uint32_t d = 0; d < t->n_dims; d++) {
        int n = snprintf(out + at, size - at, "%s%" PRIu64, d == 0 ? "[" : ", ", t->ne[d]);
        at += n > 0 && (size_t)n < size - at ? (size_t)n : 0;
    }
    snprintf(out + at, size - at, t->n_dims == 0 ? "[]" : "]");
}

/* Finds a tensor of n_in x n_out weights in a type that can be read. */
static atn_status find(const gguf *g, const char *name, uint32_t n_in, uint32_t n_out, const gguf_tensor **out,
                       atn_err *err)
{
    const gguf_tensor *t = gguf_find_tensor(g, name);
    if (t == NULL) {
        return atn_fail(err, ATN_FORMAT, name, "tensor %s is missing from the file", name);
    }
    if (t->ne[0] != n_in || t->ne[1] != n_out || t->ne[2] != 1 || t->ne[3] != 1) {
        char have[100];
        shape_text(t, have, sizeof have);
        if (n_out == 1) {
            return atn_fail(err, ATN_FORMAT, name, "tensor %s has shape %s in the file: the model needs [%" PRIu32 "]",
                            name, have, n_in);
        }
        return atn_fail(err, ATN_FORMAT, name,
                        "tensor %s has shape %s in the file: the model needs [%" PRIu32 ", %" PRIu32 "]", name, have,
                        n_in, n_out);
    }
    if (!atn_dtype_known(t->type)) {
        return atn_fail(err, ATN_UNSUPPORTED, name, "tensor %s has type %s, which cannot be read", name,
                        atn_dtype_name(t->type));
    }
    *out = t;
    return ATN_OK;
}

/* *out: malloc'ed bytes of the whole tensor. */
static atn_status read_all(const gguf *g, const gguf_tensor *t, const char *name, void **out, atn_err *err)
{
    void *bytes = malloc(t->bytes);
    if (bytes == NULL) {
        return atn_fail(err, ATN_NOMEM, name, "no memory for the %zu bytes of tensor %s", t->bytes, name);
    }
    atn_status s = gguf_read(g, t, 0, bytes, t->bytes, err);
    if (s != ATN_OK) {
        free(bytes);
        return s;
    }
    *out = bytes;
    return ATN_OK;
}

atn_status weights_matrix(const gguf *g, atn_backend *be, const char *name, uint32_t n_in, uint32_t n_out,
                          atn_weight **out, atn_err *err)
{
    const gguf_tensor *t;
    void *rows = NULL;
    *out = NULL;
    ATN_TRY(find(g, name, n_in, n_out, &t, err));
    ATN_TRY(read_all(g, t, name, &rows, err));
    atn_status s = atn_weight_bind(be, (atn_dtype)t->type, rows, n_in, n_out, out, err);
    free(rows);
    return s;
}

atn_status weights_vector(const gguf *g, const char *name, uint32_t n, float *dst, atn_err *err)
{
    const gguf_tensor *t;
    void *bytes = NULL;
    ATN_TRY(find(g, name, n, 1, &t, err));
    ATN_TRY(read_all(g, t, name, &bytes, err));
    atn_dequantize((atn_dtype)t->type, bytes, dst, n);
    free(bytes);
    return ATN_OK;
}
