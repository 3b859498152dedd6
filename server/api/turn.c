/* The life of a turn: admission, its session's line, submission to the engine, and the one way it ends.
 *
 *     turn_start -> join_session -> (wait in line) -> run -> turn_pump ... -> finish | fail -> closed -> freed
 *
 * A turn ends exactly once, in finish, fail or on_close; each of them gives up the engine's streams and the seat in the
 * session before anything is said to the client, so that a client's next request finds the session ready. */
#include "server/api/state.h"
#include "server/api/turn_text.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PAUSE_BYTES = 64 * 1024 }; /* unsent bytes above which a stream is not drained */

static void on_close(exchange *x);
static void on_writable(exchange *x);

void turn_spec_free(turn_spec *spec)
{
    for (uint32_t i = 0; spec->prompts != NULL && i < spec->n_prompts; i++) {
        free(spec->prompts[i].tokens);
    }
    free(spec->prompts);
    spec->prompts = NULL;
    params_free(&spec->params);
    if (spec->render != NULL && spec->render->free != NULL && spec->user != NULL) {
        turn t = {.user = spec->user};
        spec->render->free(&t);
    }
    spec->user = NULL;
}

static turn *turn_new(api *a, exchange *x, turn_spec *spec)
{
    turn *t = calloc(1, sizeof *t);
    uint32_t n = spec->n_prompts * spec->params.n_choices;
    turn_answer *answers = calloc(n, sizeof *answers);
    if (t == NULL || answers == NULL) {
        free(t);
        free(answers);
        return NULL;
    }
    t->a = a;
    t->x = x;
    t->user = spec->user;
    t->params = spec->params;
    t->prompts = spec->prompts;
    t->n_prompts = spec->n_prompts;
    t->answers = answers;
    t->n_answers = n;
    t->stream = spec->stream;
    t->started = spec->arrived;
    t->last_write = mono_now();
    t->render = spec->render;
    t->prompt_name = spec->prompt_name;
    t->limit_name = spec->limit_name;
    t->ref = spec->session;
    t->ignored = spec->ignored;
    t->append = spec->append;
    t->include_stop = spec->include_stop;
    for (uint32_t i = 0; i < n; i++) {
        turn_answer_init(&answers[i]);
    }
    t->next = a->turns;
    if (t->next != NULL) {
        t->next->prev = t;
    }
    a->turns = t;
    a->n_active++;
    return t;
}

void turn_free(turn *t)
{
    api *a = t->a;
    if (t->prev != NULL) {
        t->prev->next = t->next;
    } else {
        a->turns = t->next;
    }
    if (t->next != NULL) {
        t->next->prev = t->prev;
    }
    for (uint32_t i = 0; i < t->n_answers; i++) {
        turn_answer_free(&t->answers[i]);
    }
    free(t->answers);
    for (uint32_t i = 0; i < t->n_prompts; i++) {
        atn_stream_release(t->prompts[i].stream);
        free(t->prompts[i].tokens);
    }
    free(t->prompts);
    params_free(&t->params);
    if (t->render->free != NULL && t->user != NULL) {
        t->render->free(t);
    }
    free(t);
}

/* Nothing more comes from the engine: its streams are cancelled if they run. */
static void mark_ended(turn *t)
{
    t->ended = true;
    t->a->n_active--;
}

static void cancel_streams(turn *t)
{
    for (uint32_t i = 0; i < t->n_prompts; i++) {
        atn_stream_release(t->prompts[i].stream);
        t->prompts[i].stream = NULL;
    }
}

static void fail(turn *t, const atn_err *err)
{
    if (t->ended) {
        return;
    }
    mark_ended(t);
    cancel_streams(t);
    session_leave(t->a->sessions, &t->seat, mono_now());
    if (t->x == NULL) {
        return;
    }
    if (t->begun) {
        turn_write_error(t, err);
    }
    if (t->x == NULL || t->broken) {
        return;
    }
    if (t->begun) {
        t->x->ops->end(t->x, true);
    } else {
        api_fail(t->x, err);
    }
}

/* The session's tokens after this turn: the prompt and the first answer. A token that only says "end" is no text and is
 * left out, so that the next turn goes on where the visible text stopped. */
