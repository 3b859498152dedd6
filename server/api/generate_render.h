/* Answers of the native door in TGI's shape. Thread: the loop thread. */
#ifndef ATTND_API_GENERATE_RENDER_H
#define ATTND_API_GENERATE_RENDER_H

#include "server/api/turn.h"

/* What one answer has shown so far, as JSON text. */
typedef struct generation_list {
    buf tokens, top_tokens; /* elements of the arrays, without brackets */
} generation_list;

/* A renderer's state: turn->user. */
typedef struct generation {
    bool details, prefill, full_text, array;
    bool show_seed; /* the answer was sampled */
    buf inputs;     /* the prompt's text, when full_text */
    size_t characters;
    generation_list *lists; /* [n_lists], one for each choice */
    uint32_t n_lists;
    bool failed; /* no memory while collecting */
} generation;

extern const turn_render generation_render;

generation *generation_new(void); /* NULL: no memory */
atn_status generation_reserve(generation *g, uint32_t n_choices, atn_err *err) ATN_MUST_CHECK;

#endif
