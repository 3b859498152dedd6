/* The one body of simd's matrix products: included by one thin file per instruction set, which defines before it
 *   bytes64  64 unsigned bytes (4 for each lane):  bytes_load, bytes_and, bytes_or, bytes_sub (of a constant), bytes_shl and
 *            bytes_shr (bits may come in from a neighbouring byte: what the body keeps is below);
 *   quad     a bytes64 of signed bytes made ready for dots:  quad_of, quad_store, QUAD_BYTES;
 *   part     a stored quad in QUAD_PARTS pieces, so that not all of it must be in registers:  part_load;
 *   isum     16 integer sums:  isum_zero, isum_dot (adds a quad times 4 activations at x), isum_part (adds a part times its
 *            4 / QUAD_PARTS activations), isum_lanes (each rounded once);
 *   lanes    16 floats:  lanes_zero, lanes_set, lanes_load, lanes_store, lanes_f16, lanes_bf16, lanes_u8, lanes_s8 (from
 *            memory, exact), lanes_neg, lanes_add, lanes_mul, lanes_fma (a * b + c, rounded once);
 *   prefetch of a line, and SIMD_PANELS, the name of the function that this file makes.
 * Rules (docs/numerics.md): an output is one lane and one chain, blocks ascending:
 *     acc = fma(dw * dx, (float)isum, acc), then, where the format has minima, acc = fma(m, sd, acc);
 * floats: s = fma(w, x, s) over a block's columns from +0, then acc = acc + s. At last acc + bias. How many rows or panels
 * are computed together changes none of it: accumulators are kept whole in registers or in memory. */
#ifndef ATN_SIMD_MATMUL_BODY_H
#define ATN_SIMD_MATMUL_BODY_H

#include "core/backend/simd_formats_body.h"

enum {
    X_BLOCK = SIMD_BLOCK * 2, /* bytes of a block of quantised activations */
    AHEAD = 2048,             /* bytes that are asked for ahead of use, in each of two panels */
    ROWS_AT_ONCE = 64,        /* rows for which a block of weights is unpacked once */
};

/* ---- a tile of activations ---- */

typedef struct tile {
    const unsigned char *x; /* integers: [n_blocks][n][X_BLOCK]; floats: [n_blocks][n][32] */
    const float *d, *sd;    /* [n_blocks][n] */
    uint32_t n;             /* rows */
} tile;

INLINE tile tile_at(const simd_job *job, uint32_t row)
{
    tile t = {.x = job->acts + (size_t)row * job->act_row_bytes};
    t.n = job->n_rows - row < SIMD_TILE ? job->n_rows - row : SIMD_TILE;
    t.d = (const float *)(const void *)(t.x + (size_t)job->n_blocks * t.n * X_BLOCK);
    t.sd = t.d + (size_t)job->n_blocks * t.n;
    return t;
}

/* Writes one panel's outputs of a row. */
INLINE void put_row(const simd_job *job, uint32_t row, uint32_t panel, lanes acc)
{
    uint32_t o = panel * SIMD_LANES, n = job->n_out - o < SIMD_LANES ? job->n_out - o : SIMD_LANES;
    float *dst = job->dst + row * job->dst_stride + o;
    if (n == SIMD_LANES) {
        lanes_store(dst, job->bias ? lanes_add(acc, lanes_load(job->bias + o)) : acc);
        return;
    }
    float room[SIMD_LANES];
    lanes_store(room, acc);
    for (uint32_t i = 0; i < n; i++) {
        dst[i] = job->bias ? room[i] + job->bias[o + i] : room[i];
    }
}

/* Asks for what comes AHEAD bytes behind `at` in a panel: near its end, that is in the panel which is read after it, n_side
 * panels on. */
INLINE void ask_ahead(const simd_job *job, const unsigned char *panel, size_t at, uint32_t bytes, uint32_t n_side)
{
    size_t to = at + AHEAD;
    to += to >= job->panel_bytes ? (n_side - 1) * job->panel_bytes : 0;
    for (uint32_t i = 0; i < bytes; i += 64) {
        prefetch((uintptr_t)panel + to + i);
    }
}

