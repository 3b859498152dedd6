/* One function a quantised type: dst[n_blocks * weights a block] = the values of n_blocks blocks at src.
 * The order of operations is that of gguf-py (ggml-org/llama.cpp gguf-py/gguf/quants.py), so that the floats are equal bit
 * for bit. src needs no alignment. Thread: pure. */
#ifndef ATN_DEQUANT_H
#define ATN_DEQUANT_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "core/tensor/half.h"

/* Blocks of 32 weights: core/tensor/dequant.c */
void dequant_q4_0(const unsigned char *src, float *dst, size_t n_blocks);
void dequant_q4_1(const unsigned char *src, float *dst, size_t n_blocks);
void dequant_q5_0(const unsigned char *src, float *dst, size_t n_blocks);
void dequant_q5_1(const unsigned char *src, float *dst, size_t n_blocks);
void dequant_q8_0(const unsigned char *src, float *dst, size_t n_blocks);
/* Super-blocks of 256: core/tensor/dequant_k.c */
void dequant_q2_k(const unsigned char *src, float *dst, size_t n_blocks);
void dequant_q3_k(const unsigned char *src, float *dst, size_t n_blocks);
void dequant_q4_k(const unsigned char *src, float *dst, size_t n_blocks);
void dequant_q5_k(const unsigned char *src, float *dst, size_t n_blocks);
void dequant_q6_k(const unsigned char *src, float *dst, size_t n_blocks);
/* Table look-ups: core/tensor/dequant_iq.c */
void dequant_iq4_nl(const unsigned char *src, float *dst, size_t n_blocks);
void dequant_iq4_xs(const unsigned char *src, float *dst, size_t n_blocks);
void dequant_mxfp4(const unsigned char *src, float *dst, size_t n_blocks);

static inline float dequant_f16_at(const unsigned char *p)
{
    uint16_t h;
    memcpy(&h, p, 2);
    return half_f16_to_f32(h);
}

/* The 6-bit scale and minimum of run j (0..7) in the 12 bytes that Q4_K and Q5_K share. */
static inline void dequant_scale_min(const unsigned char *s, int j, int *scale, int *min)
{
    if (j < 4) {
        *scale = s[j] & 63;
        *min = s[j + 4] & 63;
    } else {
        *scale = (s[j + 4] & 15) | (s[j - 4] >> 2 & 48);
        *min = s[j + 4] >> 4 | (s[j] >> 2 & 48);
    }
}

/* The values that IQ4_NL and IQ4_XS index: integers from -127 to 113. */
extern const float dequant_iq4_values[16];

#endif
