/* naive: the row-wise ops (norm, RoPE, activations, add, softcap, gather) and the KV write.
 *
 * Each works in double on floats and rounds once; rows are shared out among the workers, a row never depends on another. */
#include "core/backend/backend_impl.h"
#include "core/backend/mathfn_inline.h"

#include <math.h>
#include <string.h>

/* Calls with less work than this stay on the calling thread: waking a worker would cost more. */
enum { MIN_PARALLEL = 16 * 1024, ROWS_A_CHUNK = 4 };

typedef struct rows_job {
    void (*row)(const void *args, uint32_t r);
    const void *args;
    uint32_t n;
} rows_job;

static void rows_chunk(void *arg, uint32_t chunk, uint32_t worker)
{
    const rows_job *job = arg;
    (void)worker;
    uint32_t end = (chunk + 1) * ROWS_A_CHUNK < job->n ? (chunk + 1) * ROWS_A_CHUNK : job->n;
    for (uint32_t r = chunk * ROWS_A_CHUNK; r < end; r++) {
        job->row(job->args, r);
    }
}

void backend_rows_run(atn_backend *be, void (*row)(const void *, uint32_t), const void *args, uint32_t n, uint32_t cols)
{
    rows_job job = {row, args, n};
    if ((uint64_t)n * cols < MIN_PARALLEL) {
        for (uint32_t r = 0; r < n; r++) {
            row(args, r);
        }
        return;
    }
    pool_run(be->pool, rows_chunk, &job, n / ROWS_A_CHUNK + (n % ROWS_A_CHUNK != 0));
}

/* ---- norm ---- */

typedef struct norm_call {
    const kernels *kern;
    const atn_norm_args *a;
} norm_call;

/* Sum over i of (x[i] - mean)^power in 16 lanes and the tree of kernels.h. */
static double lanes_sum(const float *x, uint32_t n, double mean, bool square)
{
    double lane[16] = {0};
    for (uint32_t i = 0; i < n; i++) {
        double d = (double)x[i] - mean;
        lane[i % 16] += square ? d * d : d;
    }
    for (uint32_t half = 8; half; half /= 2) {
        for (uint32_t l = 0; l < half; l++) {
            lane[l] += lane[l + half];
        }
    }
    return lane[0];
}

static void norm_row(const void *args, uint32_t r)
{
    const norm_call *c = args;
    const atn_norm_args *a = c->a;
    const float *w = mat_row(*a->weight, 0);
    const float *b = a->bias ? mat_row(*a->bias, 0) : NULL;
    for (uint32_t off = 0; off < a->x.cols; off += a->width) {
        const float *x = mat_row(a->x, r) + off;
        float *dst = mat_row(a->dst, r) + off;
        double mean = 0.0, square;
        if (a->kind == ATN_NORM_LAYER) {
            mean = lanes_sum(x, a->width, 0.0, false) / a->width;
            square = lanes_sum(x, a->width, mean, true);
        } else {
            c->kern->dot_rows(x, x, 0, a->width, 1, &square);
        }
        double inv = 1.0 / sqrt(square / a->width + (double)a->eps);
        for (uint32_t i = 0; i < a->width; i++) {
            double y = ((double)x[i] - mean) * inv * (double)w[i];
            dst[i] = (float)(b ? y + (double)b[i] : y);
        }
    }
}

void naive_norm(atn_backend *be, const atn_norm_args *a)
{
    assert(a->width && a->x.cols % a->width == 0);
    norm_call c = {be->kern, a};
    backend_rows_run(be, norm_row, &c, a->n, a->x.cols);
}

/* ---- RoPE ---- */

static void rope_row(const void *args, uint32_t r)
{
    const atn_rope_args *a = args;
    float *x = mat_row(a->x, r);
    const float *table = mat_row(*a->table, (size_t)a->pos[r]);
    uint32_t half = a->n_rot / 2;
    for (uint32_t off = 0; off < a->x.cols; off += a->head_dim) {
        for (uint32_t i = 0; i < half; i++) {
            float *first = x + off + (a->style == ATN_ROPE_HALVES ? i : 2 * i);
            float *second = x + off + (a->style == ATN_ROPE_HALVES ? i + half : 2 * i + 1);
            double c = (double)table[2 * i], s = (double)table[2 * i + 1];
            double u = (double)*first, v = (double)*second;
            *first = (float)(u * c - v * s);
            *second = (float)(u * s + v * c);
        }
    }
}

