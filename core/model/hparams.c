/* Hyperparameters: every key is checked here, before anything is allocated by it. */
#include "core/model/hparams.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

typedef struct key_name {
    char s[96];
} key_name;

static key_name key_of(const char *arch, const char *name)
{
    key_name k;
    snprintf(k.s, sizeof k.s, "%s.%s", arch, name);
    return k;
}

static atn_status missing(const char *key, atn_err *err)
{
    return atn_fail(err, ATN_FORMAT, key, "the key is missing");
}

atn_status hparams_u32_opt(const gguf *g, const char *arch, const char *name, uint32_t lo, uint32_t hi, uint32_t *out,
                           atn_err *err)
{
    key_name k = key_of(arch, name);
    atn_status st = gguf_u32(g, k.s, lo, hi, out, err);
    return st == ATN_NOT_FOUND ? ATN_OK : st;
}

atn_status hparams_f32_opt(const gguf *g, const char *arch, const char *name, float lo, float hi, float *out,
                           atn_err *err)
{
    key_name k = key_of(arch, name);
    atn_status st = gguf_f32(g, k.s, lo, hi, out, err);
    return st == ATN_NOT_FOUND ? ATN_OK : st;
}

atn_status hparams_u32(const gguf *g, const char *arch, const char *name, uint32_t lo, uint32_t hi, uint32_t *out,
                       atn_err *err)
{
    key_name k = key_of(arch, name);
    return gguf_has(g, k.s) ? gguf_u32(g, k.s, lo, hi, out, err) : missing(k.s, err);
}

atn_status hparams_f32(const gguf *g, const char *arch, const char *name, float lo, float hi, float *out, atn_err *err)
{
    key_name k = key_of(arch, name);
    return gguf_has(g, k.s) ? gguf_f32(g, k.s, lo, hi, out, err) : missing(k.s, err);
}

atn_status hparams_refuse_above(const gguf *g, const char *arch, const char *name, uint32_t most, atn_err *err)
{
    uint32_t v = 0;
    ATN_TRY(hparams_u32_opt(g, arch, name, 0, UINT32_MAX, &v, err));
    if (v > most) {
        key_name k = key_of(arch, name);
        return atn_fail(err, ATN_UNSUPPORTED, k.s, "%u: this architecture is supported up to %u", v, most);
    }
    return ATN_OK;
}

atn_status hparams_common(const gguf *g, const char *arch, model_hparams *h, atn_err *err)
{
    ATN_TRY(hparams_u32(g, arch, "block_count", 1, HPARAMS_MAX_LAYERS, &h->n_layer, err));
    ATN_TRY(hparams_u32(g, arch, "embedding_length", 1, HPARAMS_MAX_WIDTH, &h->n_embd, err));
    ATN_TRY(hparams_u32(g, arch, "feed_forward_length", 1, HPARAMS_MAX_WIDTH, &h->n_ff, err));
    ATN_TRY(hparams_u32(g, arch, "context_length", 1, INT32_MAX, &h->context_train, err));
    ATN_TRY(hparams_u32(g, arch, "attention.head_count", 1, HPARAMS_MAX_HEADS, &h->n_head, err));
    h->n_head_kv = h->n_head;
    ATN_TRY(hparams_u32_opt(g, arch, "attention.head_count_kv", 1, h->n_head, &h->n_head_kv, err));
    if (h->n_head % h->n_head_kv != 0) {
        return atn_fail(err, ATN_FORMAT, key_of(arch, "attention.head_count_kv").s,
                        "%u KV heads do not divide %u heads", h->n_head_kv, h->n_head);
    }
    h->head_dim = h->n_embd / h->n_head;
    if (!gguf_has(g, key_of(arch, "attention.key_length").s) &&
        (h->n_embd % h->n_head != 0 || h->head_dim > HPARAMS_MAX_HEAD_DIM)) {
        return atn_fail(err, ATN_FORMAT, key_of(arch, "attention.head_count").s, "%u heads do not divide a width of %u",
                        h->n_head, h->n_embd);
    }
    ATN_TRY(hparams_u32_opt(g, arch, "attention.key_length", 1, HPARAMS_MAX_HEAD_DIM, &h->head_dim, err));
    h->head_dim_v = h->head_dim;
    ATN_TRY(hparams_u32_opt(g, arch, "attention.value_length", 1, HPARAMS_MAX_HEAD_DIM, &h->head_dim_v, err));
    uint32_t n_vocab = h->n_vocab;
    ATN_TRY(hparams_u32_opt(g, arch, "vocab_size", 1, INT32_MAX, &n_vocab, err));
    if (n_vocab != h->n_vocab) {
        return atn_fail(err, ATN_FORMAT, key_of(arch, "vocab_size").s, "%u, but the tokenizer has %u tokens", n_vocab,
                        h->n_vocab);
    }
    h->attn_scale = 1.0f / sqrtf((float)h->head_dim);
    return ATN_OK;
}

