/* qwen3: the dense Qwen 3 models (Yang et al. 2025, arXiv:2505.09388): q and k are normed a head at a time before they are
 * rotated, no biases, and the head size is a key of its own. */
#include "core/model/bind.h"
#include "core/model/hparams.h"
#include "core/model/step.h"

static atn_status hparams(const gguf *g, model_hparams *h, atn_err *err)
{
    ATN_TRY(hparams_rms(g, "qwen3", h, err));
    ATN_TRY(hparams_rope(g, "qwen3", h, err));
    h->rope_style = ATN_ROPE_HALVES;
    return ATN_OK;
}

static atn_status bind(model_binder *b, uint32_t l, model_layer *y)
{
    const model_hparams *h = &b->m->h;
    ATN_TRY(bind_norm(b, l, "attn_norm", h->n_embd, &y->attn_norm));
    ATN_TRY(bind_attention(b, l, BIND_BIAS_IF_THERE, y));
    ATN_TRY(bind_norm(b, l, "attn_q_norm", h->head_dim, &y->q_norm));
    ATN_TRY(bind_norm(b, l, "attn_k_norm", h->head_dim, &y->k_norm));
    ATN_TRY(bind_norm(b, l, "ffn_norm", h->n_embd, &y->ffn_norm));
    return bind_gated_ffn(b, l, y);
}

static void step(const atn_model *m, model_scratch *s)
{
    step_embed(m, s, 1.0f);
    for (uint32_t l = 0; l < m->h.n_layer; l++) {
        const model_layer *y = &m->layers[l];
        step_norm(m, s, s->h, s->x, &y->attn_norm);
        step_linear(m, s, s->q, s->h, &y->q);
        step_linear(m, s, s->k, s->h, &y->k);
        step_linear(m, s, s->v, s->h, &y->v);
        step_norm(m, s, s->q, s->q, &y->q_norm);
        step_norm(m, s, s->k, s->k, &y->k_norm);
        step_rope(m, s, y);
        step_attend(m, s, l);
        step_linear(m, s, s->h, s->att, &y->o);
        step_add(m, s);

        step_norm(m, s, s->h, s->x, &y->ffn_norm);
        step_gated_ffn(m, s, y, ATN_ACT_SILU);
        step_add(m, s);
    }
    step_logits(m, s);
}

const model_arch arch_qwen3 = {"qwen3", hparams, bind, step};
