/* simd's storage of weights: panels of 16 rows, from GGUF's blocks and back.
 *
 * A panel goes block after block of 32 columns; lane l is row l. Floats: column after column, 16 values each. Integers: a
 * block's 8 lines of 64 bytes, line g holding columns 4g .. 4g+3 of each lane in byte 4l + (column mod 4). That is at once a
 * VNNI operand, two halves of AVX2 and a tile of AMX. Fewer bits are planes of that:
 *   4 bits: 4 lines; line n has line n in its low and line n + 4 in its high nibbles;
 *   5 bits: and a line whose bit g is the top bit of line g;
 *   6 bits: and two lines, of lines 0..3 and 4..7, whose bits 2(g mod 4) and the next are the top bits of line g.
 * Headers, each entry for 16 lanes:
 *   S8, U4, U5 (2 blocks a group): 2 f16 d.     U4M, U5M: 2 f16 d, 2 f16 m.
 *   U4K, U5K (8 blocks a group): f16 d, f16 dmin, 8 u8 scales, 8 u8 minima.
 *   U6K, S8K: f16 d, 32 unused bytes, 8 pairs of s8 scales.
 * Nothing is rounded: the integers and half floats are those of the file. */
#include "core/backend/simd.h"
#include "core/tensor/dequant.h"

simd_format simd_format_of(atn_dtype t)
{
    switch (t) {
    case ATN_DTYPE_F16:
        return SIMD_F16;
    case ATN_DTYPE_BF16:
        return SIMD_BF16;
    case ATN_DTYPE_Q8_0:
    case ATN_DTYPE_IQ4_NL:
        return SIMD_S8;
    case ATN_DTYPE_Q4_0:
        return SIMD_U4;
    case ATN_DTYPE_Q5_0:
        return SIMD_U5;
    case ATN_DTYPE_Q4_1:
        return SIMD_U4M;
    case ATN_DTYPE_Q5_1:
        return SIMD_U5M;
    case ATN_DTYPE_Q4_K:
        return SIMD_U4K;
    case ATN_DTYPE_Q5_K:
        return SIMD_U5K;
    case ATN_DTYPE_Q6_K:
    case ATN_DTYPE_Q3_K:
        return SIMD_U6K;
    case ATN_DTYPE_IQ4_XS:
        return SIMD_S8K;
    case ATN_DTYPE_F32:
    case ATN_DTYPE_Q2_K:
    case ATN_DTYPE_MXFP4:
        break;
    }
    return SIMD_F32;
}

size_t simd_panel_bytes(simd_format f, uint32_t n_in)
{
    const simd_layout l = simd_layout_of(f);
    if (simd_is_float(f)) {
        return (size_t)n_in * (l.block / SIMD_BLOCK);
    }
    size_t n_blocks = n_in / SIMD_BLOCK, rest = n_blocks % l.group;
    return n_blocks / l.group * (l.header + (size_t)l.group * l.block) + (rest ? l.header + rest * (size_t)l.block : 0);
}

/* One block of one row, as integers. */
typedef struct int_block {
    uint8_t q[SIMD_BLOCK]; /* int8 in S8 and S8K */
    uint16_t d, m;         /* f16; m is dmin in U4K and U5K */
    uint8_t scale[2];      /* K: of the block, or of its halves (then int8) */
    uint8_t min;
} int_block;

/* ---- from GGUF ---- */

static uint16_t half_at(const unsigned char *p)
{
    uint16_t h;
    memcpy(&h, p, sizeof h);
    return h;
}

/* 16 bytes of nibbles: weight i in the low, i + 16 in the high half. */
static void read_nibbles(const unsigned char *src, uint8_t *q)
{
    for (uint32_t i = 0; i < 16; i++) {
        q[i] = src[i] & 15;
        q[i + 16] = src[i] >> 4;
    }
}

static void read_iq4(const unsigned char *src, uint8_t *q)
{
    read_nibbles(src, q);
    for (uint32_t i = 0; i < 32; i++) {
        q[i] = (uint8_t)(int8_t)dequant_iq4_values[q[i]];
    }
}

static void read_fifth_bits(const unsigned char *src, uint8_t *q)
{
    uint32_t high;
    memcpy(&high, src, sizeof high);
    for (uint32_t i = 0; i < 32; i++) {
        q[i] = (uint8_t)(q[i] | (high >> i & 1) << 4);
    }
}

