/* simd: quantised weights in panels, activations quantised to 16 bits, integer dots; one body of kernels compiled once per
 * instruction set, with the same bits on each. The arithmetic is defined in docs/numerics.md ("simd-1").
 *
 * A panel is 16 rows of a weight, one to a lane, so that every output lives in one lane with one chain of sums. A panel is
 * stored block after block of 32 columns (simd_pack.c says how); so are activations, in tiles of up to 16 rows.
 * An ISA is one constant table; simd.c picks the best that this CPU runs.
 * Thread: tables are constant; the state belongs to the backend's thread, jobs are read by all workers. */
#ifndef ATN_SIMD_H
#define ATN_SIMD_H

#include "core/backend/simd_attention.h"

enum {
    SIMD_LANES = 16,    /* rows of a panel */
    SIMD_BLOCK = 32,    /* columns of a block */
    SIMD_TILE = 16,     /* most rows of a tile of activations */
    SIMD_SLAB = 512,    /* most rows quantised at a time */
    SIMD_LIMIT = 32512, /* 127 * 256: the largest quantised activation; 127 with 8 bits */
};

/* How a weight's panels are stored. A block's weights are d * (q - offset) + m, with (K) d and m made of a half float for
 * 256 columns and an integer for 16 or 32. */
typedef enum simd_format {
    SIMD_F32,  /* F32, and what has no better form (Q2_K, MXFP4) */
    SIMD_F16,  /* F16 */
    SIMD_BF16, /* BF16 */
    SIMD_S8,   /* int8, d: Q8_0, IQ4_NL */
    SIMD_U4,   /* 4 bits, d, offset 8: Q4_0 */
    SIMD_U5,   /* 5 bits, d, offset 16: Q5_0 */
    SIMD_U4M,  /* 4 bits, d and m: Q4_1 */
    SIMD_U5M,  /* 5 bits, d and m: Q5_1 */
    SIMD_U4K,  /* 4 bits, K, d and m a block: Q4_K */
    SIMD_U5K,  /* 5 bits, K, d and m a block: Q5_K */
    SIMD_U6K,  /* 6 bits, K, d for 16 columns, offset 32: Q6_K, Q3_K */
    SIMD_S8K,  /* int8, K, d for 16 columns: IQ4_XS */
    SIMD_N_FORMATS
} simd_format;

/* Blocks come in groups with one header: [header][block 0][block 1]...; a row's last group may be short. */
typedef struct simd_layout {
    uint32_t group;  /* blocks of a group */
    uint32_t header; /* bytes, multiples of 64 */
    uint32_t block;
} simd_layout;

static inline simd_layout simd_layout_of(simd_format f)
{
    static const simd_layout table[SIMD_N_FORMATS] = {
        [SIMD_F32] = {1, 0, 32 * 64}, [SIMD_F16] = {1, 0, 32 * 32}, [SIMD_BF16] = {1, 0, 32 * 32},
        [SIMD_S8] = {2, 64, 512},     [SIMD_U4] = {2, 64, 256},     [SIMD_U5] = {2, 64, 320},
        [SIMD_U4M] = {2, 128, 256},   [SIMD_U5M] = {2, 128, 320},   [SIMD_U4K] = {8, 320, 256},
        [SIMD_U5K] = {8, 320, 320},   [SIMD_U6K] = {8, 320, 384},   [SIMD_S8K] = {8, 320, 512},
    };
    return table[f];
}

/* One matrix product over the rows of a slab: dst[n_rows, n_out] = acts * panels + bias. */
typedef struct simd_job {
    simd_format format;
    uint32_t n_in, n_out, n_blocks; /* n_blocks = ceil(n_in / SIMD_BLOCK) */
    uint32_t n_rows;
    const unsigned char *panels; /* [ceil(n_out / 16)] of panel_bytes */
    size_t panel_bytes;
    const unsigned char *acts; /* tiles of SIMD_TILE rows, the last may have fewer, SIMD_TILE * act_row_bytes apart */
    size_t act_row_bytes;
    float *dst;
    size_t dst_stride;
    const float *bias; /* [n_out] or NULL */
} simd_job;

typedef struct simd_isa {
    const char *name;
    /* A tile of R rows of quantised activations is values [n_blocks][R][32] of 2 bytes (in an order of the ISA's own), then
     * d [n_blocks][R] and sd [n_blocks][R] as floats: d is the block's scale, sd is d times the sum of its values.
     * x: R rows, stride floats apart; limit: SIMD_LIMIT or 127. */
    void (*quantise)(const float *x, size_t stride, uint32_t n_rows, uint32_t n_in, float limit, unsigned char *tile);
    /* The job's outputs of panels from .. to-1. */
    void (*panels)(const simd_job *job, uint32_t from, uint32_t to);
} simd_isa;

extern const simd_isa simd_generic; /* plain C: the definition */
extern const simd_isa simd_avx2;    /* only where cpu_detect says avx2 */

/* The backend's own state (be->state). */
typedef struct simd_state {
    simd_floats floats; /* first: attention and row ops look for it here */
    const simd_isa *isa;
    float limit;  /* of quantised activations */
    hostmem acts; /* one slab of the widest weight bound so far */
} simd_state;

/* The best table for this CPU. */
const simd_isa *simd_pick(void);
/* Opens with a given table and 16- or 8-bit activations: simd_ops.open is this with simd_pick() and 16. */
atn_status simd_open_isa(atn_backend *be, const simd_isa *isa, unsigned bits, atn_err *err) ATN_MUST_CHECK;

/* ---- core/backend/simd_pack.c ---- */

simd_format simd_format_of(atn_dtype t);
size_t simd_panel_bytes(simd_format f, uint32_t n_in);
/* Packs n_rows <= 16 rows (row_bytes apart, as in GGUF) into one zeroed panel. */
void simd_pack_panel(atn_dtype t, const unsigned char *rows, size_t row_bytes, uint32_t n_rows, uint32_t n_in,
                     unsigned char *panel);
/* dst[n_in] = the floats that atn_dequantize gives for row `lane` of the panel. */
void simd_unpack_row(simd_format f, const unsigned char *panel, uint32_t lane, uint32_t n_in, float *dst);

/* ---- core/backend/simd_matmul.c ---- */

static inline bool simd_is_float(simd_format f)
{
    return f <= SIMD_BF16;
}

static inline uint32_t simd_n_blocks(uint32_t n_in)
{
    return n_in / SIMD_BLOCK + (n_in % SIMD_BLOCK != 0);
}

/* Bytes of a row of activations for weights of that format. */
size_t simd_act_row_bytes(simd_format f, uint32_t n_in);
void simd_matmul(atn_backend *be, const atn_matmul_args *a);

#endif