/* ---- one row: everything in registers, two panels side by side, so that memory is read in two streams ----
 * State is in named variables, not in arrays: gcc 12 would keep arrays in memory. */

typedef struct side {
    const unsigned char *panel;
    lanes acc;
    isum s, s2; /* of the block, or of its halves */
    top_bits top;
} side;

INLINE side side_begin(const simd_job *job, uint32_t panel)
{
    side a;
    a.panel = job->panels + panel * job->panel_bytes;
    a.acc = lanes_zero();
    return a;
}

INLINE void side_block(simd_format f, side *a, size_t q)
{
    a->top = top_load(f, a->panel + q);
    a->s = a->s2 = isum_zero();
}

INLINE void side_lines(simd_format f, side *a, size_t q, uint32_t n, const unsigned char *x)
{
    bytes64 lo, hi;
    line_pair(f, a->panel + q, n, &a->top, &lo, &hi);
    a->s = isum_dot(a->s, quad_of(lo), x + 8 * n);
    if (has_halves(f)) {
        a->s2 = isum_dot(a->s2, quad_of(hi), x + 8 * n + 32);
    } else {
        a->s = isum_dot(a->s, quad_of(hi), x + 8 * n + 32);
    }
}

INLINE void side_add(simd_format f, side *a, size_t at, uint32_t j, float d, float sd)
{
    const unsigned char *group = a->panel + at;
    lanes dx = lanes_set(d);
    a->acc = lanes_fma(lanes_mul(scale_of(f, group, j, 0), dx), isum_lanes(a->s), a->acc);
    if (has_halves(f)) {
        a->acc = lanes_fma(lanes_mul(scale_of(f, group, j, 1), dx), isum_lanes(a->s2), a->acc);
    }
    if (has_min(f)) {
        a->acc = lanes_fma(min_of(f, group, j), lanes_set(sd), a->acc);
    }
}

/* two: panel + 1 as well. */
INLINE void one_row(simd_format f, bool two, const simd_job *job, uint32_t panel)
{
    const simd_layout l = simd_layout_of(f);
    const uint32_t share = l.header / l.group + l.block;
    const tile t = tile_at(job, 0);
    side a = side_begin(job, panel), b = side_begin(job, panel + two);
    size_t at = 0; /* of the group, in a panel */
    for (uint32_t b0 = 0; b0 < job->n_blocks; b0 += l.group, at += l.header + l.group * l.block) {
        uint32_t n = job->n_blocks - b0 < l.group ? job->n_blocks - b0 : l.group;
        for (uint32_t j = 0; j < n; j++) {
            const unsigned char *x = t.x + (size_t)(b0 + j) * X_BLOCK;
            size_t q = at + l.header + j * l.block;
            ask_ahead(job, a.panel, at + j * share, share, 1 + two);
            side_block(f, &a, q);
            if (two) {
                ask_ahead(job, b.panel, at + j * share, share, 2);
                side_block(f, &b, q);
            }
#pragma GCC unroll 2
            for (uint32_t i = 0; i < 4; i++) {
                side_lines(f, &a, q, i, x);
                if (two) {
                    side_lines(f, &b, q, i, x);
                }
            }
            side_add(f, &a, at, j, t.d[b0 + j], t.sd[b0 + j]);
            if (two) {
                side_add(f, &b, at, j, t.d[b0 + j], t.sd[b0 + j]);
            }
        }
    }
    put_row(job, 0, panel, a.acc);
    if (two) {
        put_row(job, 0, panel + 1, b.acc);
    }
}

