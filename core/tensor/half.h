/* Half floats inline, for loops: without branches, so that a compiler makes vectors of them. The out-of-line forms are in
 * attnd/tensor.h. Thread: pure. */
#ifndef ATN_HALF_H
#define ATN_HALF_H

#include <stdint.h>
#include <string.h>

static inline float half_f16_to_f32(uint16_t h)
{
    int32_t mag = h & 0x7fff;
    float tiny = (float)mag * 0x1p-24f; /* zero and subnormal: exact in float */
    uint32_t bits;
    memcpy(&bits, &tiny, 4);
    uint32_t normal = (uint32_t)((0x3ff - mag) >> 31);   /* all ones from 0x400 on: another exponent bias */
    uint32_t special = (uint32_t)((0x7bff - mag) >> 31); /* all ones from 0x7c00 on: infinity and NaN */
    bits = (bits & ~normal) | ((uint32_t)(mag + 0x1c000) << 13 & normal) | (special & 0x7f800000u);
    bits |= (uint32_t)(h & 0x8000u) << 16;
    float f;
    memcpy(&f, &bits, 4);
    return f;
}

/* Round to nearest even; above the range: infinity. NaN stays NaN, and quiet. */
static inline uint16_t half_f32_to_f16(float f)
{
    uint32_t bits;
    memcpy(&bits, &f, 4);
    uint32_t sign = bits >> 16 & 0x8000u;
    uint32_t mag = bits & 0x7fffffffu;
    float abs, tiny;
    memcpy(&abs, &mag, 4);
    tiny = abs + 0.5f; /* below 2^-14 the last bit of this sum is 2^-24, that of a half: the addition rounds */
    uint32_t sub;
    memcpy(&sub, &tiny, 4);
    uint32_t out = (mag - 0x38000000u + 0xfffu + (mag >> 13 & 1u)) >> 13;
    out = mag < 0x38800000u ? sub - 0x3f000000u : out;
    out = mag >= 0x477ff000u ? 0x7c00u : out;
    out = mag > 0x7f800000u ? 0x7e00u | (mag >> 13 & 0x3ffu) : out;
    return (uint16_t)(sign | out);
}

static inline float half_bf16_to_f32(uint16_t h)
{
    uint32_t bits = (uint32_t)h << 16;
    float f;
    memcpy(&f, &bits, 4);
    return f;
}

/* Round to nearest even. NaN stays NaN, and quiet. */
static inline uint16_t half_f32_to_bf16(float f)
{
    uint32_t bits;
    memcpy(&bits, &f, 4);
    uint32_t out = (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
    out = (bits & 0x7fffffffu) > 0x7f800000u ? bits >> 16 | 0x40u : out;
    return (uint16_t)out;
}

#endif
