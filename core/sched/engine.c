/* The engine: start, stop, the loop of its thread, and what other threads may ask it.
 *
 * The loop: take messages, end what was cancelled or is late, admit, step, tell the readers. With nothing to compute it sleeps
 * at the door until a message, a ring, or the next deadline. */
#include "core/sched/engine_impl.h"
#include "core/base/cgroup.h"
#include "core/base/log.h"
#include "core/base/pool.h"

#include <signal.h>
#include <stdlib.h>

enum {
    DEFAULT_PAGE_TOKENS = 32,
    DEFAULT_RING_EVENTS = 256,
    DEFAULT_STALL_MS = 30000,
    DEFAULT_QUEUE_MS = 60000,
    MAX_SEQUENCES = 1024,
    MAX_STEP_TOKENS = 1 << 16,
    MAX_WAITING = 1 << 20,
    LEAST_OUT_ROWS = 16, /* logits rows a step, so that prompt log-probabilities come in chunks */
};
static const size_t most_default_kv = (size_t)1 << 30;

/* ---- the thread ---- */

/* Forgets what is kept under this name (NULL: under any), also by turns that are under way. */
static void forget(atn_engine *e, const door_name *name)
{
    job_list *const lists[] = {&e->queue, &e->running};

    if (name) {
        kept_free(kept_take(&e->kept, name->domain, name->sequence));
    } else {
        kept_evict_all(&e->kept);
    }
    for (int i = 0; i < 2; i++) {
        for (job *j = lists[i]->first; j; j = j->next) {
            if (!name || (j->sequence == name->sequence && j->domain == name->domain)) {
                j->keep = false;
            }
        }
    }
}

static void receive(atn_engine *e, const door_mail *mail)
{
    door_item *item = mail->items;
    size_t n = 0;

    for (uint32_t i = 0; i <= mail->n_names; i++) {
        while (item && (i == mail->n_names || n < mail->names[i].n_before)) {
            door_item *next = item->next;
            job_list_add(&e->queue, (job *)item);
            item = next;
            n++;
        }
        if (i < mail->n_names) {
            forget(e, &mail->names[i]);
        }
    }
    if (mail->all_names) {
        forget(e, NULL);
    }
}

static bool is_late(mono_time limit, mono_time now)
{
    return limit.us != 0 && now.us >= limit.us;
}

/* A full ring pauses a job. While it is full and nobody reads, the clock of the stall runs. */
static void look_for_room(job *j, mono_time now)
{
    if (stream_has_room(j->stream, j->n_live)) {
        j->stalled_since.us = 0;
        return;
    }
    const size_t slots = stream_free_slots(j->stream);
    if (j->stalled_since.us == 0 || slots != j->stalled_slots) {
        j->stalled_since = now;
        j->stalled_slots = slots;
    }
}

static mono_time stall_limit(const atn_engine *e, const job *j)
{
    const uint64_t us = j->stalled_since.us ? j->stalled_since.us + (uint64_t)e->params.stall_ms * 1000 : 0;
    return (mono_time){us};
}

static mono_time queue_limit(const atn_engine *e, const job *j)
{
    return (mono_time){j->submitted.us + (uint64_t)e->params.queue_ms * 1000};
}

/* Why a job is to end now; NONE: it is not. */
static atn_finish reason_to_end(const atn_engine *e, const job *j, mono_time now)
{
    if (stream_cancelled(j->stream) || is_late(stall_limit(e, j), now)) {
        return ATN_FINISH_CANCELLED;
    }
    if (is_late(j->deadline, now) || (j->phase == JOB_WAITING && is_late(queue_limit(e, j), now))) {
        return ATN_FINISH_DEADLINE;
    }
    return ATN_FINISH_NONE;
}

/* Ends what is live of a job, takes it out of its list and frees it. */
static void finish_job(atn_engine *e, job_list *l, job **link, atn_finish why, atn_status status)
{
    job *j = job_list_take(l, link);

    engine_end_job(e, j, why, status);
    if (j->phase == JOB_WAITING) {
        atomic_fetch_sub(&e->n_waiting, 1);
    }
    job_free(j);
}

