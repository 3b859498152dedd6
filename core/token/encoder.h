/* The growing result of a tokenization, and the steps that write to it. Thread: one owner. */
#ifndef ATN_ENCODER_H
#define ATN_ENCODER_H

#include "core/token/merge.h"
#include "core/token/vocab.h"

typedef struct encoder {
    const atn_tokenizer *t;
    const char *text;   /* the joined text: offsets are positions in it */
    int32_t *ids;       /* [n] */
    size_t (*spans)[2]; /* [n], NULL unless want_spans */
    size_t n, cap;
    bool want_spans;
    merge merge;
    pre_walk *walk; /* gpt2 */
    char *copy;     /* SPM: the text with its spaces as the vocabulary has them */
    size_t copy_cap;
} encoder;

/* id -1: the model can write this neither in tokens nor as its unknown token. ATN_INVALID then; ATN_NOMEM, ATN_TOO_LARGE. */
atn_status encoder_push(encoder *e, int32_t id, size_t from, size_t to, atn_err *err) ATN_MUST_CHECK;

/* Tokenizes text[from, to), which holds no special token, and pushes the result. after_cut: the text starts here or
 * follows a special token. */
atn_status spm_encode(encoder *e, size_t from, size_t to, bool after_cut, atn_err *err) ATN_MUST_CHECK;
atn_status bpe_encode(encoder *e, size_t from, size_t to, atn_err *err) ATN_MUST_CHECK;

#endif
