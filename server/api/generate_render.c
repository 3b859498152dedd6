/* TGI's answers: one event a token, `data:{...}` without a space, no [DONE]; or one object with details. */
#include "server/api/generate_render.h"
#include "server/api/state.h"
#include <inttypes.h>
#include <stdlib.h>

enum { LIST_MAX_BYTES = 64 * 1024 * 1024 };

generation *generation_new(void)
{
    generation *g = calloc(1, sizeof *g);
    if (g != NULL) {
        buf_init(&g->inputs, LIST_MAX_BYTES);
    }
    return g;
}

atn_status generation_reserve(generation *g, uint32_t n_choices, atn_err *err)
{
    g->lists = calloc(n_choices, sizeof *g->lists);
    if (g->lists == NULL) {
        return atn_fail(err, ATN_NOMEM, NULL, "no memory for %u answers", n_choices);
    }
    g->n_lists = n_choices;
    for (uint32_t i = 0; i < n_choices; i++) {
        buf_init(&g->lists[i].tokens, LIST_MAX_BYTES);
        buf_init(&g->lists[i].top_tokens, LIST_MAX_BYTES);
    }
    return ATN_OK;
}

static void generation_free(turn *t)
{
    generation *g = t->user;
    for (uint32_t i = 0; i < g->n_lists; i++) {
        buf_free(&g->lists[i].tokens);
        buf_free(&g->lists[i].top_tokens);
    }
    free(g->lists);
    buf_free(&g->inputs);
    free(g);
    t->user = NULL;
}

static const char *finish_word(atn_finish f)
{
    return f == ATN_FINISH_EOS ? "eos_token" : f == ATN_FINISH_LENGTH ? "length" : "stop_sequence";
}

static void put_seed(buf *b, const turn *t)
{
    const generation *g = t->user;
    if (g->show_seed) {
        buf_printf(b, "\"seed\":%" PRIu64, t->params.sample.seed);
    } else {
        buf_puts(b, "\"seed\":null");
    }
}

/* {"id","text","logprob"[,"special"]}; logprob NULL: null. */
static void put_token(buf *b, int32_t id, const char *text, size_t n, const float *logprob, const bool *special)
{
    buf_printf(b, "{\"id\":%d,\"text\":", id);
    put_string(b, text, n);
    buf_puts(b, ",\"logprob\":");
    if (logprob != NULL) {
        put_float(b, *logprob);
    } else {
        buf_puts(b, "null");
    }
    if (special != NULL) {
        buf_printf(b, ",\"special\":%s", *special ? "true" : "false");
    }
    buf_puts(b, "}");
}

/* A token by itself, with its own text. */
static void put_lone_token(buf *b, const turn *t, int32_t id, const float *logprob, bool with_special)
{
    bool special = atn_token_get_kind(t->a->tok, id) == ATN_TOKEN_CONTROL;
    buf text;
    buf_init(&text, LIST_MAX_BYTES);
    turn_token_text(t, id, &text);
    put_token(b, id, text.len > 0 ? text.data : "", text.len, logprob, with_special ? &special : NULL);
    b->failed |= text.failed;
    buf_free(&text);
}

static void put_piece_token(buf *b, const turn *t, const turn_piece *p)
{
    if (p->special) {
        put_lone_token(b, t, p->token->id, &p->token->logprob, true);
    } else {
        put_token(b, p->token->id, p->text, p->n, &p->token->logprob, &p->special);
    }
}

/* [Token, ...] of the best candidates. */
static void put_top(buf *b, const turn *t, const atn_sampled *token)
{
    buf_puts(b, "[");
    for (uint32_t i = 0; i < token->n_top; i++) {
        put_comma(b);
        put_lone_token(b, t, token->top[i].id, &token->top[i].logprob, true);
    }
    buf_puts(b, "]");
}

static void put_generated_text(buf *b, const turn *t, uint32_t i)
{
    const generation *g = t->user;
    const buf *text = &t->answers[i].text;
    buf whole;
    buf_init(&whole, 2 * (size_t)LIST_MAX_BYTES);
    buf_add(&whole, g->inputs.data, g->inputs.len);
    buf_add(&whole, text->data, text->len);
    if (whole.failed) {
        b->failed = true;
    }
    put_string(b, whole.len > 0 ? whole.data : "", whole.len);
    buf_free(&whole);
}

/* ---- a stream ---- */

static void put_stream_details(buf *b, const turn *t, const turn_answer *ans)
{
    buf_printf(b, "{\"finish_reason\":\"%s\",\"generated_tokens\":%u,", finish_word(ans->finish), ans->n_ids);
    put_seed(b, t);
    buf_printf(b, ",\"input_length\":%u", t->prompts[0].n);
    if (t->turn_number > 0) {
        buf_printf(b, ",\"cached_tokens\":%u", ans->usage.cached_tokens);
    }
    buf_puts(b, "}");
}

static void write_event(turn *t, const turn_piece *p)
{
    const generation *g = t->user;
    const turn_answer *ans = &t->answers[0];
    bool last = p->finish != ATN_FINISH_NONE;
    if (p->token == NULL && !last) {
        return;
    }
    buf b;
    buf_init(&b, LIST_MAX_BYTES);
    buf_printf(&b, "data:{\"index\":%u,\"token\":", ans->n_ids);
    if (p->token != NULL) {
        put_piece_token(&b, t, p);
        if (p->token->n_top > 0) {
            buf_puts(&b, ",\"top_tokens\":");
            put_top(&b, t, p->token);
        }
    } else {
        buf_puts(&b, "null");
    }
    buf_puts(&b, ",\"generated_text\":");
    if (last) {
        put_generated_text(&b, t, 0);
    } else {
        buf_puts(&b, "null");
    }
    buf_puts(&b, ",\"details\":");
    if (last && g->details) {
        put_stream_details(&b, t, ans);
    } else {
        buf_puts(&b, "null");
    }
    buf_puts(&b, "}\n\n");
    turn_write(t, &b);
    buf_free(&b);
}

