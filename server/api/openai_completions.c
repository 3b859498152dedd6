/* POST /v1/completions. A prompt is a string or token ids, or a list of either; each has its own choices, numbered
 * prompt * n + choice. Streamed and whole answers are made of the same parts: on_piece collects the log-probabilities of a
 * choice, a stream sends and forgets them with every chunk, a whole answer sends them at the end.
 *
 * A token in `logprobs` is written as its text, or as OpenAI does where it is no whole UTF-8: "bytes:\xe2\x80". There is one
 * entry for every token chosen, also for one that belongs to a stop string or ends the text. */
#include "core/base/utf8.h"
#include "server/api/openai_shared.h"
#include "server/api/state.h"

#include <stdlib.h>
#include <string.h>

static const char object[] = "text_completion"; /* of chunks, too */

/* The log-probabilities of one choice that were not sent yet: the inside of four JSON arrays. */
typedef struct choice {
    buf tokens, values, tops, offsets;
    atn_utf8_stream utf8;
    size_t chars; /* of the choice's text so far */
    bool opened;
} choice;

typedef struct completion {
    openai_call call;
    bool echo, logprobs;
    uint32_t n; /* choices to return, a prompt; params.n_choices of them run, and the best are taken */
    uint32_t n_prompts;
    buf *prompts; /* [n_prompts] their texts; empty unless echo */
    uint32_t n_choices;
    choice *choices; /* [n_choices], as the turn's answers */
} completion;

static void free_completion(turn *t)
{
    completion *c = t->user;
    for (uint32_t i = 0; c->prompts != NULL && i < c->n_prompts; i++) {
        buf_free(&c->prompts[i]);
    }
    for (uint32_t i = 0; c->choices != NULL && i < c->n_choices; i++) {
        buf_free(&c->choices[i].tokens);
        buf_free(&c->choices[i].values);
        buf_free(&c->choices[i].tops);
        buf_free(&c->choices[i].offsets);
    }
    free(c->prompts);
    free(c->choices);
    free(c);
}

/* ---- the request ---- */

/* One prompt, from a string or an array of ids; its text goes to `text` when it will be echoed. */
static atn_status read_prompt(const api *a, const json_t *v, bool echo, turn_prompt *out, buf *text, atn_err *err)
{
    if (json_is_string(v)) {
        const char *s = json_string_value(v);
        size_t n = json_string_length(v);
        if (echo && !buf_add(text, s, n)) {
            return atn_fail(err, ATN_NOMEM, NULL, "no memory for the prompt");
        }
        return turn_tokenize(a, "prompt", s, n, out, err);
    }
    if (!json_is_array(v) || json_array_size(v) == 0) {
        return atn_fail(err, ATN_INVALID, "prompt",
                        "prompt must be a string, an array of token ids, or an array of either, and not empty");
    }
    size_t n_ids = 0;
    ATN_TRY(json_token_ids(v, "prompt", atn_vocab_size(a->tok), JSON_MAX_VALUES, &out->tokens, &n_ids, err));
    out->n = (uint32_t)n_ids;
    if (echo) {
        char *s = NULL;
        size_t n = 0;
        ATN_TRY(atn_detokenize(a->tok, out->tokens, n_ids, false, &s, &n, err));
        bool added = buf_add(text, s, n);
        free(s);
        if (!added) {
            return atn_fail(err, ATN_NOMEM, NULL, "no memory for the prompt");
        }
    }
    return ATN_OK;
}

static atn_status read_prompts(const api *a, fields *f, turn_spec *spec, completion *c, atn_err *err)
{
    json_t *v = fields_get(f, "prompt");
    bool list = json_is_array(v) && !json_is_integer(json_array_get(v, 0));
    size_t n = list ? json_array_size(v) : 1;
    if (v == NULL || n == 0) {
        return atn_fail(err, ATN_INVALID, "prompt", "prompt is missing or empty");
    }
    if (n > openai_max_prompts(a)) {
        return atn_fail(err, ATN_INVALID, "prompt", "%zu prompts in one request, at most %u are taken", n,
                        openai_max_prompts(a));
    }
    spec->prompts = calloc(n, sizeof *spec->prompts);
    c->prompts = calloc(n, sizeof *c->prompts);
    if (spec->prompts == NULL || c->prompts == NULL) {
        return atn_fail(err, ATN_NOMEM, NULL, "no memory for the prompts");
    }
    spec->n_prompts = c->n_prompts = (uint32_t)n;
    for (size_t i = 0; i < n; i++) {
        buf_init(&c->prompts[i], OPENAI_ANSWER_MAX);
        ATN_TRY(read_prompt(a, list ? json_array_get(v, i) : v, c->echo, &spec->prompts[i], &c->prompts[i], err));
    }
    return ATN_OK;
}

