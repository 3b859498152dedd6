/* Pre-tokenizers of byte-level BPE: they cut text into the words inside which merges happen.
 *
 * `tokenizer.ggml.pre` names one; the patterns are those that the models' tokenizer.json files publish, as stages: every
 * stage cuts the pieces of the one before into its matches and what lies between them. PCRE2 runs them, without
 * recursion: its own stack is allocated and bounded.
 * Thread: an open pretokenizer is immutable; a walk belongs to one thread. */
#ifndef ATN_PRETOKENIZER_H
#define ATN_PRETOKENIZER_H

#include <attnd/status.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { PRE_MAX_STAGES = 6 };

typedef struct pre_spec {
    const char *names;                  /* every id with these patterns, space-separated, canonical first */
    bool whole_words;                   /* a word that is a token is taken without merging (ignore_merges) */
    bool add_bos;                       /* BOS is put unless the file says otherwise */
    const char *stages[PRE_MAX_STAGES]; /* NULL ends the list */
} pre_spec;

typedef struct pretokenizer pretokenizer;
typedef struct pre_walk pre_walk;

/* NULL: no such id. */
const pre_spec *pre_find(const char *name, size_t n);
/* The i-th row of the table, NULL behind the last: for tests. */
const pre_spec *pre_at(size_t i);

atn_status pre_open(const pre_spec *spec, pretokenizer **out, atn_err *err) ATN_MUST_CHECK;
void pre_close(pretokenizer *p);

/* A walk over texts. ATN_NOMEM. */
atn_status pre_walk_open(const pretokenizer *p, pre_walk **out, atn_err *err) ATN_MUST_CHECK;
void pre_walk_close(pre_walk *w);
/* Starts on text[0..n), valid UTF-8, which must outlive the walk's use of it. */
void pre_walk_start(pre_walk *w, const char *text, size_t n);
/* The next word, text[*from, *to); *from == *to at the end. ATN_INTERNAL when a pattern ran into its limits, ATN_NOMEM. */
atn_status pre_walk_next(pre_walk *w, size_t *from, size_t *to, atn_err *err) ATN_MUST_CHECK;

#endif
