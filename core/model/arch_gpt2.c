/* gpt2: GPT-2 (Radford et al. 2019). LayerNorm, learned positions, biases everywhere; one matrix gives the rows of q, k and v
 * in that order. */
#include "core/model/bind.h"
#include "core/model/hparams.h"
#include "core/model/step.h"

static atn_status hparams(const gguf *g, model_hparams *h, atn_err *err)
{
    h->norm_kind = ATN_NORM_LAYER;
    return hparams_f32(g, "gpt2", "attention.layer_norm_epsilon", 0.0f, 1.0f, &h->norm_eps, err);
}

static atn_status bind(model_binder *b, uint32_t l, model_layer *y)
{
    const model_hparams *h = &b->m->h;
    uint32_t n_qkv = (h->n_head + h->n_head_kv) * h->head_dim + h->n_head_kv * h->head_dim_v;
    ATN_TRY(bind_norm(b, l, "attn_norm", h->n_embd, &y->attn_norm));
    ATN_TRY(bind_linear(b, l, "attn_qkv", h->n_embd, n_qkv, BIND_BIAS, &y->qkv));
    ATN_TRY(bind_linear(b, l, "attn_output", h->n_head * h->head_dim_v, h->n_embd, BIND_BIAS, &y->o));
    ATN_TRY(bind_norm(b, l, "ffn_norm", h->n_embd, &y->ffn_norm));
    ATN_TRY(bind_linear(b, l, "ffn_up", h->n_embd, h->n_ff, BIND_BIAS, &y->up));
    return bind_linear(b, l, "ffn_down", h->n_ff, h->n_embd, BIND_BIAS, &y->down);
}

static void step(const atn_model *m, model_scratch *s)
{
    uint32_t n = s->b->n_rows;
    step_embed(m, s, 1.0f);
    atn_embed(m->be, s->h, m->pos_embd, s->pos, n, 1.0f);
    step_add(m, s);
    for (uint32_t l = 0; l < m->h.n_layer; l++) {
        const model_layer *y = &m->layers[l];
        step_norm(m, s, s->h, s->x, &y->attn_norm);
        step_linear(m, s, s->qkv, s->h, &y->qkv);
        step_attend(m, s, l);
        step_linear(m, s, s->h, s->att, &y->o);
        step_add(m, s);

        step_norm(m, s, s->h, s->x, &y->ffn_norm);
        step_linear(m, s, s->up, s->h, &y->up);
        atn_activate(m->be, ATN_ACT_GELU_TANH, s->up, s->up, NULL, n);
        step_linear(m, s, s->h, s->up, &y->down);
        step_add(m, s);
    }
    step_logits(m, s);
}

const model_arch arch_gpt2 = {"gpt2", hparams, bind, step};
