/* Sessions as objects over HTTP: list, create, show, delete. Another key's session does not exist here (404), nor does one
 * made under another cache salt: header x-cache-salt names it. */
#include "server/api/handlers.h"
#include "server/api/state.h"
#include <string.h>

enum { LIST_MAX_BYTES = 64 * 1024 * 1024 };

static void put_session(buf *b, const api *a, const session *s, mono_time now)
{
    const session_limits *limits = sessions_limits(a->sessions);
    int64_t created = a->opened_unix + (int64_t)(mono_since_us(a->opened, s->created) / 1000000);
    uint64_t idle_s = s->n_seats > 0 ? 0 : mono_since_us(s->last_used, now) / 1000000;
    put_comma(b);
    buf_puts(b, "{\"id\":");
    put_cstring(b, s->id);
    buf_printf(b, ",\"object\":\"session\",\"created\":%lld,\"tokens\":%u,\"turns\":%u,\"cached_tokens\":%u",
               (long long)created, s->n_tokens, s->turns, s->last_cached);
    buf_printf(b,
               ",\"max_tokens\":%u,\"running\":%s,\"waiting\":%u,\"idle_s\":%llu,\"expires_in_s\":", limits->max_tokens,
               s->n_seats > 0 ? "true" : "false", s->n_seats > 0 ? s->n_seats - 1 : 0, (unsigned long long)idle_s);
    if (limits->ttl_s > 0) {
        buf_printf(b, "%llu}", (unsigned long long)(idle_s < limits->ttl_s ? limits->ttl_s - idle_s : 0));
    } else {
        buf_puts(b, "null}");
    }
}

void handle_sessions_list(api *a, exchange *x)
{
    mono_time now = mono_now();
    request_head head;
    request_head_read(x, &head);
    sessions_tick(a->sessions, now);
    buf b;
    buf_init(&b, LIST_MAX_BYTES);
    buf_puts(&b, "{\"object\":\"list\",\"data\":[");
    for (session *s = sessions_next(a->sessions, NULL); s != NULL; s = sessions_next(a->sessions, s)) {
        if (s->domain == head.domain) {
            put_session(&b, a, s, now);
        }
    }
    buf_puts(&b, "]}");
    api_reply_json(x, 200, 0, &b);
    buf_free(&b);
}

static atn_status create(api *a, exchange *x, session **out, unsigned *ignored, atn_err *err)
{
    json_t *root = NULL;
    request_head head;
    session_ref ref;
    request_head_read(x, &head);
    if (x->body_len > 0) {
        ATN_TRY(body_check_type(x, err));
        ATN_TRY(body_parse_bytes(x->body, x->body_len, &root, err));
    }
    fields f;
    fields_open(&f, root);
    atn_status st = params_read_session(&head, root != NULL ? &f : NULL, &ref, NULL, err);
    *ignored = fields_close(&f);
    json_decref(root);
    ATN_TRY(st);
    return sessions_create(a->sessions, ref.domain, ref.id, mono_now(), out, err);
}

void handle_sessions_create(api *a, exchange *x)
{
    atn_err err;
    session *s;
    unsigned ignored = 0;
    if (create(a, x, &s, &ignored, &err) != ATN_OK) {
        api_fail(x, &err);
        return;
    }
    buf b;
    buf_init(&b, LIST_MAX_BYTES);
    put_session(&b, a, s, mono_now());
    api_reply_json(x, 201, ignored, &b);
    buf_free(&b);
}

/* The session that the path names. NULL: answered with 404. */
static session *find(api *a, exchange *x)
{
    const char *id = x->path + strlen("/v1/sessions/");
    request_head head;
    session *s = NULL;
    request_head_read(x, &head);
    if (session_id_valid(id, strlen(id))) {
        s = sessions_find(a->sessions, head.domain, id, mono_now());
    }
    if (s == NULL) {
        atn_err err;
        atn_fail(&err, ATN_NOT_FOUND, "session_id", "no such session");
        api_fail(x, &err);
    }
    return s;
}

void handle_session_show(api *a, exchange *x)
{
    session *s = find(a, x);
    if (s == NULL) {
        return;
    }
    buf b;
    buf_init(&b, LIST_MAX_BYTES);
    put_session(&b, a, s, mono_now());
    api_reply_json(x, 200, 0, &b);
    buf_free(&b);
}

void handle_session_delete(api *a, exchange *x)
{
    session *s = find(a, x);
    if (s == NULL) {
        return;
    }
    sessions_delete(a->sessions, s);
    buf none = {0};
    x->ops->reply(x, 204, NULL, NULL, 0, &none);
}
