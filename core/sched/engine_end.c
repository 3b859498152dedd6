/* What a chosen token leads to, and how sequences and jobs end.
 *
 * The text of a choice is the bytes of its tokens; a stop string is looked for in it as it grows. Every sequence sends one
 * final event, for which its stream keeps a slot. What a sequence holds is given back with that event, so that the pages are
 * free before the next step; choice 0 of a session's turn leaves its KV in the list of kept ones. */
#include "core/sched/engine_impl.h"

#include <stdlib.h>

static bool is_stop_id(const job *j, int32_t id)
{
    for (uint32_t i = 0; i < j->n_stop_ids; i++) {
        if (j->stop_ids[i] == id) {
            return true;
        }
    }
    return false;
}

static void send(atn_engine *e, job_seq *s, atn_event *ev)
{
    ev->choice = s->choice;
    stream_push(s->job->stream, ev);
    e->news = true;
}

static void count_end(atn_engine *e, job *j, atn_finish finish, mono_time now)
{
    engine_metrics *m = &e->metrics;
    _Atomic uint64_t *const ended[] = {
        [ATN_FINISH_NONE] = &m->ended_error,        [ATN_FINISH_EOS] = &m->ended_stop,
        [ATN_FINISH_STOP_ID] = &m->ended_stop,      [ATN_FINISH_STOP] = &m->ended_stop,
        [ATN_FINISH_LENGTH] = &m->ended_length,     [ATN_FINISH_CANCELLED] = &m->ended_cancelled,
        [ATN_FINISH_DEADLINE] = &m->ended_deadline, [ATN_FINISH_ERROR] = &m->ended_error,
    };

    metric_add(ended[finish], 1);
    metric_e2e(m, mono_since_us(j->submitted, now));
    if (j->first_token.us != 0) {
        metric_decode(m, mono_since_us(j->first_token, now));
    }
}

static atn_usage usage_of(const job_seq *s, mono_time now)
{
    const job *j = s->job;
    const mono_time started = j->started.us ? j->started : now;
    const mono_time first = j->first_token.us ? j->first_token : now;

    return (atn_usage){
        .prompt_tokens = j->n_prompt,
        .cached_tokens = j->n_cached,
        .generated_tokens = s->n_generated,
        .queue_us = mono_since_us(j->submitted, started),
        .prefill_us = mono_since_us(started, first),
        .decode_us = mono_since_us(first, now),
    };
}

/* Keeps the KV computed so far, whatever ended the turn: the next one reuses what its tokens begin with. Only numbers that the
 * model got wrong are not worth keeping. */
static void give_back(atn_engine *e, job_seq *s, atn_finish finish)
{
    job *j = s->job;

    if (s->choice == 0 && j->keep && j->kept_node && finish != ATN_FINISH_ERROR && kv_seq_len(s->kv) > 0) {
        kv_seq_unreserve(s->kv);
        *j->kept_node = (kept){.domain = j->domain, .sequence = j->sequence, .kv = s->kv, .tokens = s->tokens};
        kept_put(&e->kept, j->kept_node);
        j->kept_node = NULL;
    } else {
        kv_seq_free(s->kv);
        free(s->tokens);
    }
    s->kv = NULL;
    s->tokens = NULL;
    atn_sampler_free(s->sampler);
    s->sampler = NULL;
}

static void end(atn_engine *e, job_seq *s, atn_event *ev, mono_time now)
{
    job *j = s->job;

    s->live = false;
    j->n_live--;
    give_back(e, s, ev->finish);
    if (j->phase != JOB_WAITING) {
        e->n_running_seqs--;
    }
    if (j->n_live == 0) {
        kv_unreserve(e->kv, j->n_loose);
        j->n_loose = 0;
        count_end(e, j, ev->finish, now);
    }
    ev->last = j->n_live == 0;
    ev->usage = usage_of(s, now);
    send(e, s, ev);
}

/* Looks for a stop string in the token's bytes; fills the event. True when one ends in them. */
static bool meets_stop(const atn_engine *e, job_seq *s, int32_t id, atn_event *ev)
{
    size_t n, used;
    const char *bytes = atn_token_bytes(e->tokenizer, id, false, &n);

    if (!stops_feed(s->job->stops, &s->stop_state, bytes, n, &used, &ev->stop_index)) {
        ev->hold = stops_pending(s->job->stops, s->stop_state);
        return false;
    }
    ev->stop_tail = (uint32_t)(n - used);
    ev->stop_cut = ev->stop_tail + s->job->stop_lens[ev->stop_index];
    return true;
}

static atn_finish finish_of(const atn_engine *e, job_seq *s, int32_t id, atn_event *ev)
{
    const job *j = s->job;

    if (!j->ignore_eos && atn_token_ends(e->tokenizer, id)) {
        return ATN_FINISH_EOS;
    }
    if (is_stop_id(j, id)) {
        return ATN_FINISH_STOP_ID;
    }
    if (meets_stop(e, s, id, ev)) {
        return ATN_FINISH_STOP;
    }
    return s->n_generated == j->max_new ? ATN_FINISH_LENGTH : ATN_FINISH_NONE;
}

void engine_token(atn_engine *e, job_seq *s, const atn_sampled *token, mono_time now)
{
    job *j = s->job;
    atn_event ev = {.has_token = true, .token = *token};

    if (j->first_token.us == 0) {
        j->first_token = now;
        metric_ttft(&e->metrics, mono_since_us(j->submitted, now));
        metric_prefill(&e->metrics, mono_since_us(j->started, now));
    }
    if (s->n_generated > 0) {
        metric_itl(&e->metrics, mono_since_us(s->last_token, now));
    }
    metric_add(&e->metrics.generated_tokens, 1);
    s->last_token = now;
    s->tokens[s->n_tokens++] = token->id;
    s->n_generated++;
    atn_sampler_accept(s->sampler, token->id);
    ev.finish = finish_of(e, s, token->id, &ev);
    if (ev.finish == ATN_FINISH_NONE) {
        send(e, s, &ev);
        return;
    }
    ev.hold = 0;
    end(e, s, &ev, now);
}

void engine_end_seq(atn_engine *e, job_seq *s, atn_finish finish, atn_status status)
{
    atn_event ev = {.finish = finish, .status = status};
    end(e, s, &ev, mono_now());
}

void engine_end_job(atn_engine *e, job *j, atn_finish finish, atn_status status)
{
    for (uint32_t c = 0; c < j->n_choices; c++) {
        if (j->seqs[c].live) {
            engine_end_seq(e, &j->seqs[c], finish, status);
        }
    }
}
