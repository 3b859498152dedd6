/* The engine's inside, shared by its files:
 *     engine.c          start, stop, the loop, what other threads may ask
 *     engine_submit.c   the door's outer side: checks, refusals, hand-over
 *     engine_admit.c    from the queue into the batch: sequences, reuse of kept ones, pages
 *     engine_step.c     one step: plan, compute, sample
 *     engine_end.c      events, ends of sequences and jobs
 * Thread: all of it but the marked fields belongs to the engine thread. */
#ifndef ATN_ENGINE_IMPL_H
#define ATN_ENGINE_IMPL_H

#include "core/model/model.h"
#include "core/sched/engine_metrics.h"
#include "core/sched/job.h"
#include "core/sched/planner.h"

#include <pthread.h>

/* What one step works on, sized at start. */
typedef struct engine_batch {
    plan_seq *plan;      /* [max_sequences] with seqs: who could run */
    job_seq **seqs;      /* [max_sequences] */
    plan_item *items;    /* [max_sequences] */
    uint32_t *first_out; /* [max_sequences] of each item: index of its first logits row */
    model_span *spans;   /* [max_sequences] */
    int32_t *tokens;     /* [step_tokens] */
    int32_t *out_rows;   /* [max_out] */
    uint32_t n_items, n_rows, n_out;
} engine_batch;

struct atn_engine {
    /* constant after start, any thread */
    atn_model *model;
    const atn_tokenizer *tokenizer;
    atn_engine_params params;
    atn_engine_info info;
    uint32_t n_vocab, context;
    door *door;
    pthread_t thread;
    /* any thread */
    atomic_uint n_waiting; /* jobs let in and not yet admitted */
    atomic_bool asleep;
    engine_metrics metrics;

    kv_pool *kv; /* other threads only ask what depends on its configuration */
    model_scratch *scratch;
    atn_sampler_scratch *sampling;
    job_list queue;   /* waiting, in order of arrival */
    job_list running; /* in order of admission */
    uint32_t n_running_seqs;
    kept_list kept;
    uint64_t n_admitted, n_steps, n_served; /* n_served: items of all steps */
    bool news;                              /* some stream got an event since the last wake */
    engine_batch batch;
};

/* engine_admit.c: moves jobs from the queue into the batch, first come first served, while sequences and pages suffice. */
void engine_admit(atn_engine *e);

/* engine_step.c: one step over whoever can run. False when nobody can. */
bool engine_step(atn_engine *e);

/* engine_end.c */
/* A token was chosen for s: appends it, decides whether the sequence ends, tells the reader. */
void engine_token(atn_engine *e, job_seq *s, const atn_sampled *token, mono_time now);
/* Ends a live sequence without a token. status matters for FINISH_ERROR. */
void engine_end_seq(atn_engine *e, job_seq *s, atn_finish finish, atn_status status);
/* Ends all live sequences of a job. The caller takes the job out of its list. */
void engine_end_job(atn_engine *e, job *j, atn_finish finish, atn_status status);

#endif
