/* See loop.h. libmicrohttpd gives one epoll descriptor, which libuv polls like any other; before each sleep (prepare) the
 * answers that came meanwhile are pushed out and the timer is set to libmicrohttpd's next deadline. */
#include "server/loop/loop.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <uv.h>

enum {
    TICK_MS = 250,
    IDLE_TICK_MS = 1000,
    PUMPS = 4, /* runs in a row before other events get their turn */
};

struct loop {
    uv_loop_t uv;
    uv_poll_t poll;
    uv_prepare_t prepare;
    uv_timer_t deadline, tick;
    uv_async_t wake;
    uv_signal_t term, interrupt;
    loop_callbacks cb;
    http *http;
    bool slow; /* ticks come at IDLE_TICK_MS */
    size_t jobs;
};

typedef struct job {
    uv_work_t req;
    loop *l;
    void (*work)(void *arg);
    void (*done)(void *arg);
    void *arg;
} job;

static bool busy(const loop *l)
{
    return (l->http != NULL && http_busy(l->http)) || l->cb.busy(l->cb.arg);
}

static void on_tick(uv_timer_t *t)
{
    loop *l = t->data;
    if (l->http != NULL) {
        http_tick(l->http);
    }
    l->cb.on_tick(l->cb.arg, mono_now());
    l->slow = !busy(l);
    uv_timer_start(t, on_tick, l->slow ? IDLE_TICK_MS : TICK_MS, 0);
}

static void on_readable(uv_poll_t *p, int status, int events)
{
    loop *l = p->data;
    (void)status, (void)events;
    http_run(l->http);
}

static void on_deadline(uv_timer_t *t)
{
    loop *l = t->data;
    if (l->http != NULL) {
        http_run(l->http);
    }
}

static void on_prepare(uv_prepare_t *p)
{
    loop *l = p->data;
    if (l->http == NULL) {
        return;
    }
    for (int i = 0; i < PUMPS && http_pending(l->http); i++) {
        http_run(l->http);
    }
    int64_t ms = http_pending(l->http) ? 0 : http_timeout_ms(l->http);
    if (ms >= 0) {
        uv_timer_start(&l->deadline, on_deadline, (uint64_t)ms, 0);
    } else {
        uv_timer_stop(&l->deadline);
    }
    if (l->slow && busy(l)) {
        l->slow = false;
        uv_timer_start(&l->tick, on_tick, TICK_MS, 0);
    }
}

static void on_wake(uv_async_t *a)
{
    loop *l = a->data;
    l->cb.on_wake(l->cb.arg);
}

static void on_signal(uv_signal_t *s, int number)
{
    loop *l = s->data;
    l->cb.on_signal(l->cb.arg, number);
}

atn_status loop_open(const loop_callbacks *cb, loop **out, atn_err *err)
{
    *out = NULL;
    loop *l = calloc(1, sizeof *l);
    int rc = l != NULL ? uv_loop_init(&l->uv) : UV_ENOMEM;
    if (rc != 0) {
        free(l);
        return atn_fail(err, ATN_NOMEM, NULL, "the event loop does not start: %s", uv_strerror(rc));
    }
    l->cb = *cb;
    l->prepare.data = l->deadline.data = l->tick.data = l->wake.data = l->term.data = l->interrupt.data = l;
    uv_prepare_init(&l->uv, &l->prepare);
    uv_timer_init(&l->uv, &l->deadline);
    uv_timer_init(&l->uv, &l->tick);
    if ((rc = uv_async_init(&l->uv, &l->wake, on_wake)) != 0 || (rc = uv_signal_init(&l->uv, &l->term)) != 0 ||
        (rc = uv_signal_init(&l->uv, &l->interrupt)) != 0 ||
        (rc = uv_signal_start(&l->term, on_signal, SIGTERM)) != 0 ||
        (rc = uv_signal_start(&l->interrupt, on_signal, SIGINT)) != 0) {
        loop_close(l);
        return atn_fail(err, ATN_IO, NULL, "the event loop does not start: %s", uv_strerror(rc));
    }
    uv_prepare_start(&l->prepare, on_prepare);
    uv_timer_start(&l->tick, on_tick, TICK_MS, 0);
    *out = l;
    return ATN_OK;
}

atn_status loop_serve(loop *l, http *h, atn_err *err)
{
    int rc = uv_poll_init(&l->uv, &l->poll, http_epoll_fd(h));
    if (rc == 0) {
        l->http = h;
        l->poll.data = l;
        rc = uv_poll_start(&l->poll, UV_READABLE, on_readable);
    }
    return rc == 0 ? ATN_OK : atn_fail(err, ATN_IO, NULL, "cannot watch the server's sockets: %s", uv_strerror(rc));
}

void loop_unserve(loop *l)
{
    if (l->http != NULL) {
        l->http = NULL;
        uv_close((uv_handle_t *)&l->poll, NULL);
        uv_run(&l->uv, UV_RUN_NOWAIT); /* the descriptor may be closed once libuv has let go of it */
    }
}

void loop_run(loop *l)
{
    uv_run(&l->uv, UV_RUN_DEFAULT);
}

void loop_stop(loop *l)
{
    uv_stop(&l->uv);
}

void loop_wake(loop *l)
{
    /* libuv before 1.53 reads its flag without a barrier: what the waker wrote must be visible before the flag. */
    atomic_thread_fence(memory_order_seq_cst);
    uv_async_send(&l->wake);
}

static void run_job(uv_work_t *req)
{
    job *j = req->data;
    j->work(j->arg);
}

static void end_job(uv_work_t *req, int status)
{
    job *j = req->data;
    (void)status;
    j->l->jobs--;
    j->done(j->arg);
    free(j);
}

atn_status loop_work(loop *l, void (*work)(void *arg), void (*done)(void *arg), void *arg, atn_err *err)
{
    job *j = calloc(1, sizeof *j);
    int rc = UV_ENOMEM;
    if (j != NULL) {
        *j = (job){.l = l, .work = work, .done = done, .arg = arg};
        j->req.data = j;
        rc = uv_queue_work(&l->uv, &j->req, run_job, end_job);
    }
    if (rc != 0) {
        free(j);
        return atn_fail(err, ATN_NOMEM, NULL, "no thread for the work: %s", uv_strerror(rc));
    }
    l->jobs++;
    return ATN_OK;
}

void loop_finish_work(loop *l)
{
    uv_timer_stop(&l->tick);
    while (l->jobs > 0) {
        uv_run(&l->uv, UV_RUN_ONCE);
    }
}

static void close_handle(uv_handle_t *handle, void *arg)
{
    (void)arg;
    if (!uv_is_closing(handle)) {
        uv_close(handle, NULL);
    }
}

void loop_close(loop *l)
{
    if (l == NULL) {
        return;
    }
    l->http = NULL;
    uv_walk(&l->uv, close_handle, NULL);
    uv_run(&l->uv, UV_RUN_DEFAULT);
    (void)uv_loop_close(&l->uv);
    free(l);
}
