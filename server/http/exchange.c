/* The exchange over libmicrohttpd: answers given at once or later, whole or streamed.
 *
 * An answer that comes later resumes the suspended connection; libmicrohttpd then calls the access handler (first answer) or
 * the content reader (more of a stream) again. The reader hands out one write a call, and libmicrohttpd sends one chunk a
 * call, so each write of the API leaves as a chunk of its own. */
#include "server/http/request.h"

#include "core/base/log.h"

#include <stdlib.h>
#include <string.h>

static request *of(exchange *x)
{
    return (request *)(void *)x;
}

static void drop_chunks(request *r)
{
    for (chunk *c = r->first, *next; c != NULL; c = next) {
        next = c->next;
        free(c);
    }
    r->first = r->last = NULL;
    r->queued = 0;
}

static void resume(request *r)
{
    if (r->suspended) {
        r->suspended = false;
        r->c->h->pending = true;
        MHD_resume_connection(r->mc);
    }
}

void request_suspend(request *r)
{
    r->suspended = true;
    MHD_suspend_connection(r->mc);
}

void request_closed(request *r)
{
    if (!r->closed) {
        r->closed = true;
        if (r->x.on_close != NULL) {
            r->x.on_close(&r->x);
        }
    }
}

void request_abort(request *r)
{
    r->failed = true;
    request_closed(r);
    drop_chunks(r);
    conn_kill(r->c);
    resume(r);
}

void request_free(request *r)
{
    drop_chunks(r);
    if (r->response != NULL) {
        MHD_destroy_response(r->response);
    }
    buf_free(&r->body);
    free(r->x.body);
    free(r->path);
    free(r->query);
    free(r);
}

static bool add_header(struct MHD_Response *response, const char *name, const char *value)
{
    return MHD_add_response_header(response, name, value) == MHD_YES;
}

static struct MHD_Response *finish_head(const request *r, struct MHD_Response *response, const char *type)
{
    bool ok = response != NULL && (type == NULL || add_header(response, "Content-Type", type)) &&
              add_header(response, "X-Request-Id", r->request_id) &&
              (!(r->close_after || r->c->h->draining) || add_header(response, "Connection", "close"));
    if (!ok && response != NULL) {
        MHD_destroy_response(response);
    }
    return ok ? response : NULL;
}

struct MHD_Response *request_new_reply(const request *r, const char *type, char *body, size_t n)
{
    struct MHD_Response *response =
        body != NULL ? MHD_create_response_from_buffer(n, body, MHD_RESPMEM_MUST_FREE) : NULL;
    if (response == NULL) {
        free(body);
    }
    return finish_head(r, response, type);
}

enum MHD_Result request_send(request *r)
{
    r->phase = REQUEST_DONE;
    conn_enter(r->c, CONN_REPLY);
    enum MHD_Result queued = MHD_queue_response(r->mc, (unsigned)r->status, r->response);
    MHD_destroy_response(r->response);
    r->response = NULL;
    log_debug("request %s: %s, status %d", r->request_id, r->route != NULL ? r->route->path : "no route", r->status);
    return queued;
}

static const char *op_header(exchange *x, const char *name)
{
    return MHD_lookup_connection_value(of(x)->mc, MHD_HEADER_KIND, name);
}

/* The answer is ready, or there was no memory for one. */
static void answered(request *r, struct MHD_Response *response, int status, const reply_header *headers, size_t n)
{
    for (size_t i = 0; response != NULL && i < n; i++) {
        if (!add_header(response, headers[i].name, headers[i].value)) {
            MHD_destroy_response(response);
            response = NULL;
        }
    }
    r->response = response;
    r->status = status;
    r->failed = response == NULL;
    resume(r);
}

static bool may_answer(const request *r)
{
    return r->phase == REQUEST_RUN && r->response == NULL && !r->closed && !r->failed;
}

static void op_reply(exchange *x, int status, const char *type, const reply_header *headers, size_t n_headers,
                     buf *body)
{
    request *r = of(x);
    if (may_answer(r)) {
        size_t n = 0;
        char *bytes = buf_take(body, &n);
        answered(r, request_new_reply(r, type, bytes, n), status, headers, n_headers);
    }
}

/* libmicrohttpd asks for at most max bytes of the stream. */
static ssize_t read_stream(void *arg, uint64_t pos, char *out, size_t max)
{
    request *r = arg;
    chunk *c = r->first;
    (void)pos;
    if (r->failed) {
        return MHD_CONTENT_READER_END_WITH_ERROR;
    }
    if (c == NULL && r->ended) {
        return r->clean ? MHD_CONTENT_READER_END_OF_STREAM : MHD_CONTENT_READER_END_WITH_ERROR;
    }
    if (c == NULL) {
        request_suspend(r);
        return 0;
    }
    size_t n = c->n - c->taken < max ? c->n - c->taken : max, before = r->queued;
    memcpy(out, c->bytes + c->taken, n);
    c->taken += n;
    r->queued -= n;
    r->progress = mono_now();
    if (c->taken == c->n) {
        r->first = c->next;
        r->last = c->next != NULL ? r->last : NULL;
        free(c);
    }
    if (before >= STREAM_QUEUE_MAX / 2 && r->queued < STREAM_QUEUE_MAX / 2 && !r->closed && !r->ended &&
        r->x.on_writable != NULL) {
        r->x.on_writable(&r->x);
    }
    return (ssize_t)n;
}

static void op_begin(exchange *x, const char *type, const reply_header *headers, size_t n_headers)
{
    request *r = of(x);
    if (!may_answer(r)) {
        return;
    }
    struct MHD_Response *response = MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, 16384, read_stream, r, NULL);
    r->streaming = true;
    r->progress = mono_now();
    answered(r, finish_head(r, response, type), MHD_HTTP_OK, headers, n_headers);
}

static bool op_write(exchange *x, const void *bytes, size_t n)
{
    request *r = of(x);
    if (!r->streaming || r->ended || r->closed || r->failed) {
        return false;
    }
    if (n == 0) {
        return true;
    }
    chunk *c = r->queued <= STREAM_QUEUE_MAX ? malloc(sizeof *c + n) : NULL;
    if (c == NULL) {
        r->failed = true;
        drop_chunks(r);
        resume(r);
        return false;
    }
    *c = (chunk){.n = n};
    memcpy(c->bytes, bytes, n);
    if (r->last != NULL) {
        r->last->next = c;
    } else {
        r->first = c;
        r->progress = mono_now();
    }
    r->last = c;
    r->queued += n;
    resume(r);
    return true;
}

static size_t op_queued(exchange *x)
{
    return of(x)->queued;
}

static void op_end(exchange *x, bool clean)
{
    request *r = of(x);
    if (r->streaming && !r->ended) {
        r->ended = true;
        r->clean = clean;
        resume(r);
    }
}

const exchange_ops http_exchange_ops = {
    .header = op_header,
    .reply = op_reply,
    .begin = op_begin,
    .write = op_write,
    .queued = op_queued,
    .end = op_end,
};
