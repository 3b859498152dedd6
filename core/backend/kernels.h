/* The inner loops of naive, compiled twice from one body (kernels_body.h) and chosen when a backend opens.
 *
 * Float inputs, double arithmetic: the product of two floats is exact in double, so a fused and an unfused multiply-add
 * give the same bits, and so do all bodies. A dot has 16 virtual lanes (element i goes to lane i mod 16) and one
 * reduction tree: lanes l and l+8, then +4, +2, +1. Thread: pure. */
#ifndef ATN_KERNELS_H
#define ATN_KERNELS_H

#include <attnd/tensor.h>

typedef struct kernels {
    const char *isa;
    /* out[r * out_stride] = dot(w[n], row r of x), r < n_rows; x_stride in floats. */
    void (*dot_rows)(const float *w, const float *x, size_t x_stride, uint32_t n, uint32_t n_rows, double *out);
    /* s[j] = dot(q[d], k[j][d]) for n keys. */
    void (*scores)(const double *q, const float *const *k, uint32_t n, uint32_t d, double *s);
    /* acc[i] = acc[i] * keep + sum over j ascending of p[j] * v[j][i], i < d. */
    void (*mix)(double *acc, double keep, const float *p, const float *const *v, uint32_t n, uint32_t d);
    /* p[j] = (float)exp(s[j] - m). */
    void (*exp_row)(const double *s, double m, uint32_t n, float *p);
    /* dst[i] = act(a[i]) * (b ? b[i] : 1); dst may be a or b. */
    void (*silu)(float *dst, const float *a, const float *b, uint32_t n);
    void (*gelu_tanh)(float *dst, const float *a, const float *b, uint32_t n);
    /* atn_dequantize, perhaps faster: the same floats. */
    void (*dequantize)(atn_dtype t, const void *src, float *dst, size_t n);
    /* The exact floats of n half floats. */
    void (*f16_row)(const uint16_t *src, float *dst, uint32_t n);
} kernels;

extern const kernels kernels_generic;
extern const kernels kernels_avx2; /* only where cpu_detect says avx2 */

/* core/backend/dequant_avx2.c */
void dequantize_avx2(atn_dtype t, const void *src, float *dst, size_t n);

/* The best body for this CPU. */
const kernels *kernels_pick(void);

#endif
