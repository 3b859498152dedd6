/* POST /v1/chat/completions: messages in, a message out. The first chunk of a stream carries the role, the following ones
 * content, the last one of a choice the reason it ended; then the usage, if asked for, and [DONE].
 *
 * `logprobs` has one entry for every token chosen, also for one that belongs to a stop string or ends the text. */
#include "server/api/chat_messages.h"
#include "server/api/openai_shared.h"
#include "server/api/state.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static const char whole_object[] = "chat.completion", chunk_object[] = "chat.completion.chunk";

typedef struct chat {
    openai_call call;
    bool logprobs;
    uint32_t n_choices;
    buf *entries; /* [n_choices] log-probabilities that were not sent yet: the inside of a JSON array */
} chat;

static void free_chat(turn *t)
{
    chat *c = t->user;
    for (uint32_t i = 0; c->entries != NULL && i < c->n_choices; i++) {
        buf_free(&c->entries[i]);
    }
    free(c->entries);
    free(c);
}

/* ---- the request ---- */

/* Known members that ask for what is not offered. An empty list of tools asks for nothing. */
static atn_status refuse_unoffered(fields *f, atn_err *err)
{
    static const char *const lists[] = {"tools", "functions"};
    for (size_t i = 0; i < 2; i++) {
        const json_t *v = fields_get(f, lists[i]);
        if (v != NULL && !(json_is_array(v) && json_array_size(v) == 0)) {
            return atn_fail(err, ATN_INVALID, lists[i], "%s is not offered", lists[i]);
        }
    }
    static const char *const choices[] = {"tool_choice", "function_call"};
    for (size_t i = 0; i < 2; i++) {
        const json_t *v = fields_get(f, choices[i]);
        const char *word = json_string_value(v);
        if (v != NULL && (word == NULL || (strcmp(word, "none") != 0 && strcmp(word, "auto") != 0))) {
            return atn_fail(err, ATN_INVALID, choices[i], "%s must be \"none\" or \"auto\": tools are not offered",
                            choices[i]);
        }
    }
    const json_t *format = fields_get(f, "response_format");
    const char *type = json_string_value(json_object_get(format, "type"));
    if (format != NULL && (type == NULL || strcmp(type, "text") != 0)) {
        return atn_fail(err, ATN_INVALID, "response_format",
                        "response_format must be {\"type\": \"text\"}: no other is offered");
    }
    const json_t *modes = fields_get(f, "modalities");
    const char *mode = json_string_value(json_array_get(modes, 0));
    if (modes != NULL && (json_array_size(modes) != 1 || mode == NULL || strcmp(mode, "text") != 0)) {
        return atn_fail(err, ATN_INVALID, "modalities", "modalities must be [\"text\"]: no other is offered");
    }
    return fields_refuse(f, "audio", err);
}

static atn_status read_prompt(const api *a, fields *f, turn_spec *spec, atn_err *err)
{
    chat_prompt p;
    size_t n = 0;
    atn_status s = chat_prompt_read(a->tok, f, true, &p, err);
    spec->prompts = s == ATN_OK ? calloc(1, sizeof *spec->prompts) : NULL;
    if (s == ATN_OK && spec->prompts == NULL) {
        s = atn_fail(err, ATN_NOMEM, NULL, "no memory for the prompt");
    }
    if (s == ATN_OK) {
        spec->n_prompts = 1;
        s = atn_tokenize(a->tok, p.segs, p.n_segs, ATN_TOKENIZE_BOS, &spec->prompts[0].tokens, &n, err);
        spec->prompts[0].n = (uint32_t)n;
    }
    chat_prompt_free(&p);
    return s;
}

/* The family's own ends of a turn, unless the model shall write on behind its end. */
static void add_family_stops(const atn_tokenizer *tok, gen_params *p)
{
    _Static_assert(PARAMS_MAX_STOPS + ATN_CHAT_MAX_STOPS <= ATN_MAX_STOPS, "room for both");
    size_t n;
    const char *const *stops = atn_chat_stops(tok, &n);
    for (size_t i = 0; i < n && !p->ignore_eos; i++) {
        p->stops[p->n_stops++] = (atn_stop){stops[i], strlen(stops[i])};
    }
}

