/* What the parity tests share: matrices that lie flush against an inaccessible page with sentinels before and between
 * their rows, random numbers, and attention written out plainly in double. */
#ifndef PARITY_H
#define PARITY_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <attnd/backend.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { PAGE = 4096, SENTINEL = 0xA5 };

static inline uint32_t rnd(uint32_t *seed)
{
    *seed = *seed * 1664525u + 1013904223u;
    return *seed >> 8;
}

/* About normal, in (-4, 4), with all 24 bits in use: sums of products of such numbers are not exact in double. */
static inline float rnd_float(uint32_t *seed)
{
    float sum = 0.0f;
    for (int i = 0; i < 6; i++) {
        sum += (float)rnd(seed) / 16777216.0f;
    }
    return (sum - 3.0f) * (0.7f + 0.6f * (float)rnd(seed) / 16777216.0f);
}

static inline atn_backend *open_backend(const char *name, uint32_t threads)
{
    atn_backend *be = NULL;
    atn_err err = {0};
    atn_status st = atn_backend_open(name, &(atn_backend_params){.n_threads = threads}, &be, &err);
    if (st != ATN_OK) {
        fail_msg("open %s: %s", name, err.msg);
    }
    return be;
}

static inline void wait_ok(atn_backend *be)
{
    atn_err err = {0};
    if (atn_backend_wait(be, &err) != ATN_OK) {
        fail_msg("wait: %s", err.msg);
    }
}

/* ---- boxed matrices ---- */

typedef struct box {
    atn_buffer *buf;
    atn_mat mat;
    uint32_t rows;
    size_t guard; /* offset of the inaccessible page, which the last row ends at */
} box;

static inline float *box_row(box *b, uint32_t r)
{
    return (float *)(void *)((char *)atn_buffer_host(b->buf) + b->mat.off) + (size_t)r * b->mat.stride;
}

/* [rows, cols] with gap floats between rows, filled with random values. */
static inline box box_new(atn_backend *be, uint32_t rows, uint32_t cols, uint32_t gap, uint32_t seed)
{
    box b = {.rows = rows};
    size_t used = ((size_t)rows * (cols + gap) - gap) * sizeof(float);
    size_t bytes =
        (used + 3 * PAGE + (2u << 20)) & ~(size_t)(PAGE - 1); /* from 2 MB on memory is mapped, hence whole pages */
    atn_err err = {0};
    assert_int_equal(atn_buffer_new(be, bytes, false, &b.buf, &err), ATN_OK);
    char *base = atn_buffer_host(b.buf);
    b.guard = bytes - PAGE;
    b.mat = (atn_mat){.buf = b.buf, .off = b.guard - used, .cols = cols, .stride = cols + gap};
    size_t from = (b.mat.off > PAGE ? b.mat.off - PAGE : 0);
    memset(base + from, SENTINEL, b.guard - from);
    for (uint32_t r = 0; r < rows; r++) {
        for (uint32_t c = 0; c < cols; c++) {
            box_row(&b, r)[c] = rnd_float(&seed);
        }
    }
    assert_int_equal(mprotect(base + b.guard, PAGE, PROT_NONE), 0);
    return b;
}

/* Nothing outside the rows was written. */
static inline void box_check(box *b)
{
    unsigned char *base = atn_buffer_host(b->buf);
    for (size_t i = b->mat.off > PAGE ? b->mat.off - PAGE : 0; i < b->mat.off; i++) {
        assert_int_equal(base[i], SENTINEL);
    }
    for (uint32_t r = 0; r + 1 < b->rows; r++) {
        unsigned char *gap = (unsigned char *)(box_row(b, r) + b->mat.cols);
        for (size_t i = 0; i < (b->mat.stride - b->mat.cols) * sizeof(float); i++) {
            assert_int_equal(gap[i], SENTINEL);
        }
    }
}

