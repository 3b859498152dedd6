/* Connections: their deadlines, their limit, and the clients that leave without a word.
 *
 * libmicrohttpd only knows an inactivity timeout, sees nothing of a suspended connection, and stops accepting at its own
 * limit without any answer. So each phase has a total deadline here, every tick asks the kernel who hung up, and above our
 * limit the connection that has waited longest for a request makes room. */
#include "server/http/request.h"

#include "core/base/log.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>

enum {
    HEAD_MS = 10 * 1000,       /* first byte to end of head, and a fresh connection's first head */
    KEEP_ALIVE_MS = 30 * 1000, /* from the end of an answer to the next head */
    BODY_MS = 30 * 1000,       /* plus the time of what came at BODY_RATE, see daemon.c */
    LINGER_MS = 1000,          /* for a refusal to reach a client that is still sending */
};

static mono_time in_ms(uint64_t ms)
{
    mono_time t = mono_now();
    t.us += ms * 1000;
    return t;
}

static void unlink_conn(conn *c)
{
    http *h = c->h;
    *(c->prev != NULL ? &c->prev->next : &h->first) = c->next;
    *(c->next != NULL ? &c->next->prev : &h->last) = c->prev;
    c->prev = c->next = NULL;
}

static void link_conn(conn *c)
{
    http *h = c->h;
    c->prev = h->last;
    c->next = NULL;
    *(h->last != NULL ? &h->last->next : &h->first) = c;
    h->last = c;
}

void conn_enter(conn *c, conn_phase phase)
{
    if (c->phase == CONN_DEAD || (c->phase == CONN_LINGER && phase != CONN_DEAD)) {
        return;
    }
    c->half_closed = false;
    c->phase = phase;
    switch (phase) {
    case CONN_HEAD:
        c->deadline = in_ms(KEEP_ALIVE_MS);
        unlink_conn(c);
        link_conn(c);
        break;
    case CONN_BODY:
        c->deadline = in_ms(BODY_MS);
        break;
    case CONN_LINGER:
        c->deadline = in_ms(LINGER_MS);
        break;
    case CONN_RUN:
    case CONN_REPLY:
    case CONN_DEAD:
        c->deadline = (mono_time){0};
        break;
    }
}

void conn_kill(conn *c)
{
    if (c->phase != CONN_DEAD) {
        conn_enter(c, CONN_DEAD);
        c->h->n_dead++;
        (void)shutdown(c->fd, SHUT_RDWR);
    }
}

void conn_refuse(conn *c, const atn_err *err)
{
    char body[512], out[1024];
    const api_route *route = c->request != NULL ? c->request->route : NULL;
    size_t n = api_error_json(route, err, body, sizeof body);
    unsigned retry = api_retry_after_s(err->code);
    char retry_after[32] = "";
    if (retry > 0) {
        (void)snprintf(retry_after, sizeof retry_after, "Retry-After: %u\r\n", retry);
    }
    int status = atn_status_http(err->code);
    int len = snprintf(
        out, sizeof out,
        "HTTP/1.1 %d %s\r\nContent-Type: application/json\r\nContent-Length: %zu\r\nConnection: close\r\n%s\r\n%.*s",
        status, MHD_get_reason_phrase_for((unsigned)status), n, retry_after, (int)n, body);
    if (len > 0 && (size_t)len < sizeof out) {
        (void)!send(c->fd, out, (size_t)len, MSG_DONTWAIT | MSG_NOSIGNAL);
    }
    (void)shutdown(c->fd, SHUT_WR);
    conn_enter(c, CONN_LINGER);
    c->h->count.refused++;
}

/* A request may lie in the kernel that libmicrohttpd has not read yet. */
static bool has_input(const conn *c)
{
    char byte;
    return recv(c->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) > 0;
}

/* Above the limit, whoever has waited longest for a request to come makes room. */
static void make_room(http *h, const conn *fresh)
{
    for (conn *c = h->first; c != NULL && h->n_conns - h->n_dead > h->set.max_connections; c = c->next) {
        if (c->phase == CONN_HEAD && c != fresh && !has_input(c)) {
            atn_err err;
            (void)atn_fail(&err, ATN_OVERLOADED, NULL, "too many connections");
            conn_refuse(c, &err);
            conn_kill(c);
            h->count.evicted++;
        }
    }
}