static atn_status commit(turn *t, atn_err *err)
{
    if (t->seat.s == NULL) {
        return ATN_OK;
    }
    turn_prompt *p = &t->prompts[0];
    const turn_answer *ans = &t->answers[0];
    uint32_t n = ans->n_ids - (ans->finish == ATN_FINISH_EOS && ans->n_ids > 0 ? 1 : 0);
    int32_t *all = realloc(p->tokens, ((size_t)p->n + n + 1) * sizeof *all);
    if (all == NULL) {
        return atn_fail(err, ATN_NOMEM, "session_id", "no memory for the session's tokens");
    }
    p->tokens = all;
    if (n > 0) {
        memcpy(all + p->n, ans->ids, n * sizeof *all);
    }
    return session_commit(t->a->sessions, &t->seat, all, p->n + n, ans->usage.cached_tokens, mono_now(), err);
}

static void finish(turn *t)
{
    atn_err err;
    if (commit(t, &err) != ATN_OK) {
        fail(t, &err);
        return;
    }
    mark_ended(t);
    if (t->x == NULL) {
        return; /* the session's next turn, started by the commit, closed this one's exchange */
    }
    t->render->on_end(t);
    if (t->stream && t->x != NULL && !t->broken) {
        t->x->ops->end(t->x, true);
    }
}

/* ---- admission ---- */

static turn *turn_of_seat(session_seat *seat)
{
    return (turn *)((char *)seat - offsetof(turn, seat));
}

static void on_gone(session_seat *seat)
{
    atn_err err;
    atn_fail(&err, ATN_NOT_FOUND, "session_id", "the session was deleted");
    fail(turn_of_seat(seat), &err);
}

static atn_status run(turn *t, atn_err *err);

static void on_go(session_seat *seat)
{
    turn *t = turn_of_seat(seat);
    atn_err err;
    if (run(t, &err) != ATN_OK) {
        fail(t, &err);
    }
}

static atn_status join_session(turn *t, bool *go, atn_err *err)
{
    *go = true;
    session_ref *ref = &t->ref;
    if (ref->id[0] == '\0' && !ref->create) {
        return ATN_OK;
    }
    if (t->n_prompts > 1) {
        return atn_fail(err, ATN_INVALID, "session_id", "a session takes one prompt at a time");
    }
    mono_time now = mono_now();
    session *s = ref->id[0] != '\0' ? sessions_find(t->a->sessions, ref->domain, ref->id, now) : NULL;
    if (s == NULL && t->append && !ref->create) {
        return atn_fail(err, ATN_NOT_FOUND, "session_id", "no such session; create: true makes one");
    }
    if (s == NULL) {
        ATN_TRY(sessions_create(t->a->sessions, ref->domain, ref->id, now, &s, err));
        s->provisional = true;
        memcpy(ref->id, s->id, sizeof ref->id);
    }
    t->seat.on_go = on_go;
    t->seat.on_gone = on_gone;
    return session_enter(t->a->sessions, s, &t->seat, go, err);
}

/* Puts the session's tokens before the new ones; a BOS belongs to the first turn only. */
static atn_status append_to_session(turn *t, atn_err *err)
{
    const session *s = t->seat.s;
    turn_prompt *p = &t->prompts[0];
    if (s->n_tokens == 0) {
        return ATN_OK;
    }
    uint32_t skip = atn_token_adds_bos(t->a->tok) && p->n > 0 && p->tokens[0] == atn_token_bos(t->a->tok) ? 1 : 0;
    size_t n = (size_t)s->n_tokens + p->n - skip;
    int32_t *all = n <= INT32_MAX ? malloc(n * sizeof *all) : NULL;
    if (all == NULL) {
        return atn_fail(err, ATN_NOMEM, "session_id", "no memory for the session's prompt");
    }
    memcpy(all, s->tokens, s->n_tokens * sizeof *all);
    memcpy(all + s->n_tokens, p->tokens + skip, (p->n - skip) * sizeof *all);
    free(p->tokens);
    p->tokens = all;
    p->n = (uint32_t)n;
    return ATN_OK;
}