static const turn_render render;

atn_status parse_chat_completions(const api *a, const request_head *head, fields *f, parsed *out, atn_err *err)
{
    chat *c = calloc(1, sizeof *c);
    ATN_TRY(openai_open(out, &render, c, err));
    turn_spec *spec = &out->turn;
    gen_params *p = &spec->params;
    spec->prompt_name = "messages";
    p->sample.temperature = 1;
    ATN_TRY(openai_read(a, head, f, "chatcmpl", out, &c->call, err));
    ATN_TRY(params_read_max_new(f, "max_tokens", p, err));
    ATN_TRY(params_read_max_new(f, "max_completion_tokens", p, err));
    spec->limit_name = fields_get(f, "max_completion_tokens") != NULL ? "max_completion_tokens" : "max_tokens";
    int64_t top = 0;
    bool has_top = false;
    ATN_TRY(fields_bool(f, "logprobs", &c->logprobs, err));
    ATN_TRY(fields_int(f, "top_logprobs", 0, ATN_MAX_TOP, &top, &has_top, err));
    if (has_top && !c->logprobs) {
        return atn_fail(err, ATN_INVALID, "top_logprobs", "top_logprobs is only allowed with logprobs: true");
    }
    p->sample.n_top = (uint32_t)top;
    ATN_TRY(refuse_unoffered(f, err));
    ATN_TRY(read_prompt(a, f, spec, err));
    add_family_stops(a->tok, p);
    if (c->logprobs) {
        ATN_TRY(turn_check_logprobs(a, spec, "top_logprobs", err));
    }
    c->n_choices = p->n_choices;
    c->entries = calloc(c->n_choices, sizeof *c->entries);
    if (c->entries == NULL) {
        return atn_fail(err, ATN_NOMEM, NULL, "no memory for the choices");
    }
    for (uint32_t i = 0; i < c->n_choices; i++) {
        buf_init(&c->entries[i], OPENAI_ANSWER_MAX);
    }
    return ATN_OK;
}

/* ---- log-probabilities ---- */

/* "token":text,"logprob":x,"bytes":[...] */
static void put_token(buf *b, const turn *t, int32_t id, float logprob)
{
    buf text;
    buf_init(&text, OPENAI_ANSWER_MAX);
    turn_token_text(t, id, &text);
    buf_puts(b, "\"token\":");
    put_string(b, text.data, text.len);
    b->failed |= text.failed;
    buf_free(&text);
    buf_puts(b, ",\"logprob\":");
    put_float(b, logprob);
    buf_puts(b, ",\"bytes\":[");
    size_t n = 0;
    const char *bytes = atn_token_bytes(t->a->tok, id, true, &n);
    for (size_t i = 0; i < n; i++) {
        buf_printf(b, i > 0 ? ",%u" : "%u", (unsigned)(unsigned char)bytes[i]);
    }
    buf_puts(b, "]");
}

static void add_entry(buf *b, const turn *t, const atn_sampled *s)
{
    if (b->len > 0) {
        buf_puts(b, ",");
    }
    buf_puts(b, "{");
    put_token(b, t, s->id, s->logprob);
    buf_puts(b, ",\"top_logprobs\":[");
    for (uint32_t i = 0; i < s->n_top; i++) {
        buf_puts(b, i > 0 ? ",{" : "{");
        put_token(b, t, s->top[i].id, s->top[i].logprob);
        buf_puts(b, "}");
    }
    buf_puts(b, "]}");
}

/* What was collected of a choice, whose list is empty after. */
static void put_logprobs(buf *b, const chat *c, buf *entries)
{
    buf_puts(b, ",\"logprobs\":");
    if (!c->logprobs) {
        buf_puts(b, "null");
        return;
    }
    b->failed = b->failed || entries->failed;
    buf_puts(b, "{\"content\":[");
    buf_add(b, entries->data, entries->len);
    buf_puts(b, "],\"refusal\":null}");
    buf_clear(entries);
}

/* ---- the answer ---- */

