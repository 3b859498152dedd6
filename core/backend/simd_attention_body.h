/* The one body of the kernels in simd_attention.h: a thin file per instruction set defines SIMD_ATTN_TABLE and SIMD_ATTN_ISA and includes
 * it.
 *
 * Keys are transposed into lanes, so that each score is one chain in one lane and nothing is summed across lanes; values need
 * no transposing. A tile of up to six query vectors then shares each load. Which tile a vector is in changes no bit. */
#include "core/backend/simd_attention.h"
#include "core/backend/simd_vec.h"

/* ---- keys, transposed ---- */

/* Components from .. to-1, for any type and CPU. */
static void keys_plain(atn_dtype type, const void *const *rows, uint32_t from, uint32_t to, float *keys)
{
    for (uint32_t i = from; i < to; i++) {
        for (uint32_t j = 0; j < ATTN_BLOCK; j++) {
            keys[i * ATTN_BLOCK + j] =
                type == ATN_DTYPE_F16 ? half_f16_to_f32(((const uint16_t *)rows[j])[i]) : ((const float *)rows[j])[i];
        }
    }
}

#if SIMD_AVX2
/* Components i .. i+7 of 16 rows of half floats: 8 x 8 of them transposed in each half of the registers, then widened. */
SIMD_INLINE void keys_16_f16(const void *const *rows, uint32_t i, float *keys)
{
    __m256i r[8], s[8], t[8];
    for (int j = 0; j < 8; j++) {
        const uint16_t *lo = (const uint16_t *)rows[j] + i, *hi = (const uint16_t *)rows[j + 8] + i;
        r[j] = _mm256_inserti128_si256(_mm256_castsi128_si256(_mm_loadu_si128((const __m128i *)(const void *)lo)),
                                       _mm_loadu_si128((const __m128i *)(const void *)hi), 1);
    }
    for (int j = 0; j < 4; j++) { /* s[2j], s[2j+1]: pairs of rows, components 0-3 and 4-7 */
        s[2 * j] = _mm256_unpacklo_epi16(r[2 * j], r[2 * j + 1]);
        s[2 * j + 1] = _mm256_unpackhi_epi16(r[2 * j], r[2 * j + 1]);
    }
    for (int j = 0; j < 2; j++) { /* t[4j + c]: four rows, components 2c and 2c+1 */
        t[4 * j] = _mm256_unpacklo_epi32(s[4 * j], s[4 * j + 2]);
        t[4 * j + 1] = _mm256_unpackhi_epi32(s[4 * j], s[4 * j + 2]);
        t[4 * j + 2] = _mm256_unpacklo_epi32(s[4 * j + 1], s[4 * j + 3]);
        t[4 * j + 3] = _mm256_unpackhi_epi32(s[4 * j + 1], s[4 * j + 3]);
    }
    for (int c = 0; c < 8; c++) {
        __m256i h =
            c % 2 ? _mm256_unpackhi_epi64(t[c / 2], t[4 + c / 2]) : _mm256_unpacklo_epi64(t[c / 2], t[4 + c / 2]);
        float *dst = keys + (i + (uint32_t)c) * ATTN_BLOCK;
        _mm256_storeu_ps(dst, _mm256_cvtph_ps(_mm256_castsi256_si128(h)));
        _mm256_storeu_ps(dst + 8, _mm256_cvtph_ps(_mm256_extracti128_si256(h, 1)));
    }
}

/* Components i .. i+7 of 8 rows of floats. */
SIMD_INLINE void keys_8_f32(const void *const *rows, uint32_t i, float *keys)
{
    __m256 r[8], s[8], t[8];
    for (int j = 0; j < 4; j++) { /* rows j and j+4, components 0-3 and 4-7 */
        const float *lo = (const float *)rows[j] + i, *hi = (const float *)rows[j + 4] + i;
        r[j] = _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(lo)), _mm_loadu_ps(hi), 1);
        r[j + 4] = _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(lo + 4)), _mm_loadu_ps(hi + 4), 1);
    }
    for (int h = 0; h < 8; h += 4) {
        s[h] = _mm256_unpacklo_ps(r[h], r[h + 1]);
        s[h + 1] = _mm256_unpackhi_ps(r[h], r[h + 1]);
        s[h + 2] = _mm256_unpacklo_ps(r[h + 2], r[h + 3]);
        s[h + 3] = _mm256_unpackhi_ps(r[h + 2], r[h + 3]);
        t[h] = _mm256_shuffle_ps(s[h], s[h + 2], 0x44);
        t[h + 1] = _mm256_shuffle_ps(s[h], s[h + 2], 0xee);
        t[h + 2] = _mm256_shuffle_ps(s[h + 1], s[h + 3], 0x44);
        t[h + 3] = _mm256_shuffle_ps(s[h + 1], s[h + 3], 0xee);
    }
    for (uint32_t c = 0; c < 8; c++) {
        _mm256_storeu_ps(keys + (i + c) * ATTN_BLOCK, t[c]);
    }
}
#endif

