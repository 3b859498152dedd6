/* The one body of the kernels in kernels.h: included by one thin file per instruction set, which defines KERNELS_TABLE, KERNELS_ISA
 * and KERNELS_DEQUANTIZE. Written in the vector types of gcc and clang (4 doubles, 4 floats), which every target lowers to what it has.
 * On bits: see kernels.h. */
#include "core/backend/kernels.h"
#include "core/backend/mathfn_inline.h"
#include "core/tensor/half.h"

#include <string.h>

#if defined(__FMA__) && defined(__F16C__)
#include <immintrin.h>
#endif

#pragma GCC diagnostic ignored "-Wpsabi" /* only static inline functions return vectors */

typedef double vd __attribute__((vector_size(32)));
typedef float vf __attribute__((vector_size(16)));

static inline vd load4(const float *p)
{
    vf f;
    memcpy(&f, p, sizeof f);
    return __builtin_convertvector(f, vd);
}

#if defined(__FMA__)
/* a * b + c: the products here are exact, so fusing changes nothing. */
#define MAC(a, b, c) ((vd)_mm256_fmadd_pd((__m256d)(a), (__m256d)(b), (__m256d)(c)))
#else
#define MAC(a, b, c) ((a) * (b) + (c))
#endif

static inline vd load4d(const double *p)
{
    vd v;
    memcpy(&v, p, sizeof v);
    return v;
}

/* Lanes 0..15 in four vectors: l and l+8, then +4, +2, +1. */
static inline double tree16(const vd a[4])
{
    vd s = (a[0] + a[2]) + (a[1] + a[3]);
    return (s[0] + s[2]) + (s[1] + s[3]);
}

/* The last n % 16 elements, padded with zeros: adding +0 to a lane changes no bit, as no lane is ever -0. */
static inline void pad16(const float *src, uint32_t n, float *dst)
{
    memset(dst, 0, 16 * sizeof *dst);
    memcpy(dst, src, n * sizeof *dst);
}

static inline double dot1(const float *w, const float *x, uint32_t n)
{
    vd a0 = {0}, a1 = {0}, a2 = {0}, a3 = {0};
    uint32_t i = 0;
    for (; i + 16 <= n; i += 16) {
        a0 = MAC(load4(w + i), load4(x + i), a0);
        a1 = MAC(load4(w + i + 4), load4(x + i + 4), a1);
        a2 = MAC(load4(w + i + 8), load4(x + i + 8), a2);
        a3 = MAC(load4(w + i + 12), load4(x + i + 12), a3);
    }
    if (i < n) {
        float wt[16], xt[16];
        pad16(w + i, n - i, wt);
        pad16(x + i, n - i, xt);
        a0 = MAC(load4(wt), load4(xt), a0);
        a1 = MAC(load4(wt + 4), load4(xt + 4), a1);
        a2 = MAC(load4(wt + 8), load4(xt + 8), a2);
        a3 = MAC(load4(wt + 12), load4(xt + 12), a3);
    }
    return tree16((const vd[]){a0, a1, a2, a3});
}

/* dot1 of two rows at once: the same chains, one load of w. */
static inline void dot2(const float *w, const float *x, const float *y, uint32_t n, double *out)
{
    vd a0 = {0}, a1 = {0}, a2 = {0}, a3 = {0}, b0 = {0}, b1 = {0}, b2 = {0}, b3 = {0};
    for (uint32_t i = 0; i + 16 <= n; i += 16) {
        vd w0 = load4(w + i), w1 = load4(w + i + 4), w2 = load4(w + i + 8), w3 = load4(w + i + 12);
        a0 = MAC(w0, load4(x + i), a0);
        b0 = MAC(w0, load4(y + i), b0);
        a1 = MAC(w1, load4(x + i + 4), a1);
        b1 = MAC(w1, load4(y + i + 4), b1);
        a2 = MAC(w2, load4(x + i + 8), a2);
        b2 = MAC(w2, load4(y + i + 8), b2);
        a3 = MAC(w3, load4(x + i + 12), a3);
        b3 = MAC(w3, load4(y + i + 12), b3);
    }
    out[0] = tree16((const vd[]){a0, a1, a2, a3});
    out[1] = tree16((const vd[]){b0, b1, b2, b3});
}

static void dot_rows(const float *w, const float *x, size_t x_stride, uint32_t n, uint32_t n_rows, double *out)
{
    uint32_t r = 0;
    if (n % 16 == 0) {
        for (; r + 2 <= n_rows; r += 2) {
            dot2(w, x + r * x_stride, x + (r + 1) * x_stride, n, out + r);
        }
    }
    for (; r < n_rows; r++) {
        out[r] = dot1(w, x + r * x_stride, n);
    }
}