INLINE void one_row_floats(simd_format f, bool two, const simd_job *job, uint32_t panel)
{
    const uint32_t block = simd_layout_of(f).block;
    const tile t = tile_at(job, 0);
    const unsigned char *wa = job->panels + panel * job->panel_bytes, *wb = wa + two * job->panel_bytes;
    lanes a = lanes_zero(), b = a;
    for (uint32_t i = 0; i < job->n_blocks; i++) {
        const float *x = (const float *)(const void *)t.x + (size_t)i * SIMD_BLOCK;
        uint32_t n = job->n_in - i * SIMD_BLOCK < SIMD_BLOCK ? job->n_in - i * SIMD_BLOCK : SIMD_BLOCK;
        size_t at = (size_t)i * block;
        lanes sa = lanes_zero(), sb = sa;
        ask_ahead(job, wa, at, block, 1 + two);
        if (two) {
            ask_ahead(job, wb, at, block, 2);
        }
#pragma GCC unroll 4
        for (uint32_t k = 0; k < n; k++) {
            lanes xk = lanes_set(x[k]);
            sa = lanes_fma(column_of(f, wa + at, k), xk, sa);
            if (two) {
                sb = lanes_fma(column_of(f, wb + at, k), xk, sb);
            }
        }
        a = lanes_add(a, sa);
        b = lanes_add(b, sb);
    }
    put_row(job, 0, panel, a);
    if (two) {
        put_row(job, 0, panel + 1, b);
    }
}

/* ---- many rows: a block of weights is unpacked once, its products go to accumulators in memory ---- */

typedef struct unpacked {
    _Alignas(64) unsigned char w[8 * QUAD_BYTES > 2048 ? 8 * QUAD_BYTES : 2048]; /* 8 quads, or 32 columns of floats */
    _Alignas(64) float scale[2][SIMD_LANES], min[SIMD_LANES];
} unpacked;

INLINE void unpack(simd_format f, const unsigned char *group, uint32_t j, unpacked *u)
{
    const unsigned char *q = group + simd_layout_of(f).header + j * simd_layout_of(f).block;
    top_bits top = top_load(f, q);
#pragma GCC unroll 2
    for (uint32_t n = 0; n < 4; n++) {
        bytes64 lo, hi;
        line_pair(f, q, n, &top, &lo, &hi);
        quad_store(u->w + n * QUAD_BYTES, quad_of(lo));
        quad_store(u->w + (n + 4) * QUAD_BYTES, quad_of(hi));
    }
    lanes_store(u->scale[0], scale_of(f, group, j, 0));
    if (has_halves(f)) {
        lanes_store(u->scale[1], scale_of(f, group, j, 1));
    }
    if (has_min(f)) {
        lanes_store(u->min, min_of(f, group, j));
    }
}

/* One row's sums of a block, or of half of it, added to its accumulator. */
INLINE void row_add(simd_format f, const unpacked *u, uint32_t half, isum s, float d, float sd, float *acc)
{
    lanes a = lanes_fma(lanes_mul(lanes_load(u->scale[half]), lanes_set(d)), isum_lanes(s), lanes_load(acc));
    lanes_store(acc, has_min(f) ? lanes_fma(lanes_load(u->min), lanes_set(sd), a) : a);
}

/* Sums of up to 4 rows. */
typedef struct sums {
    isum a, b, c, d;
} sums;

/* n (a constant) rows' products with part i of a block. */
INLINE sums sums_part(sums s, uint32_t n, const unsigned char *w, const unsigned char *x, uint32_t i)
{
    part p = part_load(w + QUAD_BYTES / QUAD_PARTS * i);
    x += 8 / QUAD_PARTS * i;
    s.a = isum_part(s.a, p, x);
    s.b = n > 1 ? isum_part(s.b, p, x + X_BLOCK) : s.b;
    s.c = n > 2 ? isum_part(s.c, p, x + 2 * X_BLOCK) : s.c;
    s.d = n > 3 ? isum_part(s.d, p, x + 3 * X_BLOCK) : s.d;
    return s;
}

