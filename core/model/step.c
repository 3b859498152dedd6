/* One step: scratch sized at birth, the batch's checks, and the moves that architectures are written in. */
#include "core/model/step.h"

#include <stdlib.h>

/* Sizes of the scratch for this many rows; offsets are 64-byte aligned. Without a buffer it only counts. */
typedef struct carver {
    atn_buffer *buf;
    size_t at;
} carver;

static atn_mat carve(carver *c, uint32_t rows, uint32_t cols)
{
    atn_mat m = {.buf = c->buf, .off = c->at, .cols = cols, .stride = cols};
    c->at += ((size_t)rows * cols * sizeof(float) + 63) & ~(size_t)63;
    return m;
}

static atn_mat columns(atn_mat m, uint32_t from, uint32_t n)
{
    return (atn_mat){.buf = m.buf, .off = m.off + (size_t)from * sizeof(float), .cols = n, .stride = m.stride};
}

/* Places every matrix of s; returns the bytes. */
static size_t place(model_scratch *s, const model_hparams *h, uint32_t rows, uint32_t out, atn_buffer *buf)
{
    carver c = {.buf = buf};
    uint32_t q = h->n_head * h->head_dim, k = h->n_head_kv * h->head_dim, v = h->n_head_kv * h->head_dim_v;
    s->x = carve(&c, rows, h->n_embd);
    s->h = carve(&c, rows, h->n_embd);
    s->qkv = carve(&c, rows, q + k + v);
    s->q = columns(s->qkv, 0, q);
    s->k = columns(s->qkv, q, k);
    s->v = columns(s->qkv, q + k, v);
    s->att = carve(&c, rows, h->n_head * h->head_dim_v);
    s->gate = carve(&c, rows, h->n_ff);
    s->up = carve(&c, rows, h->n_ff);
    s->out = carve(&c, out, h->n_embd);
    s->logits = carve(&c, out, h->n_vocab);
    return c.at;
}

size_t model_scratch_bytes(const atn_model *m, uint32_t max_rows, uint32_t max_out)
{
    model_scratch s;
    return place(&s, &m->h, max_rows, max_out, NULL) + max_rows * (3 * sizeof(int32_t) + sizeof(atn_attn_seq));
}

atn_status model_scratch_new(atn_model *m, kv_pool *kv, uint32_t max_rows, uint32_t max_out, model_scratch **out,
                             atn_err *err)
{
    *out = NULL;
    model_scratch *s = calloc(1, sizeof *s);
    if (s == NULL) {
        goto nomem;
    }
    s->m = m;
    s->kv = kv;
    s->max_rows = max_rows;
    s->max_out = max_out;
    s->pos = calloc(max_rows, sizeof *s->pos);
    s->page = calloc(max_rows, sizeof *s->page);
    s->slot = calloc(max_rows, sizeof *s->slot);
    s->seqs = calloc(max_rows, sizeof *s->seqs);
    if (s->pos == NULL || s->page == NULL || s->slot == NULL || s->seqs == NULL) {
        goto nomem;
    }
    atn_status st = atn_buffer_new(m->be, place(s, &m->h, max_rows, max_out, NULL), true, &s->mem, err);
    if (st != ATN_OK) {
        model_scratch_free(s);
        return st;
    }
    place(s, &m->h, max_rows, max_out, s->mem);
    if (atn_buffer_host(s->mem) == NULL) {
        s->host_logits = calloc((size_t)max_out * m->h.n_vocab, sizeof *s->host_logits);
        if (s->host_logits == NULL) {
            goto nomem;
        }
    }
    *out = s;
    return ATN_OK;
nomem:
    model_scratch_free(s);
    return atn_fail(err, ATN_NOMEM, NULL, "no memory for steps of %u rows", max_rows);
}

void model_scratch_free(model_scratch *s)
{
    if (s == NULL) {
        return;
    }
    atn_buffer_free(s->mem);
    free(s->pos);
    free(s->page);
    free(s->slot);
    free(s->seqs);
    free(s->host_logits);
    free(s);
}

const float *model_logits(const model_scratch *s)
{
    if (s->host_logits != NULL) {
        return s->host_logits;
    }
    return (const float *)((const char *)atn_buffer_host(s->mem) + s->logits.off);
}