/* Two keys at once against a query that is already double: 16 lanes each. */
static inline void score2(const double *q, const float *k0, const float *k1, uint32_t d, double *s)
{
    vd a0 = {0}, a1 = {0}, a2 = {0}, a3 = {0}, b0 = {0}, b1 = {0}, b2 = {0}, b3 = {0};
    for (uint32_t i = 0; i + 16 <= d; i += 16) {
        vd q0 = load4d(q + i), q1 = load4d(q + i + 4), q2 = load4d(q + i + 8), q3 = load4d(q + i + 12);
        a0 = MAC(q0, load4(k0 + i), a0);
        b0 = MAC(q0, load4(k1 + i), b0);
        a1 = MAC(q1, load4(k0 + i + 4), a1);
        b1 = MAC(q1, load4(k1 + i + 4), b1);
        a2 = MAC(q2, load4(k0 + i + 8), a2);
        b2 = MAC(q2, load4(k1 + i + 8), b2);
        a3 = MAC(q3, load4(k0 + i + 12), a3);
        b3 = MAC(q3, load4(k1 + i + 12), b3);
    }
    s[0] = tree16((const vd[]){a0, a1, a2, a3});
    s[1] = tree16((const vd[]){b0, b1, b2, b3});
}

static inline double score1(const double *q, const float *k, uint32_t d)
{
    double lane[16] = {0};
    for (uint32_t i = 0; i < d; i++) {
        lane[i % 16] += q[i] * (double)k[i];
    }
    vd a[4];
    memcpy(a, lane, sizeof lane);
    return tree16(a);
}

static void scores(const double *q, const float *const *k, uint32_t n, uint32_t d, double *s)
{
    uint32_t j = 0;
    if (d % 16 == 0) {
        for (; j + 2 <= n; j += 2) {
            score2(q, k[j], k[j + 1], d, s + j);
        }
    }
    for (; j < n; j++) {
        s[j] = score1(q, k[j], d);
    }
}

static void mix(double *acc, double keep, const float *p, const float *const *v, uint32_t n, uint32_t d)
{
    uint32_t i = 0;
    vd kept = {keep, keep, keep, keep};
    for (; i + 16 <= d; i += 16) {
        vd a0 = load4d(acc + i) * kept, a1 = load4d(acc + i + 4) * kept;
        vd a2 = load4d(acc + i + 8) * kept, a3 = load4d(acc + i + 12) * kept;
        for (uint32_t j = 0; j < n; j++) {
            double pj = (double)p[j];
            vd pv = {pj, pj, pj, pj};
            a0 = MAC(pv, load4(v[j] + i), a0);
            a1 = MAC(pv, load4(v[j] + i + 4), a1);
            a2 = MAC(pv, load4(v[j] + i + 8), a2);
            a3 = MAC(pv, load4(v[j] + i + 12), a3);
        }
        memcpy(acc + i, &a0, sizeof a0);
        memcpy(acc + i + 4, &a1, sizeof a1);
        memcpy(acc + i + 8, &a2, sizeof a2);
        memcpy(acc + i + 12, &a3, sizeof a3);
    }
    for (; i < d; i++) {
        double a = acc[i] * keep;
        for (uint32_t j = 0; j < n; j++) {
            a += (double)p[j] * (double)v[j][i];
        }
        acc[i] = a;
    }
}

static void exp_row(const double *s, double m, uint32_t n, float *p)
{
    for (uint32_t j = 0; j < n; j++) {
        p[j] = (float)mathfn_exp_core(s[j] - m);
    }
}

/* Activations go through a small array of their own, so that dst may be a or b and the loops are vectorised all the same. */
enum { ACT_RUN = 64 };

static void act_store(float *dst, const double *y, const float *b, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        dst[i] = (float)(b ? y[i] * (double)b[i] : y[i]);
    }
}

static void silu(float *dst, const float *a, const float *b, uint32_t n)
{
    for (uint32_t at = 0; at < n; at += ACT_RUN) {
        double y[ACT_RUN];
        uint32_t m = n - at < ACT_RUN ? n - at : ACT_RUN;
        for (uint32_t i = 0; i < m; i++) {
            double x = (double)a[at + i];
            y[i] = x * mathfn_sigmoid_core(x);
        }
        act_store(dst + at, y, b ? b + at : NULL, m);
    }
}

/* x/2 (1 + tanh(u)) = x sigmoid(2u), u = sqrt(2/pi) (x + 0.044715 x^3): no cancellation for negative x. */
static void gelu_tanh(float *dst, const float *a, const float *b, uint32_t n)
{
    for (uint32_t at = 0; at < n; at += ACT_RUN) {
        double y[ACT_RUN];
        uint32_t m = n - at < ACT_RUN ? n - at : ACT_RUN;
        for (uint32_t i = 0; i < m; i++) {
            double x = (double)a[at + i];
            y[i] = x * mathfn_sigmoid_core(2.0 * 0.79788456080286535588 * (x + 0.044715 * x * x * x));
        }
        act_store(dst + at, y, b ? b + at : NULL, m);
    }
}

static void f16_row(const uint16_t *src, float *dst, uint32_t n)
{
    uint32_t i = 0;
#if defined(__F16C__)
    for (; i + 8 <= n; i += 8) {
        __m128i h;
        memcpy(&h, src + i, sizeof h);
        _mm256_storeu_ps(dst + i, _mm256_cvtph_ps(h));
    }
#endif
    for (; i < n; i++) {
        dst[i] = half_f16_to_f32(src[i]);
    }
}

const kernels KERNELS_TABLE = {KERNELS_ISA, dot_rows,           scores, mix, exp_row, silu,
                               gelu_tanh,   KERNELS_DEQUANTIZE, f16_row};