static const turn_render render;

atn_status parse_completions(const api *a, const request_head *head, fields *f, parsed *out, atn_err *err)
{
    completion *c = calloc(1, sizeof *c);
    ATN_TRY(openai_open(out, &render, c, err));
    turn_spec *spec = &out->turn;
    gen_params *p = &spec->params;
    spec->prompt_name = "prompt";
    spec->limit_name = "max_tokens";
    p->sample.temperature = 1;
    p->has_max_new = true;
    p->max_new_tokens = 16;
    ATN_TRY(openai_read(a, head, f, "cmpl", out, &c->call, err));
    ATN_TRY(params_read_max_new(f, "max_tokens", p, err));
    ATN_TRY(fields_bool(f, "echo", &c->echo, err));
    int64_t top = 0, best_of = p->n_choices;
    ATN_TRY(fields_int(f, "logprobs", 0, COMPLETION_MAX_LOGPROBS, &top, &c->logprobs, err));
    p->sample.n_top = (uint32_t)top;
    p->prompt_logprobs = c->logprobs && c->echo;
    c->n = p->n_choices;
    ATN_TRY(fields_int(f, "best_of", c->n, api_max_choices(a), &best_of, NULL, err));
    if (spec->stream && best_of > c->n) {
        return atn_fail(err, ATN_INVALID, "best_of", "best_of above n cannot be streamed");
    }
    p->n_choices = (uint32_t)best_of;
    ATN_TRY(fields_refuse(f, "suffix", err));
    ATN_TRY(read_prompts(a, f, spec, c, err));
    if (c->logprobs) {
        ATN_TRY(turn_check_logprobs(a, spec, "logprobs", err));
    }
    c->n_choices = spec->n_prompts * p->n_choices;
    c->choices = calloc(c->n_choices, sizeof *c->choices);
    if (c->choices == NULL) {
        return atn_fail(err, ATN_NOMEM, NULL, "no memory for the choices");
    }
    for (uint32_t i = 0; i < c->n_choices; i++) {
        buf_init(&c->choices[i].tokens, OPENAI_ANSWER_MAX);
        buf_init(&c->choices[i].values, OPENAI_ANSWER_MAX);
        buf_init(&c->choices[i].tops, OPENAI_ANSWER_MAX);
        buf_init(&c->choices[i].offsets, OPENAI_ANSWER_MAX);
    }
    return ATN_OK;
}

/* ---- log-probabilities ---- */

static void put_token(buf *b, const atn_tokenizer *tok, int32_t id)
{
    size_t n = 0;
    const char *s = atn_token_bytes(tok, id, true, &n);
    if (utf8_valid_prefix(s, n) == n) {
        put_string(b, s, n);
        return;
    }
    buf_puts(b, "\"bytes:");
    for (size_t i = 0; i < n; i++) {
        buf_printf(b, "\\\\x%02x", (unsigned)(unsigned char)s[i]);
    }
    buf_puts(b, "\"");
}

static void next(buf *list)
{
    if (list->len > 0) {
        buf_puts(list, ",");
    }
}

static bool same_text(const atn_tokenizer *tok, int32_t a, int32_t b)
{
    size_t na = 0, nb = 0;
    const char *sa = atn_token_bytes(tok, a, true, &na), *sb = atn_token_bytes(tok, b, true, &nb);
    return na == nb && memcmp(sa, sb, na) == 0;
}

/* {"token": logprob}: the best ones, then the chosen one if it is not among them. Names are unique: of two tokens that
 * are written alike the better one stays. */
static void put_tops(buf *b, const atn_tokenizer *tok, const atn_sampled *s)
{
    buf_puts(b, "{");
    for (uint32_t i = 0; i <= s->n_top; i++) {
        atn_top top = i < s->n_top ? s->top[i] : (atn_top){s->id, s->logprob};
        bool seen = false;
        for (uint32_t k = 0; k < i; k++) {
            seen = seen || same_text(tok, s->top[k].id, top.id);
        }
        if (!seen) {
            put_comma(b);
            put_token(b, tok, top.id);
            buf_puts(b, ":");
            put_float(b, top.logprob);
        }
    }
    buf_puts(b, "}");
}

