/* Connections and requests inside server/http.
 *
 * A connection lives from accept to close and holds at most one request at a time (libmicrohttpd serves pipelined ones in
 * order). A request lives from its first line to libmicrohttpd's completion call; the exchange that the API sees is its first
 * member. While an answer is awaited, or a stream has nothing to send, the connection is suspended: libmicrohttpd then
 * neither polls nor times it out, so http_tick watches it. */
#ifndef ATTND_REQUEST_H
#define ATTND_REQUEST_H

#include "core/base/buf.h"
#include "server/http/http.h"

#include <microhttpd.h>
#include <poll.h>

enum {
    STREAM_QUEUE_MAX = 1 << 20, /* bytes of a streamed answer that may wait for the socket before one more write */
};

typedef struct request request;

typedef enum conn_phase {
    CONN_HEAD,   /* no whole head yet; between requests too */
    CONN_BODY,   /* head accepted, body comes */
    CONN_RUN,    /* handed to the API, no answer yet */
    CONN_REPLY,  /* the answer is going out */
    CONN_LINGER, /* refused on the bare socket: what still comes is thrown away until the deadline */
    CONN_DEAD,   /* shut down, libmicrohttpd is about to notice */
} conn_phase;

typedef struct conn {
    struct conn *prev, *next; /* by the time the phase HEAD was entered, oldest first */
    http *h;
    int fd; /* libmicrohttpd's; never closed here */
    conn_phase phase;
    mono_time deadline; /* us 0: none */
    bool half_closed;   /* seen at the last tick */
    request *request;
} conn;

typedef struct chunk { /* one write of a streamed answer */
    struct chunk *next;
    size_t n, taken;
    char bytes[];
} chunk;

typedef enum request_phase {
    REQUEST_NEW,     /* first call of the handler is due */
    REQUEST_REFUSED, /* answer `refusal` at the next call */
    REQUEST_BODY,
    REQUEST_RUN,  /* the API has it */
    REQUEST_DONE, /* answer queued in libmicrohttpd */
} request_phase;

struct request {
    exchange x; /* first: the exchange is the request */
    conn *c;
    struct MHD_Connection *mc;
    request_phase phase;
    const api_route *route;
    const char *raw; /* the target in libmicrohttpd's memory, raw_len bytes before it was cut at '?' */
    size_t raw_len;
    char *path, *query; /* owned */
    atn_err refusal;    /* code ATN_OK: none */
    const char *allow;  /* of a 405 */
    bool close_after;   /* Connection: close */
    size_t max_body;
    buf body;
    size_t held; /* its bytes in http.bodies_held */
    char request_id[GUARD_MAX_REQUEST_ID + 1];

    bool suspended;
    bool closed;                   /* on_close was called, or there is nobody to call */
    bool failed;                   /* cut the connection instead of answering on */
    struct MHD_Response *response; /* ready, not yet queued */
    int status;
    bool streaming, ended, clean;
    chunk *first, *last;
    size_t queued;
    mono_time progress; /* when the reader last took something, or the queue last was empty */
};

typedef struct http_counters {
    uint64_t connections, requests, refused, over_limit, evicted, client_left, timeouts;
} http_counters;

struct http {
    struct MHD_Daemon *daemon;
    api *api;
    const auth *keys;
    http_settings set;
    uint16_t port;
    int epoll_fd;
    conn *first, *last;
    uint32_t n_conns, n_dead;
    uint32_t n_requests; /* between head and completion */
    bool pending, draining;
    size_t bodies_held; /* bytes of bodies that are coming in, all requests together */
    uint64_t id_prefix, next_id;
    http_counters count;
    struct pollfd *polls; /* [max connections] */
    conn **polled;        /* [max connections] */
};

/* exchange.c */
extern const exchange_ops http_exchange_ops;
/* Queues r->response in libmicrohttpd. MHD_NO: close. */
enum MHD_Result request_send(request *r);
/* A whole answer that is ready to be sent; takes body, malloc'ed [n]. NULL: no memory. */
struct MHD_Response *request_new_reply(const request *r, const char *type, char *body, size_t n);
/* Suspends until something is there to send. */
void request_suspend(request *r);
/* Calls on_close once. */
void request_closed(request *r);
/* The client is gone or must go: tells the API, and wakes the connection so that libmicrohttpd closes it. */
void request_abort(request *r);
void request_free(request *r);

/* conn.c */
conn *conn_open(http *h, struct MHD_Connection *mc); /* NULL: no memory */
void conn_end_request(conn *c);                      /* closes and frees it, if there is one */
void conn_close(conn *c);                            /* NULL is fine */
void conn_head_began(conn *c);                       /* the first line of a request is there */
void conn_enter(conn *c, conn_phase phase);
/* Shuts the socket down; libmicrohttpd closes it at its next run. */
void conn_kill(conn *c);
/* Answers on the bare socket, where libmicrohttpd has no way to: a body too large or too slow, a connection too many. */
void conn_refuse(conn *c, const atn_err *err);

#endif