/* Adds one unpacked block's products to n (a constant, up to 4) rows of acc. */
INLINE void rows_add(simd_format f, uint32_t n, const unpacked *u, const unsigned char *x, const float *d,
                     const float *sd, float *acc)
{
    const uint32_t n_lines = has_halves(f) ? 4 : 8;
    for (uint32_t half = 0; half < 8 / n_lines; half++) {
        const unsigned char *w = u->w + QUAD_BYTES * 4 * half, *xh = x + 8 * 4 * half;
        sums s = {isum_zero(), isum_zero(), isum_zero(), isum_zero()};
#pragma GCC unroll 1
        for (uint32_t g = 0; g < n_lines; g++) {
            s = sums_part(s, n, w, xh, QUAD_PARTS * g);
            s = QUAD_PARTS > 1 ? sums_part(s, n, w, xh, QUAD_PARTS * g + 1) : s;
        }
        row_add(f, u, half, s.a, d[0], sd[0], acc);
        if (n > 1) {
            row_add(f, u, half, s.b, d[1], sd[1], acc + SIMD_LANES);
        }
        if (n > 2) {
            row_add(f, u, half, s.c, d[2], sd[2], acc + 2 * SIMD_LANES);
        }
        if (n > 3) {
            row_add(f, u, half, s.d, d[3], sd[3], acc + 3 * SIMD_LANES);
        }
    }
}

INLINE void float_row_add(lanes s, float *acc)
{
    lanes_store(acc, lanes_add(lanes_load(acc), s));
}

INLINE void float_rows_add(uint32_t n, const float *w, uint32_t n_columns, const float *x, float *acc)
{
    lanes s0 = lanes_zero(), s1 = s0, s2 = s0, s3 = s0;
#pragma GCC unroll 2
    for (uint32_t k = 0; k < n_columns; k++) {
        lanes wk = lanes_load(w + k * SIMD_LANES);
        s0 = lanes_fma(wk, lanes_set(x[k]), s0);
        s1 = n > 1 ? lanes_fma(wk, lanes_set(x[SIMD_BLOCK + k]), s1) : s1;
        s2 = n > 2 ? lanes_fma(wk, lanes_set(x[2 * SIMD_BLOCK + k]), s2) : s2;
        s3 = n > 3 ? lanes_fma(wk, lanes_set(x[3 * SIMD_BLOCK + k]), s3) : s3;
    }
    float_row_add(s0, acc);
    if (n > 1) {
        float_row_add(s1, acc + SIMD_LANES);
    }
    if (n > 2) {
        float_row_add(s2, acc + 2 * SIMD_LANES);
    }
    if (n > 3) {
        float_row_add(s3, acc + 3 * SIMD_LANES);
    }
}

/* n (a constant) rows of a tile from r on: w is where float weights are, u has the others. */
INLINE void tile_rows_add(simd_format f, uint32_t n, const unpacked *u, const float *w, uint32_t n_columns,
                          const tile *t, uint32_t b, uint32_t r, float *acc)
{
    size_t at = (size_t)b * t->n + r;
    if (simd_is_float(f)) {
        float_rows_add(n, w, n_columns, (const float *)(const void *)t->x + at * SIMD_BLOCK, acc + r * SIMD_LANES);
    } else {
        rows_add(f, n, u, t->x + at * X_BLOCK, t->d + at, t->sd + at, acc + r * SIMD_LANES);
    }
}

INLINE void tile_add(simd_format f, const unpacked *u, const float *w, uint32_t n_columns, const tile *t, uint32_t b,
                     float *acc)
{
    uint32_t r = 0;
    for (; r + 4 <= t->n; r += 4) {
        tile_rows_add(f, 4, u, w, n_columns, t, b, r, acc);
    }
    if (t->n - r == 3) {
        tile_rows_add(f, 3, u, w, n_columns, t, b, r, acc);
    } else if (t->n - r == 2) {
        tile_rows_add(f, 2, u, w, n_columns, t, b, r, acc);
    } else if (t->n - r == 1) {
        tile_rows_add(f, 1, u, w, n_columns, t, b, r, acc);
    }
}

