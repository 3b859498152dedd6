/* The API's state: opening and closing it, and the entries through which the loop drives it. */
#include "server/api/state.h"
#include "server/api/door.h"
#include "server/api/handlers.h"
#include <stdlib.h>
#include <time.h>

static void drop_kv(void *arg, atn_domain domain, uint64_t sequence)
{
    api *a = arg;
    if (a->engine != NULL) {
        atn_engine_drop(a->engine, domain, sequence);
    }
}

atn_status api_open(const api_settings *s, api **out, atn_err *err)
{
    *out = NULL;
    api *a = calloc(1, sizeof *a);
    if (a == NULL) {
        return atn_fail(err, ATN_NOMEM, NULL, "no memory for the API layer");
    }
    a->set = *s;
    a->opened = mono_now();
    a->opened_unix = time(NULL);
    session_limits limits = {
        .max_sessions = s->max_sessions,
        .ttl_s = s->session_ttl_s,
        .max_tokens = s->max_session_tokens,
        .max_turns_waiting = s->max_turns_waiting,
    };
    atn_status st = sessions_open(&limits, drop_kv, a, &a->sessions, err);
    if (st != ATN_OK) {
        free(a);
        return st;
    }
    *out = a;
    return ATN_OK;
}

void api_set_engine(api *a, atn_model *m, atn_engine *e)
{
    a->model = m;
    a->engine = e;
    a->tok = atn_model_tokenizer(m);
    atn_model_get_info(m, &a->info);
    info_list_backends(a);
    health_watch_feed(&a->watch, 0, false, mono_now()); /* it has all its time from here */
}

void api_close(api *a)
{
    if (a == NULL) {
        return;
    }
    while (a->turns != NULL) {
        turn_free(a->turns);
    }
    sessions_close(a->sessions);
    buf_free(&a->backends);
    free(a);
}

void api_enter(api *a)
{
    a->depth++;
}

void api_leave(api *a)
{
    if (--a->depth > 0 || !a->closed_turns) {
        return;
    }
    a->closed_turns = false;
    for (turn *t = a->turns; t != NULL;) {
        turn *next = t->next;
        if (t->x == NULL) {
            turn_free(t);
        }
        t = next;
    }
}

void api_handle(api *a, const api_route *r, exchange *x)
{
    x->route = r;
    api_enter(a);
    if (r->parse != NULL) {
        intake_handle(a, x);
    } else {
        r->handle(a, x);
    }
    api_leave(a);
}

void api_on_engine_wake(api *a)
{
    api_enter(a);
    for (turn *t = a->turns; t != NULL; t = t->next) {
        turn_pump(t);
    }
    api_leave(a);
}

void api_on_tick(api *a, mono_time now)
{
    api_enter(a);
    for (turn *t = a->turns; t != NULL; t = t->next) {
        turn_tick(t, now);
    }
    sessions_tick(a->sessions, now);
    health_tick(a, now);
    api_leave(a);
}

void api_set_draining(api *a)
{
    a->draining = true;
}

void api_cut(api *a)
{
    api_enter(a);
    for (turn *t = a->turns; t != NULL; t = t->next) {
        turn_cut(t);
    }
    api_leave(a);
}

size_t api_active(const api *a)
{
    return a->n_active;
}

void api_set_metrics_source(api *a, api_metrics_fn *fn, void *arg)
{
    a->metrics_source = fn;
    a->metrics_arg = arg;
}

atn_status api_loaded(const api *a, atn_err *err)
{
    return a->engine != NULL ? ATN_OK : atn_fail(err, ATN_UNAVAILABLE, NULL, "the model is loading");
}

atn_status api_accepting(const api *a, atn_err *err)
{
    ATN_TRY(api_loaded(a, err));
    if (a->draining) {
        return atn_fail(err, ATN_UNAVAILABLE, NULL, "the server is stopping");
    }
    return ATN_OK;
}

uint32_t api_max_choices(const api *a)
{
    atn_engine_info e;
    atn_engine_get_info(a->engine, &e);
    return e.max_sequences < ATN_MAX_CHOICES ? e.max_sequences : ATN_MAX_CHOICES;
}

void api_reply_json(exchange *x, int status, unsigned ignored, buf *body)
{
    if (body->failed) {
        atn_err err;
        atn_fail(&err, ATN_NOMEM, NULL, "no memory for the answer");
        api_fail(x, &err);
        return;
    }
    headers h = {0};
    if (ignored > 0) {
        headers_add(&h, "x-attnd-ignored-fields", "%u", ignored);
    }
    x->ops->reply(x, status, "application/json", h.h, h.n, body);
}