/* Block j (0..7) of a super-block of Q4_K or Q5_K whose nibbles begin at qs. */
static void read_k45(const unsigned char *src, const unsigned char *qs, uint32_t j, int_block *out)
{
    int scale, min;
    dequant_scale_min(src + 4, (int)j, &scale, &min);
    out->d = half_at(src);
    out->m = half_at(src + 2);
    out->scale[0] = (uint8_t)scale;
    out->min = (uint8_t)min;
    for (uint32_t i = 0; i < 32; i++) {
        out->q[i] = qs[32 * (j / 2) + i] >> 4 * (j % 2) & 15;
    }
}

static void read_q3_k(const unsigned char *src, uint32_t j, int_block *out)
{
    const unsigned char *scales = src + 96;
    out->d = half_at(src + 108);
    for (uint32_t half = 0; half < 2; half++) {
        uint32_t run = 2 * j + half;
        int low = run < 8 ? scales[run] & 15 : scales[run - 8] >> 4;
        int high = scales[8 + run % 4] >> 2 * (run / 4) & 3;
        out->scale[half] = (uint8_t)((low | high << 4) - 32);
    }
    for (uint32_t i = 0; i < 32; i++) { /* -4 .. 3, under U6K's offset */
        int low = src[32 + 32 * (j / 4) + i] >> 2 * (j % 4) & 3;
        out->q[i] = (uint8_t)(low - 4 + 4 * (src[i] >> j & 1) + 32);
    }
}

static void read_q6_k(const unsigned char *src, uint32_t j, int_block *out)
{
    const unsigned char *low = src + 64 * (j / 4) + 32 * (j % 2), *high = src + 128 + 32 * (j / 4);
    out->d = half_at(src + 208);
    out->scale[0] = src[192 + 2 * j];
    out->scale[1] = src[192 + 2 * j + 1];
    for (uint32_t i = 0; i < 32; i++) {
        out->q[i] = (uint8_t)((low[i] >> 4 * (j / 2 % 2) & 15) | (high[i] >> 2 * (j % 4) & 3) << 4);
    }
}

static void read_iq4_xs(const unsigned char *src, uint32_t j, int_block *out)
{
    int low = src[4 + j / 2] >> 4 * (j % 2) & 15, high = half_at(src + 2) >> 2 * j & 3;
    out->d = half_at(src);
    out->scale[0] = out->scale[1] = (uint8_t)((low | high << 4) - 32);
    read_iq4(src + 8 + 16 * j, out->q);
}

/* Block b of a row. */
static void read_block(atn_dtype t, const unsigned char *row, uint32_t b, int_block *out)
{
    uint32_t blocks = atn_dtype_block(t) / SIMD_BLOCK, j = b % blocks;
    const unsigned char *src = row + (size_t)(b / blocks) * atn_dtype_block_bytes(t);
    memset(out, 0, sizeof *out);
    out->d = half_at(src);
    switch (t) {
    case ATN_DTYPE_Q8_0:
        memcpy(out->q, src + 2, 32);
        break;
    case ATN_DTYPE_IQ4_NL:
        read_iq4(src + 2, out->q);
        break;
    case ATN_DTYPE_Q4_0:
        read_nibbles(src + 2, out->q);
        break;
    case ATN_DTYPE_Q4_1:
        out->m = half_at(src + 2);
        read_nibbles(src + 4, out->q);
        break;
    case ATN_DTYPE_Q5_0:
        read_nibbles(src + 6, out->q);
        read_fifth_bits(src + 2, out->q);
        break;
    case ATN_DTYPE_Q5_1:
        out->m = half_at(src + 2);
        read_nibbles(src + 8, out->q);
        read_fifth_bits(src + 4, out->q);
        break;
    case ATN_DTYPE_Q4_K:
        read_k45(src, src + 16, j, out);
        break;
    case ATN_DTYPE_Q5_K:
        read_k45(src, src + 48, j, out);
        for (uint32_t i = 0; i < 32; i++) {
            out->q[i] = (uint8_t)(out->q[i] | (src[16 + i] >> j & 1) << 4);
        }
        break;
    case ATN_DTYPE_Q3_K:
        read_q3_k(src, j, out);
        break;
    case ATN_DTYPE_Q6_K:
        read_q6_k(src, j, out);
        break;
    case ATN_DTYPE_IQ4_XS:
        read_iq4_xs(src, j, out);
        break;
    default: /* floats do not come here */
        break;
    }
}