/* Up to 64 rows from `row` on, of one panel's block b. */
INLINE void block_add(simd_format f, const simd_job *job, const unsigned char *panel, uint32_t b, uint32_t row,
                      uint32_t n_rows, uint32_t n_side, unpacked *u, float *acc)
{
    const simd_layout l = simd_layout_of(f);
    const size_t at = (size_t)(b / l.group) * (l.header + l.group * l.block);
    const float *w = (const float *)(const void *)u->w;
    uint32_t n_columns = job->n_in - b * SIMD_BLOCK < SIMD_BLOCK ? job->n_in - b * SIMD_BLOCK : SIMD_BLOCK;
    if (row == 0) { /* later rows find the panel in a cache */
        uint32_t share = l.header / l.group + l.block;
        ask_ahead(job, panel, at + b % l.group * share, share, n_side);
    }
    if (!simd_is_float(f)) {
        unpack(f, panel + at, b % l.group, u);
    } else if (f == SIMD_F32) {
        w = (const float *)(const void *)(panel + at);
    } else {
        for (uint32_t k = 0; k < n_columns; k++) {
            lanes_store((float *)(void *)u->w + k * SIMD_LANES, column_of(f, panel + at, k));
        }
    }
    for (uint32_t r = 0; r < n_rows; r += SIMD_TILE) {
        const tile t = tile_at(job, row + r);
        tile_add(f, u, w, n_columns, &t, b, acc + r * SIMD_LANES);
    }
}

INLINE void many_rows(simd_format f, const simd_job *job, uint32_t from, uint32_t to)
{
    _Alignas(64) float acc[2][ROWS_AT_ONCE * SIMD_LANES];
    unpacked u;
    for (uint32_t row = 0; row < job->n_rows; row += ROWS_AT_ONCE) {
        uint32_t n_rows = job->n_rows - row < ROWS_AT_ONCE ? job->n_rows - row : ROWS_AT_ONCE;
        for (uint32_t p = from; p < to; p += 2) {
            uint32_t n_side = to - p < 2 ? 1 : 2;
            memset(acc, 0, sizeof acc);
            for (uint32_t b = 0; b < job->n_blocks; b++) {
                for (uint32_t i = 0; i < n_side; i++) {
                    block_add(f, job, job->panels + (p + i) * job->panel_bytes, b, row, n_rows, n_side, &u, acc[i]);
                }
            }
            for (uint32_t r = 0; r < n_rows; r++) {
                for (uint32_t i = 0; i < n_side; i++) {
                    put_row(job, row + r, p + i, lanes_load(acc[i] + r * SIMD_LANES));
                }
            }
        }
    }
}

INLINE void panels_of(simd_format f, const simd_job *job, uint32_t from, uint32_t to)
{
    if (job->n_rows > 1) {
        many_rows(f, job, from, to);
        return;
    }
    for (uint32_t p = from; p < to; p += 2) {
        bool two = to - p > 1;
        if (simd_is_float(f)) {
            two ? one_row_floats(f, true, job, p) : one_row_floats(f, false, job, p);
        } else {
            two ? one_row(f, true, job, p) : one_row(f, false, job, p);
        }
    }
}

/* One function a format, so that each is compiled with its constants. */
#define PANELS_OF(format)                                                                                  \
    static __attribute__((noinline)) void panels_##format(const simd_job *job, uint32_t from, uint32_t to) \
    {                                                                                                      \
        panels_of(SIMD_##format, job, from, to);                                                           \
    }
#define EACH_FORMAT(X) X(F32) X(F16) X(BF16) X(S8) X(U4) X(U5) X(U4M) X(U5M) X(U4K) X(U5K) X(U6K) X(S8K)
EACH_FORMAT(PANELS_OF)

static void SIMD_PANELS(const simd_job *job, uint32_t from, uint32_t to)
{
    static void (*const table[SIMD_N_FORMATS])(const simd_job *, uint32_t, uint32_t) = {
#define ENTRY(format) [SIMD_##format] = panels_##format,
        EACH_FORMAT(ENTRY)
#undef ENTRY
    };
    table[job->format](job, from, to);
}

#endif
