/* The HTTP server: libmicrohttpd in external-epoll mode, its guards, deadlines and limits, and the exchanges that the API
 * layer answers. It owns sockets and requests, and no loop: server/loop drives it.
 *
 *     http_open(&settings, api, auth, &h, &err);
 *     whenever http_epoll_fd(h) is readable, http_timeout_ms(h) has passed or http_pending(h): http_run(h)
 *     four times a second while http_busy(h), else about once: http_tick(h)
 *     http_cut(h); http_close(h);
 *
 * Thread: the loop thread only. */
#ifndef ATTND_HTTP_H
#define ATTND_HTTP_H

#include "server/api/api.h"
#include "server/http/auth.h"
#include "server/http/guard.h"

typedef struct http http;

typedef struct http_settings {
    const char *host;         /* an IPv4 or IPv6 address, or "localhost" */
    uint16_t port;            /* 0: a free one */
    uint32_t max_connections; /* above: idle ones are closed, then requests to non-public routes get 429 */
    size_t max_body;          /* bytes of a request body where the route says nothing */
    uint32_t stall_s;         /* a streamed answer whose reader takes nothing for so long is cut */
    guard_hosts hosts;        /* Host names allowed besides loopback and addresses; outlives the server */
} http_settings;

/* *loopback: it is reachable from this machine alone. ATN_INVALID (host) when it is no address. */
atn_status http_check_host(const char *host, bool *loopback, atn_err *err) ATN_MUST_CHECK;

/* Binds, listens and starts; requests come with the first http_run. Both pointers outlive the server.
 * Errors: ATN_INVALID (host), ATN_IO (port in use, no rights: says which), ATN_NOMEM. */
atn_status http_open(const http_settings *s, api *a, const auth *keys, http **out, atn_err *err) ATN_MUST_CHECK;
/* http_cut must have run before: stopping with a suspended connection aborts the process. NULL is fine. */
void http_close(http *h);

uint16_t http_port(const http *h);
int http_epoll_fd(const http *h);
int64_t http_timeout_ms(const http *h); /* until http_run is due without an event; -1: never */
bool http_pending(const http *h);       /* an answer came for a waiting connection: http_run is due now */
void http_run(http *h);
void http_tick(http *h);       /* deadlines, and clients that left while nothing was written to them */
bool http_busy(const http *h); /* some request is being read or answered */

void http_set_draining(http *h); /* every answer from now on closes its connection */
void http_cut(http *h);          /* ends every exchange; connections close */

#endif
