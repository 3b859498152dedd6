/* The one body of the kernels in simd_rows.h: a thin file per instruction set defines SIMD_ROWS_TABLE and SIMD_ROWS_ISA and includes it.
 *
 * Sums have 16 virtual lanes (value i in lane i mod 16) and the tree of simd_vec.h; everything else is value by value. */
#include "core/backend/simd_rows.h"
#include "core/backend/simd_vec.h"

/* Lanes of sums of (x - mean), squared or not. */
SIMD_INLINE float lanes_sum(const float *x, uint32_t n, float mean, const bool square)
{
    vec s[2] = {0}, away = v_set1(mean);
    for (uint32_t i = 0; i < n; i += 2 * VEC) {
        for (uint32_t h = 0; h < 2; h++) {
            uint32_t at = i + h * VEC;
            uint32_t left = at < n ? n - at : 0;
            vec d = (left >= VEC ? v_load(x + at) : v_load_part(x + at, left, mean)) - away;
            s[h] = square ? v_fma(d, d, s[h]) : s[h] + d;
        }
    }
    return v_tree(s[0] + s[1]);
}

SIMD_INLINE vec norm_value(vec x, float mean, float inv, vec w, const bool layer)
{
    return (layer ? x - v_set1(mean) : x) * v_set1(inv) * w;
}

static void norm(float *dst, const float *x, const float *w, const float *b, bool layer, float eps, uint32_t n)
{
    float mean = layer ? lanes_sum(x, n, 0.0f, false) / (float)n : 0.0f;
    float square = lanes_sum(x, n, mean, true);
    float inv = 1.0f / sqrtf(square / (float)n + eps);
    for (uint32_t i = 0; i < n; i += VEC) {
        uint32_t left = n - i < VEC ? n - i : VEC;
        bool whole = left == VEC;
        vec y = norm_value(whole ? v_load(x + i) : v_load_part(x + i, left, 0.0f), mean, inv,
                           whole ? v_load(w + i) : v_load_part(w + i, left, 0.0f), layer);
        if (b) {
            y += whole ? v_load(b + i) : v_load_part(b + i, left, 0.0f);
        }
        if (whole) {
            v_store(dst + i, y);
        } else {
            v_store_part(dst + i, y, left);
        }
    }
}

/* (u, v) -> (u cos - v sin, v cos + u sin) */
SIMD_INLINE void rotate(float *u, float *v, float c, float s)
{
    float x = *u, y = *v;
    *u = fmaf(x, c, -(y * s));
    *v = fmaf(y, c, x * s);
}

static void rope(float *x, const float *table, atn_rope_style style, uint32_t n_rot)
{
    uint32_t half = n_rot / 2, i = 0;
    if (style == ATN_ROPE_HALVES) {
        for (; i + VEC <= half; i += VEC) {
            vec t = v_load(table + 2 * i), u = v_load(table + 2 * i + VEC);
            vec c = __builtin_shufflevector(t, u, 0, 2, 4, 6, 8, 10, 12, 14);
            vec s = __builtin_shufflevector(t, u, 1, 3, 5, 7, 9, 11, 13, 15);
            vec a = v_load(x + i), b = v_load(x + half + i);
            v_store(x + i, v_fma(a, c, -(b * s)));
            v_store(x + half + i, v_fma(b, c, a * s));
        }
        for (; i < half; i++) {
            rotate(x + i, x + half + i, table[2 * i], table[2 * i + 1]);
        }
        return;
    }
    const ivec first = {-1, 0, -1, 0, -1, 0, -1, 0};
    for (; i + VEC / 2 <= half; i += VEC / 2) {
        vec t = v_load(table + 2 * i), a = v_load(x + 2 * i);
        vec c = __builtin_shufflevector(t, t, 0, 0, 2, 2, 4, 4, 6, 6);
        vec s = __builtin_shufflevector(t, t, 1, 1, 3, 3, 5, 5, 7, 7);
        vec turned = __builtin_shufflevector(a, a, 1, 0, 3, 2, 5, 4, 7, 6) * s;
        v_store(x + 2 * i, v_fma(a, c, v_select(first, -turned, turned)));
    }
    for (; i < half; i++) {
        rotate(x + 2 * i, x + 2 * i + 1, table[2 * i], table[2 * i + 1]);
    }
}

/* SiLU: x / (1 + exp(-x)). GELU: x/2 (1 + tanh(u)) = x / (1 + exp(-2u)), u = sqrt(2/pi) (x + 0.044715 x^3). */
SIMD_INLINE vec act_value(const atn_act_kind kind, vec x)
{
    vec e = -x;
    if (kind == ATN_ACT_GELU_TANH) {
        e = x * v_fma(v_set1(-0x1.2444f2p-4f), x * x, v_set1(-0x1.988454p+0f));
    }
    return x / (v_set1(1.0f) + v_exp(e));
}

SIMD_INLINE void act_run(const atn_act_kind kind, float *dst, const float *a, const float *b, uint32_t n)
{
    uint32_t i = 0;
    for (; i + VEC <= n; i += VEC) {
        vec y = act_value(kind, v_load(a + i));
        v_store(dst + i, b ? y * v_load(b + i) : y);
    }
    if (i < n) {
        vec y = act_value(kind, v_load_part(a + i, n - i, 0.0f));
        v_store_part(dst + i, b ? y * v_load_part(b + i, n - i, 0.0f) : y, n - i);
    }
}

static void activate(atn_act_kind kind, float *dst, const float *a, const float *b, uint32_t n)
{
    if (kind == ATN_ACT_SILU) {
        act_run(ATN_ACT_SILU, dst, a, b, n);
    } else {
        act_run(ATN_ACT_GELU_TANH, dst, a, b, n);
    }
}

static void narrow(uint16_t *dst, const float *src, uint32_t n)
{
    uint32_t i = 0;
    for (; i + VEC <= n; i += VEC) {
        v_store_f16(dst + i, v_load(src + i));
    }
    for (; i < n; i++) {
        dst[i] = half_f32_to_f16(src[i]);
    }
}

static void exp_values(float *y, const float *x, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        y[i] = v_exp(v_set1(x[i]))[0];
    }
}

static void tanh_values(float *y, const float *x, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        y[i] = v_tanh(v_set1(x[i]))[0];
    }
}

const simd_row_kernels SIMD_ROWS_TABLE = {SIMD_ROWS_ISA, norm, rope, activate, narrow, exp_values, tanh_values};
