/* What the files of the API layer share. Not for other layers: they use api.h. Thread: the loop thread. */
#ifndef ATTND_API_STATE_H
#define ATTND_API_STATE_H

#include "server/api/api.h"
#include "server/api/health_watch.h"
#include "server/api/turn.h"
#include "server/session/session.h"

struct api {
    /* Fixed once the model is loaded: any thread may read it then. */
    api_settings set; /* strings owned by the caller of api_open */
    atn_model *model; /* NULL while it loads, and so are tok and engine */
    atn_model_info info;
    const atn_tokenizer *tok;
    atn_engine *engine;
    /* The loop thread's. */
    sessions *sessions;
    turn *turns; /* those that have not been freed */
    size_t n_active;
    size_t aside_bytes; /* of bodies that are with other threads */
    unsigned depth;     /* of entries from outside, see api_enter */
    bool closed_turns;  /* some turn waits to be freed */
    bool draining;
    health_watch watch;
    buf backends; /* /info's list of backends: what each can do is asked once, when the model is there */
    mono_time opened;
    int64_t opened_unix; /* seconds, for "created" of models */
    api_metrics_fn *metrics_source;
    void *metrics_arg;
};

/* Around everything that may run turns. Answering one exchange may close another, or end a turn that a caller still
 * holds: turns are therefore freed only when the outermost entry is left. */
void api_enter(api *a);
void api_leave(api *a);
/* ATN_UNAVAILABLE while the model loads. */
atn_status api_loaded(const api *a, atn_err *err) ATN_MUST_CHECK;
/* ATN_UNAVAILABLE while the model loads or the server drains. */
atn_status api_accepting(const api *a, atn_err *err) ATN_MUST_CHECK;
/* Answers that one prompt may have: they are computed together, so no more than sequences are. Needs the engine. */
uint32_t api_max_choices(const api *a);
/* A complete answer of status, JSON, with the header about ignored members when there are any. A failed body: no memory. */
void api_reply_json(exchange *x, int status, unsigned ignored, buf *body);
/* Error in the shape of x's route. With Retry-After where it has a use; ATN_CONFLICT x-should-retry: false. */
void api_fail(exchange *x, const atn_err *err);

#endif