/* Characters that bytes complete. */
static size_t count_chars(atn_utf8_stream *u, const char *s, size_t n)
{
    char out[3 * (64 + 4)];
    size_t chars = 0;
    while (n > 0) {
        size_t part = n < 64 ? n : 64;
        size_t len = atn_utf8_stream_push(u, s, part, out);
        for (size_t i = 0; i < len; i++) {
            chars += ((unsigned char)out[i] & 0xC0) != 0x80;
        }
        s += part;
        n -= part;
    }
    return chars;
}

static size_t token_chars(atn_utf8_stream *u, const atn_tokenizer *tok, int32_t id)
{
    size_t n = 0;
    const char *s = atn_token_bytes(tok, id, false, &n);
    return count_chars(u, s, n);
}

/* s NULL: nothing is known of this token's probability (the first of a prompt). */
static void add_token(choice *ch, const atn_tokenizer *tok, int32_t id, const atn_sampled *s, size_t offset)
{
    next(&ch->tokens);
    put_token(&ch->tokens, tok, id);
    next(&ch->values);
    next(&ch->tops);
    if (s != NULL) {
        put_float(&ch->values, s->logprob);
        put_tops(&ch->tops, tok, s);
    } else {
        buf_puts(&ch->values, "null");
        buf_puts(&ch->tops, "null");
    }
    next(&ch->offsets);
    buf_printf(&ch->offsets, "%zu", offset);
}

static void add_prompt(const turn *t, uint32_t prompt, choice *ch)
{
    const atn_tokenizer *tok = t->a->tok;
    const turn_prompt *p = &t->prompts[prompt];
    const atn_sampled *known = turn_prompt_logprobs(t, prompt);
    size_t total = 0;
    atn_utf8_stream u = {0};
    for (uint32_t i = 0; i < p->n; i++) {
        total += token_chars(&u, tok, p->tokens[i]);
    }
    /* A SentencePiece model puts a space before the text that is in its tokens but not in the text. */
    size_t added = total > ch->chars ? total - ch->chars : 0, at = 0;
    u = (atn_utf8_stream){0};
    for (uint32_t i = 0; i < p->n; i++) {
        add_token(ch, tok, p->tokens[i], i > 0 && known != NULL ? &known[i - 1] : NULL, at > added ? at - added : 0);
        at += token_chars(&u, tok, p->tokens[i]);
    }
}

/* What was collected of ch, which is empty after. */
static void put_logprobs(buf *b, const completion *c, const turn *t, choice *ch)
{
    buf_puts(b, ",\"logprobs\":");
    if (!c->logprobs) {
        buf_puts(b, "null");
        return;
    }
    b->failed = b->failed || ch->tokens.failed || ch->values.failed || ch->tops.failed || ch->offsets.failed;
    buf_puts(b, "{\"tokens\":[");
    buf_add(b, ch->tokens.data, ch->tokens.len);
    buf_puts(b, "],\"token_logprobs\":[");
    buf_add(b, ch->values.data, ch->values.len);
    buf_puts(b, "],\"top_logprobs\":");
    if (t->params.sample.n_top > 0) {
        buf_puts(b, "[");
        buf_add(b, ch->tops.data, ch->tops.len);
        buf_puts(b, "]");
    } else {
        buf_puts(b, "null");
    }
    buf_puts(b, ",\"text_offset\":[");
    buf_add(b, ch->offsets.data, ch->offsets.len);
    buf_puts(b, "]}");
    buf_clear(&ch->tokens);
    buf_clear(&ch->values);
    buf_clear(&ch->tops);
    buf_clear(&ch->offsets);
}

/* ---- the answer ---- */

static void put_choice(buf *b, const completion *c, turn *t, uint32_t answer, uint32_t index, const char *text,
                       size_t n, atn_finish finish)
{
    put_comma(b);
    buf_printf(b, "{\"index\":%u,\"text\":", index);
    put_string(b, text, n);
    put_logprobs(b, c, t, &c->choices[answer]);
    buf_puts(b, ",\"finish_reason\":");
    openai_put_finish(b, finish);
}

