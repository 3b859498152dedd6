/* Reading and framing that the two OpenAI doors share. */
#include "server/api/openai_shared.h"

#include "server/api/state.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

atn_status openai_open(parsed *out, const turn_render *render, void *user, atn_err *err)
{
    if (user == NULL) {
        return atn_fail(err, ATN_NOMEM, NULL, "no memory for the request");
    }
    out->turn.render = render;
    out->turn.user = user;
    params_init(&out->turn.params);
    return ATN_OK;
}

static atn_status read_stream(fields *f, parsed *out, openai_call *call, atn_err *err)
{
    turn_spec *spec = &out->turn;
    json_t *options = NULL;
    ATN_TRY(fields_bool(f, "stream", &spec->stream, err));
    ATN_TRY(fields_object(f, "stream_options", &options, err));
    if (options == NULL) {
        return ATN_OK;
    }
    if (!spec->stream) {
        return atn_fail(err, ATN_INVALID, "stream_options", "stream_options is only allowed with stream: true");
    }
    fields o;
    fields_open(&o, options);
    ATN_TRY(fields_bool(&o, "include_usage", &call->include_usage, err));
    out->ignored += fields_close(&o);
    return ATN_OK;
}

static atn_status read_model(const api *a, fields *f, atn_err *err)
{
    const char *name = NULL;
    size_t n = 0;
    ATN_TRY(fields_string(f, "model", a->set.max_body, &name, &n, err));
    if (name != NULL && a->set.strict_model && strcmp(name, a->set.model_id) != 0) {
        return atn_fail(err, ATN_NOT_FOUND, "model", "no such model here");
    }
    return ATN_OK;
}

atn_status openai_read(const api *a, const request_head *head, fields *f, const char *id_prefix, parsed *out,
                       openai_call *call, atn_err *err)
{
    turn_spec *spec = &out->turn;
    ATN_TRY(read_model(a, f, err));
    ATN_TRY(read_stream(f, out, call, err));
    int64_t n = 1;
    ATN_TRY(fields_int(f, "n", 1, api_max_choices(a), &n, NULL, err));
    spec->params.n_choices = (uint32_t)n;
    ATN_TRY(fields_bool(f, "return_token_ids", &call->token_ids, err));
    ATN_TRY(params_read_stop(f, "stop", &spec->params, err));
    ATN_TRY(params_read_sampling(f, atn_vocab_size(a->tok), &spec->params, err));
    ATN_TRY(turn_spec_read_session(head, f, spec, err));
    (void)fields_get(f, "user"); /* a label for OpenAI's own abuse reports */

    atn_backend_caps caps;
    atn_backend_get_caps(atn_model_backend(a->model), &caps);
    call->fingerprint = caps.numerics;
    call->model = a->set.model_id;
    call->created = (int64_t)time(NULL);
    snprintf(call->id, sizeof call->id, "%s-%s", id_prefix, head->request_id);
    return ATN_OK;
}

uint32_t openai_max_prompts(const api *a)
{
    atn_engine_info e;
    atn_engine_get_info(a->engine, &e);
    uint32_t most = a->set.max_batch_prompts < e.max_waiting ? a->set.max_batch_prompts : e.max_waiting;
    return most > 0 ? most : 1;
}

void openai_put_open(buf *b, const openai_call *call, const char *object)
{
    buf_puts(b, "{\"id\":");
    put_cstring(b, call->id);
    buf_printf(b, ",\"object\":\"%s\",\"created\":%" PRId64 ",\"model\":", object, call->created);
    put_cstring(b, call->model);
    buf_puts(b, ",\"system_fingerprint\":");
    put_cstring(b, call->fingerprint);
    buf_puts(b, ",\"choices\":[");
}

void openai_put_event(buf *b, const openai_call *call, const char *object)
{
    buf_puts(b, "data: ");
    openai_put_open(b, call, object);
}

void openai_put_event_end(buf *b, const openai_call *call)
{
    buf_puts(b, call->include_usage ? "],\"usage\":null}\n\n" : "]}\n\n");
}

void openai_put_usage(buf *b, const atn_usage *u)
{
    buf_printf(b,
               "],\"usage\":{\"prompt_tokens\":%" PRIu32 ",\"completion_tokens\":%" PRIu32 ",\"total_tokens\":%" PRIu64
               ",\"prompt_tokens_details\":{\"cached_tokens\":%" PRIu32 "}}",
               u->prompt_tokens, u->generated_tokens, (uint64_t)u->prompt_tokens + u->generated_tokens,
               u->cached_tokens);
}

void openai_put_finish(buf *b, atn_finish f)
{
    if (f == ATN_FINISH_NONE) {
        buf_puts(b, "null");
    } else {
        buf_puts(b, f == ATN_FINISH_LENGTH ? "\"length\"" : "\"stop\"");
    }
}

void openai_put_ids(buf *b, const int32_t *ids, size_t n)
{
    buf_puts(b, "[");
    for (size_t i = 0; i < n; i++) {
        buf_printf(b, i > 0 ? ",%" PRId32 : "%" PRId32, ids[i]);
    }
    buf_puts(b, "]");
}

void openai_write_end(turn *t, const openai_call *call, const char *object)
{
    buf b;
    buf_init(&b, OPENAI_ANSWER_MAX);
    if (call->include_usage) {
        atn_usage u = turn_usage(t);
        openai_put_event(&b, call, object);
        openai_put_usage(&b, &u);
        buf_puts(&b, "}\n\n");
        turn_write(t, &b);
        buf_clear(&b);
    }
    buf_puts(&b, "data: [DONE]\n\n");
    turn_write(t, &b);
    buf_free(&b);
}
