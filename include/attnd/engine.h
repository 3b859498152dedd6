/* The engine: one thread that owns a model, its KV pool, its sequences and samplers, and batches them step by step.
 *
 * Requests go in through a bounded inbox (atn_engine_submit), answers come out through one bounded ring a request
 * (atn_stream_next). The two sides share nothing else. A request that was admitted is never killed to make room.
 *
 *     atn_engine_start(model, &params, &engine, &err);
 *     atn_engine_submit(engine, &request, &stream, &err);
 *     while (...) { params.wake was called -> while (atn_stream_next(stream, &ev)) {...} }
 *     atn_stream_release(stream);
 *     atn_engine_stop(engine);
 *
 * Thread: submit, cancel, drop, metrics from any thread; one stream is read by one thread. wake is called on the engine
 * thread and must only signal.
 */
#ifndef ATTND_ENGINE_H
#define ATTND_ENGINE_H

#include <attnd/metrics.h>
#include <attnd/model.h>
#include <attnd/sampler.h>

typedef struct atn_engine atn_engine;
typedef struct atn_stream atn_stream;

enum {
    ATN_MAX_STOPS = 20,       /* stop strings a request: a caller's 16 and a chat family's ATN_CHAT_MAX_STOPS */
    ATN_MAX_STOP_BYTES = 256, /* bytes a stop string */
    ATN_MAX_STOP_IDS = 64,
    ATN_MAX_CHOICES = 16,
};

typedef struct atn_engine_params {
    size_t kv_bytes;         /* KV budget; 0: a share of the memory that the cgroup allows, see atn_engine_start */
    atn_dtype kv_type;       /* F32 or F16 */
    uint32_t page_tokens;    /* a multiple of 32; 0: 32 */
    uint32_t max_sequences;  /* sequences computed at once; at most about one and a half for each of step_tokens */
    uint32_t step_tokens;    /* token budget of a step: decode rows and prefill chunks together */
    uint32_t max_waiting;    /* requests admitted to the queue but not yet running; above: ATN_OVERLOADED */
    uint32_t ring_events;    /* slots of a stream's ring; 0: 256 */
    uint32_t stall_ms;       /* a stream whose reader leaves its ring full this long is cancelled; 0: 30000 */
    uint32_t queue_ms;       /* a request that has not begun to run after so long ends: FINISH_DEADLINE; 0: 60000 */
    void (*wake)(void *arg); /* some stream has news; may be NULL */
    void *wake_arg;
} atn_engine_params;

/* Who a sequence belongs to: pages and kept sequences never cross a domain. */
typedef uint64_t atn_domain;

typedef struct atn_stop {
    const char *bytes;
    size_t n;
} atn_stop;

typedef struct atn_request {
    atn_domain domain;
    /* 0: nothing is kept. Else: reuse the KV kept under (domain, sequence) as far as its tokens are a prefix of `tokens`,
     * and keep it under that name after the turn. */
    uint64_t sequence;
    const int32_t *tokens;   /* [n_tokens] the whole text, copied; ids in range: checked */
    uint32_t n_tokens;       /* >= 1 */
    uint32_t max_new_tokens; /* 0: prompt only (for its logprobs), finish LENGTH */
    uint32_t n_choices;      /* 1 .. ATN_MAX_CHOICES; they share the prompt's pages; choice 0 is the one kept */
    atn_sample_params sample;
    const atn_stop *stops; /* [n_stops], copied */
    uint32_t n_stops;
    const int32_t *stop_ids; /* [n_stop_ids], copied */
    uint32_t n_stop_ids;
    bool ignore_eos;
    bool prompt_logprobs; /* log-probability of each prompt token; nothing is reused from a cache then */
    uint32_t deadline_ms; /* from submit; 0: none but queue_ms */
} atn_request;

typedef enum atn_finish {
    ATN_FINISH_NONE,
    ATN_FINISH_EOS,
    ATN_FINISH_STOP_ID,
    ATN_FINISH_STOP, /* a stop string */
    ATN_FINISH_LENGTH,
    ATN_FINISH_CANCELLED,
    ATN_FINISH_DEADLINE,
    ATN_FINISH_ERROR,
} atn_finish;

