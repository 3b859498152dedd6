/* openblas: float32 matrix products through CBLAS over dequantised tiles of the weights.
 *
 * Our pool splits the output columns into tiles; a worker dequantises its tile [cols, n_in] into scratch and calls sgemm on
 * one BLAS thread. All other ops are naive's. The library is compared with double arithmetic before it is trusted: old
 * builds miscompute on some CPUs. Results depend on the number of rows, as BLAS picks its kernels by shape. */
#include "core/backend/blas.h"
#include "core/backend/cpu.h"

#include <cblas.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TILE_FLOATS = 128 * 1024, MAX_TILE_COLS = 512, FEW_ROWS = 8 };

typedef struct blas_state {
    blas_gemm_fn gemm;
    void (*dot)(const float *w, const float *x, size_t stride, uint32_t n, uint32_t n_rows,
                float *out); /* NULL: naive */
    hostmem tiles;           /* [n_threads][tile_floats] */
    size_t tile_floats;
} blas_state;

static void cblas_gemm(uint32_t n, uint32_t n_out, uint32_t n_in, const float *x, size_t ldx, const float *w,
                       size_t ldw, float *y, size_t ldy)
{
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, (int)n, (int)n_out, (int)n_in, 1.0f, x, (int)ldx, w, (int)ldw,
                0.0f, y, (int)ldy);
}

/* ---- the product ---- */

typedef struct matmul_call {
    const atn_backend *be;
    const atn_matmul_args *a;
    uint32_t tile_cols;
} matmul_call;

static void add_bias(const atn_matmul_args *a, uint32_t from, uint32_t to)
{
    const float *bias = mat_row(*a->bias, 0);
    for (uint32_t r = 0; r < a->n; r++) {
        float *y = mat_row(a->dst, r);
        for (uint32_t o = from; o < to; o++) {
            y[o] += bias[o];
        }
    }
}

static void tile_run(void *arg, uint32_t chunk, uint32_t worker)
{
    const matmul_call *c = arg;
    const atn_matmul_args *a = c->a;
    const blas_state *st = c->be->state;
    const atn_weight *w = a->w;
    uint32_t from = chunk * c->tile_cols;
    uint32_t cols = w->n_out - from < c->tile_cols ? w->n_out - from : c->tile_cols;
    float *tile = (float *)st->tiles.base + worker * st->tile_floats;
    const float *rows = tile;
    if (w->dtype == ATN_DTYPE_F32) {
        rows = (const float *)(const void *)weight_row(w, from);
    } else {
        for (uint32_t o = 0; o < cols; o++) {
            c->be->kern->dequantize(w->dtype, weight_row(w, from + o), tile + (size_t)o * w->n_in, w->n_in);
        }
    }
    st->gemm(a->n, cols, w->n_in, mat_row(a->x, 0), a->x.stride, rows, w->n_in, mat_row(a->dst, 0) + from,
             a->dst.stride);
    if (a->bias) {
        add_bias(a, from, from + cols);
    }
}

/* A few rows: one weight row at a time, dequantised into L1 and multiplied there. */
static void few_rows_run(void *arg, uint32_t chunk, uint32_t worker)
{
    const matmul_call *c = arg;
    const atn_matmul_args *a = c->a;
    const blas_state *st = c->be->state;
    const atn_weight *w = a->w;
    float *room = row_scratch(c->be, worker);
    const float *bias = a->bias ? mat_row(*a->bias, 0) : NULL;
    uint32_t end = w->n_out - chunk * c->tile_cols < c->tile_cols ? w->n_out : (chunk + 1) * c->tile_cols;
    for (uint32_t o = chunk * c->tile_cols; o < end; o++) {
        float out[FEW_ROWS];
        c->be->kern->dequantize(w->dtype, weight_row(w, o), room, w->n_in);
        st->dot(room, mat_row(a->x, 0), a->x.stride, w->n_in, a->n, out);
        for (uint32_t r = 0; r < a->n; r++) {
            mat_row(a->dst, r)[o] = bias ? out[r] + bias[o] : out[r];
        }
    }
}

/* As many columns as the scratch holds, but at least two tiles a thread, so that nobody waits long. */
static uint32_t tile_cols(const atn_backend *be, const atn_weight *w)
{
    const blas_state *st = be->state;
    size_t fit = st->tile_floats / w->n_in;
    uint32_t share = w->n_out / (2 * be->caps.n_threads) + 1;
    uint32_t cols = fit < MAX_TILE_COLS ? (uint32_t)fit : MAX_TILE_COLS;
    cols = share < cols ? (share + 15u) & ~15u : cols;
    return cols <= fit ? cols : (uint32_t)fit;
}

static void blas_matmul(atn_backend *be, const atn_matmul_args *a)
{
    assert(a->x.cols == a->w->n_in && a->dst.cols == a->w->n_out);
    const blas_state *st = be->state;
    if (a->n == 0) {
        return;
    }
    if (a->n <= FEW_ROWS) {
        if (!st->dot) {
            naive_matmul(be, a);
            return;
        }
        matmul_call few = {be, a, 32};
        pool_run(be->pool, few_rows_run, &few, a->w->n_out / few.tile_cols + (a->w->n_out % few.tile_cols != 0));
        return;
    }
    matmul_call c = {be, a, tile_cols(be, a->w)};
    pool_run(be->pool, tile_run, &c, a->w->n_out / c.tile_cols + (a->w->n_out % c.tile_cols != 0));
}

