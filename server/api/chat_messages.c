/* Messages to segments, and the two routes that show what comes out: /apply-template (llama-server) and /chat_tokenize
 * (TGI). Only text is taken: an image or a tool call is refused by name, never dropped. */
#include "server/api/chat_messages.h"

#include "server/api/door.h"
#include "server/api/state.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { PROMPT_MAX = 64 << 20 };

static atn_status read_role(fields *f, size_t i, const char **out, atn_err *err)
{
    static const char *const roles[][2] = {
        {"system", "system"}, {"developer", "system"}, {"user", "user"}, {"assistant", "assistant"}, {"tool", "tool"},
    };
    const json_t *v = fields_get(f, "role");
    for (size_t k = 0; k < sizeof roles / sizeof roles[0]; k++) {
        if (json_is_string(v) && strcmp(json_string_value(v), roles[k][0]) == 0) {
            *out = roles[k][1];
            return ATN_OK;
        }
    }
    return atn_fail(err, ATN_INVALID, "messages",
                    "messages[%zu].role must be one of system, developer, user, assistant, tool", i);
}

/* Text parts, joined by line ends. */
static atn_status join_parts(const json_t *parts, size_t i, char **joined, size_t *n, atn_err *err)
{
    buf b;
    buf_init(&b, PROMPT_MAX);
    buf_puts(&b, "");
    size_t k;
    json_t *part;
    json_array_foreach(parts, k, part)
    {
        const char *type = json_string_value(json_object_get(part, "type"));
        const json_t *text = json_object_get(part, "text");
        if (type == NULL || strcmp(type, "text") != 0 || !json_is_string(text)) {
            buf_free(&b);
            return atn_fail(
                err, ATN_INVALID, "messages",
                "messages[%zu].content[%zu] must be {\"type\": \"text\", \"text\": string}: only text is taken", i, k);
        }
        if (k > 0) {
            buf_puts(&b, "\n");
        }
        buf_add(&b, json_string_value(text), json_string_length(text));
    }
    *joined = buf_take(&b, n);
    return *joined != NULL ? ATN_OK : atn_fail(err, ATN_NOMEM, NULL, "no memory for the messages");
}

static atn_status read_message(fields *f, size_t i, atn_chat_message *m, char **joined, atn_err *err)
{
    ATN_TRY(read_role(f, i, &m->role, err));
    const json_t *calls = fields_get(f, "tool_calls");
    if (fields_get(f, "function_call") != NULL ||
        (calls != NULL && !(json_is_array(calls) && json_array_size(calls) == 0))) {
        return atn_fail(err, ATN_INVALID, "messages", "messages[%zu] holds tool calls, which are not offered", i);
    }
    const json_t *content = fields_get(f, "content");
    if (json_is_string(content)) {
        m->content = json_string_value(content);
        m->n = json_string_length(content);
        return ATN_OK;
    }
    if (json_is_array(content) && json_array_size(content) > 0) {
        ATN_TRY(join_parts(content, i, joined, &m->n, err));
        m->content = *joined;
        return ATN_OK;
    }
    return atn_fail(err, ATN_INVALID, "messages", "messages[%zu].content must be a string or an array of text parts",
                    i);
}

atn_status chat_prompt_read(const atn_tokenizer *tok, fields *f, bool add_generation_prompt, chat_prompt *out,
                            atn_err *err)
{
    *out = (chat_prompt){0};
    json_t *list = NULL;
    if (atn_chat_family(tok) == NULL) {
        return atn_fail(
            err, ATN_UNSUPPORTED, NULL,
            "this model's chat template is not one of the built-in families, so chat is not offered for it; "
            "/v1/completions and /generate work");
    }
    ATN_TRY(fields_array(f, "messages", &list, err));
    if (list == NULL || json_array_size(list) == 0) {
        return atn_fail(err, ATN_INVALID, "messages", "messages is missing or empty");
    }
    size_t n = json_array_size(list);
    out->messages = calloc(n, sizeof *out->messages);
    out->joined = calloc(n, sizeof *out->joined);
    if (out->messages == NULL || out->joined == NULL) {
        return atn_fail(err, ATN_NOMEM, NULL, "no memory for the messages");
    }
    out->n = n;
    for (size_t i = 0; i < n; i++) {
        json_t *v = json_array_get(list, i);
        if (!json_is_object(v)) {
            return atn_fail(err, ATN_INVALID, "messages", "messages[%zu] must be an object", i);
        }
        fields m;
        fields_open(&m, v);
        ATN_TRY(read_message(&m, i, &out->messages[i], &out->joined[i], err));
    }
    return atn_chat_render(tok, out->messages, n, add_generation_prompt, &out->segs, &out->n_segs, err);
}

void chat_prompt_free(chat_prompt *p)
{
    for (size_t i = 0; p->joined != NULL && i < p->n; i++) {
        free(p->joined[i]);
    }
    free(p->joined);
    free(p->messages);
    free(p->segs);
    *p = (chat_prompt){0};
}

/* ---- the routes that show it ---- */

static void join_segments(const chat_prompt *p, buf *text)
{
    for (size_t i = 0; i < p->n_segs; i++) {
        buf_add(text, p->segs[i].text, p->segs[i].n);
    }
}

static atn_status put_tokens(const api *a, const chat_prompt *p, const buf *text, buf *out, atn_err *err)
{
    int32_t *ids = NULL;
    size_t(*offsets)[2] = NULL, n = 0;
    ATN_TRY(atn_tokenize_offsets(a->tok, p->segs, p->n_segs, ATN_TOKENIZE_BOS, &ids, &offsets, &n, err));
    buf_puts(out, "{\"tokenize_response\":[");
    for (size_t i = 0; i < n; i++) {
        put_comma(out);
        size_t start = offsets[i][0], stop = offsets[i][1];
        buf_printf(out, "{\"id\":%" PRId32 ",\"text\":", ids[i]);
        put_string(out, text->data + start, stop - start);
        buf_printf(out, ",\"start\":%zu,\"stop\":%zu}", start, stop);
    }
    buf_puts(out, "],\"templated_text\":");
    put_string(out, text->data, text->len);
    buf_puts(out, "}");
    free(ids);
    free(offsets);
    return ATN_OK;
}

static atn_status show(const api *a, fields *top, bool tokens, buf *out, atn_err *err)
{
    bool open = true;
    chat_prompt p = {0};
    buf text;
    buf_init(&text, PROMPT_MAX);
    buf_init(out, PROMPT_MAX);
    atn_status s = fields_bool(top, "add_generation_prompt", &open, err);
    if (s == ATN_OK) {
        s = chat_prompt_read(a->tok, top, open, &p, err);
    }
    if (s == ATN_OK) {
        join_segments(&p, &text);
        s = text.failed ? atn_fail(err, ATN_NOMEM, NULL, "no memory for the prompt") : ATN_OK;
    }
    if (s == ATN_OK && tokens) {
        s = put_tokens(a, &p, &text, out, err);
    } else if (s == ATN_OK) {
        buf_puts(out, "{\"prompt\":");
        put_string(out, text.data, text.len);
        buf_puts(out, "}");
    }
    chat_prompt_free(&p);
    buf_free(&text);
    return s;
}

atn_status parse_apply_template(const api *a, const request_head *head, fields *top, parsed *out, atn_err *err)
{
    (void)head;
    return show(a, top, false, &out->answer, err);
}

atn_status parse_chat_tokenize(const api *a, const request_head *head, fields *top, parsed *out, atn_err *err)
{
    (void)head;
    return show(a, top, true, &out->answer, err);
}
