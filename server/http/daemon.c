/* libmicrohttpd: its options, and the access handler as a state machine.
 *
 * The handler is called once when the head is there (NEW: every check, before a byte of body is read), for each piece of body
 * (BODY), once when the body is whole (the API gets the exchange) and again whenever the connection was resumed (RUN).
 * A refusal that closes the connection is queued at the first call; others wait for the second, since libmicrohttpd closes
 * after an answer that was queued at the first. */
#include "server/http/request.h"

#include "core/base/log.h"
#include "server/http/listen.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

enum {
    RESERVE = 64,          /* connections above max_connections that still get an answer, a 429 */
    OTHER_FDS = 64,        /* descriptors that are no connections */
    POOL_BYTES = 32 << 10, /* libmicrohttpd's memory a connection: bounds the head */
    INACTIVE_S = 60,       /* behind our own deadlines; rules alone while a whole answer is written */
    BODY_RATE = 16 << 10,  /* bytes a second that a body must keep beyond its first 30 s */
    BODIES = 32,           /* bodies of max_body bytes that may be coming in at once, or more that are smaller */
};

typedef struct header_list {
    guard_header h[GUARD_MAX_HEADERS];
    size_t n;
    bool overflow;
} header_list;

static enum MHD_Result add_field(void *arg, enum MHD_ValueKind kind, const char *name, size_t name_len,
                                 const char *value, size_t value_len)
{
    header_list *l = arg;
    (void)kind;
    if (l->n == GUARD_MAX_HEADERS) {
        l->overflow = true;
        return MHD_NO;
    }
    l->h[l->n++] = (guard_header){name, name_len, value != NULL ? value : "", value != NULL ? value_len : 0};
    return MHD_YES;
}

/* ---- the checks of a head ---- */

/* *announced: bytes of body that the head speaks of. */
static atn_status check_framing(request *r, const header_list *l, const char *method, const char *version,
                                uint64_t *announced, atn_err *err)
{
    guard_framing f;
    atn_status s = guard_framing_check(l->h, l->n, &f, err);
    bool plain = strcmp(method, "GET") == 0 || strcmp(method, "HEAD") == 0;
    /* A folded header line reaches us glued to the header's name, so a length may be invisible or forged: no connection is
     * reused after a request whose end somebody else might see elsewhere. */
    r->close_after = !plain || f.has_body || l->overflow;
    *announced = f.content_length;
    ATN_TRY(s);
    if (l->overflow) {
        return atn_fail(err, ATN_INVALID, NULL, "more than %d header fields", GUARD_MAX_HEADERS);
    }
    if (strcmp(version, "HTTP/1.1") != 0 && strcmp(version, "HTTP/1.0") != 0) {
        r->close_after = true;
        return atn_fail(err, ATN_INVALID, NULL, "HTTP/1.1 or HTTP/1.0 is spoken here");
    }
    /* The version follows the target's end, unless a NUL inside the target only looked like the end. */
    if (version != r->raw + r->raw_len + 1) {
        r->close_after = true;
        return atn_fail(err, ATN_INVALID, NULL, "byte not allowed in the request target");
    }
    return ATN_OK;
}

static atn_status check_rights(request *r, atn_err *err)
{
    http *h = r->c->h;
    atn_status s = auth_check(h->keys, MHD_lookup_connection_value(r->mc, MHD_HEADER_KIND, "Authorization"),
                              MHD_lookup_connection_value(r->mc, MHD_HEADER_KIND, "x-api-key"), &r->x.who, err);
    if (r->route->rights == 0) {
        return ATN_OK;
    }
    ATN_TRY(s);
    if ((r->x.who.rights & r->route->rights) != r->route->rights) {
        return atn_fail(err, ATN_FORBIDDEN, NULL, "this key lacks the right to do that");
    }
    return ATN_OK;
}

