/* GET /v1/models and /v1/models/{id...}: a list of one. An id may hold slashes. */
#include "server/api/models.h"

#include "server/api/handlers.h"
#include "server/api/json.h"
#include "server/api/state.h"

#include <inttypes.h>
#include <string.h>

enum { MODELS_MAX = 1 << 16 };

static void put_model(buf *b, const api *a)
{
    buf_puts(b, "{\"id\":");
    put_cstring(b, a->set.model_id);
    buf_printf(b, ",\"object\":\"model\",\"created\":%" PRId64 ",\"owned_by\":\"attnd\"}", a->opened_unix);
}

/* A balancer may take this route for its readiness probe, so it is not there before the model is. */
static bool loaded(const api *a, exchange *x)
{
    atn_err err;
    if (api_loaded(a, &err) != ATN_OK) {
        api_fail(x, &err);
        return false;
    }
    return true;
}

void models_reply_unknown(exchange *x)
{
    buf b;
    buf_init(&b, MODELS_MAX);
    buf_puts(&b, "{\"error\":{\"message\":\"no such model here: GET /v1/models names the one that is served\","
                 "\"type\":\"not_found_error\",\"param\":\"model\",\"code\":\"model_not_found\"}}");
    api_reply_json(x, 404, 0, &b);
    buf_free(&b);
}

void handle_models_list(api *a, exchange *x)
{
    if (!loaded(a, x)) {
        return;
    }
    buf b;
    buf_init(&b, MODELS_MAX);
    buf_puts(&b, "{\"object\":\"list\",\"data\":[");
    put_model(&b, a);
    buf_puts(&b, "]}");
    api_reply_json(x, 200, 0, &b);
    buf_free(&b);
}

void handle_model_show(api *a, exchange *x)
{
    if (!loaded(a, x)) {
        return;
    }
    if (strcmp(x->path + strlen("/v1/models/"), a->set.model_id) != 0) {
        models_reply_unknown(x);
        return;
    }
    buf b;
    buf_init(&b, MODELS_MAX);
    put_model(&b, a);
    api_reply_json(x, 200, 0, &b);
    buf_free(&b);
}