/* Components i .. i+7 of 32 rows: asks for a share of the cache lines that these make of other rows, into the
 * second level: the first is full of keys. */
SIMD_INLINE void fetch_share(const void *const *ahead, uint32_t i, uint32_t size)
{
    uint32_t steps = 64 / (8 * size), share = ATTN_BLOCK / steps; /* steps of 8 components a line */
    for (uint32_t j = 0; j < share; j++) {
        __builtin_prefetch((const char *)ahead[i / 8 % steps * share + j] + i * size / 64 * 64, 0, 2);
    }
}

static void keys(atn_dtype type, const void *const *rows, const void *const *ahead, uint32_t d, float *dst)
{
    uint32_t i = 0;
    for (; i + 8 <= d; i += 8) {
#if SIMD_AVX2
        if (type == ATN_DTYPE_F16) {
            keys_16_f16(rows, i, dst);
            keys_16_f16(rows + 16, i, dst + 16);
            fetch_share(ahead, i, 2);
        } else {
            for (uint32_t j = 0; j < ATTN_BLOCK; j += 8) {
                keys_8_f32(rows + j, i, dst + j);
            }
            fetch_share(ahead, i, 4);
        }
#else
        keys_plain(type, rows, i, i + 8, dst);
        fetch_share(ahead, i, type == ATN_DTYPE_F16 ? 2 : 4);
#endif
    }
    keys_plain(type, rows, i, d, dst);
}

/* ---- scores ---- */

/* R query vectors against C * 8 keys. R and C are constants where this is inlined, and the accumulators registers. */
SIMD_INLINE void score_tile(const float *const *q, const float *k, uint32_t d, float *s, const int R, const int C)
{
    vec acc[ATTN_TILE][4] = {0};
    for (uint32_t i = 0; i < d; i++) {
        vec key[4];
#pragma GCC unroll 4
        for (int c = 0; c < C; c++) {
            key[c] = v_load(k + i * ATTN_BLOCK + c * VEC);
        }
#pragma GCC unroll 6
        for (int r = 0; r < R; r++) {
            vec x = v_set1(q[r][i]);
#pragma GCC unroll 4
            for (int c = 0; c < C; c++) {
                acc[r][c] = v_fma(x, key[c], acc[r][c]);
            }
        }
    }
#pragma GCC unroll 6
    for (int r = 0; r < R; r++) {
#pragma GCC unroll 4
        for (int c = 0; c < C; c++) {
            v_store(s + r * ATTN_BLOCK + c * VEC, acc[r][c]);
        }
    }
}

static void scores(const float *const *q, uint32_t n, const float *k, uint32_t d, float *s)
{
    for (uint32_t r = 0; r < n; r += ATTN_TILE) {
        const float *const *x = q + r;
        float *y = s + r * ATTN_BLOCK;
        switch (n - r) {
        case 1:
            score_tile(x, k, d, y, 1, 4);
            break;
        case 2:
            score_tile(x, k, d, y, 2, 4);
            break;
        case 3:
            score_tile(x, k, d, y, 3, 4);
            break;
        case 4:
            score_tile(x, k, d, y, 4, 2);
            score_tile(x, k + 16, d, y + 16, 4, 2);
            break;
        case 5:
            score_tile(x, k, d, y, 5, 2);
            score_tile(x, k + 16, d, y + 16, 5, 2);
            break;
        default:
            score_tile(x, k, d, y, 6, 2);
            score_tile(x, k + 16, d, y + 16, 6, 2);
            break;
        }
    }
}

static void adjust(float *s, float scale, float cap, const float *bias, const float *factor)
{
    for (int c = 0; c < ATTN_BLOCK; c += VEC) {
        vec x = v_load(s + c) * v_set1(scale);
        if (cap != 0.0f) {
            x = v_set1(cap) * v_tanh(x / v_set1(cap));
        }
        if (bias) {
            x += v_load(bias + c);
        }
        if (factor) {
            x += v_load(factor + c);
        }
        v_store(s + c, x);
    }
}

/* ---- softmax ---- */