/* The engine's batches are right by construction; a wrong one is refused rather than computed out of bounds. */
static atn_status check_batch(const atn_model *m, const model_scratch *s, const model_batch *b, atn_err *err)
{
    if (b->n_rows == 0 || b->n_rows > s->max_rows || b->n_out > s->max_out) {
        return atn_fail(err, ATN_INVALID, NULL, "%u rows and %u outputs: the scratch holds %u and %u", b->n_rows,
                        b->n_out, s->max_rows, s->max_out);
    }
    for (uint32_t i = 0; i < b->n_rows; i++) {
        if (b->tokens[i] < 0 || (uint32_t)b->tokens[i] >= m->h.n_vocab) {
            return atn_fail(err, ATN_INVALID, NULL, "row %u: token %d of a vocabulary of %u", i, b->tokens[i],
                            m->h.n_vocab);
        }
    }
    uint32_t row = 0;
    for (uint32_t i = 0; i < b->n_spans; i++) {
        const model_span *p = &b->spans[i];
        if (p->row != row || p->n == 0 || p->n > b->n_rows - row) {
            return atn_fail(err, ATN_INVALID, NULL, "span %u does not follow the one before it", i);
        }
        if ((uint64_t)kv_seq_len(p->seq) + p->n > m->context) {
            return atn_fail(err, ATN_CONTEXT, NULL, "position %u of a context of %u", kv_seq_len(p->seq) + p->n - 1,
                            m->context);
        }
        row += p->n;
    }
    if (row != b->n_rows) {
        return atn_fail(err, ATN_INVALID, NULL, "the spans cover %u of %u rows", row, b->n_rows);
    }
    for (uint32_t i = 0; i < b->n_out; i++) {
        if (b->out_rows[i] < 0 || (uint32_t)b->out_rows[i] >= b->n_rows) {
            return atn_fail(err, ATN_INVALID, NULL, "output %u asks for row %d of %u", i, b->out_rows[i], b->n_rows);
        }
    }
    return ATN_OK;
}

atn_status model_step(atn_model *m, model_scratch *s, const model_batch *b, atn_err *err)
{
    ATN_TRY(check_batch(m, s, b, err));
    s->b = b;
    for (uint32_t i = 0; i < b->n_spans; i++) {
        const model_span *p = &b->spans[i];
        uint32_t len = kv_seq_len(p->seq);
        for (uint32_t k = 0; k < p->n; k++) {
            s->pos[p->row + k] = (int32_t)(len + k);
        }
        s->seqs[i] = (atn_attn_seq){.q_row = p->row, .n_q = p->n, .q_pos = len, .n_keys = len + p->n};
        s->seqs[i].key_log_factor = b->key_log_factor;
    }
    m->arch->step(m, s);
    ATN_TRY(atn_backend_wait(m->be, err));
    if (s->host_logits != NULL) {
        atn_buffer_read(s->mem, s->logits.off, s->host_logits, (size_t)b->n_out * m->h.n_vocab * sizeof(float));
    }
    return ATN_OK;
}

void step_embed(const atn_model *m, model_scratch *s, float scale)
{
    atn_embed(m->be, s->x, m->embd, s->b->tokens, s->b->n_rows, scale);
}

static void norm_rows(const atn_model *m, atn_mat dst, atn_mat x, const model_norm *w, uint32_t n)
{
    atn_norm(m->be, &(atn_norm_args){
                        .dst = dst,
                        .x = x,
                        .weight = &w->weight,
                        .bias = w->bias.buf != NULL ? &w->bias : NULL,
                        .kind = m->h.norm_kind,
                        .eps = m->h.norm_eps,
                        .width = w->weight.cols,
                        .n = n,
                    });
}

void step_norm(const atn_model *m, model_scratch *s, atn_mat dst, atn_mat x, const model_norm *w)
{
    norm_rows(m, dst, x, w, s->b->n_rows);
}

static void linear_rows(const atn_model *m, atn_mat dst, atn_mat x, const model_linear *w, uint32_t n)
{
    atn_matmul(m->be, &(atn_matmul_args){
                          .dst = dst,
                          .x = x,
                          .w = w->w,
                          .bias = w->bias.buf != NULL ? &w->bias : NULL,
                          .n = n,
                      });
}