static void on_piece(turn *t, const turn_piece *p)
{
    generation *g = t->user;
    if (t->stream) {
        write_event(t, p);
        return;
    }
    if (!g->details || p->token == NULL) {
        return;
    }
    generation_list *list = &g->lists[p->answer];
    if (list->tokens.len > 0) {
        buf_puts(&list->tokens, ",");
        buf_puts(&list->top_tokens, ",");
    }
    put_piece_token(&list->tokens, t, p);
    put_top(&list->top_tokens, t, p->token);
    g->failed |= list->tokens.failed || list->top_tokens.failed;
}

/* ---- one object ---- */

static void put_prefill(buf *b, const turn *t)
{
    const atn_sampled *rows = turn_prompt_logprobs(t, 0);
    const turn_prompt *p = &t->prompts[0];
    buf_puts(b, "[");
    for (uint32_t i = 0; rows != NULL && i < p->n; i++) {
        put_comma(b);
        put_lone_token(b, t, p->tokens[i], i > 0 ? &rows[i - 1].logprob : NULL, false);
    }
    buf_puts(b, "]");
}

/* The members that details and each of best_of_sequences share. */
static void put_sequence(buf *b, const turn *t, uint32_t i)
{
    const generation *g = t->user;
    const turn_answer *ans = &t->answers[i];
    buf_printf(b, "\"finish_reason\":\"%s\",\"generated_tokens\":%u,", finish_word(ans->finish), ans->n_ids);
    put_seed(b, t);
    buf_puts(b, ",\"prefill\":");
    if (g->prefill) {
        put_prefill(b, t);
    } else {
        buf_puts(b, "[]");
    }
    const generation_list *list = &g->lists[i];
    buf_puts(b, ",\"tokens\":[");
    buf_add(b, list->tokens.data, list->tokens.len);
    buf_puts(b, "]");
    if (t->params.sample.n_top > 0 && list->top_tokens.len > 0) {
        buf_puts(b, ",\"top_tokens\":[");
        buf_add(b, list->top_tokens.data, list->top_tokens.len);
        buf_puts(b, "]");
    }
}

/* The answer with the highest mean log-probability, as TGI chooses it; the first of equals. */
static uint32_t best_answer(const turn *t)
{
    uint32_t best = 0;
    for (uint32_t i = 1; i < t->n_answers; i++) {
        best = turn_answer_better(&t->answers[i], &t->answers[best]) ? i : best;
    }
    return best;
}

static void put_details(buf *b, const turn *t, uint32_t best)
{
    buf_puts(b, ",\"details\":{");
    put_sequence(b, t, best);
    if (t->turn_number > 0) {
        buf_printf(b, ",\"cached_tokens\":%u", t->answers[best].usage.cached_tokens);
    }
    if (t->n_answers > 1) {
        buf_puts(b, ",\"best_of_sequences\":[");
        for (uint32_t i = 0; i < t->n_answers; i++) {
            if (i == best) {
                continue;
            }
            put_comma(b);
            buf_puts(b, "{\"generated_text\":");
            put_generated_text(b, t, i);
            buf_puts(b, ",");
            put_sequence(b, t, i);
            buf_puts(b, "}");
        }
        buf_puts(b, "]");
    }
    buf_puts(b, "}");
}

static void on_end(turn *t)
{
    const generation *g = t->user;
    if (t->stream) {
        return;
    }
    uint32_t best = best_answer(t);
    buf b;
    buf_init(&b, 4 * (size_t)LIST_MAX_BYTES);
    buf_puts(&b, g->array ? "[{\"generated_text\":" : "{\"generated_text\":");
    put_generated_text(&b, t, best);
    if (g->details) {
        put_details(&b, t, best);
    }
    buf_puts(&b, g->array ? "}]" : "}");
    b.failed |= g->failed;
    turn_reply(t, "application/json", &b);
    buf_free(&b);
}

/* TGI's headers; times in milliseconds. A stream's headers go out before there is anything to count. */
static void add_headers(turn *t, headers *h)
{
    const generation *g = t->user;
    headers_add(h, "x-compute-type", "cpu");
    headers_add(h, "x-compute-characters", "%zu", g->characters);
    headers_add(h, "x-prompt-tokens", "%u", t->prompts[0].n);
    if (t->stream) {
        return;
    }
    atn_usage u = turn_usage(t);
    uint64_t total_us = mono_since_us(t->started, mono_now());
    uint64_t inference_us = u.prefill_us + u.decode_us;
    uint32_t n = u.generated_tokens > 0 ? u.generated_tokens : 1;
    headers_add(h, "x-cached-tokens", "%u", u.cached_tokens);
    headers_add(h, "x-generated-tokens", "%u", u.generated_tokens);
    headers_add(h, "x-total-time", "%" PRIu64, total_us / 1000);
    headers_add(h, "x-queue-time", "%" PRIu64, u.queue_us / 1000);
    headers_add(h, "x-inference-time", "%" PRIu64, inference_us / 1000);
    headers_add(h, "x-time-per-token", "%" PRIu64, inference_us / 1000 / n);
}

const turn_render generation_render = {
    .headers = add_headers,
    .on_piece = on_piece,
    .on_end = on_end,
    .free = generation_free,
};
