/* Dequantisation of the commonest types with AVX2 and F16C: the same operations as core/tensor/dequant*.c in the same order,
 * hence the same floats. Every other type goes to atn_dequantize. Entered only where cpu_detect() found AVX2. */
#include "core/backend/kernels.h"

#if defined(__x86_64__)
#include "core/tensor/dequant.h"

#include <immintrin.h>

/* dst[8] = scale * q[8], the bytes signed or unsigned. */
static inline void store_signed(float *dst, __m128i q8, __m256 scale)
{
    _mm256_storeu_ps(dst, _mm256_mul_ps(scale, _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(q8))));
}

static inline void store_signed16(float *dst, __m128i q16, __m256 scale)
{
    store_signed(dst, q16, scale);
    store_signed(dst + 8, _mm_srli_si128(q16, 8), scale);
}

static inline void store_minus16(float *dst, __m128i q16, __m256 scale, __m256 min)
{
    __m256 lo = _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(q16));
    __m256 hi = _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_srli_si128(q16, 8)));
    _mm256_storeu_ps(dst, _mm256_sub_ps(_mm256_mul_ps(scale, lo), min));
    _mm256_storeu_ps(dst + 8, _mm256_sub_ps(_mm256_mul_ps(scale, hi), min));
}

static inline __m128i load16(const unsigned char *p)
{
    return _mm_loadu_si128((const __m128i *)(const void *)p);
}

static inline __m256i load32(const unsigned char *p)
{
    return _mm256_loadu_si256((const __m256i *)(const void *)p);
}

static inline float f16_at(const unsigned char *p)
{
    uint16_t h;
    memcpy(&h, p, 2);
    return _cvtsh_ss(h);
}

static void q8_0(const unsigned char *src, float *dst, size_t n_blocks)
{
    for (size_t b = 0; b < n_blocks; b++, src += 34, dst += 32) {
        __m256 d = _mm256_set1_ps(f16_at(src));
        store_signed16(dst, load16(src + 2), d);
        store_signed16(dst + 16, load16(src + 18), d);
    }
}

/* A weight is its nibble where bit i of `high` is set and nibble - 16 where not: as a signed byte, nibble | 0xF0. */
static void q5_0(const unsigned char *src, float *dst, size_t n_blocks)
{
    const __m256i spread = _mm256_set_epi64x(0x0303030303030303, 0x0202020202020202, 0x0101010101010101, 0);
    const __m256i bit = _mm256_set1_epi64x((long long)0x8040201008040201u);
    for (size_t b = 0; b < n_blocks; b++, src += 22, dst += 32) {
        __m256 d = _mm256_set1_ps(f16_at(src));
        int high;
        memcpy(&high, src + 2, 4);
        __m256i picked = _mm256_and_si256(_mm256_shuffle_epi8(_mm256_set1_epi32(high), spread), bit);
        __m256i minus =
            _mm256_and_si256(_mm256_cmpeq_epi8(picked, _mm256_setzero_si256()), _mm256_set1_epi8((char)0xF0));
        __m128i q = load16(src + 6), mask = _mm_set1_epi8(15);
        __m128i lo = _mm_and_si128(q, mask), hi = _mm_and_si128(_mm_srli_epi16(q, 4), mask);
        store_signed16(dst, _mm_or_si128(lo, _mm256_castsi256_si128(minus)), d);
        store_signed16(dst + 16, _mm_or_si128(hi, _mm256_extracti128_si256(minus, 1)), d);
    }
}

static void q4_k(const unsigned char *src, float *dst, size_t n_blocks)
{
    const __m128i mask = _mm_set1_epi8(15);
    for (size_t b = 0; b < n_blocks; b++, src += 144) {
        float d = f16_at(src), dmin = f16_at(src + 2);
        const unsigned char *s = src + 4, *q = src + 16;
        for (int run = 0; run < 8; run++, dst += 32) { /* two runs of 32 share their bytes */
            int scale = run < 4 ? s[run] & 63 : (s[run + 4] & 15) | (s[run - 4] >> 2 & 48);
            int min = run < 4 ? s[run + 4] & 63 : s[run + 4] >> 4 | (s[run] >> 2 & 48);
            __m256 dl = _mm256_set1_ps(d * (float)scale), ml = _mm256_set1_ps(dmin * (float)min);
            const unsigned char *bytes = q + 32 * (run / 2);
            int shift = 4 * (run % 2);
            __m128i lo = _mm_and_si128(_mm_srli_epi16(load16(bytes), shift), mask);
            __m128i hi = _mm_and_si128(_mm_srli_epi16(load16(bytes + 16), shift), mask);
            store_minus16(dst, lo, dl, ml);
            store_minus16(dst + 16, hi, dl, ml);
        }
    }
}

static void q6_k(const unsigned char *src, float *dst, size_t n_blocks)
{
    const __m256i low4 = _mm256_set1_epi8(15), low2 = _mm256_set1_epi8(3), bias = _mm256_set1_epi8(32);
    for (size_t b = 0; b < n_blocks; b++, src += 210) {
        const signed char *scales = (const signed char *)src + 192;
        float d = f16_at(src + 208);
        for (int run = 0; run < 8; run++, dst += 32) { /* run: 32 weights, two scales */
            __m256i l = load32(src + 64 * (run / 4) + 32 * (run % 2));
            __m256i h = load32(src + 128 + 32 * (run / 4));
            l = _mm256_and_si256(_mm256_srli_epi16(l, 4 * (run / 2 % 2)), low4);
            h = _mm256_and_si256(_mm256_srli_epi16(h, 2 * (run % 4)), low2);
            __m256i q = _mm256_sub_epi8(_mm256_or_si256(l, _mm256_slli_epi16(h, 4)), bias);
            store_signed16(dst, _mm256_castsi256_si128(q), _mm256_set1_ps(d * (float)scales[2 * run]));
            store_signed16(dst + 16, _mm256_extracti128_si256(q, 1), _mm256_set1_ps(d * (float)scales[2 * run + 1]));
        }
    }
}

static void f16(const unsigned char *src, float *dst, size_t n)
{
    size_t i = 0;
    for (; i + 8 <= n; i += 8) {
        _mm256_storeu_ps(dst + i, _mm256_cvtph_ps(load16(src + 2 * i)));
    }
    for (; i < n; i++) {
        dst[i] = f16_at(src + 2 * i);
    }
}

void dequantize_avx2(atn_dtype t, const void *src, float *dst, size_t n)
{
    switch (t) {
    case ATN_DTYPE_F16:
        f16(src, dst, n);
        break;
    case ATN_DTYPE_Q8_0:
        q8_0(src, dst, n / 32);
        break;
    case ATN_DTYPE_Q5_0:
        q5_0(src, dst, n / 32);
        break;
    case ATN_DTYPE_Q4_K:
        q4_k(src, dst, n / 256);
        break;
    case ATN_DTYPE_Q6_K:
        q6_k(src, dst, n / 256);
        break;
    default:
        atn_dequantize(t, src, dst, n);
        break;
    }
}
#endif