/* How many tokens prompt p may grow by: what was asked for, or what context and session leave. */
static atn_status token_limit(const turn *t, const turn_prompt *p, uint32_t *out, atn_err *err)
{
    uint32_t context = t->a->info.context;
    uint32_t least = t->params.has_max_new ? t->params.max_new_tokens : 1;
    if (p->n > context || least > context - p->n) {
        return atn_fail(err, ATN_CONTEXT, t->params.has_max_new && p->n <= context ? t->limit_name : t->prompt_name,
                        "the prompt has %u tokens and at least %u are to be generated; the context holds %u", p->n,
                        least, context);
    }
    uint32_t left = context - p->n;
    if (t->seat.s != NULL) {
        uint32_t most = sessions_limits(t->a->sessions)->max_tokens;
        if (p->n > most || least > most - p->n) {
            return atn_fail(err, ATN_TOO_LARGE, "session_id",
                            "the session would have %u tokens and at least %u are to be generated; a session holds %u",
                            p->n, least, most);
        }
        left = left < most - p->n ? left : most - p->n;
    }
    *out = t->params.has_max_new ? t->params.max_new_tokens : left;
    return ATN_OK;
}

static atn_status deadline_left(const turn *t, uint32_t *out, atn_err *err)
{
    *out = 0;
    if (t->params.deadline_ms == 0) {
        return ATN_OK;
    }
    uint64_t spent = mono_since_us(t->started, mono_now()) / 1000;
    if (spent >= t->params.deadline_ms) {
        return atn_fail(err, ATN_DEADLINE, "deadline_ms", "the deadline of %u ms passed", t->params.deadline_ms);
    }
    *out = t->params.deadline_ms - (uint32_t)spent;
    return ATN_OK;
}

static atn_status waited_too_long(const turn *t, atn_err *err)
{
    return atn_fail(err, ATN_DEADLINE, NULL, "the request waited %u s for its turn, which is the limit",
                    t->a->set.queue_s);
}

/* May it go on waiting for its session? */
static atn_status may_wait(const turn *t, mono_time now, atn_err *err)
{
    uint32_t left;
    ATN_TRY(deadline_left(t, &left, err));
    return mono_since_us(t->started, now) < t->a->set.queue_s * UINT64_C(1000000) ? ATN_OK : waited_too_long(t, err);
}

static atn_status submit(turn *t, turn_prompt *p, atn_err *err)
{
    const gen_params *g = &t->params;
    atn_request r = {
        .domain = t->ref.domain,
        .sequence = t->seat.s != NULL ? t->seat.s->sequence : 0,
        .tokens = p->tokens,
        .n_tokens = p->n,
        .n_choices = g->n_choices,
        .sample = g->sample,
        .stops = g->stops,
        .n_stops = g->n_stops,
        .stop_ids = g->stop_ids,
        .n_stop_ids = g->n_stop_ids,
        .ignore_eos = g->ignore_eos,
        .prompt_logprobs = g->prompt_logprobs,
    };
    ATN_TRY(token_limit(t, p, &r.max_new_tokens, err));
    ATN_TRY(deadline_left(t, &r.deadline_ms, err));
    atn_status st = atn_engine_submit(t->a->engine, &r, &p->stream, err);
    if (st == ATN_CONTEXT && t->prompt_name != NULL) { /* the engine's word for the prompt is not the client's */
        snprintf(err->param, sizeof err->param, "%s", t->prompt_name);
    }
    return st;
}

/* The turn's time has come. */
static atn_status run(turn *t, atn_err *err)
{
    const session *s = t->seat.s;
    if (s != NULL) {
        t->turn_number = s->turns + 1;
        if (t->ref.has_turn && t->ref.turn != t->turn_number) {
            return atn_fail(err, ATN_CONFLICT, "turn", "turn is %u, but the session's next turn is %u", t->ref.turn,
                            t->turn_number);
        }
        if (t->append) {
            ATN_TRY(append_to_session(t, err));
        }
    }
    for (uint32_t i = 0; i < t->n_prompts; i++) {
        ATN_TRY(submit(t, &t->prompts[i], err));
    }
    t->running = true;
    return ATN_OK;
}