atn_status hparams_rms(const gguf *g, const char *arch, model_hparams *h, atn_err *err)
{
    h->norm_kind = ATN_NORM_RMS;
    return hparams_f32(g, arch, "attention.layer_norm_rms_epsilon", 0.0f, 1.0f, &h->norm_eps, err);
}

/* A factor below 1 would turn angles beyond what the tables can hold; 0 says that there is none. */
static atn_status read_factor(const gguf *g, const char *arch, const char *name, float *out, atn_err *err)
{
    ATN_TRY(hparams_f32_opt(g, arch, name, 0.0f, 1e6f, out, err));
    if (*out > 0.0f && *out < 1.0f) {
        return atn_fail(err, ATN_FORMAT, key_of(arch, name).s, "%g: 0 and 1 to 1000000 are allowed", (double)*out);
    }
    return ATN_OK;
}

/* rope.scaling.*, and rope.scale_linear of older files. An absent type is linear, an absent factor none. */
static atn_status scaling(const gguf *g, const char *arch, model_hparams *h, rope_params *r, atn_err *err)
{
    float factor = 0.0f;
    ATN_TRY(read_factor(g, arch, "rope.scale_linear", &factor, err));
    ATN_TRY(read_factor(g, arch, "rope.scaling.factor", &factor, err));
    r->scaling = ROPE_SCALING_LINEAR;
    key_name k = key_of(arch, "rope.scaling.type");
    if (gguf_has(g, k.s)) {
        gguf_str type;
        ATN_TRY(gguf_string(g, k.s, &type, err));
        if (type.n == 4 && memcmp(type.s, "none", 4) == 0) {
            r->scaling = ROPE_SCALING_NONE;
        } else if (type.n == 4 && memcmp(type.s, "yarn", 4) == 0) {
            r->scaling = ROPE_SCALING_YARN;
        } else if (type.n != 6 || memcmp(type.s, "linear", 6) != 0) {
            return atn_fail(err, ATN_UNSUPPORTED, k.s, "none, linear and yarn are known");
        }
    }
    if (factor == 0.0f) {
        r->scaling = ROPE_SCALING_NONE;
    }
    float attn = 1.0f, ext = 1.0f, fast = 32.0f, slow = 1.0f;
    r->n_ctx_orig = h->context_train;
    ATN_TRY(hparams_u32_opt(g, arch, "rope.scaling.original_context_length", 1, INT32_MAX, &r->n_ctx_orig, err));
    ATN_TRY(hparams_f32_opt(g, arch, "rope.scaling.attn_factor", 0.0f, 1e3f, &attn, err));
    ATN_TRY(hparams_f32_opt(g, arch, "rope.scaling.yarn_attn_factor", 0.0f, 1e3f, &attn, err));
    ATN_TRY(hparams_f32_opt(g, arch, "rope.scaling.yarn_ext_factor", 0.0f, 1.0f, &ext, err));
    ATN_TRY(hparams_f32_opt(g, arch, "rope.scaling.yarn_beta_fast", 1e-3f, 1e6f, &fast, err));
    ATN_TRY(hparams_f32_opt(g, arch, "rope.scaling.yarn_beta_slow", 1e-3f, 1e6f, &slow, err));
    r->factor = (double)factor;
    r->attn_factor = (double)attn;
    r->ext_factor = (double)ext;
    r->beta_fast = (double)fast;
    r->beta_slow = (double)slow;
    return ATN_OK;
}

atn_status hparams_rope(const gguf *g, const char *arch, model_hparams *h, atn_err *err)
{
    h->n_rot = h->head_dim;
    ATN_TRY(hparams_u32_opt(g, arch, "rope.dimension_count", 2, h->head_dim, &h->n_rot, err));
    if (h->n_rot % 2 != 0) {
        return atn_fail(err, ATN_FORMAT, key_of(arch, "rope.dimension_count").s, "%u: must be even", h->n_rot);
    }
    float base = 10000.0f;
    ATN_TRY(hparams_f32_opt(g, arch, "rope.freq_base", 1.001f, 1e30f, &base, err));
    ATN_TRY(scaling(g, arch, h, &h->rope, err));
    h->rope.base = (double)base;
    return ATN_OK;
}