/* Frees the jobs of a list that have ended, and ends those that are to. */
static void sweep(atn_engine *e, job_list *l, mono_time now)
{
    job **link = &l->first;

    while (*link) {
        job *j = *link;
        look_for_room(j, now);
        const atn_finish why = reason_to_end(e, j, now);
        if (j->n_live == 0 || why != ATN_FINISH_NONE) {
            finish_job(e, l, link, why, why == ATN_FINISH_DEADLINE ? ATN_DEADLINE : ATN_CANCELLED);
        } else {
            link = &j->next;
        }
    }
}

static void end_all(atn_engine *e, job_list *l)
{
    while (l->first) {
        finish_job(e, l, &l->first, ATN_FINISH_CANCELLED, ATN_CANCELLED);
    }
}

static void earlier(mono_time *t, mono_time other)
{
    if (other.us != 0 && (t->us == 0 || other.us < t->us)) {
        *t = other;
    }
}

/* When the engine has to look again though nobody rings; 0: never. */
static mono_time next_timer(const atn_engine *e)
{
    mono_time t = {0};

    for (const job *j = e->queue.first; j; j = j->next) {
        earlier(&t, j->deadline);
        earlier(&t, queue_limit(e, j));
    }
    for (const job *j = e->running.first; j; j = j->next) {
        earlier(&t, j->deadline);
        earlier(&t, stall_limit(e, j));
    }
    return t;
}

static void publish(atn_engine *e)
{
    engine_metrics *m = &e->metrics;
    kv_stats st;
    uint32_t n_running = 0;

    for (const job *j = e->running.first; j; j = j->next) {
        n_running += j->n_live > 0;
    }
    kv_pool_get_stats(e->kv, &st);
    metric_set(&m->running, n_running);
    metric_set(&m->sequences_kept, e->kept.n);
    metric_set(&m->kv_pages_free, st.n_free);
    metric_set(&m->kv_pages_kept, e->kept.n_pages);
}

static void check_books(const atn_engine *e)
{
#if ATTND_DEBUG
    const char *wrong = kv_pool_check(e->kv);
    if (wrong) {
        log_error("engine: KV pool: %s", wrong);
        abort();
    }
#else
    (void)e;
#endif
}

static void tell_readers(atn_engine *e)
{
    if (e->news) {
        e->news = false;
        if (e->params.wake) {
            e->params.wake(e->params.wake_arg);
        }
    }
}

static void *engine_main(void *arg)
{
    atn_engine *e = arg;
    door_mail mail = {0};
    bool stepped = false;

    pool_set_float_env();
    while (!mail.closed) {
        atomic_store(&e->asleep, !stepped);
        door_take(e->door, !stepped, stepped ? (mono_time){0} : next_timer(e), &mail);
        atomic_store(&e->asleep, false);
        receive(e, &mail);
        sweep(e, &e->queue, mono_now());
        sweep(e, &e->running, mono_now());
        stepped = false;
        if (!mail.closed) {
            engine_admit(e);
            stepped = engine_step(e);
        }
        check_books(e);
        publish(e);
        tell_readers(e);
    }
    end_all(e, &e->queue);
    end_all(e, &e->running);
    tell_readers(e);
    return NULL;
}

/* ---- start and stop ---- */

atn_status atn_engine_check(const atn_engine_params *p, atn_err *err)
{
    if (p->step_tokens < 1 || p->step_tokens > MAX_STEP_TOKENS) {
        return atn_fail(err, ATN_INVALID, "step_tokens", "%u tokens a step, 1 to %d are possible", p->step_tokens,
                        MAX_STEP_TOKENS);
    }
    const uint32_t served = plan_most_seqs(p->step_tokens), most = served < MAX_SEQUENCES ? served : MAX_SEQUENCES;
    if (p->max_sequences < 1 || p->max_sequences > most) {
        return atn_fail(err, ATN_INVALID, "max_sequences",
                        "%u sequences, 1 to %u are possible with step_tokens %u: each gets a token every second step",
                        p->max_sequences, most, p->step_tokens);
    }
    if (p->max_waiting < 1 || p->max_waiting > MAX_WAITING) {
        return atn_fail(err, ATN_INVALID, "max_waiting", "%u waiting requests, 1 to %d are possible", p->max_waiting,
                        MAX_WAITING);
    }
    return ATN_OK;
}

