/* GET /info: TGI's members first, then what attnd has to say about itself: backend, model, KV cache, limits, chat template,
 * tokenizer. Every limit that a client may hit is in here. GET /: a greeting that names the routes. */
#include "server/api/handlers.h"
#include "server/api/json.h"
#include "server/api/openai_shared.h"
#include "server/api/state.h"

#include <inttypes.h>
#include <string.h>

enum { INFO_MAX = 1 << 16 };

static void put_bool(buf *b, const char *name, bool v)
{
    put_comma(b);
    buf_printf(b, "\"%s\":%s", name, v ? "true" : "false");
}

static void put_count(buf *b, const char *name, uint64_t v)
{
    put_comma(b);
    buf_printf(b, "\"%s\":%" PRIu64, name, v);
}

static void put_text(buf *b, const char *name, const char *v)
{
    put_comma(b);
    buf_printf(b, "\"%s\":", name);
    put_cstring(b, v);
}

static void open_object(buf *b, const char *name)
{
    put_comma(b);
    buf_printf(b, "\"%s\":{", name);
}

static void put_tgi(buf *b, const api *a, const atn_engine_info *e)
{
    put_text(b, "model_id", a->set.model_id);
    put_text(b, "model_sha", NULL);
    put_text(b, "model_pipeline_tag", "text-generation");
    put_count(b, "max_concurrent_requests", (uint64_t)e->max_waiting + e->max_sequences);
    put_count(b, "max_best_of", api_max_choices(a));
    put_count(b, "max_stop_sequences", PARAMS_MAX_STOPS);
    put_count(b, "max_input_tokens", a->info.context - 1);
    put_count(b, "max_total_tokens", a->info.context);
    put_count(b, "validation_workers", 1);
    put_count(b, "max_client_batch_size", openai_max_prompts(a));
    put_text(b, "router", "attnd");
    put_text(b, "version", a->set.version);
    put_text(b, "sha", NULL);
    put_text(b, "docker_label", NULL);
}

static void put_caps(buf *b, const char *name, bool active, const atn_backend *be)
{
    put_comma(b);
    buf_puts(b, "{");
    put_text(b, "name", name);
    put_bool(b, "active", active);
    if (be != NULL) {
        atn_backend_caps caps;
        atn_backend_get_caps(be, &caps);
        put_text(b, "numerics", caps.numerics);
        put_text(b, "detail", caps.detail);
        put_bool(b, "batch_invariant", caps.batch_invariant);
        put_bool(b, "attention_probe", caps.attention_probe);
        put_count(b, "threads", caps.n_threads);
    }
    buf_puts(b, "}");
}

/* A backend that is not in use is opened for a moment, with one thread; one that declines itself has no capabilities. */
void info_list_backends(api *a)
{
    buf *b = &a->backends;
    buf_free(b);
    buf_init(b, 64 << 10);
    const atn_backend *used = atn_model_backend(a->model);
    atn_backend_caps caps;
    atn_backend_get_caps(used, &caps);
    buf_puts(b, "\"backends\":[");
    const char *name;
    for (size_t i = 0; (name = atn_backend_list(i)) != NULL; i++) {
        if (strcmp(name, caps.name) == 0) {
            put_caps(b, name, true, used);
            continue;
        }
        atn_backend *be = NULL;
        atn_err err;
        if (atn_backend_open(name, &(atn_backend_params){.n_threads = 1}, &be, &err) != ATN_OK) {
            be = NULL;
        }
        put_caps(b, name, false, be);
        atn_backend_close(be);
    }
    buf_puts(b, "]");
}

static void put_backends(buf *b, const api *a)
{
    put_comma(b);
    if (a->backends.failed || !buf_add(b, a->backends.data, a->backends.len)) {
        b->failed = true;
    }
}

static void put_model(buf *b, const atn_model_info *m)
{
    open_object(b, "model");
    put_text(b, "name", m->name);
    put_text(b, "architecture", m->architecture);
    put_count(b, "parameters", m->n_params);
    put_count(b, "layers", m->n_layer);
    put_count(b, "embedding", m->n_embd);
    put_count(b, "heads", m->n_head);
    put_count(b, "kv_heads", m->n_head_kv);
    put_count(b, "head_dim", m->head_dim);
    put_count(b, "feed_forward", m->n_ff);
    put_count(b, "vocabulary", m->n_vocab);
    put_count(b, "context", m->context);
    put_count(b, "context_train", m->context_train);
    put_count(b, "window", m->window);
    put_bool(b, "tied_output", m->tied_output);
    put_count(b, "file_bytes", m->file_bytes);
    put_count(b, "weight_bytes", m->weight_bytes);
    buf_puts(b, "}");
}

static void put_kv(buf *b, const atn_engine_info *e)
{
    open_object(b, "kv");
    put_text(b, "type", e->kv_type == ATN_DTYPE_F32 ? "f32" : "f16");
    put_count(b, "bytes", e->kv_bytes);
    put_count(b, "page_tokens", e->page_tokens);
    put_count(b, "pages", e->n_pages);
    put_count(b, "pages_per_full_context", e->pages_per_full_context);
    put_count(b, "full_contexts", e->full_contexts);
    buf_puts(b, "}");
    open_object(b, "memory");
    put_count(b, "weights_bytes", e->weights_bytes);
    put_count(b, "kv_bytes", e->kv_bytes);
    put_count(b, "scratch_bytes", e->scratch_bytes);
    buf_puts(b, "}");
}

