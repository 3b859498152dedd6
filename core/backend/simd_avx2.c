/* simd for AVX2, FMA and F16C: entered only where cpu_detect() found all three.
 *
 * Dots are pmaddwd on 16 bits. A quad is a line widened: the even and the odd bytes of each half, so that lanes stay in
 * order; an activation's four values are stored 0, 2, 1, 3 to match. */
#if defined(__x86_64__)
#include <immintrin.h>

#include "core/backend/simd.h"
#include "core/backend/simd_quant.h"

typedef struct bytes64 {
    __m256i a, b;
} bytes64;

typedef struct quad {
    __m256i even_a, odd_a, even_b, odd_b; /* a: lanes 0..7, b: 8..15 */
} quad;
enum { QUAD_BYTES = 128, QUAD_PARTS = 2 };

typedef struct part {
    __m256i a, b; /* the even or the odd bytes */
} part;

typedef struct isum {
    __m256i a, b;
} isum;

typedef struct lanes {
    __m256 a, b;
} lanes;

#define AVX static inline __attribute__((always_inline))

AVX bytes64 bytes_load(const unsigned char *p)
{
    const __m256i *v = (const __m256i *)(const void *)p;
    return (bytes64){_mm256_load_si256(v), _mm256_load_si256(v + 1)};
}

AVX bytes64 bytes_and(bytes64 x, int mask)
{
    __m256i m = _mm256_set1_epi8((char)mask);
    return (bytes64){_mm256_and_si256(x.a, m), _mm256_and_si256(x.b, m)};
}

AVX bytes64 bytes_or(bytes64 x, bytes64 y)
{
    return (bytes64){_mm256_or_si256(x.a, y.a), _mm256_or_si256(x.b, y.b)};
}

AVX bytes64 bytes_sub(bytes64 x, int c)
{
    __m256i v = _mm256_set1_epi8((char)c);
    return (bytes64){_mm256_sub_epi8(x.a, v), _mm256_sub_epi8(x.b, v)};
}

AVX bytes64 bytes_shl(bytes64 x, int n)
{
    return (bytes64){_mm256_slli_epi16(x.a, n), _mm256_slli_epi16(x.b, n)};
}

AVX bytes64 bytes_shr(bytes64 x, int n)
{
    return (bytes64){_mm256_srli_epi16(x.a, n), _mm256_srli_epi16(x.b, n)};
}

AVX quad quad_of(bytes64 x)
{
    return (quad){_mm256_srai_epi16(_mm256_slli_epi16(x.a, 8), 8), _mm256_srai_epi16(x.a, 8),
                  _mm256_srai_epi16(_mm256_slli_epi16(x.b, 8), 8), _mm256_srai_epi16(x.b, 8)};
}

AVX void quad_store(unsigned char *p, quad q)
{
    __m256i *v = (__m256i *)(void *)p;
    _mm256_store_si256(v, q.even_a);
    _mm256_store_si256(v + 1, q.even_b);
    _mm256_store_si256(v + 2, q.odd_a);
    _mm256_store_si256(v + 3, q.odd_b);
}

AVX part part_load(const unsigned char *p)
{
    const __m256i *v = (const __m256i *)(const void *)p;
    return (part){_mm256_load_si256(v), _mm256_load_si256(v + 1)};
}

AVX isum isum_zero(void)
{
    return (isum){_mm256_setzero_si256(), _mm256_setzero_si256()};
}

AVX isum isum_part(isum s, part w, const unsigned char *x)
{
    int two;
    memcpy(&two, x, sizeof two);
    __m256i v = _mm256_set1_epi32(two);
    s.a = _mm256_add_epi32(s.a, _mm256_madd_epi16(w.a, v));
    s.b = _mm256_add_epi32(s.b, _mm256_madd_epi16(w.b, v));
    /* One row after the other: gcc 12 would compute the products of all rows first and have no registers left. */
    __asm__ volatile("" : "+x"(s.a), "+x"(s.b));
    return s;
}

AVX isum isum_dot(isum s, quad w, const unsigned char *x)
{
    s = isum_part(s, (part){w.even_a, w.even_b}, x);
    return isum_part(s, (part){w.odd_a, w.odd_b}, x + 4);
}

AVX lanes isum_lanes(isum s)
{
    return (lanes){_mm256_cvtepi32_ps(s.a), _mm256_cvtepi32_ps(s.b)};
}

AVX lanes lanes_zero(void)
{
    return (lanes){_mm256_setzero_ps(), _mm256_setzero_ps()};
}

AVX lanes lanes_set(float x)
{
    return (lanes){_mm256_set1_ps(x), _mm256_set1_ps(x)};
}

AVX lanes lanes_load(const float *p)
{
    return (lanes){_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)};
}

AVX void lanes_store(float *p, lanes x)
{
    _mm256_storeu_ps(p, x.a);
    _mm256_storeu_ps(p + 8, x.b);
}

AVX lanes lanes_f16(const unsigned char *p)
{
    const __m128i *v = (const __m128i *)(const void *)p;
    return (lanes){_mm256_cvtph_ps(_mm_load_si128(v)), _mm256_cvtph_ps(_mm_load_si128(v + 1))};
}