static size_t default_kv_bytes(uint64_t limit, size_t taken, size_t full_context)
{
    const uint64_t quarter = limit > taken ? (limit - taken) / 4 : 0;
    const size_t some = quarter < most_default_kv ? (size_t)quarter : most_default_kv;
    return some > full_context ? some : full_context;
}

/* SIZE_MAX when the product is more than that. */
static size_t times(size_t a, size_t b)
{
    return a > 0 && b > SIZE_MAX / a ? SIZE_MAX : a * b;
}

/* Fills info and the KV configuration; refuses what does not fit. */
static atn_status budget(atn_engine *e, kv_config *cfg, atn_err *err)
{
    const uint64_t limit = cgroup_memory_limit();
    const atn_engine_params *p = &e->params;
    atn_engine_info *i = &e->info;
    atn_model_info m;

    atn_model_get_info(e->model, &m);
    i->step_tokens = p->step_tokens;
    i->max_sequences = p->max_sequences;
    i->max_waiting = p->max_waiting;
    i->page_tokens = p->page_tokens;
    i->kv_type = p->kv_type;
    i->max_prompt_logprob_rows = p->max_sequences > LEAST_OUT_ROWS ? p->max_sequences : LEAST_OUT_ROWS;
    *cfg = (kv_config){.type = p->kv_type, .page_tokens = p->page_tokens, .max_step = p->step_tokens};
    model_kv_layers(e->model, &cfg->layers, &cfg->n_layers);
    const size_t page = kv_page_bytes(cfg);
    i->pages_per_full_context = kv_config_pages_for(cfg, e->context);
    i->weights_bytes = m.weight_bytes;
    i->scratch_bytes = model_scratch_bytes(e->model, i->step_tokens, i->max_prompt_logprob_rows) +
                       atn_sampler_scratch_bytes(e->n_vocab);

    const size_t full = times(page, i->pages_per_full_context), taken = i->weights_bytes + i->scratch_bytes;
    cfg->budget_bytes = p->kv_bytes ? p->kv_bytes : default_kv_bytes(limit, taken, full);
    if (cfg->budget_bytes < full) {
        return atn_fail(err, ATN_NOMEM, "kv_bytes", "a KV budget of %zu bytes, one context of %u tokens needs %zu",
                        cfg->budget_bytes, e->context, full);
    }
    if (taken > limit || cfg->budget_bytes > limit - taken) {
        return atn_fail(err, ATN_NOMEM, "kv_bytes",
                        "weights, scratch and KV need %llu bytes, %llu are allowed (KV alone %zu)",
                        (unsigned long long)taken + cfg->budget_bytes, (unsigned long long)limit, cfg->budget_bytes);
    }
    return ATN_OK;
}

static void note_pages(atn_engine *e)
{
    kv_stats st;

    kv_pool_get_stats(e->kv, &st);
    e->info.n_pages = st.n_pages;
    e->info.kv_bytes = st.n_pages * st.page_bytes;
    e->info.full_contexts = st.n_pages / e->info.pages_per_full_context;
}

static atn_status make_batch(atn_engine *e, atn_err *err)
{
    engine_batch *b = &e->batch;
    const size_t n = e->info.max_sequences;

    b->plan = calloc(n, sizeof *b->plan);
    b->seqs = calloc(n, sizeof *b->seqs);
    b->items = calloc(n, sizeof *b->items);
    b->first_out = calloc(n, sizeof *b->first_out);
    b->spans = calloc(n, sizeof *b->spans);
    b->tokens = calloc(e->info.step_tokens, sizeof *b->tokens);
    b->out_rows = calloc(e->info.max_prompt_logprob_rows, sizeof *b->out_rows);
    if (!b->plan || !b->seqs || !b->items || !b->first_out || !b->spans || !b->tokens || !b->out_rows) {
        return atn_fail(err, ATN_NOMEM, NULL, "no memory for batches of %u tokens", e->info.step_tokens);
    }
    return ATN_OK;
}

