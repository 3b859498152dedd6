/* One attention call with everything it needs: several sequences whose keys and values lie in shuffled pages of one buffer.
 * Page -1 is inaccessible memory.
 * The content of a position depends on its sequence's seed and the position alone, so that the same sequence can be asked
 * in other company, in other chunks and through other pages. */
#ifndef PARITY_ATTN_CASE_H
#define PARITY_ATTN_CASE_H

#include "tests/parity/parity.h"

enum { MAX_SEQS = 6 };

typedef struct attn_part { /* one sequence of the call */
    uint32_t seed, n_q, q_pos, n_keys;
} attn_part;

typedef struct attn_shape {
    atn_dtype type;
    uint32_t n_head, n_head_kv, d, dv, page_tokens;
    bool causal;
    uint32_t window;
    float softcap;
    bool bias, sink, head_scale, head_gate, factor, mask;
    uint32_t n_parts;
    attn_part parts[MAX_SEQS];
} attn_shape;

typedef struct attn_case {
    attn_shape shape;
    box q, out;
    atn_buffer *kv;
    size_t hole; /* inaccessible bytes before page 0 */
    atn_attn_seq seqs[MAX_SEQS];
    int32_t *pages[MAX_SEQS];
    uint8_t *mask[MAX_SEQS];
    float *factor[MAX_SEQS];
    float *bias, *per_head; /* per_head: sink, head_scale, head_gate, n_head each */
    atn_attn_args args;
    uint32_t rows;
} attn_case;

static inline float case_value(uint32_t seed, uint32_t pos, uint32_t i, uint32_t what)
{
    uint32_t s = seed * 2654435761u ^ pos * 40503u ^ i * 977u ^ what * 7919u;
    (void)rnd(&s);
    (void)rnd(&s);
    return rnd_float(&s);
}

static inline void *case_alloc(size_t n, size_t size)
{
    void *p = calloc(n ? n : 1, size);
    assert_non_null(p);
    return p;
}

/* Where K (or V) of a position and KV head lies. */
static inline void *case_kv_at(const attn_case *c, uint32_t part, uint32_t pos, uint32_t head, bool value)
{
    const atn_kv_layout *kv = &c->args.kv;
    return (char *)atn_buffer_host(c->kv) + (size_t)c->pages[part][pos / kv->page_tokens] * kv->page_stride +
           (value ? kv->v_off : kv->k_off) + head * kv->head_stride + pos % kv->page_tokens * kv->row_stride;
}

static inline void case_fill_kv(atn_backend *be, attn_case *c)
{
    const attn_shape *s = &c->shape;
    for (uint32_t p = 0; p < s->n_parts; p++) {
        uint32_t n = s->parts[p].n_keys;
        box k = box_new(be, n ? n : 1, s->n_head_kv * s->d, 0, 1),
            v = box_new(be, n ? n : 1, s->n_head_kv * s->dv, 0, 1);
        int32_t *page = case_alloc(n, sizeof *page), *slot = case_alloc(n, sizeof *slot);
        for (uint32_t pos = 0; pos < n; pos++) {
            page[pos] = c->pages[p][pos / s->page_tokens];
            slot[pos] = (int32_t)(pos % s->page_tokens);
            for (uint32_t i = 0; i < k.mat.cols; i++) {
                box_row(&k, pos)[i] = case_value(s->parts[p].seed, pos, i, 1);
            }
            for (uint32_t i = 0; i < v.mat.cols; i++) {
                box_row(&v, pos)[i] = case_value(s->parts[p].seed, pos, i, 2);
            }
        }
        atn_kv_write(be, &(atn_kv_write_args){.k = k.mat,
                                              .v = v.mat,
                                              .kv = c->args.kv,
                                              .page = page,
                                              .slot = slot,
                                              .n_head_kv = s->n_head_kv,
                                              .head_dim = s->d,
                                              .head_dim_v = s->dv,
                                              .n = n});
        box_free(&k);
        box_free(&v);
        free(page);
        free(slot);
    }
}