conn *conn_open(http *h, struct MHD_Connection *mc)
{
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(mc, MHD_CONNECTION_INFO_CONNECTION_FD);
    conn *c = info != NULL ? calloc(1, sizeof *c) : NULL;
    if (c == NULL) {
        return NULL;
    }
    *c = (conn){.h = h, .fd = info->connect_fd, .phase = CONN_HEAD, .deadline = in_ms(HEAD_MS)};
    link_conn(c);
    h->n_conns++;
    h->count.connections++;
    make_room(h, c);
    return c;
}

void conn_end_request(conn *c)
{
    request *r = c->request;
    if (r != NULL) {
        request_closed(r);
        c->request = NULL;
        c->h->n_requests--;
        c->h->bodies_held -= r->held;
        request_free(r);
        conn_enter(c, CONN_HEAD);
    }
}

void conn_close(conn *c)
{
    if (c != NULL) {
        conn_end_request(c); /* libmicrohttpd forgets to complete some that it found malformed */
        c->h->n_conns--;
        c->h->n_dead -= c->phase == CONN_DEAD;
        unlink_conn(c);
        free(c);
    }
}

void conn_head_began(conn *c)
{
    mono_time latest = in_ms(HEAD_MS);
    if (c->deadline.us > latest.us) {
        c->deadline = latest;
    }
}

static void refuse_slow(conn *c)
{
    atn_err err;
    (void)atn_fail(&err, ATN_TIMEOUT, NULL, "the request came too slowly");
    c->h->count.timeouts++;
    if (c->request != NULL) {
        conn_refuse(c, &err);
    } else { /* nothing of a request is known, perhaps there is none */
        conn_kill(c);
    }
}

static void watch(conn *c, bool half_closed, mono_time now)
{
    request *r = c->request;
    http *h = c->h;
    bool late = c->deadline.us != 0 && now.us >= c->deadline.us;
    switch (c->phase) {
    case CONN_RUN:
    case CONN_REPLY:
        if (r == NULL || (c->phase == CONN_REPLY && !r->streaming)) {
            break; /* libmicrohttpd's own timeout watches the writing of a whole answer */
        }
        if (half_closed) {
            h->count.client_left++;
            request_abort(r);
        } else if (r->first != NULL && mono_since_us(r->progress, now) > h->set.stall_s * UINT64_C(1000000)) {
            h->count.timeouts++;
            log_debug("request %s: the client takes nothing, cut", r->request_id);
            request_abort(r);
        }
        break;
    case CONN_HEAD:
    case CONN_BODY:
        /* Data and FIN that came together leave libmicrohttpd waiting for more; it gets one tick to read the data. */
        if (half_closed && c->half_closed) {
            conn_kill(c);
        } else if (late) {
            refuse_slow(c);
        }
        break;
    case CONN_LINGER:
        if (half_closed || late) {
            conn_kill(c);
        }
        break;
    case CONN_DEAD:
        break;
    }
    c->half_closed = half_closed;
}

void http_tick(http *h)
{
    nfds_t n = 0;
    for (conn *c = h->first; c != NULL; c = c->next) {
        if (c->phase != CONN_DEAD) {
            h->polls[n] = (struct pollfd){.fd = c->fd, .events = POLLRDHUP};
            h->polled[n++] = c;
        }
    }
    (void)poll(h->polls, n, 0);
    mono_time now = mono_now();
    for (nfds_t i = 0; i < n; i++) {
        watch(h->polled[i], (h->polls[i].revents & (POLLRDHUP | POLLHUP | POLLERR)) != 0, now);
    }
}

void http_cut(http *h)
{
    for (conn *c = h->first; c != NULL; c = c->next) {
        if (c->request != NULL && c->request->phase >= REQUEST_RUN) {
            request_abort(c->request);
        } else {
            conn_kill(c);
        }
    }
}
