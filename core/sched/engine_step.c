/* One step: gather who could run, plan, make room in the KV, compute, then take the outputs in the order of the batch.
 * Nothing here allocates. */
#include "core/sched/engine_impl.h"
#include "core/base/log.h"

static uint32_t prefill_left(const job *j)
{
    return j->phase == JOB_PREFILL ? j->n_prompt - kv_seq_len(j->seqs[0].kv) : 0;
}

static uint32_t gather(atn_engine *e)
{
    engine_batch *b = &e->batch;
    uint32_t n = 0;

    for (job *j = e->running.first; j; j = j->next) {
        const uint32_t n_seqs = j->phase == JOB_PREFILL ? 1 : j->n_choices;
        for (uint32_t c = 0; c < n_seqs; c++) {
            if (!j->seqs[c].live) {
                continue;
            }
            b->seqs[n] = &j->seqs[c];
            b->plan[n] = (plan_seq){.id = n,
                                    .admitted = j->admitted,
                                    .last_served = j->seqs[c].last_served,
                                    .prefill_left = prefill_left(j),
                                    .wants_all_rows = j->prompt_logprobs,
                                    .paused = j->stalled_since.us != 0};
            n++;
        }
    }
    return n;
}

/* Adds the rows of one item: n tokens of s from its first uncomputed position on. */
static void add_rows(atn_engine *e, const plan_item *item)
{
    engine_batch *b = &e->batch;
    job_seq *s = b->seqs[item->seq];
    const uint32_t from = kv_seq_len(s->kv);
    const bool all = item->kind == PLAN_PREFILL && s->job->prompt_logprobs;
    const bool last = s->job->max_new > 0 && from + item->n == s->n_tokens;

    b->spans[b->n_items] = (model_span){.seq = s->kv, .row = b->n_rows, .n = item->n};
    b->first_out[b->n_items] = b->n_out;
    for (uint32_t i = 0; i < item->n; i++) {
        if (all || (last && i + 1 == item->n)) {
            b->out_rows[b->n_out++] = (int32_t)b->n_rows;
        }
        b->tokens[b->n_rows++] = s->tokens[from + i];
    }
    s->last_served = ++e->n_served;
    b->items[b->n_items++] = *item;
}

static void build(atn_engine *e, uint32_t n_plan)
{
    engine_batch *b = &e->batch;

    b->n_items = b->n_rows = b->n_out = 0;
    for (uint32_t i = 0; i < n_plan; i++) {
        const plan_item item = b->items[i];
        atn_err err;
        job_seq *s = b->seqs[item.seq];
        const atn_status st = kv_seq_extend(s->kv, item.n, &err);
        if (st == ATN_OK) {
            add_rows(e, &item);
            continue;
        }
        /* Its pages were promised: a fault of ours, and the others need not suffer from it. A choice ends alone, as rows of
         * its siblings may be in the batch already; a prompt ends with all its choices. */
        log_error("engine: no room for a promised page: %s", err.msg);
        if (item.kind == PLAN_DECODE) {
            engine_end_seq(e, s, ATN_FINISH_ERROR, st);
        } else {
            engine_end_job(e, s->job, ATN_FINISH_ERROR, st);
        }
    }
}

/* Log-probabilities of the prompt rows just computed. False when one of them is no number. */
static bool take_logprobs(atn_engine *e, job_seq *s, uint32_t from, uint32_t n, const float *logits)
{
    const job *j = s->job;
    atn_sampled *out = stream_logprobs(j->stream);
    atn_err err;

    for (uint32_t i = 0; i < n && from + i + 1 < j->n_prompt; i++) {
        if (atn_logprobs(logits + (size_t)i * e->n_vocab, e->n_vocab, s->tokens[from + i + 1], j->sample.n_top,
                         &out[from + i], &err) != ATN_OK) {
            return false;
        }
    }
    return true;
}

static void sample_one(atn_engine *e, job_seq *s, const float *logits, mono_time now)
{
    atn_sampled token;
    atn_err err;
    const atn_status st = atn_sample(s->sampler, e->sampling, logits, s->n_tokens, NULL, &token, &err);

    if (st == ATN_OK) {
        engine_token(e, s, &token, now);
    } else {
        engine_end_seq(e, s, ATN_FINISH_ERROR, st);
    }
}