/* What changes per query row and key: the bias; per key: mask and factor; per head: sink, scale, gate. Some of each hide. */
static inline void case_fill_extras(attn_case *c)
{
    attn_shape *s = &c->shape;
    uint32_t max_keys = 0;
    for (uint32_t p = 0; p < s->n_parts; p++) {
        max_keys = s->parts[p].n_keys > max_keys ? s->parts[p].n_keys : max_keys;
        uint32_t n = s->parts[p].n_keys, seed = s->parts[p].seed;
        c->mask[p] = case_alloc(n, 1);
        c->factor[p] = case_alloc(n, sizeof(float));
        for (uint32_t k = 0; k < n; k++) {
            c->mask[p][k] = case_value(seed, k, 0, 3) < 0.7f;
            c->factor[p][k] = case_value(seed, k, 0, 4) > 1.0f ? -INFINITY : case_value(seed, k, 1, 4);
        }
        c->seqs[p].key_mask = s->mask ? c->mask[p] : NULL;
        c->seqs[p].key_log_factor = s->factor ? c->factor[p] : NULL;
    }
    c->bias = case_alloc((size_t)s->n_head * c->rows * max_keys, sizeof(float));
    for (uint32_t h = 0; h < s->n_head && s->bias; h++) {
        for (uint32_t p = 0; p < s->n_parts; p++) {
            for (uint32_t r = 0; r < s->parts[p].n_q; r++) {
                for (uint32_t k = 0; k < s->parts[p].n_keys; k++) {
                    float x = case_value(s->parts[p].seed + h, s->parts[p].q_pos + r, k, 5);
                    c->bias[((size_t)h * c->rows + c->seqs[p].q_row + r) * max_keys + k] = x > 1.0f ? -INFINITY : x;
                }
            }
        }
    }
    c->per_head = case_alloc(3 * (size_t)s->n_head, sizeof(float));
    for (uint32_t i = 0; i < 3 * s->n_head; i++) {
        c->per_head[i] = case_value(7, i, 0, 6);
    }
    c->per_head[2 * s->n_head] = 0.0f; /* the first head's gate */
    c->args.bias = s->bias ? c->bias : NULL;
    c->args.bias_stride = max_keys;
    c->args.sink = s->sink ? c->per_head : NULL;
    c->args.head_scale = s->head_scale ? c->per_head + s->n_head : NULL;
    c->args.head_gate = s->head_gate ? c->per_head + 2 * s->n_head : NULL;
}

static inline attn_case *case_new(atn_backend *be, const attn_shape *shape)
{
    attn_case *c = case_alloc(1, sizeof *c);
    attn_shape *s = &c->shape;
    *s = *shape;
    uint32_t n_pages = 0;
    for (uint32_t p = 0; p < s->n_parts; p++) {
        uint32_t n = (s->parts[p].n_keys + s->page_tokens - 1) / s->page_tokens;
        c->pages[p] = case_alloc(n, sizeof(int32_t));
        for (uint32_t i = 0; i < n; i++) {
            c->pages[p][i] = (int32_t)(n_pages + i);
        }
        n_pages += n;
        c->seqs[p] = (atn_attn_seq){.pages = c->pages[p],
                                    .q_row = c->rows,
                                    .n_q = s->parts[p].n_q,
                                    .q_pos = s->parts[p].q_pos,
                                    .n_keys = s->parts[p].n_keys};
        c->rows += s->parts[p].n_q;
    }
    for (uint32_t p = 0; p < s->n_parts; p++) { /* page i of all lies at the place i * step, step and n_pages coprime */
        for (uint32_t i = 0; i * s->page_tokens < s->parts[p].n_keys; i++) {
            uint32_t step = n_pages % 3 ? 3 : n_pages % 5 ? 5 : 7;
            c->pages[p][i] = (int32_t)((uint32_t)c->pages[p][i] * step % n_pages);
        }
    }
    size_t size = s->type == ATN_DTYPE_F32 ? 4 : 2, widest = s->d > s->dv ? s->d : s->dv;
    size_t head = s->page_tokens * widest * size, page = 2 * s->n_head_kv * head;
    c->hole = (page + PAGE - 1) & ~(size_t)(PAGE - 1);
    atn_err err;
    assert_int_equal(atn_buffer_new(be, c->hole + n_pages * page + (2u << 20), true, &c->kv, &err), ATN_OK);
    assert_int_equal(mprotect(atn_buffer_host(c->kv), c->hole, PROT_NONE), 0);
    c->q = box_new(be, c->rows, s->n_head * s->d, 1, 1);
    c->out = box_new(be, c->rows, s->n_head * s->dv, 3, 2);
    for (uint32_t p = 0; p < s->n_parts; p++) {
        for (uint32_t r = 0; r < s->parts[p].n_q; r++) {
            for (uint32_t i = 0; i < c->q.mat.cols; i++) {
                box_row(&c->q, c->seqs[p].q_row + r)[i] = case_value(s->parts[p].seed, s->parts[p].q_pos + r, i, 0);
            }
        }
    }
    c->args = (atn_attn_args){.q = c->q.mat,
                              .out = c->out.mat,
                              .seqs = c->seqs,
                              .n_seqs = s->n_parts,
                              .n_head = s->n_head,
                              .n_head_kv = s->n_head_kv,
                              .head_dim = s->d,
                              .head_dim_v = s->dv,
                              .scale = 1.0f / sqrtf((float)s->d),
                              .softcap = s->softcap,
                              .window = s->window,
                              .causal = s->causal,
                              .kv = {.k_buf = c->kv,
                                     .v_buf = c->kv,
                                     .page_stride = page,
                                     .k_off = c->hole,
                                     .v_off = c->hole + s->n_head_kv * head,
                                     .head_stride = head,
                                     .row_stride = widest * size,
                                     .page_tokens = s->page_tokens,
                                     .type = s->type}};
    case_fill_kv(be, c);
    case_fill_extras(c);
    return c;
}

