/* Status codes and error text: the one error convention of attnd.
 *
 * Every function that can fail returns atn_status (0 is success, nothing else is) and fills an atn_err that the
 * caller owns. One list below gives each code its name, its words, its HTTP status and its API error type, so
 * that the edge of the server needs no table of its own.
 * Thread: everything here is reentrant; an atn_err belongs to one caller.
 */
#ifndef ATTND_STATUS_H
#define ATTND_STATUS_H

#include <stddef.h>

#if defined(__GNUC__)
#define ATN_PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))
#define ATN_MUST_CHECK        __attribute__((warn_unused_result))
#else
#define ATN_PRINTF(fmt, args)
#define ATN_MUST_CHECK
#endif

/* X(name, words, HTTP status, API error type) */
#define ATN_STATUS_LIST(X)                                                          \
    X(OK, "ok", 200, "none")                                                        \
    X(INVALID, "invalid request", 400, "invalid_request_error")                     \
    X(CONTEXT, "prompt does not fit the context", 400, "exceed_context_size_error") \
    X(UNAUTHENTICATED, "authentication needed", 401, "authentication_error")        \
    X(FORBIDDEN, "not allowed", 403, "permission_error")                            \
    X(NOT_FOUND, "not found", 404, "not_found_error")                               \
    X(METHOD, "method not allowed", 405, "invalid_request_error")                   \
    X(TIMEOUT, "request came too slowly", 408, "invalid_request_error")             \
    X(CONFLICT, "conflict", 409, "conflict_error")                                  \
    X(TOO_LARGE, "too large", 413, "invalid_request_error")                         \
    X(MEDIA_TYPE, "unsupported content type", 415, "invalid_request_error")         \
    X(OVERLOADED, "overloaded", 429, "overloaded_error")                            \
    X(NOMEM, "out of memory", 429, "overloaded_error")                              \
    X(CANCELLED, "cancelled", 499, "cancelled_error")                               \
    X(INTERNAL, "internal error", 500, "server_error")                              \
    X(NONFINITE, "the model computed a non-finite value", 500, "server_error")      \
    X(IO, "input or output failed", 500, "server_error")                            \
    X(FORMAT, "malformed file", 500, "server_error")                                \
    X(UNSUPPORTED, "not supported", 501, "not_supported_error")                     \
    X(UNAVAILABLE, "not ready", 503, "unavailable_error")                           \
    X(DEADLINE, "deadline passed", 504, "timeout_error")

typedef enum atn_status {
#define X(name, words, http, type) ATN_##name,
    ATN_STATUS_LIST(X)
#undef X
} atn_status;

/* What went wrong, for a person. Fixed words and validated numbers only: never bytes that came from a client. */
typedef struct atn_err {
    atn_status code;
    char param[64]; /* the field, key, flag or tensor at fault; "" when none */
    char msg[256];
} atn_err;

const char *atn_status_name(atn_status s);  /* "INVALID" */
const char *atn_status_words(atn_status s); /* "invalid request" */
int atn_status_http(atn_status s);          /* 400 */
const char *atn_status_type(atn_status s);  /* "invalid_request_error" */

/* Fills err (may be NULL) and returns code, so that `return atn_fail(err, ...)` reads well.
 * param may be NULL. Text that does not fit is cut at a whole character. */
atn_status atn_fail(atn_err *err, atn_status code, const char *param, const char *fmt, ...) ATN_PRINTF(4, 5);

/* Forwards a failure to the caller. */
#define ATN_TRY(expr)                    \
    do {                                 \
        atn_status try_status_ = (expr); \
        if (try_status_ != ATN_OK) {     \
            return try_status_;          \
        }                                \
    } while (0)

#endif
