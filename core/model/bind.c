/* Binding: matrices go to the backend's own layout, vectors and tables into chunks of backend memory. */
#include "core/model/bind.h"

#include "core/load/weights.h"
#include "core/model/rope_table.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Vectors are small and many: they share chunks of at least this size. */
static const size_t chunk_bytes = 1 << 20;

typedef struct model_chunk {
    struct model_chunk *next;
    atn_buffer *buf;
    size_t used, size;
} model_chunk;

typedef struct tensor_name {
    char s[80];
} tensor_name;

static tensor_name layer_tensor(uint32_t l, const char *name, const char *end)
{
    tensor_name t;
    snprintf(t.s, sizeof t.s, "blk.%u.%s.%s", l, name, end);
    return t;
}

atn_status bind_room(atn_model *m, uint32_t rows, uint32_t n, atn_mat *out, atn_err *err)
{
    size_t bytes = ((size_t)rows * n * sizeof(float) + 63) & ~(size_t)63;
    model_chunk *c = m->chunks;
    if (c == NULL || c->size - c->used < bytes) {
        c = calloc(1, sizeof *c);
        if (c == NULL) {
            return atn_fail(err, ATN_NOMEM, NULL, "no memory for a model's vectors");
        }
        c->size = bytes > chunk_bytes ? bytes : chunk_bytes;
        atn_status st = atn_buffer_new(m->be, c->size, false, &c->buf, err);
        if (st != ATN_OK) {
            free(c);
            return st;
        }
        c->next = m->chunks;
        m->chunks = c;
        m->vector_bytes += c->size;
    }
    *out = (atn_mat){.buf = c->buf, .off = c->used, .cols = n, .stride = n};
    c->used += bytes;
    return ATN_OK;
}

void bind_free_room(atn_model *m)
{
    while (m->chunks != NULL) {
        model_chunk *c = m->chunks;
        m->chunks = c->next;
        atn_buffer_free(c->buf);
        free(c);
    }
}

bool bind_has(const model_binder *b, const char *name)
{
    return gguf_find_tensor(b->g, name) != NULL;
}

static void note_bound(model_binder *b, const char *name)
{
    b->bound[b->n_bound++] = gguf_find_tensor(b->g, name);
}

static atn_status matrix(model_binder *b, const char *name, uint32_t n_in, uint32_t n_out, atn_weight **out)
{
    ATN_TRY(weights_matrix(b->g, b->m->be, name, n_in, n_out, out, b->err));
    note_bound(b, name);
    return ATN_OK;
}

static atn_status vector(model_binder *b, const char *name, uint32_t n, atn_mat *out)
{
    float *v = calloc(n, sizeof *v);
    if (v == NULL) {
        return atn_fail(b->err, ATN_NOMEM, NULL, "no memory for a vector of %u", n);
    }
    atn_status st = weights_vector(b->g, name, n, v, b->err);
    if (st == ATN_OK) {
        st = bind_room(b->m, 1, n, out, b->err);
    }
    if (st == ATN_OK) {
        atn_buffer_write(out->buf, out->off, v, n * sizeof *v);
        note_bound(b, name);
    }
    free(v);
    return st;
}

atn_status bind_linear(model_binder *b, uint32_t l, const char *name, uint32_t n_in, uint32_t n_out, bind_bias bias,
                       model_linear *out)
{
    ATN_TRY(matrix(b, layer_tensor(l, name, "weight").s, n_in, n_out, &out->w));
    tensor_name bias_name = layer_tensor(l, name, "bias");
    if (bias == BIND_BIAS || bind_has(b, bias_name.s)) {
        ATN_TRY(vector(b, bias_name.s, n_out, &out->bias));
    }
    return ATN_OK;
}

static atn_status norm(model_binder *b, const char *weight, const char *bias, uint32_t n, model_norm *out)
{
    ATN_TRY(vector(b, weight, n, &out->weight));
    return b->m->h.norm_kind == ATN_NORM_LAYER ? vector(b, bias, n, &out->bias) : ATN_OK;
}

atn_status bind_norm(model_binder *b, uint32_t l, const char *name, uint32_t n, model_norm *out)
{
    return norm(b, layer_tensor(l, name, "weight").s, layer_tensor(l, name, "bias").s, n, out);
}

atn_status bind_gated_ffn(model_binder *b, uint32_t l, model_layer *y)
{
    const model_hparams *h = &b->m->h;
    ATN_TRY(bind_linear(b, l, "ffn_gate", h->n_embd, h->n_ff, BIND_BIAS_IF_THERE, &y->gate));
    ATN_TRY(bind_linear(b, l, "ffn_up", h->n_embd, h->n_ff, BIND_BIAS_IF_THERE, &y->up));
    return bind_linear(b, l, "ffn_down", h->n_ff, h->n_embd, BIND_BIAS_IF_THERE, &y->down);
}

