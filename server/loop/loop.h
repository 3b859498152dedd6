/* The event loop: libuv around libmicrohttpd's own epoll set, a wake from other threads, a tick, signals, and work that
 * runs on another thread and reports back.
 *
 *     loop_open(&callbacks, &l, &err);
 *     loop_serve(l, http);
 *     loop_run(l);                 until loop_stop
 *     loop_unserve(l); ... http_close, loop_finish_work, engine stop ...; loop_close(l);
 *
 * Thread: one, but for loop_wake. */
#ifndef ATTND_LOOP_H
#define ATTND_LOOP_H

#include "server/http/http.h"

typedef struct loop loop;

typedef struct loop_callbacks {
    void *arg;
    void (*on_wake)(void *arg);                /* loop_wake was called, once or more often */
    void (*on_tick)(void *arg, mono_time now); /* every 250 ms, while nothing is going on every second */
    bool (*busy)(void *arg);                   /* is something going on besides requests? */
    void (*on_signal)(void *arg, int number);  /* SIGTERM or SIGINT */
} loop_callbacks;

atn_status loop_open(const loop_callbacks *cb, loop **out, atn_err *err) ATN_MUST_CHECK;
atn_status loop_serve(loop *l, http *h, atn_err *err) ATN_MUST_CHECK;
void loop_unserve(loop *l); /* before http_close */
void loop_run(loop *l);
void loop_stop(loop *l);
/* Any thread, as long as the loop is open. */
void loop_wake(loop *l);
/* work(arg) on another thread, then done(arg) on this one. */
atn_status loop_work(loop *l, void (*work)(void *arg), void (*done)(void *arg), void *arg, atn_err *err) ATN_MUST_CHECK;
/* Until all work is done; nothing else but signals and wakes is served meanwhile. After loop_unserve. */
void loop_finish_work(loop *l);
void loop_close(loop *l); /* no work may be under way; NULL is fine */

#endif
