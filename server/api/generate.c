/* The native door, in the shape of Hugging Face's text-generation-inference (TGI): POST /generate, /generate_stream and /.
 *
 * Differences from TGI, on purpose: a refusal comes before the headers, never inside a 200; top_p 1, top_k 0 and
 * temperature 0 mean off; do_sample is false unless said. Beside TGI's parameters it takes min_p, presence_penalty,
 * logit_bias, stop_token_ids and ignore_eos; beside its members session_id, create, turn, cache_salt and deadline_ms. */
#include "server/api/door.h"
#include "server/api/generate_render.h"
#include "server/api/state.h"
#include <stdlib.h>
#include <string.h>

static size_t count_characters(const char *s, size_t n)
{
    size_t count = 0;
    for (size_t i = 0; i < n; i++) {
        count += ((unsigned char)s[i] & 0xc0) != 0x80;
    }
    return count;
}

static atn_status read_best_of(const api *a, fields *f, turn_spec *spec, bool sampled, atn_err *err)
{
    int64_t best_of = 1;
    ATN_TRY(fields_int(f, "best_of", 1, api_max_choices(a), &best_of, NULL, err));
    if (best_of == 1) {
        return ATN_OK;
    }
    const char *why = !sampled                                              ? "needs do_sample: true"
                      : spec->params.has_seed                               ? "cannot be used with a seed"
                      : spec->stream                                        ? "cannot be used when streaming"
                      : spec->session.id[0] != '\0' || spec->session.create ? "cannot be used in a session"
                                                                            : NULL;
    if (why != NULL) {
        return atn_fail(err, ATN_INVALID, "best_of", "best_of > 1 %s", why);
    }
    spec->params.n_choices = (uint32_t)best_of;
    return ATN_OK;
}

/* Reads `parameters`. An absent object is an empty one. */
static atn_status read_parameters(const api *a, json_t *obj, parsed *out, generation *g, size_t *truncate, atn_err *err)
{
    turn_spec *spec = &out->turn;
    gen_params *p = &spec->params;
    fields f;
    fields_open(&f, obj);
    bool do_sample = false, prefill = false;
    int64_t n_top = 0, keep = 0;
    ATN_TRY(fields_bool(&f, "do_sample", &do_sample, err));
    p->sample.temperature = do_sample ? 1 : 0;
    ATN_TRY(params_read_sampling(&f, a->info.n_vocab, p, err));
    if (!do_sample) {
        p->sample.temperature = 0;
    }
    g->show_seed = p->sample.temperature > 0;
    ATN_TRY(params_read_max_new(&f, "max_new_tokens", p, err));
    ATN_TRY(params_read_stop(&f, "stop", p, err));
    ATN_TRY(fields_int(&f, "top_n_tokens", 0, ATN_MAX_TOP, &n_top, NULL, err));
    p->sample.n_top = (uint32_t)n_top;
    ATN_TRY(fields_int(&f, "truncate", 1, INT32_MAX, &keep, NULL, err));
    *truncate = (size_t)keep;
    ATN_TRY(fields_bool(&f, "return_full_text", &g->full_text, err));
    ATN_TRY(fields_bool(&f, "details", &g->details, err));
    ATN_TRY(fields_bool(&f, "decoder_input_details", &prefill, err));
    if (prefill && spec->stream) {
        return atn_fail(err, ATN_INVALID, "decoder_input_details",
                        "decoder_input_details cannot be used when streaming");
    }
    p->prompt_logprobs = g->prefill = prefill;
    g->details |= prefill;
    ATN_TRY(read_best_of(a, &f, spec, do_sample, err));
    ATN_TRY(fields_refuse(&f, "watermark", err));
    ATN_TRY(fields_refuse(&f, "grammar", err));
    ATN_TRY(fields_refuse(&f, "adapter_id", err));
    out->ignored += fields_close(&f);
    return ATN_OK;
}

/* Keeps the last `keep` tokens; a leading BOS stays. */
static void truncate_prompt(const atn_tokenizer *tok, turn_prompt *p, size_t keep)
{
    if (keep == 0 || p->n <= keep) {
        return;
    }
    size_t bos = atn_token_adds_bos(tok) && p->tokens[0] == atn_token_bos(tok) ? 1 : 0;
    size_t tail = keep > bos ? keep - bos : 0;
    memmove(p->tokens + bos, p->tokens + p->n - tail, tail * sizeof *p->tokens);
    p->n = (uint32_t)(bos + tail);
}

static atn_status read_inputs(const api *a, fields *f, turn_spec *spec, generation *g, size_t truncate, atn_err *err)
{
    const char *text = NULL;
    size_t n = 0;
    ATN_TRY(fields_string(f, "inputs", a->set.max_body, &text, &n, err));
    if (text == NULL) {
        return atn_fail(err, ATN_INVALID, "inputs", "inputs is needed");
    }
    spec->prompts = calloc(1, sizeof *spec->prompts);
    spec->n_prompts = 1;
    if (spec->prompts == NULL) {
        return atn_fail(err, ATN_NOMEM, NULL, "no memory for the prompt");
    }
    ATN_TRY(turn_tokenize(a, "inputs", text, n, spec->prompts, err));
    truncate_prompt(a->tok, spec->prompts, truncate);
    g->characters = count_characters(text, n);
    if (g->full_text && !buf_add(&g->inputs, text, n)) {
        return atn_fail(err, ATN_NOMEM, NULL, "no memory for the prompt");
    }
    return ATN_OK;
}

static atn_status generate(const api *a, const request_head *head, fields *f, parsed *out, bool stream, bool array,
                           atn_err *err)
{
    turn_spec *spec = &out->turn;
    generation *g = generation_new();
    if (g == NULL) {
        return atn_fail(err, ATN_NOMEM, NULL, "no memory for the request");
    }
    *spec = (turn_spec){
        .render = &generation_render,
        .user = g,
        .append = true,
        .include_stop = true,
        .prompt_name = "inputs",
        .limit_name = "max_new_tokens",
    };
    params_init(&spec->params);
    g->array = array;
    ATN_TRY(fields_bool(f, "stream", &spec->stream, err));
    spec->stream |= stream;
    ATN_TRY(turn_spec_read_session(head, f, spec, err));
    ATN_TRY(fields_refuse(f, "attention", err));
    ATN_TRY(fields_refuse(f, "interventions", err));
    json_t *parameters;
    ATN_TRY(fields_object(f, "parameters", &parameters, err));
    json_t *empty = parameters == NULL ? json_object() : NULL;
    size_t truncate = 0;
    atn_status st = read_parameters(a, parameters != NULL ? parameters : empty, out, g, &truncate, err);
    json_decref(empty);
    ATN_TRY(st);
    ATN_TRY(read_inputs(a, f, spec, g, truncate, err));
    if (g->details) {
        ATN_TRY(turn_check_logprobs(a, spec, "top_n_tokens", err));
    }
    return generation_reserve(g, spec->params.n_choices, err);
}

atn_status parse_generate(const api *a, const request_head *head, fields *top, parsed *out, atn_err *err)
{
    return generate(a, head, top, out, false, false, err);
}

atn_status parse_generate_stream(const api *a, const request_head *head, fields *top, parsed *out, atn_err *err)
{
    return generate(a, head, top, out, true, false, err);
}

atn_status parse_compat_generate(const api *a, const request_head *head, fields *top, parsed *out, atn_err *err)
{
    return generate(a, head, top, out, false, true, err);
}
