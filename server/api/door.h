/* Doors: routes whose body holds text to be tokenized.
 *
 * A door is a function from a body to what shall be done: a turn to start, or an answer that is ready. It reads nothing but
 * its arguments and what never changes in the api once the model is loaded (state.h), so it runs on any thread. intake.c
 * calls it, on the loop thread for a small body and on another one for a large body, and does what it says on the loop
 * thread. */
#ifndef ATTND_API_DOOR_H
#define ATTND_API_DOOR_H

#include "server/api/turn.h"

enum {
    INTAKE_ASIDE_BYTES = 4096, /* what takes some milliseconds at most; a larger body is parsed on another thread */
    INTAKE_ASIDE_BODIES = 16,  /* so many bodies of the largest size may be with other threads at a time; above: 429 */
};

/* What a door makes of a body. All zero before. */
typedef struct parsed {
    turn_spec turn;     /* render set: a turn to start */
    buf answer;         /* else: a JSON answer, 200 */
    unsigned ignored;   /* members of objects in the body that meant nothing; the top object's are added by intake */
    bool openai_errors; /* an error of this body has OpenAI's shape whatever the route's is */
} parsed;

/* Each is a door_fn (api.h): top is the body's object, what is kept of it must be copied; on failure the caller frees what
 * out holds. Thread: any. */

/* generate.c */
door_fn parse_generate, parse_generate_stream, parse_compat_generate;
/* tokenize_routes.c */
door_fn parse_tokenize, parse_detokenize;
/* openai_completions.c, openai_chat.c */
door_fn parse_completions, parse_chat_completions;
/* chat_messages.c: POST /apply-template: {messages} -> {"prompt"}; POST /chat_tokenize */
door_fn parse_apply_template, parse_chat_tokenize;

/* The whole way of a request to a door: refuses it, or parses and starts it, now or later. Loop thread. */
void intake_handle(api *a, exchange *x);

#endif
