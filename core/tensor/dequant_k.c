/* The k-quants: super-blocks of 256 weights, whose runs of 16 or 32 have scales (and minima) that are themselves
 * quantised under one or two half floats.
 *
 * Bit planes: where a byte holds several weights, its lowest bits belong to the first run of 32 (or 64) and the next bits
 * to the run behind it. */
#include "core/tensor/dequant.h"

/* 84 bytes: scales[16] (4 bits scale, 4 bits minimum), qs[64] (2 bits), d, dmin. */
void dequant_q2_k(const unsigned char *src, float *dst, size_t n_blocks)
{
    for (size_t b = 0; b < n_blocks; b++, src += 84) {
        const unsigned char *scales = src;
        const unsigned char *qs = src + 16;
        float d = dequant_f16_at(src + 80);
        float dmin = dequant_f16_at(src + 82);
        for (int run = 0; run < 16; run++, dst += 16) { /* run: 16 weights of one scale */
            const unsigned char *q = qs + 32 * (run / 8) + 16 * (run % 2);
            int shift = 2 * (run / 2 % 4);
            float dl = d * (float)(scales[run] & 15);
            float ml = dmin * (float)(scales[run] >> 4);
            for (int i = 0; i < 16; i++) {
                dst[i] = dl * (float)(q[i] >> shift & 3) - ml;
            }
        }
    }
}

/* 110 bytes: hmask[32] (bit 2 of each weight, inverted), qs[64] (bits 0 and 1), scales[12] (6 bits each), d. */
void dequant_q3_k(const unsigned char *src, float *dst, size_t n_blocks)
{
    for (size_t b = 0; b < n_blocks; b++, src += 110) {
        const unsigned char *hmask = src;
        const unsigned char *qs = src + 32;
        const unsigned char *scales = src + 96;
        float d = dequant_f16_at(src + 108);
        for (int run = 0; run < 16; run++, dst += 16) {
            int low = run < 8 ? scales[run] & 15 : scales[run - 8] >> 4;
            int high = scales[8 + run % 4] >> (2 * (run / 4)) & 3;
            float dl = d * (float)((low | high << 4) - 32);
            const unsigned char *q = qs + 32 * (run / 8) + 16 * (run % 2);
            const unsigned char *h = hmask + 16 * (run % 2);
            int shift = 2 * (run / 2 % 4);
            int bit = run / 2;
            for (int i = 0; i < 16; i++) {
                dst[i] = dl * (float)((q[i] >> shift & 3) - 4 + 4 * (h[i] >> bit & 1));
            }
        }
    }
}

/* 144 bytes: d, dmin, scales[12], qs[128] (4 bits). */
void dequant_q4_k(const unsigned char *src, float *dst, size_t n_blocks)
{
    for (size_t b = 0; b < n_blocks; b++, src += 144) {
        float d = dequant_f16_at(src);
        float dmin = dequant_f16_at(src + 2);
        const unsigned char *q = src + 16;
        for (int pair = 0; pair < 4; pair++, q += 32, dst += 64) { /* two runs of 32 share their bytes */
            int s0, m0, s1, m1;
            dequant_scale_min(src + 4, 2 * pair, &s0, &m0);
            dequant_scale_min(src + 4, 2 * pair + 1, &s1, &m1);
            float dl0 = d * (float)s0, ml0 = dmin * (float)m0;
            float dl1 = d * (float)s1, ml1 = dmin * (float)m1;
            for (int i = 0; i < 32; i++) {
                dst[i] = dl0 * (float)(q[i] & 15) - ml0;
                dst[i + 32] = dl1 * (float)(q[i] >> 4) - ml1;
            }
        }
    }
}

/* 176 bytes: d, dmin, scales[12], qh[32] (bit 4), qs[128] (4 bits). */
void dequant_q5_k(const unsigned char *src, float *dst, size_t n_blocks)
{
    for (size_t b = 0; b < n_blocks; b++, src += 176) {
        float d = dequant_f16_at(src);
        float dmin = dequant_f16_at(src + 2);
        const unsigned char *h = src + 16;
        const unsigned char *q = src + 48;
        for (int pair = 0; pair < 4; pair++, q += 32, dst += 64) {
            int s0, m0, s1, m1;
            dequant_scale_min(src + 4, 2 * pair, &s0, &m0);
            dequant_scale_min(src + 4, 2 * pair + 1, &s1, &m1);
            float dl0 = d * (float)s0, ml0 = dmin * (float)m0;
            float dl1 = d * (float)s1, ml1 = dmin * (float)m1;
            int bit = 2 * pair;
            for (int i = 0; i < 32; i++) {
                dst[i] = dl0 * (float)((q[i] & 15) | (h[i] >> bit & 1) << 4) - ml0;
                dst[i + 32] = dl1 * (float)(q[i] >> 4 | (h[i] >> (bit + 1) & 1) << 4) - ml1;
            }
        }
    }
}

/* 210 bytes: ql[128] (bits 0..3), qh[64] (bits 4 and 5), scales[16] (signed, 16 weights each), d. */
void dequant_q6_k(const unsigned char *src, float *dst, size_t n_blocks)
{
    for (size_t b = 0; b < n_blocks; b++, src += 210) {
        const signed char *scales = (const signed char *)src + 192;
        float d = dequant_f16_at(src + 208);
        for (int run = 0; run < 8; run++, dst += 32) { /* run: 32 weights, two scales */
            const unsigned char *l = src + 64 * (run / 4) + 32 * (run % 2);
            const unsigned char *h = src + 128 + 32 * (run / 4);
            int l_shift = 4 * (run / 2 % 2);
            int h_shift = 2 * (run % 4);
            for (int half = 0; half < 2; half++) {
                float dl = d * (float)scales[2 * run + half];
                for (int i = 16 * half; i < 16 * half + 16; i++) {
                    int q = (l[i] >> l_shift & 15) | (h[i] >> h_shift & 3) << 4;
                    dst[i] = dl * (float)(q - 32);
                }
            }
        }
    }
}
