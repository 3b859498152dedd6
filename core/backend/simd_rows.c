/* simd: the row-wise ops over their kernels; rows are shared out like naive's, and a row never depends on another. */
#include "core/backend/simd_rows.h"
#include "core/backend/simd_attention.h"

#include <string.h>

typedef struct rows_call {
    const simd_row_kernels *kern;
    const void *args;
} rows_call;

static const simd_row_kernels *kernels_of(const atn_backend *be)
{
    return ((const simd_floats *)be->state)->rows;
}

static void norm_row(const void *args, uint32_t r)
{
    const rows_call *c = args;
    const atn_norm_args *a = c->args;
    const float *w = mat_row(*a->weight, 0);
    const float *b = a->bias ? mat_row(*a->bias, 0) : NULL;
    for (uint32_t off = 0; off < a->x.cols; off += a->width) {
        c->kern->norm(mat_row(a->dst, r) + off, mat_row(a->x, r) + off, w, b, a->kind == ATN_NORM_LAYER, a->eps,
                      a->width);
    }
}

void simd_norm(atn_backend *be, const atn_norm_args *a)
{
    assert(a->width && a->x.cols % a->width == 0);
    rows_call c = {kernels_of(be), a};
    backend_rows_run(be, norm_row, &c, a->n, a->x.cols);
}

static void rope_row(const void *args, uint32_t r)
{
    const rows_call *c = args;
    const atn_rope_args *a = c->args;
    float *x = mat_row(a->x, r);
    const float *table = mat_row(*a->table, (size_t)a->pos[r]);
    for (uint32_t off = 0; off < a->x.cols; off += a->head_dim) {
        c->kern->rope(x + off, table, a->style, a->n_rot);
    }
}

void simd_rope(atn_backend *be, const atn_rope_args *a)
{
    assert(a->head_dim && a->x.cols % a->head_dim == 0 && a->n_rot <= a->head_dim);
    rows_call c = {kernels_of(be), a};
    backend_rows_run(be, rope_row, &c, a->n, a->x.cols);
}

typedef struct act_call {
    const simd_row_kernels *kern;
    atn_act_kind kind;
    atn_mat dst, a;
    const atn_mat *b;
} act_call;

static void act_row(const void *args, uint32_t r)
{
    const act_call *c = args;
    const float *b = c->b ? mat_row(*c->b, r) : NULL;
    c->kern->activate(c->kind, mat_row(c->dst, r), mat_row(c->a, r), b, c->dst.cols);
}

void simd_activate(atn_backend *be, atn_act_kind kind, atn_mat dst, atn_mat a, const atn_mat *b, uint32_t n)
{
    act_call c = {kernels_of(be), kind, dst, a, b};
    backend_rows_run(be, act_row, &c, n, dst.cols);
}

static void store_row(const simd_row_kernels *kern, atn_dtype type, void *dst, const float *src, uint32_t d)
{
    if (type == ATN_DTYPE_F32) {
        memcpy(dst, src, d * sizeof *src);
    } else {
        kern->narrow(dst, src, d);
    }
}

static void kv_row(const void *args, uint32_t r)
{
    const rows_call *c = args;
    const atn_kv_write_args *a = c->args;
    const atn_kv_layout *kv = &a->kv;
    size_t at = (size_t)a->page[r] * kv->page_stride + (size_t)a->slot[r] * kv->row_stride;
    for (uint32_t h = 0; h < a->n_head_kv; h++) {
        char *k = (char *)kv->k_buf->mem.base + at + kv->k_off + h * kv->head_stride;
        char *v = (char *)kv->v_buf->mem.base + at + kv->v_off + h * kv->head_stride;
        store_row(c->kern, kv->type, k, mat_row(a->k, r) + (size_t)h * a->head_dim, a->head_dim);
        store_row(c->kern, kv->type, v, mat_row(a->v, r) + (size_t)h * a->head_dim_v, a->head_dim_v);
    }
}

void simd_kv_write(atn_backend *be, const atn_kv_write_args *a)
{
    rows_call c = {kernels_of(be), a};
    backend_rows_run(be, kv_row, &c, a->n, a->k.cols);
}
