/* A model as the engine sees it: hyperparameters, KV shape, scratch, and one step over a batch of rows.
 *
 * An architecture (one file each: llama, qwen2, qwen3, gemma3, gpt2) is a small table: read the file's keys, bind the
 * weights, run a step as a straight list of backend calls.
 * Thread: model_step on the engine thread; it allocates nothing. */
#ifndef ATN_CORE_MODEL_H
#define ATN_CORE_MODEL_H

#include <attnd/model.h>
#include "core/kv/kv.h"
#include "core/load/gguf.h"

typedef struct model_scratch model_scratch;

/* One sequence's rows in a step: positions kv_seq_len(seq) .. + n - 1, room for which was made by kv_seq_extend. */
typedef struct model_span {
    kv_seq *seq;
    uint32_t row; /* first row of the batch */
    uint32_t n;
} model_span;

typedef struct model_batch {
    const int32_t *tokens; /* [n_rows] ids in range */
    uint32_t n_rows;
    const model_span *spans; /* [n_spans], rows ascending, covering 0 .. n_rows-1 */
    uint32_t n_spans;
    const int32_t *out_rows; /* [n_out] rows whose logits are wanted, ascending */
    uint32_t n_out;
    /* Test and microscope seam: called for every layer and row in ascending order; NULL: nothing is paid. */
    void (*probe)(void *arg, uint32_t layer, uint32_t row, uint32_t head, const float *weights, uint32_t n_keys);
    void *probe_arg;
    /* [n_layers * n_head] each, or NULL: see atn_attn_args.head_gate and head_scale. */
    const float *head_gate, *head_scale;
    const float *key_log_factor; /* [positions], for every sequence, layer and head, or NULL */
} model_batch;

/* atn_model_open of a file that is open already, or that lies in memory; g may be closed after. */
atn_status model_open_gguf(const gguf *g, const atn_model_params *params, atn_backend *be, atn_model **out,
                           atn_err *err) ATN_MUST_CHECK;
void model_kv_layers(const atn_model *m, const kv_layer **layers, uint32_t *n_layers); /* owned by the model */
/* Memory for steps of up to max_rows rows and max_out logits rows. */
atn_status model_scratch_new(atn_model *m, kv_pool *kv, uint32_t max_rows, uint32_t max_out, model_scratch **out,
                             atn_err *err) ATN_MUST_CHECK;
size_t model_scratch_bytes(const atn_model *m, uint32_t max_rows, uint32_t max_out); /* before opening one */
void model_scratch_free(model_scratch *s);
/* Computes the batch, writes K and V of its rows, leaves the logits; commits nothing: kv_seq_commit is the caller's.
 * ATN_INVALID, ATN_CONTEXT: the batch is no batch for this model, nothing was computed; else what atn_backend_wait says.
 * After it, model_logits gives [n_out, n_vocab] in the host's memory, valid until the next step. */
atn_status model_step(atn_model *m, model_scratch *s, const model_batch *b, atn_err *err) ATN_MUST_CHECK;
const float *model_logits(const model_scratch *s);

#endif
