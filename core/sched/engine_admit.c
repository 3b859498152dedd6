/* Admission: first come, first served. The head of the queue gets its sequences; it starts when they and their pages in the
 * worst case fit, so that it never has to stop for another. Idle kept sequences make way, least recently used first, but only
 * when that is enough. */
#include "core/sched/engine_impl.h"

#include <stdlib.h>
#include <string.h>

static uint32_t common_prefix(const int32_t *a, const int32_t *b, uint32_t n)
{
    uint32_t i = 0;
    while (i < n && a[i] == b[i]) {
        i++;
    }
    return i;
}

/* Takes over what is kept of the session's last turn, as far as it is a prefix of the prompt. The prompt's last token is
 * always computed, because its logits are needed. The caller has made an empty sequence of the right size. */
static void reuse_kept(atn_engine *e, job *j)
{
    job_seq *s = &j->seqs[0];
    kept *k = kept_take(&e->kept, j->domain, j->sequence);

    if (!k) {
        return;
    }
    const uint32_t len = kv_seq_len(k->kv);
    const uint32_t most = j->n_prompt - 1 < len ? j->n_prompt - 1 : len;
    const uint32_t n = kv_seq_reusable(k->kv, common_prefix(k->tokens, s->tokens, most));
    if (n > 0) {
        kv_seq_truncate(k->kv, n);
        kv_seq_fork(k->kv, s->kv);
    }
    j->n_cached = n;
    kept_free(k);
}

static atn_status prepare_seq(atn_engine *e, job *j, job_seq *s, atn_err *err)
{
    const uint32_t n_tokens = j->n_prompt + j->max_new;

    ATN_TRY(kv_seq_new(e->kv, job_positions(j), &s->kv, err));
    ATN_TRY(atn_sampler_new(&j->sample, e->n_vocab, s->choice, n_tokens, &s->sampler, err));
    s->tokens = malloc(n_tokens * sizeof s->tokens[0]);
    if (!s->tokens) {
        return atn_fail(err, ATN_NOMEM, NULL, "no memory for %u tokens", n_tokens);
    }
    memcpy(s->tokens, j->prompt, j->n_prompt * sizeof s->tokens[0]);
    s->n_tokens = j->n_prompt;
    atn_sampler_accept_prompt(s->sampler, j->prompt, j->n_prompt);
    return ATN_OK;
}

/* Everything that the job will need but pages: from here on to its end nothing is allocated. */
static atn_status prepare(atn_engine *e, job *j, atn_err *err)
{
    for (uint32_t c = 0; c < j->n_choices; c++) {
        ATN_TRY(prepare_seq(e, j, &j->seqs[c], err));
    }
    if (j->keep) {
        j->kept_node = calloc(1, sizeof *j->kept_node);
        if (!j->kept_node) {
            return atn_fail(err, ATN_NOMEM, NULL, "no memory to keep a sequence");
        }
        if (!j->prompt_logprobs) {
            reuse_kept(e, j);
        }
    }
    if (j->prompt_logprobs) {
        ATN_TRY(stream_make_logprobs(j->stream, j->n_prompt, err)); /* one more than used: never an empty array */
    }
    free(j->prompt);
    j->prompt = NULL;
    j->prepared = true;
    return ATN_OK;
}

/* Pages that the job may come to need beside those that it holds. */
static uint32_t pages_needed(const atn_engine *e, const job *j)
{
    const kv_seq *first = j->seqs[0].kv;

    if (j->n_choices == 1) {
        return kv_seq_pages_to(first, job_positions(j));
    }
    const uint32_t all = kv_pages_for_choices(e->kv, j->n_prompt, job_positions(j), j->n_choices);
    const uint32_t held = kv_seq_pages_alone(first);
    return all > held ? all - held : 0;
}

/* With nobody running and nothing kept this succeeds: what the job holds and needs is no more than the door let in. */
static bool reserve_pages(atn_engine *e, job *j)
{
    const uint32_t need = pages_needed(e, j);

    while (!kv_reserve(e->kv, need)) {
        kv_stats st;
        kv_pool_get_stats(e->kv, &st);
        const bool enough = st.n_free - st.n_reserved + kept_pages_alone(&e->kept) >= need;
        if (!enough || !kept_evict(&e->kept)) {
            return false;
        }
        metric_add(&e->metrics.idle_evictions, 1);
    }
    const uint32_t for_prompt =
        j->n_choices == 1 ? need : kv_seq_pages_to(j->seqs[0].kv, j->n_prompt); /* the rest is for the forks */
    const uint32_t given = for_prompt < need ? for_prompt : need;
    kv_seq_give_reserve(j->seqs[0].kv, given);
    j->n_loose = need - given;
    return true;
}

static void start(atn_engine *e, job *j)
{
    j->phase = JOB_PREFILL;
    j->admitted = ++e->n_admitted;
    j->started = mono_now();
    job_list_add(&e->running, j);
    e->n_running_seqs += j->n_choices;
    metric_queue(&e->metrics, mono_since_us(j->submitted, j->started));
    metric_add(&e->metrics.prompt_tokens, j->n_prompt);
    metric_add(&e->metrics.cached_tokens, j->n_cached);
}

void engine_admit(atn_engine *e)
{
    for (job *j = e->queue.first; j; j = e->queue.first) {
        atn_err err;

        if (e->n_running_seqs + j->n_choices > e->info.max_sequences) {
            return;
        }
        const atn_status st = j->prepared ? ATN_OK : prepare(e, j, &err);
        if (st == ATN_OK && !reserve_pages(e, j)) {
            return;
        }
        job_list_take(&e->queue, &e->queue.first);
        atomic_fetch_sub(&e->n_waiting, 1);
        if (st == ATN_OK) {
            start(e, j);
        } else {
            engine_end_job(e, j, ATN_FINISH_ERROR, st);
            job_free(j);
        }
    }
}