static atn_status check_head(request *r, const char *method, const char *version, atn_err *err)
{
    http *h = r->c->h;
    header_list l = {.n = 0};
    (void)MHD_get_connection_values_n(r->mc, MHD_HEADER_KIND, add_field, &l);
    uint64_t announced;
    ATN_TRY(check_framing(r, &l, method, version, &announced, err));
    if (r->refusal.code != ATN_OK) { /* of the target, found when it came */
        *err = r->refusal;
        return err->code;
    }
    ATN_TRY(guard_host(l.h, l.n, version, &h->set.hosts, err));
    r->route = api_find_route(method, r->path, &r->allow);
    if (r->route == NULL) {
        return r->allow != NULL && r->allow[0] != '\0' ? atn_fail(err, ATN_METHOD, NULL, "method not allowed")
                                                       : atn_fail(err, ATN_NOT_FOUND, NULL, "no such route");
    }
    if (r->route->rights != 0 && h->n_requests > h->set.max_connections) {
        h->count.over_limit++;
        r->close_after = true;
        return atn_fail(err, ATN_OVERLOADED, NULL, "too many connections");
    }
    ATN_TRY(check_rights(r, err));
    bool less = r->route->max_body != 0 && r->route->max_body < h->set.max_body;
    r->max_body = less ? r->route->max_body : h->set.max_body;
    if (announced > r->max_body) {
        return atn_fail(err, ATN_TOO_LARGE, NULL, "request body over %zu bytes", r->max_body);
    }
    buf_init(&r->body, r->max_body);
    return ATN_OK;
}

/* ---- the handler ---- */

static enum MHD_Result send_refusal(request *r)
{
    char body[512] = "";
    size_t n = api_error_json(r->route, &r->refusal, body, sizeof body);
    struct MHD_Response *response = request_new_reply(r, "application/json", strdup(body), n);
    if (response == NULL) {
        return MHD_NO;
    }
    const char *name = NULL, *value = NULL;
    char seconds[16];
    switch (r->refusal.code) {
    case ATN_METHOD:
        name = "Allow", value = r->allow;
        break;
    case ATN_UNAUTHENTICATED:
        name = "WWW-Authenticate", value = "Bearer";
        break;
    default:
        if (api_retry_after_s(r->refusal.code) > 0) {
            (void)snprintf(seconds, sizeof seconds, "%u", api_retry_after_s(r->refusal.code));
            name = "Retry-After", value = seconds;
        }
        break;
    }
    if (name != NULL && MHD_add_response_header(response, name, value) != MHD_YES) {
        MHD_destroy_response(response);
        return MHD_NO;
    }
    r->response = response;
    r->status = atn_status_http(r->refusal.code);
    r->c->h->count.refused++;
    return request_send(r);
}

static enum MHD_Result on_head(request *r, const char *method, const char *version)
{
    const char *id = MHD_lookup_connection_value(r->mc, MHD_HEADER_KIND, "x-request-id");
    http *h = r->c->h;
    if (id != NULL && guard_request_id_ok(id)) {
        memcpy(r->request_id, id, strlen(id) + 1);
    } else {
        (void)snprintf(r->request_id, sizeof r->request_id, "%016llx",
                       (unsigned long long)(h->id_prefix + h->next_id++));
    }
    atn_err err = {0};
    if (check_head(r, method, version, &err) != ATN_OK) {
        r->refusal = err;
        r->phase = REQUEST_REFUSED;
        return r->close_after ? send_refusal(r) : MHD_YES;
    }
    r->x.ops = &http_exchange_ops;
    r->x.method = method;
    r->x.path = r->path;
    r->x.query = r->query;
    r->x.request_id = r->request_id;
    r->phase = REQUEST_BODY;
    conn_enter(r->c, CONN_BODY);
    return MHD_YES;
}

static enum MHD_Result on_body(request *r, const char *bytes, size_t n)
{
    http *h = r->c->h;
    atn_err err = {0};
    if (n > r->max_body - r->body.len) {
        (void)atn_fail(&err, ATN_TOO_LARGE, NULL, "request body over %zu bytes", r->max_body);
    } else if (n > h->set.max_body * BODIES - h->bodies_held) {
        (void)atn_fail(&err, ATN_OVERLOADED, NULL, "too many request bodies at once");
    } else if (!buf_add(&r->body, bytes, n)) {
        (void)atn_fail(&err, ATN_NOMEM, NULL, "no memory for the request body");
    } else {
        r->held += n;
        h->bodies_held += n;
        r->c->deadline.us += (uint64_t)n * 1000000 / BODY_RATE;
        return MHD_YES;
    }
    conn_refuse(r->c, &err);
    buf_free(&r->body);
    h->bodies_held -= r->held;
    r->held = 0;
    return MHD_YES;
}

/* An answer that is there goes out; else the connection sleeps until there is one. */
static enum MHD_Result on_run(request *r)
{
    if (r->failed) {
        return MHD_NO;
    }
    if (r->response != NULL) {
        return request_send(r);
    }
    request_suspend(r);
    return MHD_YES;
}