AVX lanes lanes_bf16(const unsigned char *p)
{
    const __m128i *v = (const __m128i *)(const void *)p;
    __m256i a = _mm256_cvtepu16_epi32(_mm_load_si128(v)), b = _mm256_cvtepu16_epi32(_mm_load_si128(v + 1));
    return (lanes){_mm256_castsi256_ps(_mm256_slli_epi32(a, 16)), _mm256_castsi256_ps(_mm256_slli_epi32(b, 16))};
}

AVX lanes lanes_u8(const unsigned char *p)
{
    return (lanes){_mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)p))),
                   _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)(p + 8))))};
}

AVX lanes lanes_s8(const unsigned char *p)
{
    return (lanes){_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)p))),
                   _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)(p + 8))))};
}

AVX lanes lanes_neg(lanes x)
{
    __m256 sign = _mm256_set1_ps(-0.0f);
    return (lanes){_mm256_xor_ps(x.a, sign), _mm256_xor_ps(x.b, sign)};
}

AVX lanes lanes_add(lanes x, lanes y)
{
    return (lanes){_mm256_add_ps(x.a, y.a), _mm256_add_ps(x.b, y.b)};
}

AVX lanes lanes_mul(lanes x, lanes y)
{
    return (lanes){_mm256_mul_ps(x.a, y.a), _mm256_mul_ps(x.b, y.b)};
}

AVX lanes lanes_fma(lanes x, lanes y, lanes z)
{
    return (lanes){_mm256_fmadd_ps(x.a, y.a, z.a), _mm256_fmadd_ps(x.b, y.b, z.b)};
}

AVX void prefetch(uintptr_t at)
{
    _mm_prefetch((const char *)at, _MM_HINT_T0);
}

#define SIMD_PANELS panels
#include "core/backend/simd_matmul_body.h"

/* ---- activations ---- */

AVX __m256i abs_bits(__m256 v)
{
    return _mm256_and_si256(_mm256_castps_si256(v), _mm256_set1_epi32(0x7fffffff));
}

AVX uint32_t max8(__m256i v)
{
    __m128i m = _mm_max_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
    m = _mm_max_epi32(m, _mm_shuffle_epi32(m, 0x4e));
    m = _mm_max_epi32(m, _mm_shuffle_epi32(m, 0xb1));
    return (uint32_t)_mm_cvtsi128_si32(m);
}

AVX int sum8(__m256i v)
{
    __m128i s = _mm_add_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
    s = _mm_add_epi32(s, _mm_shuffle_epi32(s, 0x4e));
    s = _mm_add_epi32(s, _mm_shuffle_epi32(s, 0xb1));
    return _mm_cvtsi128_si32(s);
}

/* Two times 8 integers to 16 bits, each four in the order 0, 2, 1, 3. */
AVX void store16(unsigned char *p, __m256i a, __m256i b)
{
    const __m256i order =
        _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 1, 4, 5, 2, 3, 6, 7, 8, 9, 12, 13, 10, 11, 14, 15));
    __m256i v = _mm256_permute4x64_epi64(_mm256_packs_epi32(a, b), 0xd8);
    _mm256_store_si256((__m256i *)(void *)p, _mm256_shuffle_epi8(v, order));
}

static int quantise_block(const float *x, float limit, unsigned char *q, float *d)
{
    __m256 v0 = _mm256_loadu_ps(x), v1 = _mm256_loadu_ps(x + 8), v2 = _mm256_loadu_ps(x + 16),
           v3 = _mm256_loadu_ps(x + 24);
    uint32_t amax = max8(
        _mm256_max_epi32(_mm256_max_epi32(abs_bits(v0), abs_bits(v1)), _mm256_max_epi32(abs_bits(v2), abs_bits(v3))));
    __m256 inv = _mm256_set1_ps(simd_quant_scale(amax, limit, d));
    __m256i i0, i1, i2, i3;
    if (*d > 0.0f) {
        i0 = _mm256_cvtps_epi32(_mm256_mul_ps(v0, inv));
        i1 = _mm256_cvtps_epi32(_mm256_mul_ps(v1, inv));
        i2 = _mm256_cvtps_epi32(_mm256_mul_ps(v2, inv));
        i3 = _mm256_cvtps_epi32(_mm256_mul_ps(v3, inv));
    } else { /* nothing, or not finite */
        i0 = i1 = i2 = i3 = _mm256_setzero_si256();
    }
    store16(q, i0, i1);
    store16(q + 32, i2, i3);
    return sum8(_mm256_add_epi32(_mm256_add_epi32(i0, i1), _mm256_add_epi32(i2, i3)));
}

static void quantise(const float *x, size_t stride, uint32_t n_rows, uint32_t n_in, float limit,
                     unsigned char *tile_at_)
{
    simd_quantise_tile(x, stride, n_rows, n_in, limit, tile_at_, quantise_block);
}

const simd_isa simd_avx2 = {.name = "avx2", .quantise = quantise, .panels = panels};
#else
typedef int simd_avx2_has_nothing_here;
#endif