atn_status bind_attention(model_binder *b, uint32_t l, bind_bias qkv_bias, model_layer *y)
{
    const model_hparams *h = &b->m->h;
    ATN_TRY(bind_linear(b, l, "attn_q", h->n_embd, h->n_head * h->head_dim, qkv_bias, &y->q));
    ATN_TRY(bind_linear(b, l, "attn_k", h->n_embd, h->n_head_kv * h->head_dim, qkv_bias, &y->k));
    ATN_TRY(bind_linear(b, l, "attn_v", h->n_embd, h->n_head_kv * h->head_dim_v, qkv_bias, &y->v));
    return bind_linear(b, l, "attn_output", h->n_head * h->head_dim_v, h->n_embd, BIND_BIAS_IF_THERE, &y->o);
}

/* Llama 3's factors: n_rot / 2 divisors of the frequencies. *out is NULL where the file has none; the caller frees it. */
static atn_status rope_divisors(model_binder *b, float **out)
{
    const char *name = "rope_freqs.weight";
    uint32_t n = b->m->h.n_rot / 2;
    *out = NULL;
    if (!bind_has(b, name)) {
        return ATN_OK;
    }
    float *v = calloc(n, sizeof *v);
    if (v == NULL) {
        return atn_fail(b->err, ATN_NOMEM, NULL, "no memory for rotary factors");
    }
    atn_status st = weights_vector(b->g, name, n, v, b->err);
    for (uint32_t i = 0; st == ATN_OK && i < n; i++) {
        if (!(v[i] >= 1.0f && v[i] <= 1e6f)) {
            st = atn_fail(b->err, ATN_FORMAT, name, "factor %u is outside 1 to 1000000", i);
        }
    }
    if (st != ATN_OK) {
        free(v);
        return st;
    }
    note_bound(b, name);
    *out = v;
    return ATN_OK;
}

static atn_status rope_tables(model_binder *b)
{
    atn_model *m = b->m;
    const model_hparams *h = &m->h;
    float *divisors;
    ATN_TRY(rope_divisors(b, &divisors));
    atn_status st = bind_room(m, m->context, h->n_rot, &m->rope_global, b->err);
    if (st == ATN_OK) {
        st = rope_table_fill(&h->rope, divisors, m->context, h->n_rot, &m->rope_global, b->err);
    }
    free(divisors);
    if (st == ATN_OK && h->rope_local.base > 0.0) {
        st = bind_room(m, m->context, h->n_rot, &m->rope_local, b->err);
        if (st == ATN_OK) {
            st = rope_table_fill(&h->rope_local, NULL, m->context, h->n_rot, &m->rope_local, b->err);
        }
    }
    return st;
}

atn_status bind_ends(model_binder *b)
{
    atn_model *m = b->m;
    const model_hparams *h = &m->h;
    ATN_TRY(matrix(b, "token_embd.weight", h->n_embd, h->n_vocab, &m->embd));
    if (h->n_rot > 0) {
        ATN_TRY(rope_tables(b));
    } else {
        ATN_TRY(matrix(b, "position_embd.weight", h->n_embd, h->context_train, &m->pos_embd));
    }
    ATN_TRY(norm(b, "output_norm.weight", "output_norm.bias", h->n_embd, &m->out_norm));
    if (!bind_has(b, "output.weight")) {
        m->output.w = m->embd;
        return ATN_OK;
    }
    ATN_TRY(matrix(b, "output.weight", h->n_embd, h->n_vocab, &m->output.w));
    return bind_has(b, "output.bias") ? vector(b, "output.bias", h->n_vocab, &m->output.bias) : ATN_OK;
}

static bool is_bound(const model_binder *b, const gguf_tensor *t)
{
    for (size_t i = 0; i < b->n_bound; i++) {
        if (b->bound[i] == t) {
            return true;
        }
    }
    return false;
}

atn_status bind_check_all_used(const model_binder *b)
{
    for (size_t i = 0; i < gguf_n_tensors(b->g); i++) {
        const gguf_tensor *t = gguf_tensor_at(b->g, i);
        if (!is_bound(b, t)) {
            char name[64];
            gguf_printable(t->name, name, sizeof name);
            return atn_fail(b->err, ATN_FORMAT, name, "the tensor is not part of a %s model", b->m->arch->name);
        }
    }
    return ATN_OK;
}
