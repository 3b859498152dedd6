/* The two sides of a stream, see stream.h. */
#include "core/sched/stream.h"
#include "core/base/log.h"
#include "core/base/ring.h"

#include <stdatomic.h>
#include <stdlib.h>

struct atn_stream {
    atomic_uint sides; /* that still hold it: 2, 1 */
    atomic_bool cancelled;
    atomic_bool paused;
    door *door;
    ring *events;
    atn_sampled *logprobs; /* [n_tokens - 1] of the prompt, or NULL */
};

static void stream_free(atn_stream *s)
{
    door_leave(s->door);
    ring_free(s->events);
    free(s->logprobs);
    free(s);
}

atn_status stream_new(door *d, uint32_t ring_events, uint32_t n_choices, atn_stream **out, atn_err *err)
{
    const uint32_t least = 2 * n_choices; /* an event and the final one of each */
    atn_stream *s = calloc(1, sizeof *s);

    *out = NULL;
    if (!s) {
        return atn_fail(err, ATN_NOMEM, NULL, "no memory for a stream");
    }
    atomic_init(&s->sides, 2);
    s->door = door_use(d);
    s->events = ring_new(ring_events > least ? ring_events : least, sizeof(atn_event));
    if (!s->events) {
        stream_free(s);
        return atn_fail(err, ATN_NOMEM, NULL, "no memory for a stream of %u events", ring_events);
    }
    *out = s;
    return ATN_OK;
}

void stream_leave(atn_stream *s)
{
    if (atomic_fetch_sub_explicit(&s->sides, 1, memory_order_acq_rel) == 1) {
        stream_free(s);
    }
}

bool stream_cancelled(const atn_stream *s)
{
    return atomic_load_explicit(&s->cancelled, memory_order_relaxed);
}

void stream_push(atn_stream *s, const atn_event *ev)
{
    if (!ring_push(s->events, ev)) {
        log_error("engine: a stream had no room for an event that was promised a slot");
    }
}

size_t stream_free_slots(const atn_stream *s)
{
    return ring_free_slots(s->events);
}

/* Both sides change `paused` by exchange: whichever comes second sees what the other did before. Either the reader finds it
 * set and rings, or the engine finds the room that the reader made. */
bool stream_has_room(atn_stream *s, uint32_t n_live)
{
    const size_t least = 2 * (size_t)n_live;

    if (ring_free_slots(s->events) >= least) {
        return true;
    }
    atomic_exchange_explicit(&s->paused, true, memory_order_acq_rel);
    return ring_free_slots(s->events) >= least;
}

atn_status stream_make_logprobs(atn_stream *s, uint32_t n, atn_err *err)
{
    s->logprobs = calloc(n, sizeof *s->logprobs);
    return s->logprobs ? ATN_OK
                       : atn_fail(err, ATN_NOMEM, NULL, "no memory for the log-probabilities of %u prompt tokens", n);
}

atn_sampled *stream_logprobs(atn_stream *s)
{
    return s->logprobs;
}

/* ---- the reader's ---- */

bool atn_stream_next(atn_stream *s, atn_event *ev)
{
    if (!ring_pop(s->events, ev)) {
        return false;
    }
    if (atomic_exchange_explicit(&s->paused, false, memory_order_acq_rel)) {
        door_ring(s->door);
    }
    return true;
}

void atn_stream_cancel(atn_stream *s)
{
    if (!atomic_exchange_explicit(&s->cancelled, true, memory_order_relaxed)) {
        door_ring(s->door);
    }
}

const atn_sampled *atn_stream_prompt_logprobs(const atn_stream *s)
{
    return s->logprobs;
}

void atn_stream_release(atn_stream *s)
{
    if (s) {
        atn_stream_cancel(s);
        stream_leave(s);
    }
}