/* ---- to panels ---- */

static unsigned char *group_at(simd_format f, const unsigned char *panel, uint32_t b)
{
    const simd_layout l = simd_layout_of(f);
    return (unsigned char *)panel + (size_t)(b / l.group) * (l.header + (size_t)l.group * l.block);
}

/* Where the header keeps what belongs to block j of a lane; NULL: the format has no such thing. */
typedef struct header_at {
    unsigned char *d, *m, *scale[2], *min;
} header_at;

static header_at find_header(simd_format f, unsigned char *group, uint32_t j, uint32_t lane)
{
    header_at h = {.d = group + 2 * lane};
    switch (f) {
    case SIMD_U4M:
    case SIMD_U5M:
        h.m = group + 64 + 32 * j + 2 * lane;
        /* fall through */
    case SIMD_S8:
    case SIMD_U4:
    case SIMD_U5:
        h.d = group + 32 * j + 2 * lane;
        break;
    case SIMD_U4K:
    case SIMD_U5K:
        h.m = group + 32 + 2 * lane;
        h.scale[0] = group + 64 + 16 * j + lane;
        h.min = group + 192 + 16 * j + lane;
        break;
    default: /* U6K, S8K */
        h.scale[0] = group + 64 + 32 * j + lane;
        h.scale[1] = h.scale[0] + 16;
        break;
    }
    return h;
}

/* The planes of a block. */
static uint32_t plane_bits(simd_format f)
{
    switch (f) {
    case SIMD_U4:
    case SIMD_U4M:
    case SIMD_U4K:
        return 4;
    case SIMD_U5:
    case SIMD_U5M:
    case SIMD_U5K:
        return 5;
    case SIMD_U6K:
        return 6;
    default:
        return 8;
    }
}

static void put_block(simd_format f, unsigned char *panel, uint32_t b, uint32_t lane, const int_block *in)
{
    const simd_layout l = simd_layout_of(f);
    unsigned char *group = group_at(f, panel, b);
    uint32_t j = b % l.group, bits = plane_bits(f);
    header_at h = find_header(f, group, j, lane);
    memcpy(h.d, &in->d, 2);
    if (h.m) {
        memcpy(h.m, &in->m, 2);
    }
    for (uint32_t half = 0; half < 2 && h.scale[half]; half++) {
        *h.scale[half] = in->scale[half];
    }
    if (h.min) {
        *h.min = in->min;
    }
    unsigned char *q = group + l.header + (size_t)j * l.block + 4 * lane;
    for (uint32_t i = 0; i < SIMD_BLOCK; i++) {
        uint32_t g = i / 4, n = g % 4, v = in->q[i];
        unsigned char *at = q + i % 4;
        if (bits == 8) {
            at[64 * g] = (unsigned char)v;
            continue;
        }
        at[64 * n] = (unsigned char)(at[64 * n] | (v & 15) << (g < 4 ? 0 : 4));
        if (bits == 5) {
            at[256] = (unsigned char)(at[256] | v >> 4 << g);
        } else if (bits == 6) {
            unsigned char *top = at + (g < 4 ? 256 : 320);
            *top = (unsigned char)(*top | v >> 4 << 2 * n);
        }
    }
}

static void get_block(simd_format f, const unsigned char *panel, uint32_t b, uint32_t lane, int_block *out)
{
    const simd_layout l = simd_layout_of(f);
    unsigned char *group = group_at(f, panel, b);
    uint32_t j = b % l.group, bits = plane_bits(f);
    header_at h = find_header(f, group, j, lane);
    memset(out, 0, sizeof *out);
    out->d = half_at(h.d);
    out->m = h.m ? half_at(h.m) : 0;
    for (uint32_t half = 0; half < 2 && h.scale[half]; half++) {
        out->scale[half] = *h.scale[half];
    }
    out->min = h.min ? *h.min : 0;
    const unsigned char *q = group + l.header + (size_t)j * l.block + 4 * lane;
    for (uint32_t i = 0; i < SIMD_BLOCK; i++) {
        uint32_t g = i / 4, n = g % 4;
        const unsigned char *at = q + i % 4;
        if (bits == 8) {
            out->q[i] = at[64 * g];
            continue;
        }
        uint32_t v = at[64 * n] >> (g < 4 ? 0 : 4) & 15;
        if (bits == 5) {
            v |= (at[256] >> g & 1u) << 4;
        } else if (bits == 6) {
            v |= (at[g < 4 ? 256 : 320] >> 2 * n & 3u) << 4;
        }
        out->q[i] = (uint8_t)v;
    }
}

