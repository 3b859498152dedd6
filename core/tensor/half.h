/* Half floats inline, for loops. The out-of-line forms are in attnd/tensor.h. Thread: pure. */
#ifndef ATN_HALF_H
#define ATN_HALF_H

#include <stdint.h>
#include <string.h>

static inline float half_f16_to_f32(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000u) << 16;
    uint32_t mag = h & 0x7fffu;
    uint32_t bits;
    float f;
    if (mag >= 0x7c00u) { /* infinity and NaN */
        bits = sign | 0x7f800000u | ((mag & 0x3ffu) << 13);
    } else if (mag >= 0x0400u) { /* normal */
        bits = sign | ((mag + 0x1c000u) << 13);
    } else { /* zero and subnormal: exact in float */
        f = (float)mag * 0x1p-24f;
        memcpy(&bits, &f, 4);
        bits |= sign;
    }
    memcpy(&f, &bits, 4);
    return f;
}

static inline float half_bf16_to_f32(uint16_t h)
{
    uint32_t bits = (uint32_t)h << 16;
    float f;
    memcpy(&f, &bits, 4);
    return f;
}

#endif
