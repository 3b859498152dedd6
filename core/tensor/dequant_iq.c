/* Types whose 4 bits index a table of 16 values. */
#include "core/tensor/dequant.h"

const float dequant_iq4_values[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};

/* e2m1 floats, doubled (OCP microscaling formats 1.0, 5.3.3) */
static const float mxfp4_values[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

static inline void look_up(const float values[16], const unsigned char *q, float d, float *dst)
{
    for (int i = 0; i < 16; i++) {
        dst[i] = d * values[q[i] & 15];
        dst[i + 16] = d * values[q[i] >> 4];
    }
}

/* 18 bytes: d, qs[16]. */
void dequant_iq4_nl(const unsigned char *src, float *dst, size_t n_blocks)
{
    for (size_t b = 0; b < n_blocks; b++, src += 18, dst += 32) {
        look_up(dequant_iq4_values, src + 2, dequant_f16_at(src), dst);
    }
}

/* 136 bytes: d, high bits of the scales (2 each), scales_l[4] (4 each), qs[128]. */
void dequant_iq4_xs(const unsigned char *src, float *dst, size_t n_blocks)
{
    for (size_t b = 0; b < n_blocks; b++, src += 136) {
        float d = dequant_f16_at(src);
        uint16_t scales_h;
        memcpy(&scales_h, src + 2, 2);
        for (int run = 0; run < 8; run++, dst += 32) {
            int low = src[4 + run / 2] >> (4 * (run % 2)) & 15;
            int high = scales_h >> (2 * run) & 3;
            float dl = d * (float)((low | high << 4) - 32);
            look_up(dequant_iq4_values, src + 8 + 16 * run, dl, dst);
        }
    }
}

/* 17 bytes: a power of two (e8m0), qs[16]. The scale is halved, as the table is doubled. */
void dequant_mxfp4(const unsigned char *src, float *dst, size_t n_blocks)
{
    for (size_t b = 0; b < n_blocks; b++, src += 17, dst += 32) {
        uint32_t e = src[0];
        uint32_t bits = e < 2 ? 0x00200000u << e : (e - 1) << 23;
        float d;
        memcpy(&d, &bits, 4);
        look_up(mxfp4_values, src + 1, d, dst);
    }
}
