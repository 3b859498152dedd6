/* Hyperparameters out of GGUF metadata: typed, ranged, each refusal naming its key. `name` is the key without the
 * architecture ("attention.head_count"). Thread: the loading thread. */
#ifndef ATN_HPARAMS_H
#define ATN_HPARAMS_H

#include "core/model/arch.h"

enum {
    HPARAMS_MAX_LAYERS = 1024,
    HPARAMS_MAX_HEADS = 1024,
    HPARAMS_MAX_HEAD_DIM = ATN_HEAD_DIM_MAX,
    HPARAMS_MAX_WIDTH = 1 << 20,   /* embedding, feed-forward */
    HPARAMS_MAX_CONTEXT = 1 << 20, /* in force; angles of the rotary tables, at most as large, stay exact up to it */
};

/* ATN_FORMAT when absent, of another type or out of [lo, hi]. */
atn_status hparams_u32(const gguf *g, const char *arch, const char *name, uint32_t lo, uint32_t hi, uint32_t *out,
                       atn_err *err) ATN_MUST_CHECK;
atn_status hparams_f32(const gguf *g, const char *arch, const char *name, float lo, float hi, float *out,
                       atn_err *err) ATN_MUST_CHECK;
/* The same, but an absent key leaves *out as it is. */
atn_status hparams_u32_opt(const gguf *g, const char *arch, const char *name, uint32_t lo, uint32_t hi, uint32_t *out,
                           atn_err *err) ATN_MUST_CHECK;
atn_status hparams_f32_opt(const gguf *g, const char *arch, const char *name, float lo, float hi, float *out,
                           atn_err *err) ATN_MUST_CHECK;
/* A key that asks for what this architecture does not have here: ATN_UNSUPPORTED when it is there and above `most`. */
atn_status hparams_refuse_above(const gguf *g, const char *arch, const char *name, uint32_t most,
                                atn_err *err) ATN_MUST_CHECK;
/* What every architecture has: sizes, heads, context. h->n_vocab is set before. */
atn_status hparams_common(const gguf *g, const char *arch, model_hparams *h, atn_err *err) ATN_MUST_CHECK;
/* attention.layer_norm_rms_epsilon; rope.dimension_count, freq_base (default 10000) and scaling. */
atn_status hparams_rms(const gguf *g, const char *arch, model_hparams *h, atn_err *err) ATN_MUST_CHECK;
atn_status hparams_rope(const gguf *g, const char *arch, model_hparams *h, atn_err *err) ATN_MUST_CHECK;

#endif
