/* From tensors in a file to weights and vectors in the backend: shapes are checked by name before anything is bound.
 * Thread: the loading thread. */
#ifndef ATN_WEIGHTS_H
#define ATN_WEIGHTS_H

#include <attnd/backend.h>
#include "core/load/gguf.h"

/* Binds tensor `name`, which must be [n_in, n_out] in GGUF order. ATN_FORMAT (missing; wrong shape: both shapes),
 * ATN_UNSUPPORTED (type, by name), ATN_IO, ATN_NOMEM. */
atn_status weights_matrix(const gguf *g, atn_backend *be, const char *name, uint32_t n_in, uint32_t n_out,
                          atn_weight **out, atn_err *err) ATN_MUST_CHECK;
/* Reads tensor `name` (any readable type) of n values as float32. dst[n]. */
atn_status weights_vector(const gguf *g, const char *name, uint32_t n, float *dst, atn_err *err) ATN_MUST_CHECK;

#endif
