/* How simd's kernels read each format of weights (simd_pack.c): the first part of the body that every instruction set compiles, over
 * the primitives that simd_matmul_body.h lists. Every function is called with a constant format, of which the rest is folded. */
#ifndef ATN_SIMD_FORMATS_BODY_H
#define ATN_SIMD_FORMATS_BODY_H

#include "core/backend/simd.h"

/* Forced where vectors must stay in registers; plain C leaves it to the compiler, which needs ten times as long else. */
#ifdef SIMD_PLAIN
#define INLINE static inline
#else
#define INLINE static inline __attribute__((always_inline))
#endif

INLINE bool has_halves(simd_format f) /* two scales a block */
{
    return f == SIMD_U6K || f == SIMD_S8K;
}

INLINE bool has_min(simd_format f)
{
    return f == SIMD_U4M || f == SIMD_U5M || f == SIMD_U4K || f == SIMD_U5K;
}

INLINE bool has_5_bits(simd_format f)
{
    return f == SIMD_U5 || f == SIMD_U5M || f == SIMD_U5K;
}

INLINE int offset_of(simd_format f)
{
    return f == SIMD_U4 ? 8 : f == SIMD_U5 ? 16 : f == SIMD_U6K ? 32 : 0;
}

/* The planes of top bits; each step of line_pair moves them on. */
typedef struct top_bits {
    bytes64 a, b;
} top_bits;

INLINE top_bits top_load(simd_format f, const unsigned char *q)
{
    top_bits t;
    t.a = bytes_load(has_5_bits(f) || f == SIMD_U6K ? q + 256 : q);
    t.b = f == SIMD_U6K ? bytes_load(q + 320) : t.a;
    return t;
}

/* Lines n and n + 4 of the block at q, as signed bytes; n = 0, 1, 2, 3 in this order. */
INLINE void line_pair(simd_format f, const unsigned char *q, uint32_t n, top_bits *top, bytes64 *lo, bytes64 *hi)
{
    if (f == SIMD_S8 || f == SIMD_S8K) {
        *lo = bytes_load(q + 64 * n);
        *hi = bytes_load(q + 64 * n + 256);
        return;
    }
    bytes64 both = bytes_load(q + 64 * n);
    *lo = bytes_and(both, 15);
    *hi = bytes_and(bytes_shr(both, 4), 15);
    if (has_5_bits(f)) { /* after n steps bit 0 is line n's and bit 4 line n + 4's */
        *lo = bytes_or(*lo, bytes_shl(bytes_and(top->a, 1), 4));
        *hi = bytes_or(*hi, bytes_and(top->a, 16));
        top->a = bytes_shr(top->a, 1);
    } else if (f == SIMD_U6K) {
        *lo = bytes_or(*lo, bytes_and(bytes_shl(top->a, 4), 48));
        *hi = bytes_or(*hi, bytes_and(bytes_shl(top->b, 4), 48));
        top->a = bytes_shr(top->a, 2);
        top->b = bytes_shr(top->b, 2);
    }
    if (offset_of(f) != 0) {
        *lo = bytes_sub(*lo, offset_of(f));
        *hi = bytes_sub(*hi, offset_of(f));
    }
}

/* The scale of block j of a group, or of its half; exact: a half float, or one times an integer of 8 bits. */
INLINE lanes scale_of(simd_format f, const unsigned char *group, uint32_t j, uint32_t half)
{
    if (f == SIMD_U4K || f == SIMD_U5K) {
        return lanes_mul(lanes_f16(group), lanes_u8(group + 64 + 16 * j));
    }
    if (has_halves(f)) {
        return lanes_mul(lanes_f16(group), lanes_s8(group + 64 + 32 * j + 16 * half));
    }
    return lanes_f16(group + 32 * j);
}

/* What the sum of the activations is multiplied by. */
INLINE lanes min_of(simd_format f, const unsigned char *group, uint32_t j)
{
    if (f == SIMD_U4K || f == SIMD_U5K) {
        return lanes_neg(lanes_mul(lanes_f16(group + 32), lanes_u8(group + 192 + 16 * j)));
    }
    return lanes_f16(group + 64 + 32 * j);
}

INLINE lanes column_of(simd_format f, const unsigned char *block, uint32_t k)
{
    return f == SIMD_F32   ? lanes_load((const float *)(const void *)(block + 64 * k))
           : f == SIMD_F16 ? lanes_f16(block + 32 * k)
                           : lanes_bf16(block + 32 * k);
}

#endif
