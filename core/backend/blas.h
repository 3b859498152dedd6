/* The openblas backend's parts that tests reach: opening it on another gemm, to plant one that miscomputes. */
#ifndef ATN_BLAS_H
#define ATN_BLAS_H

#include "core/backend/backend_impl.h"

/* y[n, n_out] = x[n, n_in] w[n_out, n_in]ᵀ, row-major; the ld are floats from row to row. */
typedef void (*blas_gemm_fn)(uint32_t n, uint32_t n_out, uint32_t n_in, const float *x, size_t ldx, const float *w,
                             size_t ldw, float *y, size_t ldy);

/* The body of blas_ops.open: ATN_UNSUPPORTED when gemm differs from double arithmetic on any of the checked shapes. */
atn_status blas_open_gemm(atn_backend *be, blas_gemm_fn gemm, atn_err *err) ATN_MUST_CHECK;

/* out[r] = dot(w[n], row r of x); core/backend/dot_avx2.c, only where cpu_detect() found AVX2 and FMA. */
void blas_dot_avx2(const float *w, const float *x, size_t stride, uint32_t n, uint32_t n_rows, float *out);

#endif
