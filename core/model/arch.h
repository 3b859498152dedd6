/* What an architecture fills in, and the pieces it fills them with.
 *
 * An architecture is three functions (arch_*.c): read the file's keys into model_hparams, bind the tensors into model_layer,
 * and compute one step as a straight list of backend calls (core/model/step.h). Opening a model is model_open.c.
 * Thread: loading on the opener's thread; after that everything here but scratch is immutable. */
#ifndef ATN_ARCH_H
#define ATN_ARCH_H

#include "core/load/gguf.h"
#include "core/model/model.h"

typedef enum rope_scaling { ROPE_SCALING_NONE, ROPE_SCALING_LINEAR, ROPE_SCALING_YARN } rope_scaling;

/* One rotary embedding (Su et al. 2021, arXiv:2104.09864), with YaRN (Peng et al. 2023, arXiv:2309.00071). */
typedef struct rope_params {
    double base;
    rope_scaling scaling;
    double factor;      /* how many times longer than n_ctx_orig */
    double attn_factor; /* YaRN: multiplies cos and sin beside 1 + 0.1 ln(factor) */
    double ext_factor, beta_fast, beta_slow;
    uint32_t n_ctx_orig;
} rope_params;

typedef struct model_hparams {
    uint32_t n_layer, n_embd, n_ff, n_vocab;
    uint32_t n_head, n_head_kv;    /* n_head is a multiple of n_head_kv */
    uint32_t head_dim, head_dim_v; /* of q and k; of v */
    uint32_t context_train;
    float norm_eps;
    atn_norm_kind norm_kind;
    uint32_t n_rot; /* even, at most head_dim; 0: no rotary embedding */
    atn_rope_style rope_style;
    rope_params rope, rope_local; /* rope_local: of layers with a window, where base > 0 */
    uint32_t window;              /* of local layers; 0: there are none */
    uint32_t global_every; /* layer l is global when (l + 1) % global_every == 0; 0: none is, if there is a window */
    float attn_scale, attn_softcap, final_softcap; /* softcaps: 0 is off */
} model_hparams;

/* x wᵀ + bias */
typedef struct model_linear {
    atn_weight *w; /* [n_out, n_in] */
    atn_mat bias;  /* [1, n_out]; buf is NULL: none */
} model_linear;

typedef struct model_norm {
    atn_mat weight, bias; /* [1, width]; bias.buf is NULL: none */
} model_norm;

/* The union of what architectures have; what one does not use stays zero. */
typedef struct model_layer {
    model_norm attn_norm, q_norm, k_norm, post_attn_norm, ffn_norm, post_ffn_norm;
    model_linear q, k, v, qkv, o;
    model_linear gate, up, down;
    const atn_mat *rope; /* [context, n_rot] */
    uint32_t window;     /* 0: sees everything */
} model_layer;

typedef struct model_binder model_binder; /* core/model/bind.h */

typedef struct model_arch {
    const char *name;
    /* Keys beyond hparams_common. ATN_FORMAT naming the key and its range; ATN_UNSUPPORTED naming the key. */
    atn_status (*hparams)(const gguf *g, model_hparams *h, atn_err *err);
    /* Tensors of layer l beyond the embedding and the output. */
    atn_status (*bind)(model_binder *b, uint32_t l, model_layer *y);
    /* The batch of s, from embedding to logits. */
    void (*step)(const atn_model *m, model_scratch *s);
} model_arch;

extern const model_arch arch_llama, arch_qwen2, arch_qwen3, arch_gemma3, arch_gpt2;

struct atn_model {
    atn_backend *be; /* the opener's */
    const model_arch *arch;
    atn_tokenizer *tok;
    model_hparams h;
    uint32_t context;
    atn_weight *embd;     /* [n_vocab, n_embd] */
    atn_weight *pos_embd; /* [context_train, n_embd], or NULL */
    model_linear output;  /* output.w is embd where tied */
    model_norm out_norm;
    model_layer *layers; /* [n_layer] */
    kv_layer *kv_layers; /* [n_layer] */
    atn_mat rope_global, rope_local;
    struct model_chunk *chunks; /* memory of vectors and tables */
    size_t vector_bytes;
    char *name;
    atn_model_info info;
};

#endif
