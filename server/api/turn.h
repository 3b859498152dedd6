/* A turn: one request for generated text, from admission to the last byte of the answer.
 *
 * A door parses its body into a turn_spec and hands it over with turn_start; from then on the turn waits for its session,
 * submits to the engine, drains the streams when the engine wakes the loop, turns tokens into text that is safe to show
 * (whole UTF-8 characters, no bytes that may become a stop string), pauses while the client reads too slowly, pings, and
 * tells the door's renderer what happened. Refusals and failures are answered here, in the shape of the exchange's route:
 * before the first byte as an HTTP error, later as an error event.
 *
 * One turn may hold several prompts (batch completions), each with n_choices answers; answers are numbered
 * prompt * n_choices + choice.
 * Thread: the loop thread. */
#ifndef ATTND_API_TURN_H
#define ATTND_API_TURN_H

#include "server/api/params.h"

typedef struct turn turn;

enum {
    /* Log-probabilities in an answer that is sent whole: answers * tokens * (1 + alternatives). A stream has no such limit,
     * since it keeps nothing. */
    TURN_MAX_LOGPROB_ENTRIES = 1 << 18,
};

/* What one engine event means for the client. */
typedef struct turn_piece {
    uint32_t answer;          /* prompt * n_choices + choice */
    const atn_sampled *token; /* NULL: no new token, only text that was held back, or the end */
    bool special;             /* token is a control token: it has no text */
    const char *text;         /* [n] UTF-8 that may be shown now; often empty, never half a character */
    size_t n;
    atn_finish finish; /* not ATN_FINISH_NONE: this answer ends here (EOS, STOP_ID, STOP or LENGTH) */
} turn_piece;

/* Headers under construction: values are formatted into own memory. */
typedef struct headers {
    reply_header h[24];
    size_t n, used;
    char text[1024];
} headers;
/* name: static. A value that does not fit is left out. */
void headers_add(headers *h, const char *name, const char *fmt, ...) ATN_PRINTF(3, 4);

/* A door's renderer. Only on_end is needed by all; every function may be NULL otherwise. */
typedef struct turn_render {
    /* Adds headers of the door's own to a 200 answer. A streamed one is asked when it begins, any other at its end. */
    void (*headers)(turn *t, headers *h);
    /* A streamed answer began: the first token is there, or the client waited long enough to need a ping. */
    void (*on_start)(turn *t);
    void (*on_piece)(turn *t, const turn_piece *p);
    /* All answers ended well. Streams: write what closes them ("[DONE]"); the turn ends the exchange. Others: build the
     * body and turn_reply. */
    void (*on_end)(turn *t);
    void (*free)(turn *t); /* release t->user */
} turn_render;

/* One answer. Renderers may read it in on_piece and on_end. */
typedef struct turn_answer {
    buf text; /* everything shown so far, UTF-8 */
    buf held; /* bytes not shown yet */
    atn_utf8_stream utf8;
    int32_t *ids; /* [n_ids] tokens chosen, with the one that ended it */
    uint32_t n_ids, cap_ids;
    double logprob_sum; /* over ids */
    atn_finish finish;
    uint32_t stop_index;
    atn_usage usage; /* valid when finish is set */
} turn_answer;

typedef struct turn_prompt {
    int32_t *tokens; /* [n] malloc'ed; the turn's once it started */
    uint32_t n;
    atn_stream *stream;
    bool ended;
} turn_prompt;

/* Filled by the door; everything in it belongs to turn_start afterwards, whether it succeeds or not. */
typedef struct turn_spec {
    const turn_render *render;
    void *user; /* the renderer's */
    gen_params params;
    turn_prompt *prompts; /* malloc'ed, [n_prompts], n_prompts >= 1; more than one only without a session */
    uint32_t n_prompts;
    const char *prompt_name,
        *limit_name; /* the body's words for them ("inputs", "max_new_tokens"), for errors; or NULL */
    session_ref session;
    bool append;       /* the prompt is added to the session's tokens; else it is the whole conversation */
    bool stream;       /* server-sent events */
    bool include_stop; /* the stop string is part of the text and nothing is held back for it (TGI) */
    unsigned ignored;  /* members of the body that meant nothing: x-attnd-ignored-fields */
    mono_time arrived; /* when the request was whole: deadlines count from here */
} turn_spec;

struct turn {
    /* Renderers read these. */
    api *a;
    exchange *x; /* NULL once closed */
    void *user;
    gen_params params;    /* params.sample.seed is the one used */
    turn_prompt *prompts; /* with append: [0].tokens holds the session's tokens too, once the turn runs */
    uint32_t n_prompts;
    turn_answer *answers; /* [n_answers] */
    uint32_t n_answers;
    bool stream;
    uint32_t turn_number; /* in its session, from 1; 0 without */
    mono_time started;    /* when the request was whole */
    /* The turn's own. */
    const turn_render *render;
    const char *prompt_name, *limit_name;
    session_ref ref;
    session_seat seat;
    turn *prev, *next; /* in the api's list */
    mono_time last_write;
    unsigned ignored;
    bool append, include_stop, running, begun, ended, broken;
};

void turn_start(api *a, exchange *x, turn_spec *spec);
/* Frees what a spec holds: one that is not started. An all-zero one holds nothing. */
void turn_spec_free(turn_spec *spec);

/* For doors, on any thread. */
/* Adds the members that every door's body may carry (session_id, create, turn, cache_salt, deadline_ms) to spec. */
atn_status turn_spec_read_session(const request_head *head, fields *top, turn_spec *spec, atn_err *err) ATN_MUST_CHECK;
/* Tokenizes user text (never control tokens) into prompt i; BOS as the model wants it. ATN_INVALID names param when the
 * text is empty or no UTF-8. */
atn_status turn_tokenize(const api *a, const char *param, const char *text, size_t n, turn_prompt *out,
                         atn_err *err) ATN_MUST_CHECK;

/* ATN_INVALID naming param when an answer that is sent whole would hold too many log-probabilities. */
atn_status turn_check_logprobs(const api *a, const turn_spec *spec, const char *param, atn_err *err) ATN_MUST_CHECK;

/* For renderers. */
/* Queues one event of a streamed answer, whole ("data: ...\n\n"). */
void turn_write(turn *t, const buf *event);
/* The whole answer of a turn that does not stream; 200. Takes the body's bytes. A failed body becomes an error. */
void turn_reply(turn *t, const char *content_type, buf *body);
/* Sum over prompts and answers; times are the longest. */
atn_usage turn_usage(const turn *t);
/* Is a likelier than b, by log-probability a token? */
bool turn_answer_better(const turn_answer *a, const turn_answer *b);
/* prompt i's log-probabilities, see atn_stream_prompt_logprobs. */
const atn_sampled *turn_prompt_logprobs(const turn *t, uint32_t i);
/* The text of one token by itself, for lists of tokens: control tokens included, bytes that are no UTF-8 replaced. out
 * must be empty or cleared. */
void turn_token_text(const turn *t, int32_t id, buf *out);

/* For api.c. A closed turn is freed when the outermost api_leave finds it, so that no caller up the stack loses it. */
void turn_pump(turn *t);
void turn_tick(turn *t, mono_time now);
void turn_cut(turn *t); /* the server stops: ends with an error */
void turn_free(turn *t);

#endif