/* The prompt is computed: the other choices share its pages, and get the promises that were reserved for them. */
static atn_status fork_choices(atn_engine *e, job *j)
{
    kv_seq_unreserve(j->seqs[0].kv);
    kv_unreserve(e->kv, j->n_loose);
    j->n_loose = 0;
    for (uint32_t c = 1; c < j->n_choices; c++) {
        kv_seq_fork(j->seqs[0].kv, j->seqs[c].kv);
    }
    for (uint32_t c = 0; c < j->n_choices; c++) {
        const uint32_t need = kv_seq_pages_to(j->seqs[c].kv, job_positions(j));
        if (!kv_reserve(e->kv, need)) {
            log_error("engine: %u pages for a choice were promised and are gone", need);
            return ATN_INTERNAL;
        }
        kv_seq_give_reserve(j->seqs[c].kv, need);
    }
    return ATN_OK;
}

static void finish_prompt(atn_engine *e, job *j, const float *logits, mono_time now)
{
    j->phase = JOB_DECODE;
    if (j->max_new == 0) {
        engine_end_job(e, j, ATN_FINISH_LENGTH, ATN_OK);
        return;
    }
    const atn_status st = j->n_choices > 1 ? fork_choices(e, j) : ATN_OK;
    if (st != ATN_OK) {
        engine_end_job(e, j, ATN_FINISH_ERROR, st);
        return;
    }
    for (uint32_t c = 0; c < j->n_choices; c++) {
        sample_one(e, &j->seqs[c], logits, now);
    }
}

static void take_item(atn_engine *e, const plan_item *item, const float *logits, mono_time now)
{
    job_seq *s = e->batch.seqs[item->seq];
    job *j = s->job;
    const uint32_t from = kv_seq_len(s->kv);

    kv_seq_commit(s->kv, item->n);
    if (item->kind == PLAN_DECODE) {
        sample_one(e, s, logits, now);
        return;
    }
    if (j->prompt_logprobs && !take_logprobs(e, s, from, item->n, logits)) {
        engine_end_job(e, j, ATN_FINISH_ERROR, ATN_NONFINITE);
        return;
    }
    if (from + item->n == j->n_prompt) {
        const size_t last = j->prompt_logprobs ? item->n - 1 : 0;
        finish_prompt(e, j, logits + last * e->n_vocab, now);
    }
}

static void take_outputs(atn_engine *e, atn_status st)
{
    const engine_batch *b = &e->batch;
    const mono_time now = mono_now();

    for (uint32_t i = 0; i < b->n_items; i++) {
        job_seq *s = b->seqs[b->items[i].seq];
        if (!s->live) {
            continue;
        }
        if (st != ATN_OK) {
            engine_end_job(e, s->job, ATN_FINISH_ERROR, st);
        } else {
            take_item(e, &b->items[i], model_logits(e->scratch) + (size_t)b->first_out[i] * e->n_vocab, now);
        }
    }
}

bool engine_step(atn_engine *e)
{
    engine_batch *b = &e->batch;
    const plan_limits lim = {.step_tokens = e->info.step_tokens, .max_out = e->info.max_prompt_logprob_rows};
    const uint32_t n_plan = (uint32_t)plan_step(b->plan, gather(e), &lim, b->items);
    atn_err err;

    build(e, n_plan);
    if (b->n_rows > 0) {
        const model_batch batch = {.tokens = b->tokens,
                                   .n_rows = b->n_rows,
                                   .spans = b->spans,
                                   .n_spans = b->n_items,
                                   .out_rows = b->out_rows,
                                   .n_out = b->n_out};
        const atn_status st = model_step(e->model, e->scratch, &batch, &err);
        if (st != ATN_OK) {
            log_error("engine: a step over %u rows failed: %s", b->n_rows, err.msg);
        }
        take_outputs(e, st);
        e->n_steps++;
        metric_set(&e->metrics.steps, e->n_steps);
        metric_set(&e->metrics.batch_tokens, b->n_rows);
        metric_set(&e->metrics.batch_sequences, b->n_items);
        metric_step_tokens(&e->metrics, b->n_rows);
    }
    return n_plan > 0;
}
