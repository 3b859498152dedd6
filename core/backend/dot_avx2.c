/* Float dots with AVX2 and FMA for the small batches of openblas, where a sgemm call would not pay: one weight row that lies
 * in L1 against up to four input rows at a time. Entered only where cpu_detect() found AVX2 and FMA. */
#include "core/backend/blas.h"

#if defined(__x86_64__)
#include <immintrin.h>

static inline float sum8(__m256 v)
{
    __m128 s = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    s = _mm_add_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_add_ss(s, _mm_movehdup_ps(s)));
}

static float dot_row(const float *w, const float *x, uint32_t n)
{
    __m256 a0 = _mm256_setzero_ps(), a1 = a0, a2 = a0, a3 = a0;
    uint32_t i = 0;
    for (; i + 32 <= n; i += 32) {
        a0 = _mm256_fmadd_ps(_mm256_loadu_ps(w + i), _mm256_loadu_ps(x + i), a0);
        a1 = _mm256_fmadd_ps(_mm256_loadu_ps(w + i + 8), _mm256_loadu_ps(x + i + 8), a1);
        a2 = _mm256_fmadd_ps(_mm256_loadu_ps(w + i + 16), _mm256_loadu_ps(x + i + 16), a2);
        a3 = _mm256_fmadd_ps(_mm256_loadu_ps(w + i + 24), _mm256_loadu_ps(x + i + 24), a3);
    }
    float sum = sum8(_mm256_add_ps(_mm256_add_ps(a0, a1), _mm256_add_ps(a2, a3)));
    for (; i < n; i++) {
        sum += w[i] * x[i];
    }
    return sum;
}

static void dot_four(const float *w, const float *x, size_t stride, uint32_t n, float *out)
{
    const float *x1 = x + stride, *x2 = x1 + stride, *x3 = x2 + stride;
    __m256 a0 = _mm256_setzero_ps(), a1 = a0, a2 = a0, a3 = a0, b0 = a0, b1 = a0, b2 = a0, b3 = a0;
    uint32_t i = 0;
    for (; i + 16 <= n; i += 16) {
        __m256 u = _mm256_loadu_ps(w + i), v = _mm256_loadu_ps(w + i + 8);
        a0 = _mm256_fmadd_ps(u, _mm256_loadu_ps(x + i), a0);
        a1 = _mm256_fmadd_ps(u, _mm256_loadu_ps(x1 + i), a1);
        a2 = _mm256_fmadd_ps(u, _mm256_loadu_ps(x2 + i), a2);
        a3 = _mm256_fmadd_ps(u, _mm256_loadu_ps(x3 + i), a3);
        b0 = _mm256_fmadd_ps(v, _mm256_loadu_ps(x + i + 8), b0);
        b1 = _mm256_fmadd_ps(v, _mm256_loadu_ps(x1 + i + 8), b1);
        b2 = _mm256_fmadd_ps(v, _mm256_loadu_ps(x2 + i + 8), b2);
        b3 = _mm256_fmadd_ps(v, _mm256_loadu_ps(x3 + i + 8), b3);
    }
    out[0] = sum8(_mm256_add_ps(a0, b0));
    out[1] = sum8(_mm256_add_ps(a1, b1));
    out[2] = sum8(_mm256_add_ps(a2, b2));
    out[3] = sum8(_mm256_add_ps(a3, b3));
    for (; i < n; i++) {
        out[0] += w[i] * x[i];
        out[1] += w[i] * x1[i];
        out[2] += w[i] * x2[i];
        out[3] += w[i] * x3[i];
    }
}

void blas_dot_avx2(const float *w, const float *x, size_t stride, uint32_t n, uint32_t n_rows, float *out)
{
    uint32_t r = 0;
    for (; r + 4 <= n_rows; r += 4) {
        dot_four(w, x + r * stride, stride, n, out + r);
    }
    for (; r < n_rows; r++) {
        out[r] = dot_row(w, x + r * stride, n);
    }
}
#endif
