/* What /v1/completions and /v1/chat/completions have in common: the members of the request that mean the same in both,
 * and the frame around an answer. Shapes: openai-python src/openai/types/{completion,chat/chat_completion*}.py.
 * Thread: opening and reading any; writing the loop thread. */
#ifndef ATTND_OPENAI_SHARED_H
#define ATTND_OPENAI_SHARED_H

#include "server/api/door.h"

enum {
    COMPLETION_MAX_LOGPROBS = 5,
    OPENAI_ANSWER_MAX = 64 << 20, /* bytes of an answer that is sent whole, or of one event */
};

/* The part of a renderer's state that both doors have. */
typedef struct openai_call {
    char id[160];            /* "cmpl-..." */
    int64_t created;         /* unix seconds, the same on every chunk */
    const char *model;       /* the server's name for it */
    const char *fingerprint; /* numerics id of the backend: equal ones give equal answers to equal requests */
    bool include_usage;      /* a stream ends with a chunk of its usage */
    bool token_ids;          /* return_token_ids: vLLM's token_ids and prompt_token_ids */
} openai_call;

/* Makes out->turn a turn of render, whose state is user (NULL: no memory for it) and becomes the turn's. */
atn_status openai_open(parsed *out, const turn_render *render, void *user, atn_err *err) ATN_MUST_CHECK;
/* Reads model, n, stream, stream_options, return_token_ids, stop, deadline_ms, the session's members and the sampling
 * parameters into out->turn and call. ATN_NOT_FOUND with param "model" under strict_model. */
atn_status openai_read(const api *a, const request_head *head, fields *f, const char *id_prefix, parsed *out,
                       openai_call *call, atn_err *err) ATN_MUST_CHECK;
/* Prompts that one request may hold: the setting, but no more than may wait, since they are queued together. */
uint32_t openai_max_prompts(const api *a);

/* {"id":...,"choices":[ */
void openai_put_open(buf *b, const openai_call *call, const char *object);
/* The same as the beginning of an event. */
void openai_put_event(buf *b, const openai_call *call, const char *object);
/* The end of a chunk and of its event. */
void openai_put_event_end(buf *b, const openai_call *call);
/* ],"usage":{...} */
void openai_put_usage(buf *b, const atn_usage *u);
/* "stop", "length" or null, as JSON. */
void openai_put_finish(buf *b, atn_finish f);
/* [1,2,3] */
void openai_put_ids(buf *b, const int32_t *ids, size_t n);
/* What a stream ends with: the usage, if it was asked for, and [DONE]. */
void openai_write_end(turn *t, const openai_call *call, const char *object);

#endif
