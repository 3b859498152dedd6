/* Inside of a turn: tokens to text, and the ways text leaves. Used by turn.c. Thread: the loop thread. */
#ifndef ATTND_API_TURN_TEXT_H
#define ATTND_API_TURN_TEXT_H

#include "server/api/turn.h"

void turn_answer_init(turn_answer *ans);
void turn_answer_free(turn_answer *ans);
/* Takes one event of answer i that is no failure, and gives the renderer the piece that came of it. */
atn_status turn_text_event(turn *t, uint32_t i, const atn_event *ev, atn_err *err) ATN_MUST_CHECK;

/* Starts the streamed answer: headers, then the renderer's on_start. */
void turn_begin(turn *t);
/* A comment when nothing was written for the configured time; begins the answer if it must. */
void turn_ping(turn *t, mono_time now);
/* An error as an event of a stream that has begun. */
void turn_write_error(turn *t, const atn_err *err);

#endif