void turn_start(api *a, exchange *x, turn_spec *spec)
{
    atn_err err;
    turn *t = turn_new(a, x, spec);
    if (t == NULL) {
        turn_spec_free(spec);
        atn_fail(&err, ATN_NOMEM, NULL, "no memory for the request");
        api_fail(x, &err);
        return;
    }
    x->state = t;
    x->on_close = on_close;
    x->on_writable = on_writable;
    api_enter(a);
    bool go;
    if (join_session(t, &go, &err) != ATN_OK || (go && run(t, &err) != ATN_OK)) {
        fail(t, &err);
    }
    api_leave(a);
}

/* ---- events ---- */

static bool paused(const turn *t)
{
    return t->ended || t->broken || t->x == NULL || (t->stream && t->x->ops->queued(t->x) > PAUSE_BYTES);
}

/* What an end that is no success means to the client. */
static void engine_failure(const turn *t, const atn_event *ev, atn_err *err)
{
    if (ev->finish == ATN_FINISH_DEADLINE) {
        uint32_t left;
        if (deadline_left(t, &left, err) == ATN_OK) {
            waited_too_long(t, err);
        }
    } else if (ev->finish == ATN_FINISH_CANCELLED) {
        atn_fail(err, ATN_UNAVAILABLE, NULL, "the server ended the request");
    } else {
        atn_status code = ev->status != ATN_OK ? ev->status : ATN_INTERNAL;
        atn_fail(err, code, NULL, "%s", atn_status_words(code));
    }
}

static void handle_event(turn *t, uint32_t prompt, const atn_event *ev)
{
    atn_err err;
    if (ev->finish == ATN_FINISH_CANCELLED || ev->finish == ATN_FINISH_DEADLINE || ev->finish == ATN_FINISH_ERROR) {
        engine_failure(t, ev, &err);
        fail(t, &err);
        return;
    }
    if (t->stream && !t->begun) {
        turn_begin(t);
    }
    t->prompts[prompt].ended |= ev->last;
    uint32_t i = prompt * t->params.n_choices + ev->choice;
    if (ev->choice >= t->params.n_choices) {
        return;
    }
    if (turn_text_event(t, i, ev, &err) != ATN_OK) {
        fail(t, &err);
    }
}

void turn_pump(turn *t)
{
    if (!t->running || t->ended || t->x == NULL) {
        return;
    }
    api_enter(t->a);
    bool all_ended = true;
    for (uint32_t i = 0; i < t->n_prompts; i++) {
        turn_prompt *p = &t->prompts[i];
        atn_event ev;
        while (!p->ended && !paused(t) && atn_stream_next(p->stream, &ev)) {
            handle_event(t, i, &ev);
        }
        all_ended &= p->ended;
    }
    if (all_ended && !t->ended && t->x != NULL && !t->broken) {
        finish(t);
    }
    api_leave(t->a);
}

void turn_cut(turn *t)
{
    atn_err err;
    atn_fail(&err, ATN_UNAVAILABLE, NULL, "the server is stopping and could not wait for the end of this answer");
    fail(t, &err);
}

void turn_tick(turn *t, mono_time now)
{
    if (t->ended || t->x == NULL || t->broken) {
        return;
    }
    atn_err err;
    if (!t->running) {
        if (may_wait(t, now, &err) != ATN_OK) {
            fail(t, &err);
            return;
        }
        if (!t->ref.has_turn) { /* a wrong turn number is refused by a status: its headers wait for the session */
            turn_ping(t, now);
        }
        return;
    }
    turn_pump(t); /* a paused stream goes on even if on_writable was missed */
    if (!t->ended) {
        turn_ping(t, now);
    }
}

static void on_writable(exchange *x)
{
    turn *t = x->state;
    api *a = t->a;
    api_enter(a);
    turn_pump(t);
    api_leave(a);
}

static void on_close(exchange *x)
{
    turn *t = x->state;
    api *a = t->a;
    x->state = NULL;
    api_enter(a);
    t->x = NULL;
    a->closed_turns = true;
    if (!t->ended) {
        mark_ended(t);
        cancel_streams(t);
        session_leave(a->sessions, &t->seat, mono_now());
    }
    api_leave(a);
}