static void write_chunk(turn *t, const completion *c, uint32_t answer, const char *text, size_t n, const int32_t *id,
                        atn_finish finish, bool first)
{
    uint32_t prompt = answer / t->params.n_choices;
    buf b;
    buf_init(&b, OPENAI_ANSWER_MAX);
    openai_put_event(&b, &c->call, object);
    put_choice(&b, c, t, answer, answer, text, n, finish);
    if (c->call.token_ids) {
        buf_puts(&b, ",\"token_ids\":");
        openai_put_ids(&b, id, id != NULL);
        buf_puts(&b, ",\"prompt_token_ids\":");
        if (first) {
            openai_put_ids(&b, t->prompts[prompt].tokens, t->prompts[prompt].n);
        } else {
            buf_puts(&b, "null");
        }
    }
    buf_puts(&b, "}");
    openai_put_event_end(&b, &c->call);
    turn_write(t, &b);
    buf_free(&b);
}

static void on_piece(turn *t, const turn_piece *p)
{
    completion *c = t->user;
    choice *ch = &c->choices[p->answer];
    bool first = !ch->opened;
    uint32_t prompt = p->answer / t->params.n_choices;
    const buf *echo = &c->prompts[prompt];
    if (first) {
        ch->opened = true;
        atn_utf8_stream u = {0};
        ch->chars = c->echo ? count_chars(&u, echo->data, echo->len) : 0;
        if (t->params.prompt_logprobs) {
            add_prompt(t, prompt, ch);
        }
        if (t->stream && c->echo) {
            write_chunk(t, c, p->answer, echo->data, echo->len, NULL, ATN_FINISH_NONE, true);
            first = false;
        }
    }
    if (c->logprobs && p->token != NULL) {
        add_token(ch, t->a->tok, p->token->id, p->token, ch->chars);
        ch->chars += token_chars(&ch->utf8, t->a->tok, p->token->id);
    }
    bool shows = p->n > 0 || p->finish != ATN_FINISH_NONE || (p->token != NULL && (c->logprobs || c->call.token_ids));
    if (t->stream && shows) {
        write_chunk(t, c, p->answer, p->text, p->n, p->token != NULL ? &p->token->id : NULL, p->finish, first);
    }
}

/* Numbers of the prompt's n best answers; all of them, in order, when all are asked for. */
static void pick(const turn *t, uint32_t prompt, uint32_t n, uint32_t out[ATN_MAX_CHOICES])
{
    uint32_t all = t->params.n_choices, order[ATN_MAX_CHOICES];
    for (uint32_t i = 0; i < all; i++) {
        uint32_t at = i, answer = prompt * all + i;
        while (n < all && at > 0 && turn_answer_better(&t->answers[answer], &t->answers[order[at - 1]])) {
            order[at] = order[at - 1];
            at--;
        }
        order[at] = answer;
    }
    memcpy(out, order, n * sizeof out[0]);
}

static void reply_whole(turn *t, const completion *c)
{
    buf b, text;
    buf_init(&b, OPENAI_ANSWER_MAX);
    openai_put_open(&b, &c->call, object);
    for (uint32_t prompt = 0; prompt < t->n_prompts; prompt++) {
        uint32_t picked[ATN_MAX_CHOICES];
        pick(t, prompt, c->n, picked);
        for (uint32_t i = 0; i < c->n; i++) {
            const turn_answer *a = &t->answers[picked[i]];
            buf_init(&text, OPENAI_ANSWER_MAX);
            buf_add(&text, c->prompts[prompt].data, c->prompts[prompt].len);
            buf_add(&text, a->text.data, a->text.len);
            b.failed = b.failed || text.failed;
            put_choice(&b, c, t, picked[i], prompt * c->n + i, text.data, text.len, a->finish);
            buf_free(&text);
            if (c->call.token_ids) {
                buf_puts(&b, ",\"token_ids\":");
                openai_put_ids(&b, a->ids, a->n_ids);
                buf_puts(&b, ",\"prompt_token_ids\":");
                openai_put_ids(&b, t->prompts[prompt].tokens, t->prompts[prompt].n);
            }
            buf_puts(&b, "}");
        }
    }
    atn_usage u = turn_usage(t);
    openai_put_usage(&b, &u);
    buf_puts(&b, "}");
    turn_reply(t, "application/json", &b);
    buf_free(&b);
}

static void on_end(turn *t)
{
    const completion *c = t->user;
    if (t->stream) {
        openai_write_end(t, &c->call, object);
    } else {
        reply_whole(t, c);
    }
}

static const turn_render render = {.on_piece = on_piece, .on_end = on_end, .free = free_completion};
