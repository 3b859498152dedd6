/* Models: a GGUF file bound to a backend, ready to compute.
 *
 * atn_model_open maps the file, proves every count and offset against its real length, binds the weights into the
 * backend's memory and drops the map, so that a file that shrinks later cannot hurt.
 * Thread: open and close from one thread; an open model's weights are immutable; the engine thread computes with it.
 */
#ifndef ATTND_MODEL_H
#define ATTND_MODEL_H

#include <attnd/backend.h>
#include <attnd/tokenizer.h>

typedef struct atn_model atn_model;

typedef struct atn_model_params {
    uint32_t context;       /* most positions a sequence may have; 0: the model's own, at most 8192 */
    bool allow_unknown_pre; /* take the default pre-tokenizer when the file names one we do not know */
} atn_model_params;

typedef struct atn_model_info {
    const char *name;         /* general.name, "" when absent */
    const char *architecture; /* "gemma3" */
    uint32_t n_layer, n_embd, n_head, n_head_kv, head_dim, n_ff, n_vocab;
    uint32_t context;       /* in force */
    uint32_t context_train; /* the file's */
    uint32_t window;        /* of the local layers, 0: none */
    bool tied_output;
    uint64_t n_params;
    size_t file_bytes, weight_bytes;
} atn_model_info;

/* The backend must outlive the model. Errors: ATN_IO, ATN_FORMAT (what in the file, where, allowed range),
 * ATN_UNSUPPORTED (architecture, tensor type, pre-tokenizer: by name), ATN_NOMEM. */
atn_status atn_model_open(const char *path, const atn_model_params *params, atn_backend *be, atn_model **out,
                          atn_err *err) ATN_MUST_CHECK;
void atn_model_close(atn_model *m);                               /* NULL is fine */
void atn_model_get_info(const atn_model *m, atn_model_info *out); /* strings owned by the model */
const atn_tokenizer *atn_model_tokenizer(const atn_model *m);
atn_backend *atn_model_backend(const atn_model *m);

#endif