static enum MHD_Result on_whole(request *r)
{
    if (r->body.len > 0) {
        r->x.body = buf_take(&r->body, &r->x.body_len);
    }
    r->c->h->bodies_held -= r->held; /* the API has bounds of its own */
    r->held = 0;
    r->phase = REQUEST_RUN;
    r->closed = false;
    r->c->h->count.requests++;
    conn_enter(r->c, CONN_RUN);
    api_handle(r->c->h->api, r->route, &r->x);
    return on_run(r);
}

static enum MHD_Result on_request(void *arg, struct MHD_Connection *mc, const char *url, const char *method,
                                  const char *version, const char *upload, size_t *upload_n, void **con_cls)
{
    request *r = *con_cls;
    (void)arg, (void)mc, (void)url;
    if (r == NULL) { /* no memory when it began */
        return MHD_NO;
    }
    size_t n = *upload_n;
    *upload_n = 0;
    if (r->c->phase == CONN_LINGER || r->c->phase == CONN_DEAD) {
        return n > 0 ? MHD_YES : MHD_NO;
    }
    switch (r->phase) {
    case REQUEST_NEW:
        return on_head(r, method, version);
    case REQUEST_REFUSED:
        return send_refusal(r);
    case REQUEST_BODY:
        return n > 0 ? on_body(r, upload, n) : on_whole(r);
    case REQUEST_RUN:
        return on_run(r);
    case REQUEST_DONE:
        break;
    }
    return MHD_YES;
}

/* ---- libmicrohttpd's other calls ---- */

