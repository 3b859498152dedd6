/* One HTTP exchange as the API layer sees it: a request, and the ways to answer it. server/http implements the operations
 * over libmicrohttpd; unit tests implement them over memory.
 *
 * Life: http fills the request fields and calls api_handle once the body is whole. The API answers exactly once, now or
 * later: exchange_reply, or exchange_begin + writes + exchange_end. on_close is called exactly once, when the exchange is
 * over for whatever reason (answered, client gone, server stopping); the API frees its state there and must not touch the
 * exchange after. If on_close comes before the answer ended, the client left: cancel the work.
 * Thread: the loop thread only. */
#ifndef ATTND_EXCHANGE_H
#define ATTND_EXCHANGE_H

#include "core/base/buf.h"
#include <attnd/engine.h>
#include <stdbool.h>
#include <stddef.h>

typedef struct exchange exchange;

enum { /* rights of a key, a bit set */
       RIGHT_INFER = 1,
       RIGHT_ADMIN = 2, /* metrics, sessions of its own domain are INFER */
       RIGHT_ATTENTION_FULL = 4,
};

typedef struct identity {
    const char *name; /* key's name, "anonymous" without keys; lives as long as the server */
    unsigned rights;
    uint64_t key_hash; /* isolation domain before any cache_salt; same key, same value while the server runs */
} identity;

typedef struct reply_header {
    const char *name, *value; /* copied */
} reply_header;

typedef struct exchange_ops {
    /* Value of a request header, NULL when absent. Name is case-insensitive. */
    const char *(*header)(exchange *x, const char *name);
    /* Complete answer. The bytes of body move, however many they are: it is empty after. Headers are copied. */
    void (*reply)(exchange *x, int status, const char *content_type, const reply_header *headers, size_t n_headers,
                  buf *body);
    /* Starts a streamed answer with status 200. */
    void (*begin)(exchange *x, const char *content_type, const reply_header *headers, size_t n_headers);
    /* Queues bytes of a streamed answer as one write. False: over the exchange's limit or no memory; the exchange will close. */
    bool (*write)(exchange *x, const void *bytes, size_t n);
    /* Bytes queued and not yet taken by the socket. */
    size_t (*queued)(exchange *x);
    /* Ends a streamed answer. clean: the end is marked as complete; else the connection is cut so that the client can tell. */
    void (*end)(exchange *x, bool clean);
} exchange_ops;

struct exchange {
    const exchange_ops *ops;
    /* The request: owned by http, valid until on_close. */
    const char *method; /* "POST" */
    const char *path;   /* percent-decoded, begins with '/', no query */
    const char *query;  /* raw, without '?'; "" when absent */
    char *body;         /* malloc'ed [body_len], may hold anything; the API may take it, leaving NULL, and free it */
    size_t body_len;
    identity who;
    const char *request_id; /* client's x-request-id if well-formed, else made here; echoed by http */
    /* The API's. */
    const struct api_route *route; /* set by api_handle: the shape of this exchange's errors */
    void *state;
    void (*on_close)(exchange *x);    /* may be NULL */
    void (*on_writable)(exchange *x); /* queued() fell below half of its limit; may be NULL */
};

#endif
