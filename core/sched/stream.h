/* A stream as the engine sees it: the ring of one request's events, shared with its reader.
 *
 * Two sides hold it, each counted: the reader (submit to release) and the engine (submit to the last event). The engine pushes,
 * the reader pops; slots are kept so that the final event of every choice always fits. A full ring pauses the request: the
 * engine says so in `paused`, and the reader, when it has made room, rings the door.
 * Thread: as said a function; atn_stream_* are the reader's. */
#ifndef ATN_STREAM_H
#define ATN_STREAM_H

#include <attnd/engine.h>
#include "core/sched/door.h"

/* n_choices final events fit beside ring_events. */
atn_status stream_new(door *d, uint32_t ring_events, uint32_t n_choices, atn_stream **out, atn_err *err) ATN_MUST_CHECK;
void stream_leave(atn_stream *s); /* either side; the last one frees it */

/* ---- the engine's ---- */
bool stream_cancelled(const atn_stream *s);
/* Never fails within what stream_room said. */
void stream_push(atn_stream *s, const atn_event *ev);
size_t stream_free_slots(const atn_stream *s);
/* Is there room for an event of each of n_live choices, and their final ones? If not, the door is rung once the reader made
 * room for anything. */
bool stream_has_room(atn_stream *s, uint32_t n_live);
/* Room for n log-probabilities of the prompt, made and written before the first event. ATN_NOMEM. */
atn_status stream_make_logprobs(atn_stream *s, uint32_t n, atn_err *err) ATN_MUST_CHECK;
atn_sampled *stream_logprobs(atn_stream *s); /* [n] */

#endif
