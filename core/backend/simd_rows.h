/* simd: the row-wise ops that are worth it (norm, RoPE, activation, KV write of half floats): inner kernels, compiled from one body
 * (simd_rows_body.h) by one thin file per instruction set, all with the same bits. What is not here (add, softcap, gather, embed)
 * costs too little to have a second form. Thread: pure. */
#ifndef ATN_SIMD_ROWS_H
#define ATN_SIMD_ROWS_H

#include "core/backend/backend_impl.h"

typedef struct simd_row_kernels {
    const char *isa;
    /* dst = (x - mean) / sqrt(mean of squares + eps) * w + b over n values, only `layer` has a mean; b NULL: none; dst may be x. */
    void (*norm)(float *dst, const float *x, const float *w, const float *b, bool layer, float eps, uint32_t n);
    /* Rotates the first n_rot values of x by the row `table` of cos and sin. */
    void (*rope)(float *x, const float *table, atn_rope_style style, uint32_t n_rot);
    /* dst = act(a) * b, b NULL: act(a); dst may be a or b. */
    void (*activate)(atn_act_kind kind, float *dst, const float *a, const float *b, uint32_t n);
    /* The bits of atn_f32_to_f16. */
    void (*narrow)(uint16_t *dst, const float *src, uint32_t n);
    /* y = exp(x), tanh(x), as the kernels compute them: for the tests. */
    void (*exp)(float *y, const float *x, uint32_t n);
    void (*tanh)(float *y, const float *x, uint32_t n);
} simd_row_kernels;

extern const simd_row_kernels simd_rows_generic;
extern const simd_row_kernels simd_rows_avx2; /* only where cpu_detect says avx2 */

/* The ops. They find their kernels in the simd_floats at the start of be->state. */
void simd_norm(atn_backend *be, const atn_norm_args *a);
void simd_rope(atn_backend *be, const atn_rope_args *a);
void simd_activate(atn_backend *be, atn_act_kind kind, atn_mat dst, atn_mat a, const atn_mat *b, uint32_t n);
void simd_kv_write(atn_backend *be, const atn_kv_write_args *a);

#endif