/* Times are microseconds; durations, not clock readings. */
typedef struct atn_usage {
    uint32_t prompt_tokens, cached_tokens, generated_tokens;
    uint64_t queue_us, prefill_us, decode_us;
} atn_usage;

typedef struct atn_event {
    uint32_t choice;
    bool has_token; /* token below is valid; the last event of a choice may come with or without one */
    atn_sampled token;
    uint32_t hold;       /* trailing bytes of the choice's text so far that may yet become part of a stop string */
    atn_finish finish;   /* not NONE: this choice ends with this event */
    uint32_t stop_index; /* FINISH_STOP: which stop string */
    uint32_t stop_cut;   /* FINISH_STOP: trailing bytes of the text from the stop string's first byte on */
    uint32_t stop_tail;  /* FINISH_STOP: trailing bytes of the text after the stop string's last byte */
    bool last;           /* no choice of this request will send another event */
    atn_usage usage;     /* valid when finish is not NONE; generated_tokens are this choice's */
    atn_status status;   /* FINISH_ERROR: why */
} atn_event;

/* Are the numbers of sequences, tokens and waiting requests possible? ATN_INVALID (param and range). */
atn_status atn_engine_check(const atn_engine_params *p, atn_err *err) ATN_MUST_CHECK;
/* Takes the KV budget (0: a quarter of the cgroup's or machine's memory left after the weights, at most 1 GiB, at least
 * one full context), touches it, and starts the thread. ATN_INVALID (param and range), ATN_UNSUPPORTED (KV type), ATN_NOMEM
 * with both numbers when it cannot fit. The model must outlive the engine. */
atn_status atn_engine_start(atn_model *m, const atn_engine_params *p, atn_engine **out, atn_err *err) ATN_MUST_CHECK;
/* Cancels what runs, joins the thread, frees everything but streams still held by readers. NULL is fine. */
void atn_engine_stop(atn_engine *e);

/* Copies the request and hands it over. Errors: ATN_INVALID (param and range), ATN_CONTEXT (prompt + max_new_tokens do not
 * fit the context or the whole KV pool: both numbers), ATN_OVERLOADED (inbox or queue full), ATN_UNAVAILABLE (stopping). */
atn_status atn_engine_submit(atn_engine *e, const atn_request *r, atn_stream **out, atn_err *err) ATN_MUST_CHECK;
/* Asks for an early end; the stream's last event says CANCELLED. Never blocks. */
void atn_stream_cancel(atn_stream *s);
/* The next event, if there is one. */
bool atn_stream_next(atn_stream *s, atn_event *ev);
/* prompt_logprobs: [n_tokens - 1 entries used], entry i is token i+1 given tokens 0..i. Valid once the first event is
 * there and until release; NULL when not asked for, or when the request ended before it ran. */
const atn_sampled *atn_stream_prompt_logprobs(const atn_stream *s);
/* The reader is done with it; cancels if not ended. NULL is fine. */
void atn_stream_release(atn_stream *s);

/* Gives back what is kept under (domain, sequence). Unknown: nothing happens. A running turn keeps running.
 * Allocates nothing; among very many at once all that is kept may go, which costs the next turns their time. */
void atn_engine_drop(atn_engine *e, atn_domain domain, uint64_t sequence);
void atn_engine_get_metrics(atn_engine *e, atn_metrics *out);
/* Steps done so far and whether work is waiting: a watchdog sees a stalled engine by it. */
uint64_t atn_engine_steps(const atn_engine *e, bool *busy);

/* Memory and capacity, for the budget line at start and /info. */
typedef struct atn_engine_info {
    size_t weights_bytes, kv_bytes, scratch_bytes;
    uint32_t page_tokens, n_pages, pages_per_full_context, full_contexts;
    atn_dtype kv_type;
    uint32_t max_sequences, step_tokens, max_waiting;
    uint32_t max_prompt_logprob_rows;
} atn_engine_info;
void atn_engine_get_info(const atn_engine *e, atn_engine_info *out);

#endif