void naive_rope(atn_backend *be, const atn_rope_args *a)
{
    assert(a->head_dim && a->x.cols % a->head_dim == 0 && a->n_rot <= a->head_dim);
    backend_rows_run(be, rope_row, a, a->n, a->x.cols);
}

/* ---- element by element ---- */

typedef struct act_call {
    const kernels *kern;
    atn_act_kind kind;
    atn_mat dst, a;
    const atn_mat *b;
} act_call;

static void act_row(const void *args, uint32_t r)
{
    const act_call *c = args;
    const float *b = c->b ? mat_row(*c->b, r) : NULL;
    if (c->kind == ATN_ACT_SILU) {
        c->kern->silu(mat_row(c->dst, r), mat_row(c->a, r), b, c->dst.cols);
    } else {
        c->kern->gelu_tanh(mat_row(c->dst, r), mat_row(c->a, r), b, c->dst.cols);
    }
}

void naive_activate(atn_backend *be, atn_act_kind kind, atn_mat dst, atn_mat a, const atn_mat *b, uint32_t n)
{
    act_call c = {be->kern, kind, dst, a, b};
    backend_rows_run(be, act_row, &c, n, dst.cols);
}

typedef struct pair_call {
    atn_mat dst, x;
    const int32_t *rows;
    float cap;
} pair_call;

static void add_row(const void *args, uint32_t r)
{
    const pair_call *c = args;
    float *dst = mat_row(c->dst, r);
    const float *x = mat_row(c->x, r);
    for (uint32_t i = 0; i < c->dst.cols; i++) {
        dst[i] += x[i];
    }
}

void naive_add(atn_backend *be, atn_mat dst, atn_mat x, uint32_t n)
{
    pair_call c = {.dst = dst, .x = x};
    backend_rows_run(be, add_row, &c, n, dst.cols);
}

static void softcap_row(const void *args, uint32_t r)
{
    const pair_call *c = args;
    float *x = mat_row(c->x, r);
    double cap = (double)c->cap;
    for (uint32_t i = 0; i < c->x.cols; i++) {
        x[i] = (float)(cap * mathfn_tanh_core((double)x[i] / cap));
    }
}

void naive_softcap(atn_backend *be, atn_mat x, float cap, uint32_t n)
{
    pair_call c = {.x = x, .cap = cap};
    backend_rows_run(be, softcap_row, &c, n, x.cols);
}

static void gather_row(const void *args, uint32_t r)
{
    const pair_call *c = args;
    memcpy(mat_row(c->dst, r), mat_row(c->x, (size_t)c->rows[r]), c->dst.cols * sizeof(float));
}

void naive_gather(atn_backend *be, atn_mat dst, atn_mat x, const int32_t *rows, uint32_t n)
{
    pair_call c = {.dst = dst, .x = x, .rows = rows};
    backend_rows_run(be, gather_row, &c, n, dst.cols);
}

/* ---- KV write ---- */

static void store_row(const atn_kv_layout *kv, void *dst, const float *src, uint32_t d)
{
    if (kv->type == ATN_DTYPE_F32) {
        memcpy(dst, src, d * sizeof *src);
        return;
    }
    uint16_t *half = dst;
    for (uint32_t i = 0; i < d; i++) {
        half[i] = atn_f32_to_f16(src[i]);
    }
}

static void kv_row(const void *args, uint32_t r)
{
    const atn_kv_write_args *a = args;
    const atn_kv_layout *kv = &a->kv;
    size_t at = (size_t)a->page[r] * kv->page_stride + (size_t)a->slot[r] * kv->row_stride;
    for (uint32_t h = 0; h < a->n_head_kv; h++) {
        char *k = (char *)kv->k_buf->mem.base + at + kv->k_off + h * kv->head_stride;
        char *v = (char *)kv->v_buf->mem.base + at + kv->v_off + h * kv->head_stride;
        store_row(kv, k, mat_row(a->k, r) + (size_t)h * a->head_dim, a->head_dim);
        store_row(kv, v, mat_row(a->v, r) + (size_t)h * a->head_dim_v, a->head_dim_v);
    }
}

void naive_kv_write(atn_backend *be, const atn_kv_write_args *a)
{
    backend_rows_run(be, kv_row, a, a->n, a->k.cols);
}