static void *on_target(void *arg, const char *raw, struct MHD_Connection *mc)
{
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(mc, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    conn *c = info != NULL ? info->socket_context : NULL;
    request *r = c != NULL ? calloc(1, sizeof *r) : NULL;
    (void)arg;
    if (r == NULL) {
        return NULL;
    }
    const char *query;
    r->c = c;
    r->mc = mc;
    r->raw = raw;
    r->raw_len = strlen(raw);
    r->closed = true;
    c->request = r;
    c->h->n_requests++;
    conn_head_began(c);
    if (guard_target(raw, &r->path, &query, &r->refusal) == ATN_OK && (r->query = strdup(query)) == NULL) {
        (void)atn_fail(&r->refusal, ATN_NOMEM, NULL, "no memory for the request");
    }
    /* libmicrohttpd would now split the query into its pool and, past some 500 arguments, go silent. Nobody here asks it for
     * arguments, so it finds an empty query. The bytes are its own, in a buffer that it is about to cut up anyway. */
    char *mark = strchr((char *)(uintptr_t)raw, '?');
    if (mark != NULL) {
        mark[1] = '\0';
    }
    return r;
}

static void on_completed(void *arg, struct MHD_Connection *mc, void **con_cls, enum MHD_RequestTerminationCode why)
{
    request *r = *con_cls;
    (void)arg, (void)mc;
    if (r != NULL) {
        r->c->h->count.client_left += !r->closed && why == MHD_REQUEST_TERMINATED_WITH_ERROR;
        conn_end_request(r->c);
        *con_cls = NULL;
    }
}

static void on_connection(void *arg, struct MHD_Connection *mc, void **socket_context,
                          enum MHD_ConnectionNotificationCode what)
{
    if (what == MHD_CONNECTION_NOTIFY_STARTED) {
        *socket_context = conn_open(arg, mc);
    } else {
        conn_close(*socket_context);
        *socket_context = NULL;
    }
}

__attribute__((format(printf, 2, 0))) static void on_log(void *arg, const char *fmt, va_list args)
{
    char line[256];
    (void)arg;
    (void)vsnprintf(line, sizeof line, fmt, args);
    line[strcspn(line, "\n")] = '\0';
    log_debug("libmicrohttpd: %s", line);
}

static void emit_metrics(void *arg, api_emit_fn *emit, void *out)
{
    const http *h = arg;
    const http_counters *n = &h->count;
    emit(out, "attnd_http_connections", "Open connections.", "gauge", h->n_conns - h->n_dead);
    emit(out, "attnd_http_connections_total", "Connections accepted.", "counter", (double)n->connections);
    emit(out, "attnd_http_connections_evicted_total", "Idle connections closed above the limit.", "counter",
         (double)n->evicted);
    emit(out, "attnd_http_requests_total", "Requests handed to a route.", "counter", (double)n->requests);
    emit(out, "attnd_http_refused_total", "Requests refused before a route saw them.", "counter", (double)n->refused);
    emit(out, "attnd_http_over_limit_total", "Requests refused for too many connections.", "counter",
         (double)n->over_limit);
    emit(out, "attnd_http_client_left_total", "Clients that left before their answer ended.", "counter",
         (double)n->client_left);
    emit(out, "attnd_http_timeouts_total", "Connections cut for sending or taking too slowly.", "counter",
         (double)n->timeouts);
}

/* ---- life ---- */

atn_status http_open(const http_settings *s, api *a, const auth *keys, http **out, atn_err *err)
{
    *out = NULL;
    int fd = -1;
    http *h = calloc(1, sizeof *h);
    if (h == NULL) {
        return atn_fail(err, ATN_NOMEM, NULL, "no memory for the server");
    }
    atn_status status = ATN_NOMEM;
    h->set = *s;
    h->api = a;
    h->keys = keys;
    h->set.max_connections = listen_fit_descriptors(s->max_connections, RESERVE + OTHER_FDS);
    unsigned limit = h->set.max_connections + RESERVE;
    h->polls = calloc(limit, sizeof *h->polls);
    h->polled = calloc(limit, sizeof *h->polled);
    if (h->polls == NULL || h->polled == NULL ||
        getrandom(&h->id_prefix, sizeof h->id_prefix, 0) != (ssize_t)sizeof h->id_prefix) {
        status = atn_fail(err, ATN_NOMEM, NULL, "no memory for %u connections", limit);
        goto fail;
    }
    status = listen_open(s->host, s->port, &fd, &h->port, err);
    if (status != ATN_OK) {
        goto fail;
    }
    h->daemon = MHD_start_daemon(
        MHD_USE_EPOLL | MHD_ALLOW_SUSPEND_RESUME | MHD_USE_ERROR_LOG, h->port, NULL, NULL, on_request, h,
        MHD_OPTION_EXTERNAL_LOGGER, on_log, h, MHD_OPTION_LISTEN_SOCKET, fd, MHD_OPTION_CONNECTION_LIMIT, limit,
        MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)INACTIVE_S, MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)POOL_BYTES,
        MHD_OPTION_NOTIFY_CONNECTION, on_connection, h, MHD_OPTION_URI_LOG_CALLBACK, on_target, h,
        MHD_OPTION_NOTIFY_COMPLETED, on_completed, h, MHD_OPTION_SIGPIPE_HANDLED_BY_APP, 1, MHD_OPTION_END);
    if (h->daemon == NULL) {
        (void)close(fd);
        status = atn_fail(err, ATN_IO, NULL, "the HTTP library does not start");
        goto fail;
    }
    h->epoll_fd = MHD_get_daemon_info(h->daemon, MHD_DAEMON_INFO_EPOLL_FD)->epoll_fd;
    h->pending = true; /* libmicrohttpd arms its listening socket in the first run */
    api_set_metrics_source(a, emit_metrics, h);
    *out = h;
    return ATN_OK;
fail:
    http_close(h);
    return status;
}

void http_close(http *h)
{
    if (h == NULL) {
        return;
    }
    if (h->daemon != NULL) {
        MHD_stop_daemon(h->daemon);
        api_set_metrics_source(h->api, NULL, NULL);
    }
    free(h->polls);
    free(h->polled);
    free(h);
}

uint16_t http_port(const http *h)
{
    return h->port;
}

int http_epoll_fd(const http *h)
{
    return h->epoll_fd;
}

int64_t http_timeout_ms(const http *h)
{
    MHD_UNSIGNED_LONG_LONG ms;
    return MHD_get_timeout(h->daemon, &ms) == MHD_YES ? (int64_t)ms : -1;
}

bool http_pending(const http *h)
{
    return h->pending;
}

void http_run(http *h)
{
    uint32_t before = h->n_conns;
    h->pending = false;
    (void)MHD_run(h->daemon);
    if (h->n_conns < before) { /* at the limit nothing else makes libmicrohttpd accept again */
        (void)MHD_run(h->daemon);
    }
}

bool http_busy(const http *h)
{
    return h->n_requests > 0;
}

void http_set_draining(http *h)
{
    h->draining = true;
}
