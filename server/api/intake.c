/* The way of a request from its whole body to its turn or answer.
 *
 *     intake_handle -> parse -> finish            a small body: all at once
 *     intake_handle -> [parse] -> finish          a large one: parse runs on another thread
 *
 * Tokenizing a megabyte takes up to a second, during which no other client would get a byte. So parsing works on copies and
 * on the body itself, taken from the exchange, and needs nobody: the client may leave, which only means that the outcome is
 * dropped. api_active counts what is with another thread, so a server that drains waits for it. */
#include "server/api/door.h"
#include "server/api/models.h"
#include "server/api/state.h"
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

typedef struct intake {
    api *a;
    door_fn *parse;
    exchange *x;      /* NULL once the client left; the loop thread's */
    atomic_bool left; /* the same for the other thread: what it has not begun it need not do */
    request_head head;
    char *body; /* malloc'ed, [n]; freed as soon as it is parsed */
    size_t n;
    mono_time arrived;
    parsed out;
    atn_status status;
    atn_err err;
} intake;

static void parse(void *arg)
{
    intake *in = arg;
    json_t *root = NULL;
    in->status = atomic_load(&in->left) ? ATN_CANCELLED : body_parse_bytes(in->body, in->n, &root, &in->err);
    free(in->body);
    in->body = NULL;
    fields top;
    fields_open(&top, root);
    if (in->status == ATN_OK) {
        in->status = in->parse(in->a, &in->head, &top, &in->out, &in->err);
    }
    if (in->status == ATN_OK) {
        in->out.ignored += fields_close(&top);
    }
    json_decref(root);
}

static void refuse(exchange *x, const parsed *out, const atn_err *err)
{
    if (err->code == ATN_NOT_FOUND && strcmp(err->param, "model") == 0) {
        models_reply_unknown(x);
        return;
    }
    x->route = out->openai_errors ? NULL : x->route;
    api_fail(x, err);
}

static void finish(intake *in)
{
    turn_spec *spec = &in->out.turn;
    if (in->x == NULL || in->status != ATN_OK) {
        turn_spec_free(spec);
    }
    if (in->x != NULL && in->status != ATN_OK) {
        refuse(in->x, &in->out, &in->err);
    } else if (in->x != NULL && spec->render != NULL) {
        spec->arrived = in->arrived;
        spec->ignored = in->out.ignored;
        turn_start(in->a, in->x, spec);
    } else if (in->x != NULL) {
        api_reply_json(in->x, 200, in->out.ignored, &in->out.answer);
    }
    buf_free(&in->out.answer);
    free(in);
}

/* ---- on another thread ---- */

static void on_close(exchange *x)
{
    intake *in = x->state;
    in->x = NULL;
    atomic_store(&in->left, true);
}

static void on_parsed(void *arg)
{
    intake *in = arg;
    api *a = in->a;
    a->n_active--;
    a->aside_bytes -= in->n;
    if (in->x != NULL) {
        in->x->state = NULL;
        in->x->on_close = NULL;
    }
    api_enter(a);
    finish(in);
    api_leave(a);
}

static atn_status parse_aside(intake *in, atn_err *err)
{
    api *a = in->a;
    size_t most = INTAKE_ASIDE_BODIES * a->set.max_body;
    if (in->n > most - a->aside_bytes) {
        return atn_fail(err, ATN_OVERLOADED, NULL,
                        "%zu bytes of request bodies wait to be parsed and %zu more came; the limit is %zu",
                        a->aside_bytes, in->n, most);
    }
    ATN_TRY(a->set.run_aside(a->set.run_arg, parse, on_parsed, in, err));
    in->x->state = in;
    in->x->on_close = on_close;
    a->n_active++;
    a->aside_bytes += in->n;
    return ATN_OK;
}

/* ---- */

static intake *intake_new(api *a, exchange *x, atn_err *err)
{
    intake *in = calloc(1, sizeof *in);
    if (in == NULL) {
        (void)atn_fail(err, ATN_NOMEM, NULL, "no memory for the request");
        return NULL;
    }
    in->a = a;
    in->parse = x->route->parse;
    in->x = x;
    request_head_read(x, &in->head);
    in->body = x->body;
    in->n = x->body_len;
    in->arrived = mono_now();
    x->body = NULL;
    return in;
}

void intake_handle(api *a, exchange *x)
{
    atn_err err;
    intake *in = NULL;
    if (api_accepting(a, &err) != ATN_OK || body_check_type(x, &err) != ATN_OK ||
        (in = intake_new(a, x, &err)) == NULL) {
        api_fail(x, &err);
        return;
    }
    if (in->n <= INTAKE_ASIDE_BYTES || a->set.run_aside == NULL) {
        parse(in);
        finish(in);
    } else if (parse_aside(in, &err) != ATN_OK) {
        api_fail(x, &err);
        free(in->body);
        free(in);
    }
}