void step_linear(const atn_model *m, model_scratch *s, atn_mat dst, atn_mat x, const model_linear *w)
{
    linear_rows(m, dst, x, w, s->b->n_rows);
}

void step_rope(const atn_model *m, model_scratch *s, const model_layer *y)
{
    atn_rope_args a = {
        .table = y->rope,
        .pos = s->pos,
        .style = m->h.rope_style,
        .head_dim = m->h.head_dim,
        .n_rot = m->h.n_rot,
        .n = s->b->n_rows,
    };
    a.x = s->q;
    atn_rope(m->be, &a);
    a.x = s->k;
    atn_rope(m->be, &a);
}

/* The batch's probe knows its layer; the backend's does not. */
typedef struct layer_probe {
    const model_batch *b;
    uint32_t layer;
} layer_probe;

static void forward_probe(void *arg, uint32_t row, uint32_t head, const float *weights, uint32_t n_keys)
{
    const layer_probe *p = arg;
    p->b->probe(p->b->probe_arg, p->layer, row, head, weights, n_keys);
}

/* Pages of the layer at hand: of every sequence, and of every row to be stored. */
static void find_pages(model_scratch *s, uint32_t l, uint32_t page_tokens)
{
    for (uint32_t i = 0; i < s->b->n_spans; i++) {
        const model_span *p = &s->b->spans[i];
        const int32_t *pages = kv_seq_pages(p->seq, l);
        s->seqs[i].pages = pages;
        for (uint32_t r = p->row; r < p->row + p->n; r++) {
            s->page[r] = pages[(uint32_t)s->pos[r] / page_tokens];
            s->slot[r] = (int32_t)((uint32_t)s->pos[r] % page_tokens);
        }
    }
}

void step_attend(const atn_model *m, model_scratch *s, uint32_t l)
{
    const model_hparams *h = &m->h;
    const model_batch *b = s->b;
    layer_probe probe = {.b = b, .layer = l};
    atn_kv_layout kv;
    kv_layer_layout(s->kv, l, &kv);
    find_pages(s, l, kv.page_tokens);
    atn_kv_write(m->be, &(atn_kv_write_args){
                            .k = s->k,
                            .v = s->v,
                            .kv = kv,
                            .page = s->page,
                            .slot = s->slot,
                            .n_head_kv = h->n_head_kv,
                            .head_dim = h->head_dim,
                            .head_dim_v = h->head_dim_v,
                            .n = b->n_rows,
                        });
    atn_attention(m->be, &(atn_attn_args){
                             .q = s->q,
                             .out = s->att,
                             .kv = kv,
                             .seqs = s->seqs,
                             .n_seqs = b->n_spans,
                             .n_head = h->n_head,
                             .n_head_kv = h->n_head_kv,
                             .head_dim = h->head_dim,
                             .head_dim_v = h->head_dim_v,
                             .scale = h->attn_scale,
                             .softcap = h->attn_softcap,
                             .window = m->layers[l].window,
                             .causal = true,
                             .head_scale = b->head_scale != NULL ? b->head_scale + (size_t)l * h->n_head : NULL,
                             .head_gate = b->head_gate != NULL ? b->head_gate + (size_t)l * h->n_head : NULL,
                             .probe = b->probe != NULL ? forward_probe : NULL,
                             .probe_arg = &probe,
                         });
}

void step_gated_ffn(const atn_model *m, model_scratch *s, const model_layer *y, atn_act_kind act)
{
    step_linear(m, s, s->gate, s->h, &y->gate);
    step_linear(m, s, s->up, s->h, &y->up);
    atn_activate(m->be, act, s->gate, s->gate, &s->up, s->b->n_rows);
    step_linear(m, s, s->h, s->gate, &y->down);
}

void step_add(const atn_model *m, model_scratch *s)
{
    atn_add(m->be, s->x, s->h, s->b->n_rows);
}

void step_logits(const atn_model *m, model_scratch *s)
{
    uint32_t n = s->b->n_out;
    if (n == 0) {
        return;
    }
    atn_gather(m->be, s->out, s->x, s->b->out_rows, n);
    norm_rows(m, s->out, s->out, &m->out_norm, n);
    linear_rows(m, s->logits, s->out, &m->output, n);
    if (m->h.final_softcap > 0.0f) {
        atn_softcap(m->be, s->logits, m->h.final_softcap, n);
    }
}