/* exp of one number: the same lanes. */
SIMD_INLINE float exp_one(float x)
{
    return v_exp(v_set1(x))[0];
}

/* Lanes c .. c+7 of 32 bits. */
SIMD_INLINE ivec lanes_of(uint32_t bits, int c)
{
    const ivec one = {1, 2, 4, 8, 16, 32, 64, 128};
    int32_t b = (int32_t)(bits >> c & 255u);
    ivec all = {b, b, b, b, b, b, b, b};
    return (ivec)((all & one) == one);
}

SIMD_INLINE uint32_t bits_of(ivec lanes)
{
#if SIMD_AVX2
    return (uint32_t)_mm256_movemask_ps((__m256)(vec)lanes);
#else
    uint32_t bits = 0;
    for (int i = 0; i < VEC; i++) {
        bits |= (uint32_t)(lanes[i] != 0) << i;
    }
    return bits;
#endif
}

static uint32_t softmax(float *s, uint32_t sight, simd_softmax *state, float *keep)
{
    const vec removed = v_set1(-INFINITY);
    vec x[4], top = removed;
    uint32_t kept = 0;
    for (int c = 0; c < 4; c++) {
        x[c] = v_select(lanes_of(sight, c * VEC), v_load(s + c * VEC), removed);
        top = v_max(x[c], top); /* NaN is no maximum */
        kept |= bits_of((ivec)(x[c] != removed)) << (c * VEC);
    }
    if (kept == 0) {
        return 0;
    }
    float m = v_largest(top);
    m = m > state->m ? m : state->m;
    for (int c = 0; c < 4; c++) {
        x[c] = v_exp(x[c] - v_set1(m)); /* 0 for what is not in sight */
        v_store(s + c * VEC, x[c]);
    }
    *keep = state->seen ? exp_one(state->m - m) : 0.0f;
    state->l = fmaf(state->l, *keep, v_tree((x[0] + x[2]) + (x[1] + x[3])));
    state->m = m;
    state->seen = true;
    return kept;
}

/* ---- values ---- */

SIMD_INLINE vec load_values(atn_dtype type, const void *row, uint32_t i)
{
    return type == ATN_DTYPE_F16 ? v_load_f16((const uint16_t *)row + i) : v_load((const float *)row + i);
}

/* Runs of C * 8 components from `at` on, as many as fit; returns where they end. R, C and type are constants where this is
 * inlined. */
SIMD_INLINE uint32_t mix_run(const simd_mix *m, const atn_dtype type, const void *const *v, const void *const *ahead,
                             uint32_t n, uint32_t d, uint32_t at, const int R, const int C)
{
    const int size = type == ATN_DTYPE_F16 ? 2 : 4;
    for (; at + (uint32_t)(C * VEC) <= d; at += (uint32_t)(C * VEC)) {
        vec acc[ATTN_TILE][8];
#pragma GCC unroll 6
        for (int r = 0; r < R; r++) {
#pragma GCC unroll 8
            for (int c = 0; c < C; c++) {
                acc[r][c] = v_load(m->acc[r] + at + c * VEC) * v_set1(m->keep[r]);
            }
        }
        for (uint32_t j = 0; j < n; j++) {
            vec x[8];
#pragma GCC unroll 8
            for (int c = 0; c < C; c++) {
                x[c] = load_values(type, v[j], at + (uint32_t)(c * VEC));
                if (c % (64 / size / VEC) == 0) { /* a cache line's first; that of the same line again does no harm */
                    __builtin_prefetch((const char *)ahead[j] + (at + (uint32_t)(c * VEC)) * (uint32_t)size, 0, 2);
                }
            }
#pragma GCC unroll 6
            for (int r = 0; r < R; r++) {
                vec p = v_set1(m->p[r][j]);
#pragma GCC unroll 8
                for (int c = 0; c < C; c++) {
                    acc[r][c] = v_fma(p, x[c], acc[r][c]);
                }
            }
        }
#pragma GCC unroll 6
        for (int r = 0; r < R; r++) {
#pragma GCC unroll 8
            for (int c = 0; c < C; c++) {
                v_store(m->acc[r] + at + c * VEC, acc[r][c]);
            }
        }
    }
    return at;
}

/* The last d % 8 components. */
static void mix_rest(const simd_mix *m, uint32_t n_vec, atn_dtype type, const void *const *v, uint32_t n, uint32_t d,
                     uint32_t at)
{
    for (uint32_t r = 0; r < n_vec; r++) {
        for (uint32_t i = at; i < d; i++) {
            float acc = m->acc[r][i] * m->keep[r];
            for (uint32_t j = 0; j < n; j++) {
                float x =
                    type == ATN_DTYPE_F16 ? half_f16_to_f32(((const uint16_t *)v[j])[i]) : ((const float *)v[j])[i];
                acc = fmaf(m->p[r][j], x, acc);
            }
            m->acc[r][i] = acc;
        }
    }
}