static inline void box_free(box *b)
{
    mprotect((char *)atn_buffer_host(b->buf) + b->guard, PAGE, PROT_READ | PROT_WRITE);
    atn_buffer_free(b->buf);
    memset(b, 0, sizeof *b);
}

/* ---- attention in plain double: scores, softmax, sum; the semantics of atn_attn_args, none of its method ---- */

/* Reads a K or V value through the layout. */
static inline double kv_value(const atn_kv_layout *kv, atn_buffer *buf, size_t off, const int32_t *pages, uint32_t pos,
                              uint32_t head, uint32_t i)
{
    const char *p = (const char *)atn_buffer_host(buf) + (size_t)pages[pos / kv->page_tokens] * kv->page_stride + off +
                    head * kv->head_stride + pos % kv->page_tokens * kv->row_stride;
    if (kv->type == ATN_DTYPE_F32) {
        return (double)((const float *)(const void *)p)[i];
    }
    return (double)atn_f16_to_f32(((const uint16_t *)(const void *)p)[i]);
}

static inline bool reference_sees(const atn_attn_args *a, const atn_attn_seq *s, uint32_t rows, uint32_t row,
                                  uint32_t head, uint32_t key)
{
    int64_t q = (int64_t)s->q_pos + (row - s->q_row), k = key;
    if (((a->causal || a->window) && k > q) || (a->window && k <= q - (int64_t)a->window)) {
        return false;
    }
    if ((s->key_mask && !s->key_mask[key]) || (s->key_log_factor && s->key_log_factor[key] == -INFINITY)) {
        return false;
    }
    return !(a->bias && a->bias[((size_t)head * rows + row) * a->bias_stride + key] == -INFINITY);
}

/* out[head_dim_v] and weights[n_keys] of one row and head. */
static inline void reference_attention(const atn_attn_args *a, const atn_attn_seq *s, uint32_t rows, uint32_t row,
                                       uint32_t head, const float *q, double *out, double *weights)
{
    uint32_t kv_head = head / (a->n_head / a->n_head_kv);
    double max = -INFINITY, sum = 0.0;
    for (uint32_t k = 0; k < s->n_keys; k++) {
        weights[k] = -INFINITY;
        if (!reference_sees(a, s, rows, row, head, k)) {
            continue;
        }
        double x = 0.0;
        for (uint32_t i = 0; i < a->head_dim; i++) {
            x += (double)q[i] * kv_value(&a->kv, a->kv.k_buf, a->kv.k_off, s->pages, k, kv_head, i);
        }
        x *= (double)a->scale * (a->head_scale ? (double)a->head_scale[head] : 1.0);
        x = a->softcap != 0.0f ? (double)a->softcap * tanh(x / (double)a->softcap) : x;
        x += a->bias ? (double)a->bias[((size_t)head * rows + row) * a->bias_stride + k] : 0.0;
        x += s->key_log_factor ? (double)s->key_log_factor[k] : 0.0;
        weights[k] = x;
        max = fmax(max, x);
    }
    bool blind = max == -INFINITY;
    max = a->sink ? fmax(max, (double)a->sink[head]) : max;
    for (uint32_t k = 0; k < s->n_keys; k++) {
        weights[k] = weights[k] == -INFINITY ? 0.0 : exp(weights[k] - max);
        sum += weights[k];
    }
    sum += a->sink ? exp((double)a->sink[head] - max) : 0.0;
    memset(out, 0, a->head_dim_v * sizeof *out);
    for (uint32_t k = 0; k < s->n_keys && !blind; k++) {
        weights[k] /= sum;
        for (uint32_t i = 0; weights[k] != 0.0 && i < a->head_dim_v; i++) {
            out[i] += weights[k] * kv_value(&a->kv, a->kv.v_buf, a->kv.v_off, s->pages, k, kv_head, i);
        }
    }
    for (uint32_t i = 0; i < a->head_dim_v && a->head_gate; i++) {
        out[i] *= (double)a->head_gate[head];
    }
}

#endif
