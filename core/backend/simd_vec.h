/* Eight floats at a time, for the bodies of the simd backend: what a file compiled for AVX2 does in one instruction, one for
 * any CPU does lane by lane, with the same bits in every lane (a NaN's payload aside).
 *
 * Written in the vector types of gcc and clang; only fused multiply-adds, maxima and half floats name an instruction. A
 * multiply-add is fused only where v_fma says so. Included by bodies alone: each thin file compiles its own copy.
 * Comparisons yield lanes of all ones or all zeros. Thread: pure. */
#ifndef ATN_SIMD_VEC_H
#define ATN_SIMD_VEC_H

#include "core/tensor/half.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

#if defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)
#define SIMD_AVX2 1
#include <immintrin.h>
#else
#define SIMD_AVX2 0
#endif

#pragma GCC diagnostic ignored "-Wpsabi" /* only inlined functions take and return vectors */

#define SIMD_INLINE static inline __attribute__((always_inline))

enum { VEC = 8 };
typedef float vec __attribute__((vector_size(32)));
typedef int32_t ivec __attribute__((vector_size(32)));
typedef uint32_t uvec __attribute__((vector_size(32)));

SIMD_INLINE vec v_load(const float *p)
{
    vec v;
    memcpy(&v, p, sizeof v);
    return v;
}

SIMD_INLINE void v_store(float *p, vec v)
{
    memcpy(p, &v, sizeof v);
}

SIMD_INLINE vec v_set1(float x)
{
    return (vec){x, x, x, x, x, x, x, x};
}

SIMD_INLINE vec v_select(ivec mask, vec yes, vec no)
{
    return (vec)((mask & (ivec)yes) | (~mask & (ivec)no));
}

#if SIMD_AVX2
SIMD_INLINE vec v_fma(vec a, vec b, vec c)
{
    return (vec)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
}

/* a > b ? a : b, and so b where either is NaN. */
SIMD_INLINE vec v_max(vec a, vec b)
{
    return (vec)_mm256_max_ps((__m256)a, (__m256)b);
}

SIMD_INLINE vec v_load_f16(const uint16_t *p)
{
    return (vec)_mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)p));
}

SIMD_INLINE void v_store_f16(uint16_t *p, vec v)
{
    _mm_storeu_si128((__m128i *)(void *)p, _mm256_cvtps_ph((__m256)v, _MM_FROUND_TO_NEAREST_INT));
}
#else
SIMD_INLINE vec v_fma(vec a, vec b, vec c)
{
    vec r;
    for (int i = 0; i < VEC; i++) {
        r[i] = fmaf(a[i], b[i], c[i]);
    }
    return r;
}

SIMD_INLINE vec v_max(vec a, vec b)
{
    return v_select((ivec)(a > b), a, b);
}

SIMD_INLINE vec v_load_f16(const uint16_t *p)
{
    vec r;
    for (int i = 0; i < VEC; i++) {
        r[i] = half_f16_to_f32(p[i]);
    }
    return r;
}

SIMD_INLINE void v_store_f16(uint16_t *p, vec v)
{
    for (int i = 0; i < VEC; i++) {
        p[i] = half_f32_to_f16(v[i]);
    }
}
#endif

/* n < VEC floats, then copies of `rest`. */
SIMD_INLINE vec v_load_part(const float *p, uint32_t n, float rest)
{
    float room[VEC];
    for (uint32_t i = 0; i < VEC; i++) {
        room[i] = i < n ? p[i] : rest;
    }
    return v_load(room);
}

SIMD_INLINE void v_store_part(float *p, vec v, uint32_t n)
{
    float room[VEC];
    v_store(room, v);
    memcpy(p, room, n * sizeof *p);
}

/* The end of the one reduction tree: 16 lanes were joined to eight (l and l+8); then l and l+4, +2, +1. */
SIMD_INLINE float v_tree(vec v)
{
    float a[4];
    for (int i = 0; i < 4; i++) {
        a[i] = v[i] + v[i + 4];
    }
    return (a[0] + a[2]) + (a[1] + a[3]);
}

/* The largest lane; no lane may be NaN. */
SIMD_INLINE float v_largest(vec v)
{
    vec w = __builtin_shufflevector(v, v, 4, 5, 6, 7, 0, 1, 2, 3);
    w = v_max(v, w);
    w = v_max(w, __builtin_shufflevector(w, w, 2, 3, 0, 1, 6, 7, 4, 5));
    w = v_max(w, __builtin_shufflevector(w, w, 1, 0, 3, 2, 5, 4, 7, 6));
    return w[0];
}

/* exp(x), within 1 ulp (tests/unit/backend/test_simd_math.c): 2^n * p(x - n ln 2), |x - n ln 2| <= ln2/2, p of degree 6. Below
 * -87.33, where results leave the normal floats, 0; above the logarithm of the largest float, infinity; NaN stays NaN.
 * exp(0) = 1. */
SIMD_INLINE vec v_exp(vec x)
{
    const vec magic = v_set1(0x1.8p23f); /* the sum's low bits are the nearest integer */
    vec shifted = v_fma(x, v_set1(0x1.715476p+0f), magic);
    vec n = shifted - magic;
    vec r = v_fma(n, v_set1(-0x1.62e4p-1f), x);
    r = v_fma(n, v_set1(-0x1.7f7d1cp-20f), r);
    vec y = v_fma(v_set1(0x1.6a23cep-10f), r, v_set1(0x1.123a2p-7f));
    y = v_fma(y, r, v_set1(0x1.5558f2p-5f));
    y = v_fma(y, r, v_set1(0x1.555492p-3f));
    y = v_fma(y, r, v_set1(0x1.fffffcp-2f));
    y = v_fma(y, r, v_set1(1.0f));
    y = v_fma(y, r, v_set1(1.0f));
    y = (vec)((uvec)y + ((uvec)shifted << 23));
    y = v_select((ivec)(x > v_set1(0x1.62e42ep+6f)), v_set1(INFINITY), y);
    y = (vec)((ivec)y & ~(ivec)(x < v_set1(-87.33f)));
    return v_select((ivec)(x == x), y, x);
}

/* tanh(x): an odd polynomial of degree 13 below 0.625, 1 - 2/(exp(2|x|) + 1) from there on. Error: test_simd_math.c. */
SIMD_INLINE vec v_tanh(vec x)
{
    const ivec sign = (ivec)v_set1(-0.0f);
    vec a = (vec)((ivec)x & ~sign), z = a * a;
    vec far = v_set1(1.0f) - v_set1(2.0f) / (v_exp(a + a) + v_set1(1.0f));
    vec p = v_fma(v_set1(0x1.18e1cep-9f), z, v_set1(-0x1.0bf4f8p-7f));
    p = v_fma(p, z, v_set1(0x1.638b58p-6f));
    p = v_fma(p, z, v_set1(-0x1.b9ee9p-5f));
    p = v_fma(p, z, v_set1(0x1.111066p-3f));
    p = v_fma(p, z, v_set1(-0x1.555554p-2f));
    vec near = v_fma(a * z, p, a);
    vec t = v_select((ivec)(a < v_set1(0.625f)), near, far);
    return (vec)((ivec)t | ((ivec)x & sign));
}

#endif