static void write_role(turn *t, const chat *c, uint32_t choice)
{
    buf b;
    buf_init(&b, OPENAI_ANSWER_MAX);
    openai_put_event(&b, &c->call, chunk_object);
    buf_printf(&b,
               "{\"index\":%" PRIu32 ",\"delta\":{\"role\":\"assistant\",\"content\":\"\"},\"logprobs\":null,"
               "\"finish_reason\":null}",
               choice);
    openai_put_event_end(&b, &c->call);
    turn_write(t, &b);
    buf_free(&b);
}

static void on_start(turn *t)
{
    const chat *c = t->user;
    for (uint32_t i = 0; i < c->n_choices; i++) {
        write_role(t, c, i);
    }
}

static void write_content(turn *t, const chat *c, const turn_piece *p)
{
    buf b;
    buf_init(&b, OPENAI_ANSWER_MAX);
    openai_put_event(&b, &c->call, chunk_object);
    buf_printf(&b, "{\"index\":%" PRIu32 ",\"delta\":{\"content\":", p->answer);
    put_string(&b, p->text, p->n);
    buf_puts(&b, "}");
    put_logprobs(&b, c, &c->entries[p->answer]);
    buf_puts(&b, ",\"finish_reason\":null");
    if (c->call.token_ids) {
        buf_puts(&b, ",\"token_ids\":");
        openai_put_ids(&b, p->token != NULL ? &p->token->id : NULL, p->token != NULL);
    }
    buf_puts(&b, "}");
    openai_put_event_end(&b, &c->call);
    turn_write(t, &b);
    buf_free(&b);
}

static void write_finish(turn *t, const chat *c, const turn_piece *p)
{
    buf b;
    buf_init(&b, OPENAI_ANSWER_MAX);
    openai_put_event(&b, &c->call, chunk_object);
    buf_printf(&b, "{\"index\":%" PRIu32 ",\"delta\":{},\"logprobs\":null,\"finish_reason\":", p->answer);
    openai_put_finish(&b, p->finish);
    buf_puts(&b, "}");
    openai_put_event_end(&b, &c->call);
    turn_write(t, &b);
    buf_free(&b);
}

static void on_piece(turn *t, const turn_piece *p)
{
    chat *c = t->user;
    if (c->logprobs && p->token != NULL) {
        add_entry(&c->entries[p->answer], t, p->token);
    }
    if (!t->stream) {
        return;
    }
    if (p->n > 0 || (p->token != NULL && (c->logprobs || c->call.token_ids))) {
        write_content(t, c, p);
    }
    if (p->finish != ATN_FINISH_NONE) {
        write_finish(t, c, p);
    }
}

static void reply_whole(turn *t, const chat *c)
{
    buf b;
    buf_init(&b, OPENAI_ANSWER_MAX);
    openai_put_open(&b, &c->call, whole_object);
    for (uint32_t i = 0; i < c->n_choices; i++) {
        const turn_answer *a = &t->answers[i];
        put_comma(&b);
        buf_printf(&b, "{\"index\":%" PRIu32 ",\"message\":{\"role\":\"assistant\",\"content\":", i);
        put_string(&b, a->text.data, a->text.len);
        buf_puts(&b, ",\"refusal\":null}");
        put_logprobs(&b, c, &c->entries[i]);
        buf_puts(&b, ",\"finish_reason\":");
        openai_put_finish(&b, a->finish);
        if (c->call.token_ids) {
            buf_puts(&b, ",\"token_ids\":");
            openai_put_ids(&b, a->ids, a->n_ids);
        }
        buf_puts(&b, "}");
    }
    atn_usage u = turn_usage(t);
    openai_put_usage(&b, &u);
    if (c->call.token_ids) {
        buf_puts(&b, ",\"prompt_token_ids\":");
        openai_put_ids(&b, t->prompts[0].tokens, t->prompts[0].n);
    }
    buf_puts(&b, "}");
    turn_reply(t, "application/json", &b);
    buf_free(&b);
}

static void on_end(turn *t)
{
    const chat *c = t->user;
    if (t->stream) {
        openai_write_end(t, &c->call, chunk_object);
    } else {
        reply_whole(t, c);
    }
}

static const turn_render render = {.on_start = on_start, .on_piece = on_piece, .on_end = on_end, .free = free_chat};
