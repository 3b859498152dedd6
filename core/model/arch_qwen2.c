/* qwen2: Qwen 2 and 2.5 (Yang et al. 2024, arXiv:2407.10671): llama's layer with biases on q, k and v, halves rotated. */
#include "core/model/bind.h"
#include "core/model/hparams.h"
#include "core/model/step.h"

static atn_status hparams(const gguf *g, model_hparams *h, atn_err *err)
{
    ATN_TRY(hparams_rms(g, "qwen2", h, err));
    ATN_TRY(hparams_rope(g, "qwen2", h, err));
    h->rope_style = ATN_ROPE_HALVES;
    return ATN_OK;
}

static atn_status bind(model_binder *b, uint32_t l, model_layer *y)
{
    const model_hparams *h = &b->m->h;
    ATN_TRY(bind_norm(b, l, "attn_norm", h->n_embd, &y->attn_norm));
    ATN_TRY(bind_attention(b, l, BIND_BIAS, y));
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

const model_arch arch_qwen2 = {"qwen2", hparams, bind, step};