static void engine_free(atn_engine *e)
{
    kept_evict_all(&e->kept);
    model_scratch_free(e->scratch);
    atn_sampler_scratch_free(e->sampling);
    kv_pool_close(e->kv);
    free(e->batch.plan);
    free(e->batch.seqs);
    free(e->batch.items);
    free(e->batch.first_out);
    free(e->batch.spans);
    free(e->batch.tokens);
    free(e->batch.out_rows);
    door_leave(e->door);
    free(e);
}

static atn_status open_parts(atn_engine *e, atn_err *err)
{
    kv_config cfg;

    e->door = door_new();
    if (!e->door) {
        return atn_fail(err, ATN_NOMEM, NULL, "no memory for the engine's inbox");
    }
    ATN_TRY(budget(e, &cfg, err));
    ATN_TRY(make_batch(e, err));
    ATN_TRY(atn_sampler_scratch_new(e->n_vocab, &e->sampling, err));
    ATN_TRY(kv_pool_open(atn_model_backend(e->model), &cfg, &e->kv, err));
    note_pages(e);
    ATN_TRY(model_scratch_new(e->model, e->kv, e->info.step_tokens, e->info.max_prompt_logprob_rows, &e->scratch, err));
    metric_set(&e->metrics.kv_pages_total, e->info.n_pages);
    metric_set(&e->metrics.weights_bytes, e->info.weights_bytes);
    metric_set(&e->metrics.kv_bytes, e->info.kv_bytes);
    metric_set(&e->metrics.scratch_bytes, e->info.scratch_bytes);
    metric_set(&e->metrics.page_tokens, e->info.page_tokens);
    publish(e);
    return ATN_OK;
}

/* Signals are for the threads that expect them. */
static atn_status start_thread(atn_engine *e, atn_err *err)
{
    sigset_t all, before;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    const int failed = pthread_create(&e->thread, NULL, engine_main, e);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (failed) {
        return atn_fail(err, ATN_NOMEM, NULL, "the engine thread could not be started (error %d)", failed);
    }
    pthread_setname_np(e->thread, "attnd-engine");
    return ATN_OK;
}

atn_status atn_engine_start(atn_model *m, const atn_engine_params *p, atn_engine **out, atn_err *err)
{
    atn_model_info info;

    *out = NULL;
    ATN_TRY(atn_engine_check(p, err));
    atn_engine *e = calloc(1, sizeof *e);
    if (!e) {
        return atn_fail(err, ATN_NOMEM, NULL, "no memory for an engine");
    }
    atn_model_get_info(m, &info);
    e->model = m;
    e->tokenizer = atn_model_tokenizer(m);
    e->n_vocab = info.n_vocab;
    e->context = info.context;
    e->params = *p;
    e->params.page_tokens = p->page_tokens ? p->page_tokens : DEFAULT_PAGE_TOKENS;
    e->params.ring_events = p->ring_events ? p->ring_events : DEFAULT_RING_EVENTS;
    e->params.stall_ms = p->stall_ms ? p->stall_ms : DEFAULT_STALL_MS;
    e->params.queue_ms = p->queue_ms ? p->queue_ms : DEFAULT_QUEUE_MS;
    atn_status st = open_parts(e, err);
    if (st == ATN_OK) {
        st = start_thread(e, err);
    }
    if (st != ATN_OK) {
        engine_free(e);
        return st;
    }
    *out = e;
    return ATN_OK;
}

void atn_engine_stop(atn_engine *e)
{
    if (e) {
        door_close(e->door);
        pthread_join(e->thread, NULL);
        engine_free(e);
    }
}

/* ---- what other threads ask ---- */

void atn_engine_get_metrics(atn_engine *e, atn_metrics *out)
{
    engine_metrics_copy(&e->metrics, out);
    out->waiting = atomic_load(&e->n_waiting);
}

uint64_t atn_engine_steps(const atn_engine *e, bool *busy)
{
    *busy = !atomic_load(&e->asleep);
    return atomic_load_explicit(&e->metrics.steps, memory_order_relaxed);
}

void atn_engine_get_info(const atn_engine *e, atn_engine_info *out)
{
    *out = e->info;
}