static inline void case_run(atn_backend *be, attn_case *c)
{
    atn_attention(be, &c->args);
    wait_ok(be);
}

static inline void case_free(attn_case *c)
{
    for (uint32_t p = 0; p < c->shape.n_parts; p++) {
        free(c->pages[p]);
        free(c->mask[p]);
        free(c->factor[p]);
    }
    free(c->bias);
    free(c->per_head);
    box_free(&c->q);
    box_free(&c->out);
    mprotect(atn_buffer_host(c->kv), c->hole, PROT_READ | PROT_WRITE);
    atn_buffer_free(c->kv);
    free(c);
}

/* Shapes that between them use everything the descriptor has. Spans end inside, blocks are cut, rows are many and few. */
/* clang-format off */
static const attn_shape attn_shapes[] = {
    {.type = ATN_DTYPE_F32, .n_head = 1, .n_head_kv = 1, .d = 8, .dv = 8, .page_tokens = 32, .causal = true,
     .n_parts = 1, .parts = {{1, 1, 0, 1}}},
    {.type = ATN_DTYPE_F16, .n_head = 4, .n_head_kv = 2, .d = 16, .dv = 16, .page_tokens = 32, .causal = true,
     .n_parts = 3, .parts = {{1, 70, 0, 70}, {2, 1, 599, 600}, {3, 5, 30, 35}}},
    {.type = ATN_DTYPE_F32, .n_head = 6, .n_head_kv = 2, .d = 33, .dv = 17, .page_tokens = 7, .causal = true,
     .window = 40, .softcap = 1.5f, .sink = true, .n_parts = 2, .parts = {{4, 90, 0, 90}, {5, 3, 1100, 1103}}},
    {.type = ATN_DTYPE_F16, .n_head = 3, .n_head_kv = 3, .d = 5, .dv = 48, .page_tokens = 64, .bias = true,
     .head_scale = true, .n_parts = 2, .parts = {{6, 9, 3, 77}, {7, 40, 0, 13}}},
    {.type = ATN_DTYPE_F32, .n_head = 40, .n_head_kv = 2, .d = 16, .dv = 16, .page_tokens = 32, .factor = true,
     .mask = true, .head_gate = true, .causal = true, .n_parts = 2, .parts = {{8, 17, 520, 537}, {9, 2, 0, 2}}},
    {.type = ATN_DTYPE_F32, .n_head = 2, .n_head_kv = 1, .d = 64, .dv = 64, .page_tokens = 4096, .mask = true,
     .factor = true, .bias = true, .sink = true, .head_scale = true, .head_gate = true, .softcap = 3.0f, .causal = true,
     .window = 700, .n_parts = 1, .parts = {{10, 6, 1020, 1026}}},
    {.type = ATN_DTYPE_F32, .n_head = 2, .n_head_kv = 2, .d = 16, .dv = 16, .page_tokens = 32, .n_parts = 2,
     .parts = {{11, 5, 0, 300}, {12, 3, 0, 0}}}, /* cross attention; one without keys */
    {.type = ATN_DTYPE_F16, .n_head = 5, .n_head_kv = 1, .d = 64, .dv = 64, .page_tokens = 32, .causal = true,
     .n_parts = 2, .parts = {{13, 1, 1600, 1601}, {14, 19, 40, 59}}}, /* long and alone; a group of five */
    {.type = ATN_DTYPE_F16, .n_head = 4, .n_head_kv = 1, .d = 80, .dv = 96, .page_tokens = 32, .causal = true,
     .window = 33, .n_parts = 2, .parts = {{15, 30, 500, 530}, {16, 1, 64, 65}}},
    {.type = ATN_DTYPE_F32, .n_head = 3, .n_head_kv = 1, .d = 96, .dv = 80, .page_tokens = 32, .causal = true,
     .sink = true, .n_parts = 1, .parts = {{17, 21, 505, 526}}},
    {.type = ATN_DTYPE_F16, .n_head = 2, .n_head_kv = 2, .d = 128, .dv = 128, .page_tokens = 16, .causal = true,
     .mask = true, .n_parts = 1, .parts = {{18, 33, 0, 33}}},
    {.type = ATN_DTYPE_F16, .n_head = 4, .n_head_kv = 1, .d = 256, .dv = 256, .page_tokens = 32, .causal = true,
     .n_parts = 2, .parts = {{19, 2, 1023, 1025}, {20, 13, 7, 20}}},
};
/* clang-format on */
enum { N_ATTN_SHAPES = sizeof attn_shapes / sizeof attn_shapes[0] };

#endif
