/* gemma3: Gemma 3 text models (Gemma Team 2025, arXiv:2503.19786). Five local layers, then a global one, each kind with a
 * rotary base of its own; q and k normed a head at a time; norms after attention and feed-forward too, before each is added;
 * embeddings times sqrt(n_embd). GGUF norm weights already hold the + 1. */
#include "core/model/bind.h"
#include "core/model/hparams.h"
#include "core/model/step.h"

#include <math.h>

static atn_status hparams(const gguf *g, model_hparams *h, atn_err *err)
{
    const char *arch = "gemma3";
    ATN_TRY(hparams_rms(g, arch, h, err));
    ATN_TRY(hparams_rope(g, arch, h, err));
    h->rope_style = ATN_ROPE_HALVES;
    h->global_every = 6;
    ATN_TRY(hparams_u32(g, arch, "attention.sliding_window", 1, INT32_MAX, &h->window, err));
    ATN_TRY(hparams_u32_opt(g, arch, "attention.sliding_window_pattern", 1, HPARAMS_MAX_LAYERS, &h->global_every, err));
    /* Local layers keep their own base and are never scaled. */
    float base = 10000.0f;
    ATN_TRY(hparams_f32_opt(g, arch, "rope.local.freq_base", 1.001f, 1e30f, &base, err));
    ATN_TRY(hparams_f32_opt(g, arch, "rope.freq_base_swa", 1.001f, 1e30f, &base, err));
    h->rope_local = (rope_params){.base = (double)base};
    ATN_TRY(hparams_f32_opt(g, arch, "attn_logit_softcapping", 0.0f, 1e6f, &h->attn_softcap, err));
    ATN_TRY(hparams_f32_opt(g, arch, "final_logit_softcapping", 0.0f, 1e6f, &h->final_softcap, err));
    if (h->n_layer == 62) { /* the 27B model alone scales by n_embd / n_head, and its file has no key that says so */
        h->attn_scale = 1.0f / sqrtf((float)h->n_embd / (float)h->n_head);
    }
    return hparams_f32_opt(g, arch, "attention.scale", 1e-6f, 1e3f, &h->attn_scale, err);
}

static atn_status bind(model_binder *b, uint32_t l, model_layer *y)
{
    const model_hparams *h = &b->m->h;
    ATN_TRY(bind_norm(b, l, "attn_norm", h->n_embd, &y->attn_norm));
    ATN_TRY(bind_attention(b, l, BIND_BIAS_IF_THERE, y));
    ATN_TRY(bind_norm(b, l, "attn_q_norm", h->head_dim, &y->q_norm));
    ATN_TRY(bind_norm(b, l, "attn_k_norm", h->head_dim, &y->k_norm));
    ATN_TRY(bind_norm(b, l, "post_attention_norm", h->n_embd, &y->post_attn_norm));
    ATN_TRY(bind_norm(b, l, "ffn_norm", h->n_embd, &y->ffn_norm));
    ATN_TRY(bind_gated_ffn(b, l, y));
    return bind_norm(b, l, "post_ffw_norm", h->n_embd, &y->post_ffn_norm);
}

static void step(const atn_model *m, model_scratch *s)
{
    step_embed(m, s, sqrtf((float)m->h.n_embd));
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
        step_norm(m, s, s->h, s->h, &y->post_attn_norm);
        step_add(m, s);

        step_norm(m, s, s->h, s->x, &y->ffn_norm);
        step_gated_ffn(m, s, y, ATN_ACT_GELU_TANH);
        step_norm(m, s, s->h, s->h, &y->post_ffn_norm);
        step_add(m, s);
    }
    step_logits(m, s);
}

const model_arch arch_gemma3 = {"gemma3", hparams, bind, step};
