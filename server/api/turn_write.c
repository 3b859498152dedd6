/* How a turn speaks: headers, events, pings, whole answers; and the small things that doors and renderers share. */
#include "server/api/state.h"
#include "server/api/turn_text.h"
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ERROR_EVENT_BYTES = 4096 };

void headers_add(headers *h, const char *name, const char *fmt, ...)
{
    if (h->n == sizeof h->h / sizeof h->h[0]) {
        return;
    }
    size_t room = sizeof h->text - h->used;
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(h->text + h->used, room, fmt, ap);
    va_end(ap);
    if (n < 0 || (size_t)n >= room) {
        return;
    }
    h->h[h->n++] = (reply_header){name, h->text + h->used};
    h->used += (size_t)n + 1;
}

static void common_headers(turn *t, headers *h)
{
    if (t->ref.id[0] != '\0') {
        headers_add(h, "x-session-id", "%s", t->ref.id);
    }
    if (t->turn_number > 0) { /* not known while the turn waits in line */
        headers_add(h, "x-session-turn", "%u", t->turn_number);
    }
    if (t->ignored > 0) {
        headers_add(h, "x-attnd-ignored-fields", "%u", t->ignored);
    }
    if (t->render->headers != NULL) {
        t->render->headers(t, h);
    }
}

void turn_begin(turn *t)
{
    headers h = {0};
    headers_add(&h, "Cache-Control", "no-cache");
    headers_add(&h, "X-Accel-Buffering", "no");
    common_headers(t, &h);
    t->begun = true;
    t->last_write = mono_now();
    t->x->ops->begin(t->x, "text/event-stream", h.h, h.n);
    if (t->render->on_start != NULL && t->x != NULL) {
        t->render->on_start(t);
    }
}

static void write_bytes(turn *t, const void *bytes, size_t n)
{
    if (t->x == NULL || t->broken) {
        return;
    }
    t->last_write = mono_now();
    if (!t->x->ops->write(t->x, bytes, n)) {
        t->broken = true; /* the exchange closes; on_close cleans up */
    }
}

void turn_write(turn *t, const buf *event)
{
    if (event->failed) {
        t->broken = true;
        if (t->x != NULL) {
            t->x->ops->end(t->x, false);
        }
        return;
    }
    write_bytes(t, event->data, event->len);
}

void turn_ping(turn *t, mono_time now)
{
    uint64_t wait_us = (uint64_t)t->a->set.ping_s * 1000000;
    if (!t->stream || wait_us == 0 || mono_since_us(t->last_write, now) < wait_us) {
        return;
    }
    if (!t->begun) {
        turn_begin(t);
    }
    static const char ping[] = ": ping\n\n";
    write_bytes(t, ping, sizeof ping - 1);
}

void turn_write_error(turn *t, const atn_err *err)
{
    char event[ERROR_EVENT_BYTES];
    const char *open = t->x->route != NULL && t->x->route->tgi ? "data:" : "data: ";
    size_t at = strlen(open);
    memcpy(event, open, at);
    size_t n = api_error_json(t->x->route, err, event + at, sizeof event - at - 3);
    memcpy(event + at + n, "\n\n", 2);
    write_bytes(t, event, at + n + 2);
}

void turn_reply(turn *t, const char *content_type, buf *body)
{
    if (t->x == NULL) {
        return;
    }
    if (body->failed) {
        atn_err err;
        atn_fail(&err, ATN_NOMEM, NULL, "no memory for the answer");
        api_fail(t->x, &err);
        return;
    }
    headers h = {0};
    common_headers(t, &h);
    t->x->ops->reply(t->x, 200, content_type, h.h, h.n, body);
}

atn_usage turn_usage(const turn *t)
{
    atn_usage sum = {0};
    for (uint32_t i = 0; i < t->n_answers; i++) {
        const atn_usage *u = &t->answers[i].usage;
        sum.generated_tokens += t->answers[i].n_ids;
        sum.queue_us = u->queue_us > sum.queue_us ? u->queue_us : sum.queue_us;
        sum.prefill_us = u->prefill_us > sum.prefill_us ? u->prefill_us : sum.prefill_us;
        sum.decode_us = u->decode_us > sum.decode_us ? u->decode_us : sum.decode_us;
        if (i % t->params.n_choices == 0) {
            sum.cached_tokens += u->cached_tokens;
        }
    }
    for (uint32_t i = 0; i < t->n_prompts; i++) {
        sum.prompt_tokens += t->prompts[i].n;
    }
    return sum;
}

const atn_sampled *turn_prompt_logprobs(const turn *t, uint32_t i)
{
    return t->prompts[i].stream != NULL ? atn_stream_prompt_logprobs(t->prompts[i].stream) : NULL;
}

void turn_token_text(const turn *t, int32_t id, buf *out)
{
    size_t n = 0;
    const char *bytes = atn_token_bytes(t->a->tok, id, true, &n);
    atn_utf8_stream s = {0};
    char text[3 * (64 + sizeof s.held)];
    for (size_t at = 0; at < n; at += 64) {
        size_t m = atn_utf8_stream_push(&s, bytes + at, n - at < 64 ? n - at : 64, text);
        buf_add(out, text, m);
    }
    size_t m = atn_utf8_stream_flush(&s, text);
    buf_add(out, text, m);
}

atn_status turn_spec_read_session(const request_head *head, fields *top, turn_spec *spec, atn_err *err)
{
    return params_read_session(head, top, &spec->session, &spec->params, err);
}

atn_status turn_tokenize(const api *a, const char *param, const char *text, size_t n, turn_prompt *out, atn_err *err)
{
    if (n == 0) {
        return atn_fail(err, ATN_INVALID, param, "%s must not be empty", param);
    }
    atn_segment seg = {.text = text, .n = n, .trusted = false};
    size_t n_ids = 0;
    atn_status st = atn_tokenize(a->tok, &seg, 1, ATN_TOKENIZE_BOS, &out->tokens, &n_ids, err);
    if (st != ATN_OK) {
        out->tokens = NULL;
        if (err != NULL) {
            snprintf(err->param, sizeof err->param, "%s", param);
        }
        return st;
    }
    if (n_ids == 0) {
        free(out->tokens);
        out->tokens = NULL;
        return atn_fail(err, ATN_INVALID, param, "%s has no tokens", param);
    }
    out->n = (uint32_t)n_ids;
    return ATN_OK;
}

bool turn_answer_better(const turn_answer *a, const turn_answer *b)
{
    return a->logprob_sum * (b->n_ids > 0 ? b->n_ids : 1) > b->logprob_sum * (a->n_ids > 0 ? a->n_ids : 1);
}

atn_status turn_check_logprobs(const api *a, const turn_spec *spec, const char *param, atn_err *err)
{
    if (spec->stream) {
        return ATN_OK;
    }
    const gen_params *p = &spec->params;
    uint64_t tokens = 0;
    for (uint32_t i = 0; i < spec->n_prompts; i++) {
        bool fits = p->has_max_new && p->max_new_tokens < a->info.context;
        uint64_t answer = fits ? p->max_new_tokens : a->info.context;
        tokens += answer + (p->prompt_logprobs ? spec->prompts[i].n : 0);
    }
    uint64_t entries = tokens * p->n_choices * (p->sample.n_top + 1u);
    if (entries > TURN_MAX_LOGPROB_ENTRIES) {
        return atn_fail(err, ATN_INVALID, param,
                        "up to %" PRIu64 " log-probabilities in one answer, the limit is %d: ask for fewer, or stream",
                        entries, TURN_MAX_LOGPROB_ENTRIES);
    }
    return ATN_OK;
}