/* A tile holds at least one row of any bound weight. */
static atn_status blas_reserve(atn_backend *be, uint32_t n_in, atn_err *err)
{
    blas_state *st = be->state;
    size_t floats = n_in > TILE_FLOATS ? ((size_t)n_in + 15) & ~(size_t)15 : TILE_FLOATS;
    if (floats <= st->tile_floats) {
        return ATN_OK;
    }
    hostmem grown;
    if (!hostmem_new(be->caps.n_threads * floats * sizeof(float), true, &grown)) {
        return atn_fail(err, ATN_NOMEM, NULL, "no memory for the tiles of %u threads", be->caps.n_threads);
    }
    hostmem_free(&st->tiles);
    st->tiles = grown;
    st->tile_floats = floats;
    return ATN_OK;
}

/* ---- the self-check ---- */

/* Small integers over 64, signs mixed: their products and sums are exact in double. */
static void fill(float *x, size_t n, uint32_t seed)
{
    for (size_t i = 0; i < n; i++) {
        seed = seed * 1664525u + 1013904223u;
        x[i] = (float)((int)(seed >> 24) - 128) / 64.0f;
    }
}

/* The largest error of gemm against double, as a share of the sum of absolute products. */
static double gemm_error(blas_gemm_fn gemm, uint32_t n, uint32_t n_out, uint32_t n_in, float *room)
{
    float *x = room, *w = x + (size_t)n * n_in, *y = w + (size_t)n_out * n_in;
    double worst = 0.0;
    fill(x, (size_t)n * n_in, 1);
    fill(w, (size_t)n_out * n_in, 2);
    gemm(n, n_out, n_in, x, n_in, w, n_in, y, n_out);
    for (size_t r = 0; r < n; r++) {
        for (size_t o = 0; o < n_out; o++) {
            double sum = 0.0, size = 0.0;
            for (size_t i = 0; i < n_in; i++) {
                double product = (double)x[r * n_in + i] * (double)w[o * n_in + i];
                sum += product;
                size += fabs(product);
            }
            double error = fabs((double)y[r * n_out + o] - sum) / (size + 1e-30);
            worst = error <= worst ? worst : error; /* NaN counts as the worst */
        }
    }
    return worst;
}

static atn_status self_check(blas_gemm_fn gemm, atn_err *err)
{
    static const uint32_t shapes[][3] = {{1, 1, 1},     {1, 17, 33},  {9, 205, 640}, {33, 64, 257},
                                         {64, 64, 512}, {7, 3, 2048}, {130, 31, 65}};
    float *room = malloc(sizeof(float) * (9 * 640 + 205 * 640 + 64 * 512 + 64 * 512 + 16384));
    if (!room) {
        return atn_fail(err, ATN_NOMEM, NULL, "no memory for the self-check of openblas");
    }
    atn_status st = ATN_OK;
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0] && st == ATN_OK; i++) {
        double error = gemm_error(gemm, shapes[i][0], shapes[i][1], shapes[i][2], room);
        if (!(error < 1e-5)) {
            st = atn_fail(err, ATN_UNSUPPORTED, "backend",
                          "this BLAS miscomputes on this CPU: relative error %.3g in a %u x %u x %u product", error,
                          shapes[i][0], shapes[i][1], shapes[i][2]);
        }
    }
    free(room);
    return st;
}

/* ---- life ---- */

atn_status blas_open_gemm(atn_backend *be, blas_gemm_fn gemm, atn_err *err)
{
    blas_state *st = calloc(1, sizeof *st);
    if (!st) {
        return atn_fail(err, ATN_NOMEM, NULL, "no memory for a backend");
    }
    st->gemm = gemm;
#if defined(__x86_64__)
    st->dot = cpu_detect().avx2 ? blas_dot_avx2 : NULL;
#endif
    be->state = st;
    ATN_TRY(self_check(gemm, err));
    be->caps.numerics = "openblas-1";
    be->caps.batch_invariant = false;
    be->caps.attention_probe = true;
    return ATN_OK;
}

static atn_status blas_open(atn_backend *be, atn_err *err)
{
    openblas_set_num_threads(1);
    snprintf(be->detail, sizeof be->detail, "OpenBLAS %s, kernels %s and %s, %u threads", openblas_get_config(),
             openblas_get_corename(), be->kern->isa, be->caps.n_threads);
    return blas_open_gemm(be, cblas_gemm, err);
}

static void blas_close(atn_backend *be)
{
    blas_state *st = be->state;
    if (st) {
        hostmem_free(&st->tiles);
        free(st);
    }
}

static bool blas_supports(const atn_backend *be, atn_op op, atn_dtype t)
{
    (void)be;
    return op == ATN_OP_MATMUL && atn_dtype_known((uint32_t)t);
}

const backend_ops blas_ops = {
    .name = "openblas",
    .open = blas_open,
    .close = blas_close,
    .supports = blas_supports,
    .reserve = blas_reserve,
    .matmul = blas_matmul,
};
