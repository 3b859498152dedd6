/* atn_dequantize, and the types of 32 weights a block: a scale, maybe a minimum, and 4, 5 or 8 bits a weight. In the packed
 * ones byte i holds weight i in its low and weight i + 16 in its high half. */
#include <attnd/tensor.h>
#include "core/tensor/dequant.h"

static void from_f16(const unsigned char *src, float *dst, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        dst[i] = dequant_f16_at(src + 2 * i);
    }
}

static void from_bf16(const unsigned char *src, float *dst, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        uint16_t h;
        memcpy(&h, src + 2 * i, 2);
        dst[i] = half_bf16_to_f32(h);
    }
}

void dequant_q4_0(const unsigned char *src, float *dst, size_t n_blocks)
{
    for (size_t b = 0; b < n_blocks; b++, src += 18, dst += 32) {
        float d = dequant_f16_at(src);
        const unsigned char *q = src + 2;
        for (int i = 0; i < 16; i++) {
            dst[i] = d * (float)((q[i] & 15) - 8);
            dst[i + 16] = d * (float)((q[i] >> 4) - 8);
        }
    }
}

void dequant_q4_1(const unsigned char *src, float *dst, size_t n_blocks)
{
    for (size_t b = 0; b < n_blocks; b++, src += 20, dst += 32) {
        float d = dequant_f16_at(src);
        float m = dequant_f16_at(src + 2);
        const unsigned char *q = src + 4;
        for (int i = 0; i < 16; i++) {
            dst[i] = d * (float)(q[i] & 15) + m;
            dst[i + 16] = d * (float)(q[i] >> 4) + m;
        }
    }
}

/* Bit i of high is bit 4 of weight i. */
static inline void unpack_5(const unsigned char *q, uint32_t high, unsigned char w[32])
{
    for (uint32_t i = 0; i < 16; i++) {
        w[i] = (unsigned char)((q[i] & 15u) | (high >> i & 1u) << 4);
        w[i + 16] = (unsigned char)(q[i] >> 4 | (high >> (i + 16) & 1u) << 4);
    }
}

void dequant_q5_0(const unsigned char *src, float *dst, size_t n_blocks)
{
    for (size_t b = 0; b < n_blocks; b++, src += 22, dst += 32) {
        float d = dequant_f16_at(src);
        uint32_t high;
        unsigned char w[32];
        memcpy(&high, src + 2, 4);
        unpack_5(src + 6, high, w);
        for (int i = 0; i < 32; i++) {
            dst[i] = d * (float)(w[i] - 16);
        }
    }
}

void dequant_q5_1(const unsigned char *src, float *dst, size_t n_blocks)
{
    for (size_t b = 0; b < n_blocks; b++, src += 24, dst += 32) {
        float d = dequant_f16_at(src);
        float m = dequant_f16_at(src + 2);
        uint32_t high;
        unsigned char w[32];
        memcpy(&high, src + 4, 4);
        unpack_5(src + 8, high, w);
        for (int i = 0; i < 32; i++) {
            dst[i] = d * (float)w[i] + m;
        }
    }
}

void dequant_q8_0(const unsigned char *src, float *dst, size_t n_blocks)
{
    for (size_t b = 0; b < n_blocks; b++, src += 34, dst += 32) {
        float d = dequant_f16_at(src);
        const signed char *q = (const signed char *)src + 2;
        for (int i = 0; i < 32; i++) {
            dst[i] = d * (float)q[i];
        }
    }
}

void atn_dequantize(atn_dtype t, const void *src, float *dst, size_t n)
{
    uint32_t block = atn_dtype_block(t);
    size_t n_blocks = block != 0 ? n / block : 0;
    switch (t) {
    case ATN_DTYPE_F32:
        memcpy(dst, src, n * sizeof *dst);
        break;
    case ATN_DTYPE_F16:
        from_f16(src, dst, n);
        break;
    case ATN_DTYPE_BF16:
        from_bf16(src, dst, n);
        break;
    case ATN_DTYPE_Q4_0:
        dequant_q4_0(src, dst, n_blocks);
        break;
    case ATN_DTYPE_Q4_1:
        dequant_q4_1(src, dst, n_blocks);
        break;
    case ATN_DTYPE_Q5_0:
        dequant_q5_0(src, dst, n_blocks);
        break;
    case ATN_DTYPE_Q5_1:
        dequant_q5_1(src, dst, n_blocks);
        break;
    case ATN_DTYPE_Q8_0:
        dequant_q8_0(src, dst, n_blocks);
        break;
    case ATN_DTYPE_Q2_K:
        dequant_q2_k(src, dst, n_blocks);
        break;
    case ATN_DTYPE_Q3_K:
        dequant_q3_k(src, dst, n_blocks);
        break;
    case ATN_DTYPE_Q4_K:
        dequant_q4_k(src, dst, n_blocks);
        break;
    case ATN_DTYPE_Q5_K:
        dequant_q5_k(src, dst, n_blocks);
        break;
    case ATN_DTYPE_Q6_K:
        dequant_q6_k(src, dst, n_blocks);
        break;
    case ATN_DTYPE_IQ4_NL:
        dequant_iq4_nl(src, dst, n_blocks);
        break;
    case ATN_DTYPE_IQ4_XS:
        dequant_iq4_xs(src, dst, n_blocks);
        break;
    case ATN_DTYPE_MXFP4:
        dequant_mxfp4(src, dst, n_blocks);
        break;
    }
}