static void put_limits(buf *b, const api *a, const atn_engine_info *e)
{
    open_object(b, "limits");
    put_count(b, "context", a->info.context);
    put_count(b, "body_bytes", a->set.max_body);
    put_count(b, "sequences", e->max_sequences);
    put_count(b, "step_tokens", e->step_tokens);
    put_count(b, "waiting_requests", e->max_waiting);
    put_count(b, "queue_timeout_seconds", a->set.queue_s);
    put_count(b, "choices", api_max_choices(a));
    put_count(b, "stop_strings", PARAMS_MAX_STOPS);
    put_count(b, "stop_string_bytes", ATN_MAX_STOP_BYTES);
    put_count(b, "stop_ids", ATN_MAX_STOP_IDS);
    put_count(b, "logit_bias", ATN_MAX_LOGIT_BIAS);
    put_count(b, "top_logprobs", ATN_MAX_TOP);
    put_count(b, "completion_logprobs", COMPLETION_MAX_LOGPROBS);
    put_count(b, "logprob_entries", TURN_MAX_LOGPROB_ENTRIES);
    put_count(b, "prompts", openai_max_prompts(a));
    put_count(b, "sessions", a->set.max_sessions);
    put_count(b, "session_ttl_seconds", a->set.session_ttl_s);
    put_count(b, "session_tokens", a->set.max_session_tokens);
    put_count(b, "session_id_bytes", SESSION_ID_MAX);
    put_count(b, "turns_waiting", a->set.max_turns_waiting);
    put_count(b, "parsing_bytes", INTAKE_ASIDE_BODIES * a->set.max_body);
    put_count(b, "json_depth", JSON_MAX_DEPTH);
    put_count(b, "json_values", JSON_MAX_VALUES);
    buf_puts(b, "}");
}

static void put_text_side(buf *b, const api *a)
{
    const char *family = atn_chat_family(a->tok);
    open_object(b, "chat");
    put_text(b, "template", family);
    put_bool(b, "available", family != NULL);
    const char *detail = "the model's own template was recognised as this family";
    if (family == NULL) {
        detail = "the model has a chat template that no built-in family fits: chat is refused, all else works";
    } else if (strcmp(family, "plain") == 0) {
        detail = "the model has no chat template: messages are written as plain role lines, and the next role "
                 "line ends an answer";
    }
    put_text(b, "detail", detail);
    buf_puts(b, "}");
    open_object(b, "tokenizer");
    put_text(b, "kind", atn_tokenizer_kind(a->tok));
    put_text(b, "pre", atn_tokenizer_pre(a->tok));
    put_count(b, "vocabulary", atn_vocab_size(a->tok));
    put_bool(b, "adds_bos", atn_token_adds_bos(a->tok));
    buf_puts(b, "}");
}

void handle_info(api *a, exchange *x)
{
    atn_err err;
    if (api_loaded(a, &err) != ATN_OK) {
        api_fail(x, &err);
        return;
    }
    atn_engine_info e;
    atn_engine_get_info(a->engine, &e);
    buf b;
    buf_init(&b, INFO_MAX);
    buf_puts(&b, "{");
    put_tgi(&b, a, &e);
    put_backends(&b, a);
    put_model(&b, &a->info);
    put_kv(&b, &e);
    put_limits(&b, a, &e);
    put_text_side(&b, a);
    buf_puts(&b, "}");
    api_reply_json(x, 200, 0, &b);
    buf_free(&b);
}

void handle_hello(api *a, exchange *x)
{
    static const char routes[] = "\n"
                                 "POST /generate, /generate_stream   text from {\"inputs\", \"parameters\"}\n"
                                 "POST /v1/completions               OpenAI completions\n"
                                 "POST /v1/chat/completions          OpenAI chat\n"
                                 "GET  /v1/models\n"
                                 "GET  /v1/sessions                  sessions; GET and DELETE /v1/sessions/{id}\n"
                                 "POST /tokenize, /detokenize, /apply-template, /chat_tokenize\n"
                                 "GET  /info                         model, backend, limits\n"
                                 "GET  /livez, /readyz, /health      probes\n"
                                 "GET  /metrics                      Prometheus\n"
                                 "\n"
                                 "curl -N HOST/generate_stream -H 'content-type: application/json' \\\n"
                                 "  -d '{\"inputs\":\"Once upon a time\",\"parameters\":{\"max_new_tokens\":50}}'\n";
    buf b;
    buf_init(&b, INFO_MAX);
    buf_printf(&b, "attnd %s", a->set.version);
    if (a->engine != NULL) {
        buf_printf(&b, " serves %s (%s)", a->set.model_id, a->info.architecture);
    }
    buf_puts(&b, "\n");
    buf_puts(&b, routes);
    if (b.failed) {
        atn_err err;
        (void)atn_fail(&err, ATN_NOMEM, NULL, "no memory for the answer");
        api_fail(x, &err);
    } else {
        x->ops->reply(x, 200, "text/plain; charset=utf-8", NULL, 0, &b);
    }
    buf_free(&b);
}
