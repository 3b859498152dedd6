/* naive: the truth that other backends are tested against, and what they fall back on. Its table, the embedding and the
 * matrix product; naive_rows.c and naive_attention.c have the rest.
 *
 * An output is one dot of a dequantised weight row with an input row (kernels.h), rounded once: it cannot depend on how many
 * rows there are, on the tile or on the thread. */
#include "core/backend/backend_impl.h"

#include <stdio.h>

typedef struct matmul_call {
    atn_backend *be;
    const atn_matmul_args *a;
    uint32_t cols_a_chunk;
} matmul_call;

static void matmul_chunk(void *arg, uint32_t chunk, uint32_t worker)
{
    enum { ROWS = 64 };
    const matmul_call *c = arg;
    const atn_matmul_args *a = c->a;
    const atn_weight *w = a->w;
    float *row = row_scratch(c->be, worker);
    const float *bias = a->bias ? mat_row(*a->bias, 0) : NULL;
    uint32_t end = w->n_out - chunk * c->cols_a_chunk < c->cols_a_chunk ? w->n_out : (chunk + 1) * c->cols_a_chunk;
    for (uint32_t o = chunk * c->cols_a_chunk; o < end; o++) {
        c->be->kern->dequantize(w->dtype, weight_row(w, o), row, w->n_in);
        for (uint32_t r0 = 0; r0 < a->n; r0 += ROWS) {
            double out[ROWS];
            uint32_t n = a->n - r0 < ROWS ? a->n - r0 : ROWS;
            c->be->kern->dot_rows(row, mat_row(a->x, r0), a->x.stride, w->n_in, n, out);
            for (uint32_t r = 0; r < n; r++) {
                mat_row(a->dst, r0 + r)[o] = (float)(bias ? out[r] + (double)bias[o] : out[r]);
            }
        }
    }
}

void naive_matmul(atn_backend *be, const atn_matmul_args *a)
{
    assert(a->x.cols == a->w->n_in && a->dst.cols == a->w->n_out);
    matmul_call c = {be, a, 64};
    if (a->n) {
        pool_run(be->pool, matmul_chunk, &c, a->w->n_out / c.cols_a_chunk + (a->w->n_out % c.cols_a_chunk != 0));
    }
}

void naive_embed(atn_backend *be, atn_mat dst, const atn_weight *w, const int32_t *ids, uint32_t n, float scale)
{
    for (uint32_t r = 0; r < n; r++) {
        float *row = mat_row(dst, r);
        be->kern->dequantize(w->dtype, weight_row(w, (size_t)ids[r]), row, w->n_in);
        for (uint32_t i = 0; i < w->n_in; i++) {
            row[i] *= scale;
        }
    }
}

static bool naive_supports(const atn_backend *be, atn_op op, atn_dtype t)
{
    (void)be;
    switch (op) {
    case ATN_OP_EMBED:
    case ATN_OP_MATMUL:
        return atn_dtype_known((uint32_t)t);
    case ATN_OP_KV_WRITE:
    case ATN_OP_ATTENTION:
        return t == ATN_DTYPE_F32 || t == ATN_DTYPE_F16;
    default:
        return t == ATN_DTYPE_F32;
    }
}

static atn_status naive_open(atn_backend *be, atn_err *err)
{
    (void)err;
    snprintf(be->detail, sizeof be->detail, "scalar C, double accumulation, %s body, %u threads", be->kern->isa,
             be->caps.n_threads);
    be->caps.numerics = "naive-1";
    be->caps.batch_invariant = true;
    be->caps.attention_probe = true;
    return ATN_OK;
}

const backend_ops naive_ops = {
    .name = "naive",
    .open = naive_open,
    .supports = naive_supports,
    .embed = naive_embed,
    .matmul = naive_matmul,
    .norm = naive_norm,
    .rope = naive_rope,
    .activate = naive_activate,
    .add = naive_add,
    .softcap = naive_softcap,
    .gather = naive_gather,
    .attention = naive_attention,
    .kv_write = naive_kv_write,
};
