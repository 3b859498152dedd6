/* What a request's head must look like before anything else sees it: pure functions over the header list.
 *
 * libmicrohttpd 0.9.75 lets message lengths through that a proxy in front may read differently (request smuggling), takes
 * NUL bytes in values and targets for ends of strings, and accepts any Host. Each check here answers one such case.
 * Thread: any. Nothing here allocates but guard_target. */
#ifndef ATTND_GUARD_H
#define ATTND_GUARD_H

#include <attnd/status.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    GUARD_MAX_HEADERS = 128, /* fields a request */
    GUARD_MAX_REQUEST_ID = 64,
};

typedef struct guard_header { /* bytes as received: a NUL may be inside */
    const char *name;
    size_t name_len;
    const char *value;
    size_t value_len;
} guard_header;

typedef struct guard_framing {
    bool has_body; /* Content-Length or Transfer-Encoding is there */
    bool chunked;
    uint64_t content_length; /* UINT64_MAX: more than fits; valid when has_body and not chunked */
} guard_framing;

/* Names are tokens (RFC 9110 5.1), values hold no control byte but HTAB; at most one Content-Length, of digits; at most one
 * Transfer-Encoding, exactly "chunked"; never both (RFC 9112 6.3). Errors: ATN_INVALID; ATN_UNSUPPORTED for another coding.
 * out is filled as far as known also on failure: has_body says whether a body may follow. */
atn_status guard_framing_check(const guard_header *h, size_t n, guard_framing *out, atn_err *err) ATN_MUST_CHECK;

/* Origin-form only (RFC 9112 3.2.1): begins with '/', printable ASCII, whole %XX escapes, none of a control byte.
 * *path: percent-decoded and malloc'ed, without the query. *query: into raw, without '?', "" when absent. */
atn_status guard_target(const char *raw, char **path, const char **query, atn_err *err) ATN_MUST_CHECK;

typedef struct guard_hosts {
    const char *const *names; /* [n] without port; "*" allows all */
    size_t n;
} guard_hosts;

/* Exactly one Host (HTTP/1.0: at most one), naming the loopback, an address, or one of the list: a page of another site
 * reaches a local server by DNS rebinding only under a name of its own, so addresses are safe.
 * Errors: ATN_INVALID (none, several, malformed), ATN_FORBIDDEN. */
atn_status guard_host(const guard_header *h, size_t n, const char *version, const guard_hosts *allowed,
                      atn_err *err) ATN_MUST_CHECK;

/* [A-Za-z0-9._-]{1,64} */
bool guard_request_id_ok(const char *id);

#endif
