/* The outer side of the door: a request is checked, counted and handed over, or refused at once.
 *
 * What can never fit is told from what does not fit now: the first is the caller's error (both numbers said), the second is
 * overload. Waiting jobs are counted before anything is allocated, so that a refusal costs nothing. */
#include "core/sched/engine_impl.h"

static atn_status check_ids(const int32_t *ids, uint32_t n, uint32_t n_vocab, const char *param, atn_err *err)
{
    for (uint32_t i = 0; i < n; i++) {
        if (ids[i] < 0 || (uint32_t)ids[i] >= n_vocab) {
            return atn_fail(err, ATN_INVALID, param, "token id %d out of range 0..%u", ids[i], n_vocab - 1);
        }
    }
    return ATN_OK;
}

static atn_status check_stops(const atn_request *r, uint32_t n_vocab, atn_err *err)
{
    if (r->n_stops > ATN_MAX_STOPS) {
        return atn_fail(err, ATN_INVALID, "stop", "%u stop strings, at most %d are allowed", r->n_stops, ATN_MAX_STOPS);
    }
    for (uint32_t i = 0; i < r->n_stops; i++) {
        if (r->stops[i].n < 1 || r->stops[i].n > ATN_MAX_STOP_BYTES) {
            return atn_fail(err, ATN_INVALID, "stop", "a stop string of %zu bytes, 1 to %d are allowed", r->stops[i].n,
                            ATN_MAX_STOP_BYTES);
        }
    }
    if (r->n_stop_ids > ATN_MAX_STOP_IDS) {
        return atn_fail(err, ATN_INVALID, "stop_ids", "%u stop token ids, at most %d are allowed", r->n_stop_ids,
                        ATN_MAX_STOP_IDS);
    }
    return check_ids(r->stop_ids, r->n_stop_ids, n_vocab, "stop_ids", err);
}

/* Can it ever run? */
static atn_status check_size(const atn_engine *e, const atn_request *r, atn_err *err)
{
    const uint64_t n = (uint64_t)r->n_tokens + r->max_new_tokens;

    if (n > e->context) {
        return atn_fail(err, ATN_CONTEXT, "tokens",
                        "%u prompt tokens and %u new ones do not fit the context of %u tokens", r->n_tokens,
                        r->max_new_tokens, e->context);
    }
    const uint32_t last = r->max_new_tokens > 0; /* the last token is not computed */
    const uint32_t pages = kv_pages_for_choices(e->kv, r->n_tokens, (uint32_t)n - last, r->n_choices);
    if (pages > e->info.n_pages) {
        return atn_fail(err, ATN_CONTEXT, "tokens", "the request needs %u KV pages, the whole cache has %u", pages,
                        e->info.n_pages);
    }
    return ATN_OK;
}

static atn_status check(const atn_engine *e, const atn_request *r, atn_err *err)
{
    if (r->n_tokens < 1) {
        return atn_fail(err, ATN_INVALID, "tokens", "the prompt is empty");
    }
    if (r->n_choices < 1 || r->n_choices > ATN_MAX_CHOICES || r->n_choices > e->info.max_sequences) {
        return atn_fail(err, ATN_INVALID, "n_choices", "%u choices, 1 to %u are possible", r->n_choices,
                        e->info.max_sequences < ATN_MAX_CHOICES ? e->info.max_sequences : ATN_MAX_CHOICES);
    }
    ATN_TRY(atn_sample_check(&r->sample, e->n_vocab, err));
    ATN_TRY(check_stops(r, e->n_vocab, err));
    ATN_TRY(check_size(e, r, err));
    return check_ids(r->tokens, r->n_tokens, e->n_vocab, "tokens", err);
}

static bool count_in(atn_engine *e)
{
    if (atomic_fetch_add(&e->n_waiting, 1) < e->params.max_waiting) {
        return true;
    }
    atomic_fetch_sub(&e->n_waiting, 1);
    return false;
}

static atn_status hand_over(atn_engine *e, const atn_request *r, atn_stream **out, atn_err *err)
{
    atn_stream *stream = NULL;
    job *j = NULL;

    ATN_TRY(stream_new(e->door, e->params.ring_events, r->n_choices, &stream, err));
    atn_status st = job_new(r, stream, &j, err);
    if (st != ATN_OK) {
        stream_leave(stream);
        stream_leave(stream);
        return st;
    }
    if (!door_put(e->door, &j->item)) {
        job_free(j);
        stream_leave(stream);
        return atn_fail(err, ATN_UNAVAILABLE, NULL, "the engine is stopping");
    }
    *out = stream;
    return ATN_OK;
}

atn_status atn_engine_submit(atn_engine *e, const atn_request *r, atn_stream **out, atn_err *err)
{
    *out = NULL;
    atn_status st = check(e, r, err);
    if (st == ATN_OK && !count_in(e)) {
        st = atn_fail(err, ATN_OVERLOADED, NULL, "%u requests are waiting, no more are let in", e->params.max_waiting);
    } else if (st == ATN_OK) {
        st = hand_over(e, r, out, err);
        if (st != ATN_OK) {
            atomic_fetch_sub(&e->n_waiting, 1);
        }
    }
    metric_add(st == ATN_OK ? &e->metrics.requests_admitted : &e->metrics.requests_refused, 1);
    return st;
}

void atn_engine_drop(atn_engine *e, atn_domain domain, uint64_t sequence)
{
    door_forget(e->door, domain, sequence);
}
