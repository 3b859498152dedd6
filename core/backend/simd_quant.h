/* Quantising activations: what every instruction set shares. A block of 32 has amax, the largest magnitude in it, and
 *     d = amax / limit,  value = rint(x * (limit / amax)),  sd = d * (float)(sum of the values),
 * each operation rounded to float. A value cannot exceed limit. A block below 2^-100 counts as zeros; one that holds an
 * infinity or a NaN has d = NaN and values of 0, so that it makes every output of its row NaN and no other's.
 * Thread: pure. */
#ifndef ATN_SIMD_QUANT_H
#define ATN_SIMD_QUANT_H

#include "core/backend/simd.h"

#include <math.h>
#include <string.h>

/* amax: the bits of the largest magnitude, which order like integers. Gives limit / amax, or 0 where nothing is to be
 * multiplied; *d > 0 only where something is. */
static inline float simd_quant_scale(uint32_t amax, float limit, float *d)
{
    const uint32_t tiny = 27u << 23 /* 2^-100 */, infinite = 0x7f800000u;
    if (amax < tiny || amax >= infinite) {
        *d = amax < tiny ? 0.0f : NAN;
        return 0.0f;
    }
    float a;
    memcpy(&a, &amax, sizeof a);
    *d = a / limit;
    return limit / a;
}

/* A tile, block by block: quantise_block writes 32 values to q and the scale to *d and gives their sum. */
static inline __attribute__((always_inline)) void
simd_quantise_tile(const float *x, size_t stride, uint32_t n_rows, uint32_t n_in, float limit, unsigned char *to,
                   int (*quantise_block)(const float *x, float limit, unsigned char *q, float *d))
{
    uint32_t n_blocks = n_in / SIMD_BLOCK;
    float *d = (float *)(void *)(to + (size_t)n_blocks * n_rows * SIMD_BLOCK * 2), *sd = d + (size_t)n_blocks * n_rows;
    for (uint32_t r = 0; r < n_rows; r++) {
        for (uint32_t b = 0; b < n_blocks; b++) {
            size_t at = (size_t)b * n_rows + r;
            int sum = quantise_block(x + r * stride + (size_t)b * SIMD_BLOCK, limit, to + at * SIMD_BLOCK * 2, &d[at]);
            sd[at] = d[at] * (float)sum;
        }
    }
}

#endif