SIMD_INLINE void mix_type(const simd_mix *m, uint32_t n_vec, const atn_dtype type, const void *const *v,
                          const void *const *ahead, uint32_t n, uint32_t d)
{
    uint32_t at = 0;
    switch (n_vec) {
    case 1:
        at = mix_run(m, type, v, ahead, n, d, at, 1, 8);
        at = mix_run(m, type, v, ahead, n, d, at, 1, 4);
        at = mix_run(m, type, v, ahead, n, d, at, 1, 1);
        break;
    case 2:
        at = mix_run(m, type, v, ahead, n, d, at, 2, 4);
        at = mix_run(m, type, v, ahead, n, d, at, 2, 1);
        break;
    case 3:
        at = mix_run(m, type, v, ahead, n, d, at, 3, 4);
        at = mix_run(m, type, v, ahead, n, d, at, 3, 1);
        break;
    case 4:
        at = mix_run(m, type, v, ahead, n, d, at, 4, 2);
        at = mix_run(m, type, v, ahead, n, d, at, 4, 1);
        break;
    case 5:
        at = mix_run(m, type, v, ahead, n, d, at, 5, 2);
        at = mix_run(m, type, v, ahead, n, d, at, 5, 1);
        break;
    default:
        at = mix_run(m, type, v, ahead, n, d, at, 6, 2);
        at = mix_run(m, type, v, ahead, n, d, at, 6, 1);
        break;
    }
    mix_rest(m, n_vec, type, v, n, d, at);
}

static void mix(const simd_mix *m, uint32_t n_vec, atn_dtype type, const void *const *v, const void *const *ahead,
                uint32_t n, uint32_t d)
{
    if (type == ATN_DTYPE_F16) {
        mix_type(m, n_vec, ATN_DTYPE_F16, v, ahead, n, d);
    } else {
        mix_type(m, n_vec, ATN_DTYPE_F32, v, ahead, n, d);
    }
}

static void widen(const uint16_t *src, float *dst, uint32_t d)
{
    uint32_t i = 0;
    for (; i + VEC <= d; i += VEC) {
        v_store(dst + i, v_load_f16(src + i));
    }
    for (; i < d; i++) {
        dst[i] = half_f16_to_f32(src[i]);
    }
}

/* ---- the end of a span, and of a row ---- */

static void merge(simd_softmax *total, float *to, const simd_softmax *span, const float *from, uint32_t d)
{
    if (!total->seen) {
        memcpy(to, from, d * sizeof *to);
        *total = *span;
        return;
    }
    float m = span->m > total->m ? span->m : total->m;
    float keep = exp_one(total->m - m), add = exp_one(span->m - m);
    uint32_t i = 0;
    for (; i + VEC <= d; i += VEC) {
        v_store(to + i, v_fma(v_load(from + i), v_set1(add), v_load(to + i) * v_set1(keep)));
    }
    for (; i < d; i++) {
        to[i] = fmaf(from[i], add, to[i] * keep);
    }
    total->l = fmaf(span->l, add, total->l * keep);
    total->m = m;
}

static void finish(simd_softmax *total, const float *acc, const float *sink, float gate, float *out, uint32_t d)
{
    float keep = 1.0f;
    if (sink) {
        float m = *sink > total->m ? *sink : total->m;
        keep = exp_one(total->m - m);
        total->l = fmaf(total->l, keep, exp_one(*sink - m));
        total->m = m;
    }
    float factor = keep / total->l * gate;
    uint32_t i = 0;
    for (; i + VEC <= d; i += VEC) {
        v_store(out + i, v_load(acc + i) * v_set1(factor));
    }
    for (; i < d; i++) {
        out[i] = acc[i] * factor;
    }
}

static void weights(float *s, float m, float l)
{
    for (int c = 0; c < ATTN_BLOCK; c += VEC) {
        vec x = v_load(s + c);
        vec w = v_exp(x - v_set1(m)) / v_set1(l);
        v_store(s + c, v_select((ivec)(x == v_set1(-INFINITY)), v_set1(0.0f), w));
    }
}

const simd_attn_kernels SIMD_ATTN_TABLE = {SIMD_ATTN_ISA, keys,  scores, adjust, softmax,
                                           mix,           widen, merge,  finish, weights};
