/* A step's scratch, and the few moves that all architectures make: each is one to four backend calls over the batch's rows.
 * Thread: the engine thread; nothing here allocates. */
#ifndef ATN_STEP_H
#define ATN_STEP_H

#include "core/model/arch.h"

struct model_scratch {
    atn_model *m;
    kv_pool *kv;
    uint32_t max_rows, max_out;
    atn_buffer *mem;
    atn_mat x;            /* [rows, n_embd] the residual stream */
    atn_mat h;            /* [rows, n_embd] what a norm or a layer gave */
    atn_mat qkv;          /* [rows, all three], with q, k and v as its columns */
    atn_mat q, k, v;      /* [rows, n_head * head_dim], [rows, n_head_kv * head_dim], [rows, n_head_kv * head_dim_v] */
    atn_mat att;          /* [rows, n_head * head_dim_v] */
    atn_mat gate, up;     /* [rows, n_ff] */
    atn_mat out;          /* [max_out, n_embd] */
    atn_mat logits;       /* [max_out, n_vocab] */
    int32_t *pos;         /* [rows] */
    int32_t *page, *slot; /* [rows] where K and V go in the layer at hand */
    atn_attn_seq *seqs;   /* [rows] */
    float *host_logits;   /* [max_out, n_vocab] a copy, where the host cannot address the backend's memory */
    const model_batch *b; /* the step at hand */
};

/* x = scale * embedding of the tokens. */
void step_embed(const atn_model *m, model_scratch *s, float scale);
/* dst may be x. Each run of columns as wide as w is normed by itself: a whole row, or each head of q and k. */
void step_norm(const atn_model *m, model_scratch *s, atn_mat dst, atn_mat x, const model_norm *w);
void step_linear(const atn_model *m, model_scratch *s, atn_mat dst, atn_mat x, const model_linear *w);
/* Rotates q and k by the layer's table. */
void step_rope(const atn_model *m, model_scratch *s, const model_layer *y);
/* Stores k and v, then att = attention of q over each sequence's keys. */
void step_attend(const atn_model *m, model_scratch *s, uint32_t l);
/* h = down(act(gate(h)) * up(h)). */
void step_gated_ffn(const atn_model *m, model_scratch *s, const model_layer *y, atn_act_kind act);
/* x += h. */
void step_add(const atn_model *m, model_scratch *s);
/* Final norm and output matrix of the wanted rows alone; logits softcapped where the model says so. */
void step_logits(const atn_model *m, model_scratch *s);

#endif
