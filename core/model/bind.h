/* Binding a file's tensors to a model, by name and shape. Thread: the loading thread. */
#ifndef ATN_BIND_H
#define ATN_BIND_H

#include "core/model/arch.h"

struct model_binder {
    const gguf *g;
    atn_model *m;
    const gguf_tensor **bound; /* [gguf_n_tensors] those in use */
    size_t n_bound;
    atn_err *err;
};

typedef enum bind_bias { BIND_BIAS_IF_THERE, BIND_BIAS } bind_bias;

/* [rows, n] floats in the model's memory, zeroed. ATN_NOMEM. */
atn_status bind_room(atn_model *m, uint32_t rows, uint32_t n, atn_mat *out, atn_err *err) ATN_MUST_CHECK;
void bind_free_room(atn_model *m);
bool bind_has(const model_binder *b, const char *name);
/* What follows fails as weights.h says, naming the tensor, into b->err. */
/* Tensor blk.<l>.<name>.weight [n_in, n_out] and .bias [n_out]. */
atn_status bind_linear(model_binder *b, uint32_t l, const char *name, uint32_t n_in, uint32_t n_out, bind_bias bias,
                       model_linear *out) ATN_MUST_CHECK;
/* Tensor blk.<l>.<name>.weight [n], and .bias [n] for LayerNorm. */
atn_status bind_norm(model_binder *b, uint32_t l, const char *name, uint32_t n, model_norm *out) ATN_MUST_CHECK;
/* The three of a gated feed-forward layer: ffn_gate, ffn_up, ffn_down. */
atn_status bind_gated_ffn(model_binder *b, uint32_t l, model_layer *y) ATN_MUST_CHECK;
/* attn_q, attn_k, attn_v and attn_output. */
atn_status bind_attention(model_binder *b, uint32_t l, bind_bias qkv_bias, model_layer *y) ATN_MUST_CHECK;
/* token_embd, position_embd (n_positions > 0), output_norm, output; rotary tables, with rope_freqs where the file has it. */
atn_status bind_ends(model_binder *b) ATN_MUST_CHECK;
/* ATN_FORMAT naming the first tensor that nothing was bound to: the file is of a kind that would be computed wrongly. */
atn_status bind_check_all_used(const model_binder *b) ATN_MUST_CHECK;

#endif
