/* Reads the tokenizer's keys (ggml-org/ggml docs/gguf.md, "Tokenizer") into a token_source and builds from that. */
#include "core/token/tokenizer.h"

#include <stdlib.h>
#include "core/token/vocab.h"

/* What reading allocates; the strings themselves are in the file. */
typedef struct arrays {
    gguf_str *pieces;
    gguf_str *merges;
    float *scores;
    int32_t *kinds;
    gguf_str chat_template;
} arrays;

static atn_status optional(atn_status status)
{
    return status == ATN_NOT_FOUND ? ATN_OK : status;
}

static atn_status read_id(const gguf *g, const char *key, size_t n_tokens, int32_t *id, atn_err *err)
{
    uint32_t value;
    atn_status status = gguf_u32(g, key, 0, (uint32_t)n_tokens - 1, &value, err);
    *id = status == ATN_OK ? (int32_t)value : -1;
    return optional(status);
}

static atn_status read_flag(const gguf *g, const char *key, int *flag, atn_err *err)
{
    bool value;
    atn_status status = gguf_bool(g, key, &value, err);
    *flag = status == ATN_OK ? value : -1;
    return optional(status);
}

static atn_status check_length(const char *key, size_t n, size_t n_tokens, atn_err *err)
{
    if (n == n_tokens) {
        return ATN_OK;
    }
    return atn_fail(err, ATN_FORMAT, key, "%zu elements for %zu tokens", n, n_tokens);
}

static atn_status read_arrays(const gguf *g, token_source *src, arrays *a, atn_err *err)
{
    atn_status status = gguf_array_strings(g, "tokenizer.ggml.tokens", &a->pieces, &src->n_tokens, err);
    if (status == ATN_NOT_FOUND || (status == ATN_OK && (src->n_tokens < 1 || src->n_tokens > INT32_MAX))) {
        return atn_fail(err, ATN_FORMAT, "tokenizer.ggml.tokens", "the file holds no vocabulary");
    }
    ATN_TRY(status);
    size_t n;
    ATN_TRY(optional(gguf_array_strings(g, "tokenizer.ggml.merges", &a->merges, &src->n_merges, err)));
    status = gguf_array_f32(g, "tokenizer.ggml.scores", &a->scores, &n, err);
    if (status == ATN_OK) {
        status = check_length("tokenizer.ggml.scores", n, src->n_tokens, err);
    }
    ATN_TRY(optional(status));
    status = gguf_array_i32(g, "tokenizer.ggml.token_type", &a->kinds, &n, err);
    if (status == ATN_OK) {
        status = check_length("tokenizer.ggml.token_type", n, src->n_tokens, err);
    }
    ATN_TRY(optional(status));
    src->pieces = a->pieces;
    src->merges = a->merges;
    src->scores = a->scores;
    src->kinds = a->kinds;
    return ATN_OK;
}

static atn_status read_source(const gguf *g, token_source *src, arrays *a, atn_err *err)
{
    atn_status status = gguf_string(g, "tokenizer.ggml.model", &src->model, err);
    if (status == ATN_NOT_FOUND) {
        return atn_fail(err, ATN_FORMAT, "tokenizer.ggml.model", "the file names no tokenizer");
    }
    ATN_TRY(status);
    ATN_TRY(optional(gguf_string(g, "tokenizer.ggml.pre", &src->pre, err)));
    ATN_TRY(read_arrays(g, src, a, err));
    ATN_TRY(read_id(g, "tokenizer.ggml.bos_token_id", src->n_tokens, &src->bos, err));
    ATN_TRY(read_id(g, "tokenizer.ggml.eos_token_id", src->n_tokens, &src->eos, err));
    ATN_TRY(read_id(g, "tokenizer.ggml.eot_token_id", src->n_tokens, &src->eot, err));
    ATN_TRY(read_id(g, "tokenizer.ggml.eom_token_id", src->n_tokens, &src->eom, err));
    ATN_TRY(read_id(g, "tokenizer.ggml.unknown_token_id", src->n_tokens, &src->unknown, err));
    ATN_TRY(read_flag(g, "tokenizer.ggml.add_bos_token", &src->add_bos, err));
    ATN_TRY(read_flag(g, "tokenizer.ggml.add_eos_token", &src->add_eos, err));
    ATN_TRY(read_flag(g, "tokenizer.ggml.add_space_prefix", &src->add_space_prefix, err));
    status = gguf_string(g, "tokenizer.chat_template", &a->chat_template, err);
    src->chat_template = status == ATN_OK ? &a->chat_template : NULL;
    return optional(status);
}

atn_status tokenizer_open(const gguf *g, bool allow_unknown_pre, atn_tokenizer **out, atn_err *err)
{
    *out = NULL;
    token_source src = {0};
    arrays a = {0};
    atn_status status = read_source(g, &src, &a, err);
    if (status == ATN_OK) {
        status = vocab_build(&src, allow_unknown_pre, out, err);
    }
    free(a.pieces);
    free(a.merges);
    free(a.scores);
    free(a.kinds);
    return status;
}
