/* The messages of a chat request, checked and rendered. Thread: any. */
#ifndef ATTND_CHAT_MESSAGES_H
#define ATTND_CHAT_MESSAGES_H

#include "server/api/json.h"
#include <attnd/tokenizer.h>

typedef struct chat_prompt {
    atn_chat_message *messages; /* [n]; content points into the body or into joined[i] */
    char **joined;              /* [n] content that came in parts, malloc'ed; else NULL */
    size_t n;
    atn_segment *segs; /* [n_segs] the conversation in the model's words */
    size_t n_segs;
} chat_prompt;

/* Reads `messages` of f and renders them, the assistant's next turn opened when add_generation_prompt is. Points into the
 * parsed body. ATN_INVALID with param "messages"; ATN_UNSUPPORTED when the model's template is one that no family fits.
 * out is to be freed in any case. */
atn_status chat_prompt_read(const atn_tokenizer *tok, fields *f, bool add_generation_prompt, chat_prompt *out,
                            atn_err *err) ATN_MUST_CHECK;
void chat_prompt_free(chat_prompt *p);

#endif