/* Float rows: 2 or 4 bytes a value, column after column. */
static void pack_floats(atn_dtype t, const unsigned char *rows, size_t row_bytes, uint32_t n_rows, uint32_t n_in,
                        unsigned char *panel)
{
    size_t block = atn_dtype_block(t), block_bytes = atn_dtype_block_bytes(t);
    for (uint32_t lane = 0; lane < n_rows; lane++) {
        const unsigned char *src = rows + lane * row_bytes;
        if (block == 1) {
            for (size_t i = 0; i < n_in; i++) {
                memcpy(panel + (i * SIMD_LANES + lane) * block_bytes, src + i * block_bytes, block_bytes);
            }
            continue;
        }
        float values[256];
        for (size_t at = 0; at < n_in; at += block) {
            atn_dequantize(t, src + at / block * block_bytes, values, block);
            for (size_t i = 0; i < block; i++) {
                memcpy(panel + ((at + i) * SIMD_LANES + lane) * sizeof(float), &values[i], sizeof(float));
            }
        }
    }
}

void simd_pack_panel(atn_dtype t, const unsigned char *rows, size_t row_bytes, uint32_t n_rows, uint32_t n_in,
                     unsigned char *panel)
{
    simd_format f = simd_format_of(t);
    if (simd_is_float(f)) {
        pack_floats(t, rows, row_bytes, n_rows, n_in, panel);
        return;
    }
    for (uint32_t b = 0; b < n_in / SIMD_BLOCK; b++) {
        for (uint32_t lane = 0; lane < n_rows; lane++) {
            int_block block;
            read_block(t, rows + lane * row_bytes, b, &block);
            put_block(f, panel, b, lane, &block);
        }
    }
}

/* ---- and back ---- */

/* The floats of a block, by the operations of core/tensor/dequant*.c, in their order. */
static void block_floats(simd_format f, const int_block *in, float *dst)
{
    float d = half_f16_to_f32(in->d), m = half_f16_to_f32(in->m);
    for (uint32_t i = 0; i < SIMD_BLOCK; i++) {
        int q = in->q[i];
        switch (f) {
        case SIMD_S8:
            dst[i] = d * (float)(int8_t)q;
            break;
        case SIMD_U4:
            dst[i] = d * (float)(q - 8);
            break;
        case SIMD_U5:
            dst[i] = d * (float)(q - 16);
            break;
        case SIMD_U4M:
        case SIMD_U5M:
            dst[i] = d * (float)q + m;
            break;
        case SIMD_U4K:
        case SIMD_U5K:
            dst[i] = d * (float)in->scale[0] * (float)q - m * (float)in->min;
            break;
        case SIMD_U6K:
            dst[i] = d * (float)(int8_t)in->scale[i / 16] * (float)(q - 32);
            break;
        default:
            dst[i] = d * (float)(int8_t)in->scale[i / 16] * (float)(int8_t)q;
            break;
        }
    }
}

void simd_unpack_row(simd_format f, const unsigned char *panel, uint32_t lane, uint32_t n_in, float *dst)
{
    if (simd_is_float(f)) {
        for (size_t i = 0; i < n_in; i++) {
            uint16_t h;
            if (f == SIMD_F32) {
                memcpy(&dst[i], panel + (i * SIMD_LANES + lane) * sizeof(float), sizeof(float));
                continue;
            }
            memcpy(&h, panel + (i * SIMD_LANES + lane) * sizeof h, sizeof h);
            dst[i] = f == SIMD_F16 ? half_f16_to_f32(h) : half_bf16_to_f32(h);
        }
        return;
    }
    for (uint32_t b = 0; b < n_in / SIMD_BLOCK; b++) {
        int_block block;
        get_block(f, panel, b, lane, &block);
        block_floats(f, &block, dst + (size_t)b * SIMD_BLOCK);
    }
}
