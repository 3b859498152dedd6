/* A job is one request on its way through the engine; it has a sequence for each choice.
 *
 * WAITING: queued; holds a copy of the request and the stream. The head of the queue also holds its sequences ("prepared").
 * PREFILL: admitted; choice 0 computes the prompt.
 * DECODE:  each live choice computes one token a step.
 * A sequence ends with exactly one final event; a job ends with its last sequence.
 * Thread: made by the submitting thread, then the engine thread's. */
#ifndef ATN_JOB_H
#define ATN_JOB_H

#include "core/kv/kv.h"
#include "core/sample/stops.h"
#include "core/sched/kept.h"
#include "core/sched/stream.h"

typedef enum job_phase { JOB_WAITING, JOB_PREFILL, JOB_DECODE } job_phase;

typedef struct job_seq {
    struct job *job;
    uint32_t choice;
    bool live;       /* its final event is still to come */
    kv_seq *kv;      /* positions computed; the others are made when it is forked from choice 0 */
    int32_t *tokens; /* [n_prompt + max_new] prompt, then answer */
    uint32_t n_tokens, n_generated;
    atn_sampler *sampler;
    uint32_t stop_state;
    uint64_t last_served; /* the engine's n_served then */
    mono_time last_token; /* when it came */
} job_seq;

typedef struct job {
    door_item item; /* first: the door hands out this */
    struct job *next;
    job_phase phase;
    atn_stream *stream;

    /* the request */
    atn_domain domain;
    uint64_t sequence;
    atn_sample_params sample; /* .bias points to the copy below */
    atn_logit_bias *bias;
    stops *stops;
    uint32_t stop_lens[ATN_MAX_STOPS];
    int32_t stop_ids[ATN_MAX_STOP_IDS];
    uint32_t n_stop_ids;
    bool ignore_eos, prompt_logprobs;
    int32_t *prompt; /* [n_prompt] until it is prepared */
    uint32_t n_prompt, max_new;

    bool prepared;
    bool keep;       /* choice 0 is to be kept under (domain, sequence) */
    kept *kept_node; /* made at preparation, so that a turn's end needs no memory */
    uint32_t n_cached;
    uint32_t n_loose;  /* pages reserved for the forks to come */
    uint64_t admitted; /* order of admission */

    mono_time submitted, started, first_token;
    mono_time deadline;      /* .us 0: none */
    mono_time stalled_since; /* paused, because its ring is full; .us 0: it has room */
    size_t stalled_slots;    /* free then */

    uint32_t n_choices, n_live;
    job_seq seqs[]; /* [n_choices] */
} job;

/* Jobs in order. Zero-initialise; a pointer to the link in front of a job (list.first, j->next) says where it is. */
typedef struct job_list {
    job *first, *last;
} job_list;

void job_list_add(job_list *l, job *j);
job *job_list_take(job_list *l, job **link); /* unlinks *link and returns it */

/* Copies a checked request. The stream is the job's and the reader's. */
atn_status job_new(const atn_request *r, atn_stream *stream, job **out, atn_err *err) ATN_MUST_CHECK;
/* Frees it with what its sequences hold, and leaves the stream. NULL is fine. */
void job_free(job *j);
/* Positions that a choice computes at most: the last token is not fed back. */
uint32_t job_positions(const job *j);

#endif
