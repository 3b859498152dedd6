/* simd's matrix product around the kernels: activations are quantised once a call into a slab, tile by tile; then panels
 * are shared out in chunks of even size. Nothing here computes a sum, so nothing here can change one. */
#include "core/backend/simd.h"

#include <string.h>

/* Work that one chunk should at least have, in bytes of weights times rows: below, the chunk itself costs more. */
enum { MIN_CHUNK = 32 * 1024, CHUNKS_A_THREAD = 64 };

size_t simd_act_row_bytes(simd_format f, uint32_t n_in)
{
    size_t n_blocks = simd_n_blocks(n_in);
    return simd_is_float(f) ? n_blocks * SIMD_BLOCK * sizeof(float) : n_blocks * (SIMD_BLOCK * 2 + 2 * sizeof(float));
}

typedef struct matmul_call {
    const simd_state *st;
    simd_job job;
    const float *x;
    size_t x_stride;
    unsigned char *acts;
    uint32_t n_chunks;
} matmul_call;

/* Float activations only change their place: [n_blocks][n_rows][32], the end of a row filled with zeros. */
static void copy_tile(const float *x, size_t stride, uint32_t n_rows, uint32_t n_in, float *to)
{
    for (uint32_t r = 0; r < n_rows; r++) {
        for (uint32_t i = 0; i < n_in; i += SIMD_BLOCK) {
            float *dst = to + (size_t)i * n_rows + (size_t)r * SIMD_BLOCK;
            uint32_t n = n_in - i < SIMD_BLOCK ? n_in - i : SIMD_BLOCK;
            memset(dst, 0, SIMD_BLOCK * sizeof *dst);
            memcpy(dst, x + r * stride + i, n * sizeof *dst);
        }
    }
}

static void tile_chunk(void *arg, uint32_t chunk, uint32_t worker)
{
    const matmul_call *c = arg;
    (void)worker;
    uint32_t row = chunk * SIMD_TILE, n = c->job.n_rows - row < SIMD_TILE ? c->job.n_rows - row : SIMD_TILE;
    unsigned char *to = c->acts + row * c->job.act_row_bytes;
    const float *x = c->x + row * c->x_stride;
    if (simd_is_float(c->job.format)) {
        copy_tile(x, c->x_stride, n, c->job.n_in, (float *)(void *)to);
    } else {
        c->st->isa->quantise(x, c->x_stride, n, c->job.n_in, c->st->limit, to);
    }
}

/* Chunks begin at even panels: a kernel reads two side by side. */
static uint32_t chunk_panel(const matmul_call *c, uint32_t chunk)
{
    uint32_t n_panels = (c->job.n_out + SIMD_LANES - 1) / SIMD_LANES, n_pairs = (n_panels + 1) / 2;
    uint32_t at = (uint32_t)((uint64_t)n_pairs * chunk / c->n_chunks) * 2;
    return at < n_panels ? at : n_panels;
}

static void panels_chunk(void *arg, uint32_t chunk, uint32_t worker)
{
    const matmul_call *c = arg;
    (void)worker;
    c->st->isa->panels(&c->job, chunk_panel(c, chunk), chunk_panel(c, chunk + 1));
}

static uint32_t count_chunks(const simd_job *job, uint32_t n_threads)
{
    uint64_t n_pairs = (job->n_out + 2 * SIMD_LANES - 1) / (2 * SIMD_LANES);
    uint64_t n = (job->panel_bytes * 2 * n_pairs * job->n_rows) / MIN_CHUNK + 1;
    n = n < CHUNKS_A_THREAD * (uint64_t)n_threads ? n : CHUNKS_A_THREAD * (uint64_t)n_threads;
    return (uint32_t)(n < n_pairs ? n : n_pairs);
}

void simd_matmul(atn_backend *be, const atn_matmul_args *a)
{
    const simd_state *st = be->state;
    const atn_weight *w = a->w;
    assert(a->x.cols == w->n_in && a->dst.cols == w->n_out);
    simd_format f = (simd_format)w->layout;
    matmul_call c = {.st = st, .acts = st->acts.base, .x_stride = a->x.stride};
    c.job = (simd_job){.format = f,
                       .n_in = w->n_in,
                       .n_out = w->n_out,
                       .n_blocks = simd_n_blocks(w->n_in),
                       .panels = w->mem.base,
                       .panel_bytes = simd_panel_bytes(f, w->n_in),
                       .acts = st->acts.base,
                       .act_row_bytes = simd_act_row_bytes(f, w->n_in),
                       .dst_stride = a->dst.stride,
                       .bias = a->bias ? mat_row(*a->bias, 0) : NULL};
    for (uint32_t row = 0; row < a->n; row += SIMD_SLAB) {
        c.job.n_rows = a->n - row < SIMD_SLAB ? a->n - row : SIMD_SLAB;
        c.job.dst = mat_row(a->dst, row);
        c.x = mat_row(a->x, row);
        pool_run(be->pool, tile_chunk, &c, (c.job.n_rows + SIMD_TILE - 1) / SIMD_TILE);
        c.n_chunks = count_chunks(&c.job, be->caps.n_threads);
        pool_run(be->pool, panels_chunk, &c, c.n_chunks);
    }
}
