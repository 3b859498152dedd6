/* The engine with one request at a time: greedy text of the goldens, every way to end, prompt log-probabilities, and what is
 * refused at the door. */
#include "engine_rig.h"

#include <jansson.h>
#include <math.h>

enum { EOS = 2, N_PROMPT = 20, N_NEW = 24 }; /* of the tiny llama */

/* Calls fn for every prompt of a golden file. */
typedef void (*golden_fn)(rig *r, const int32_t *ids, uint32_t n, const json_t *prompt);

static void each_golden(const char *gguf, const char *golden, const char *backend, atn_engine_params p, golden_fn fn)
{
    rig r;
    json_error_t jerr;
    json_t *doc = json_load_file(golden, 0, &jerr), *prompt;
    const char *name;
    int n_prompts = 0;

    assert_non_null(doc);
    rig_open(&r, gguf, backend, 0, p);
    json_object_foreach(json_object_get(doc, "prompts"), name, prompt)
    {
        int32_t ids[512];
        const json_t *j = json_object_get(prompt, "ids");
        const uint32_t n = (uint32_t)json_array_size(j);
        for (uint32_t i = 0; i < n; i++) {
            ids[i] = (int32_t)json_integer_value(json_array_get(j, i));
        }
        fn(&r, ids, n, prompt);
        n_prompts++;
    }
    assert_true(n_prompts > 0);
    rig_assert_clean(&r);
    rig_close(&r);
    json_decref(doc);
}

static void greedy_equals(rig *r, const int32_t *ids, uint32_t n, const json_t *prompt)
{
    const json_t *want = json_object_get(prompt, "greedy_ids");
    answer *a = calloc(1, sizeof *a);

    rig_generate(r, rig_request(ids, n, (uint32_t)json_array_size(want)), a);
    assert_int_equal(a->n, json_array_size(want));
    for (uint32_t i = 0; i < a->n; i++) {
        assert_int_equal(a->ids[i], json_integer_value(json_array_get(want, i)));
    }
    assert_int_equal(a->end.finish, ATN_FINISH_LENGTH);
    free(a);
}

static void test_golden_greedy(void **state)
{
    (void)state;
    each_golden(TINY_LLAMA, "tests/golden/data/tiny-llama-q8_0.json", "naive", rig_params(), greedy_equals);
    each_golden(TINY_GPT2, "tests/golden/data/tiny-gpt2-f16.json", "openblas", rig_params(), greedy_equals);
}

static void logprobs_equal(rig *r, const int32_t *ids, uint32_t n, const json_t *prompt)
{
    const json_t *want = json_object_get(prompt, "prompt_logprobs");

    for (uint32_t max_new = 0; max_new < 2; max_new++) {
        atn_request q = rig_request(ids, n, max_new);
        q.prompt_logprobs = true;
        q.sequence = 5; /* kept, and not used for such a request */
        q.sample.n_top = 3;
        atn_stream *s = rig_submit(r, q);
        const atn_event ev = rig_next(r, s);
        assert_int_equal(ev.finish, ATN_FINISH_LENGTH);
        assert_int_equal(ev.has_token, max_new == 1);
        assert_true(ev.last);
        assert_int_equal(ev.usage.cached_tokens, 0);
        if (max_new == 1) {
            const json_t *greedy = json_object_get(prompt, "greedy_ids");
            assert_int_equal(ev.token.id, json_integer_value(json_array_get(greedy, 0)));
        }
        const atn_sampled *got = atn_stream_prompt_logprobs(s);
        for (uint32_t i = 0; i + 1 < n; i++) {
            assert_int_equal(got[i].id, ids[i + 1]);
            assert_int_equal(got[i].n_top, 3);
            assert_true(got[i].top[0].logprob >= got[i].logprob);
            assert_true(fabs(got[i].logprob - json_number_value(json_array_get(want, i + 1))) < 5e-4);
        }
        atn_stream_release(s);
    }
}

static void test_golden_prompt_logprobs(void **state)
{
    (void)state;
    atn_engine_params p = rig_params();

    each_golden(TINY_LLAMA, "tests/golden/data/tiny-llama-q8_0.json", "naive", p, logprobs_equal);
    p.step_tokens = 7;
    p.max_sequences = 12;
    each_golden(TINY_GPT2, "tests/golden/data/tiny-gpt2-f16.json", "naive", p, logprobs_equal);
}

/* ---- ends ---- */

static void test_length_and_usage(void **state)
{
    (void)state;
    rig r;
    answer *a = calloc(1, sizeof *a);
    int32_t ids[N_PROMPT];

    rig_open(&r, TINY_LLAMA, "naive", 0, rig_params());
    rig_prompt(ids, N_PROMPT, 1);
    for (uint32_t n = 1; n <= 3; n++) {
        rig_generate(&r, rig_request(ids, N_PROMPT, n), a);
        assert_int_equal(a->n, n);
        assert_int_equal(a->end.finish, ATN_FINISH_LENGTH);
        assert_true(a->end.has_token);
        assert_int_equal(a->end.usage.prompt_tokens, N_PROMPT);
        assert_int_equal(a->end.usage.cached_tokens, 0);
    }
    rig_generate(&r, rig_request(ids, N_PROMPT, 0), a);
    assert_int_equal(a->n, 0);
    assert_int_equal(a->end.finish, ATN_FINISH_LENGTH);
    assert_false(a->end.has_token);
    /* To the last position of the context. */
    int32_t all[256];
    rig_prompt(all, 256, 2);
    rig_generate(&r, rig_request(all, 255, 1), a);
    assert_int_equal(a->n, 1);
    rig_generate(&r, rig_request(all, 256, 0), a);
    assert_int_equal(a->n, 0);
    rig_generate(&r, rig_request(all, 1, 255), a);
    assert_int_equal(a->n, 255);
    rig_assert_clean(&r);

    atn_metrics m;
    atn_engine_get_metrics(r.engine, &m);
    assert_int_equal(m.requests_admitted, 7);
    assert_int_equal(m.ended_length, 7);
    assert_int_equal(m.generated_tokens, 1 + 2 + 3 + 1 + 255);
    assert_int_equal(m.prompt_tokens, 4 * N_PROMPT + 255 + 256 + 1);
    assert_int_equal(m.ttft.count, 5);
    assert_int_equal(m.itl.count, 1 + 2 + 254);
    assert_int_equal(m.e2e.count, 7);
    assert_int_equal(m.queue.count, 7);
    assert_int_equal(m.step_tokens.count, m.steps);
    assert_true(m.step_tokens.sum == 4 * N_PROMPT + 255 + 256 + 1 + 1 + 2 + 254);
    rig_close(&r);
    free(a);
}

static void test_eos_and_stop_ids(void **state)
{
    (void)state;
    rig r;
    answer *a = calloc(1, sizeof *a);
    int32_t ids[N_PROMPT];
    const atn_logit_bias bias[] = {{EOS, 100}};

    rig_open(&r, TINY_LLAMA, "naive", 0, rig_params());
    rig_prompt(ids, N_PROMPT, 1);
    atn_request q = rig_request(ids, N_PROMPT, N_NEW);
    q.sample.bias = bias;
    q.sample.n_bias = 1;
    q.ignore_eos = false;
    rig_generate(&r, q, a);
    assert_int_equal(a->n, 1);
    assert_int_equal(a->ids[0], EOS);
    assert_int_equal(a->end.finish, ATN_FINISH_EOS);
    assert_true(a->end.has_token);

    q.ignore_eos = true;
    rig_generate(&r, q, a);
    assert_int_equal(a->n, N_NEW);
    assert_int_equal(a->end.finish, ATN_FINISH_LENGTH);

    q.sample.n_bias = 0;
    rig_generate(&r, q, a);
    const int32_t third = a->ids[2], stop_ids[] = {7, third};
    q.stop_ids = stop_ids;
    q.n_stop_ids = 2;
    rig_generate(&r, q, a);
    assert_true(a->n >= 1 && a->n <= 3);
    assert_int_equal(a->ids[a->n - 1], third);
    assert_int_equal(a->end.finish, ATN_FINISH_STOP_ID);
    assert_true(a->end.has_token);
    rig_assert_clean(&r);
    rig_close(&r);
    free(a);
}

/* The bytes of the tokens, one after another. */
static size_t text_of(const rig *r, const int32_t *ids, uint32_t n, char *text)
{
    size_t at = 0, len;
    for (uint32_t i = 0; i < n; i++) {
        const char *bytes = atn_token_bytes(atn_model_tokenizer(r->model), ids[i], false, &len);
        memcpy(text + at, bytes, len);
        at += len;
    }
    return at;
}

/* Every piece of the text of 1 to 9 bytes as a stop string: what is shown is the text before its first occurrence, and no
 * event shows a byte that is taken back later. */
static void test_stop_strings_anywhere(void **state)
{
    (void)state;
    rig r;
    answer *a = calloc(1, sizeof *a);
    int32_t ids[N_PROMPT];
    char text[4096], part[4096];

    rig_open(&r, TINY_LLAMA, "naive", 0, rig_params());
    rig_prompt(ids, N_PROMPT, 1);
    rig_generate(&r, rig_request(ids, N_PROMPT, N_NEW), a);
    const size_t n_text = text_of(&r, a->ids, a->n, text);
    assert_true(n_text > 20);
    for (size_t len = 1; len <= 9; len += 2) {
        for (size_t at = 0; at + len <= n_text; at += 3) {
            const char *first = memmem(text, n_text, text + at, len);
            const atn_stop stops[] = {{"\x01never", 6}, {text + at, len}};
            atn_request q = rig_request(ids, N_PROMPT, N_NEW);
            q.stops = stops;
            q.n_stops = 2;
            int32_t got[N_NEW];
            uint32_t n = 0;
            atn_event ev;
            atn_stream *s = rig_submit(&r, q);
            do {
                ev = rig_next(&r, s);
                got[n++] = ev.token.id;
                const size_t now = text_of(&r, got, n, part);
                if (ev.finish == ATN_FINISH_NONE) {
                    assert_true(ev.hold <= now && now - ev.hold <= (size_t)(first - text));
                }
            } while (ev.finish == ATN_FINISH_NONE);
            const size_t now = text_of(&r, got, n, part);
            assert_int_equal(ev.finish, ATN_FINISH_STOP);
            assert_int_equal(ev.stop_index, 1);
            assert_int_equal(now - ev.stop_cut, first - text);
            assert_int_equal(now - ev.stop_tail, first - text + (ptrdiff_t)len);
            assert_memory_equal(part, text, now);
            atn_stream_release(s);
        }
    }
    /* A stop string that begins at the very end and is never completed holds nothing back any more. */
    char half[8] = {0};
    memcpy(half, text + n_text - 3, 3);
    half[3] = 1;
    const atn_stop stops[] = {{half, 4}};
    atn_request q = rig_request(ids, N_PROMPT, N_NEW);
    q.stops = stops;
    q.n_stops = 1;
    rig_generate(&r, q, a);
    assert_int_equal(a->end.finish, ATN_FINISH_LENGTH);
    assert_int_equal(a->end.hold, 0);
    rig_assert_clean(&r);
    rig_close(&r);
    free(a);
}

/* All ids banned: that request ends with an error, and others do not notice. */
static void test_nonfinite_ends_one(void **state)
{
    (void)state;
    rig r;
    answer *a = calloc(3, sizeof *a);
    int32_t ids[N_PROMPT];
    atn_logit_bias bias[ATN_MAX_LOGIT_BIAS];
    atn_metrics m;

    rig_open(&r, TINY_LLAMA, "naive", 0, rig_params());
    rig_prompt(ids, N_PROMPT, 1);
    rig_generate(&r, rig_request(ids, N_PROMPT, N_NEW), &a[0]);
    for (uint32_t i = 0; i < rig_vocab(&r); i++) {
        bias[i] = (atn_logit_bias){(int32_t)i, -INFINITY};
    }
    atn_request bad = rig_request(ids, N_PROMPT, N_NEW);
    bad.sample.bias = bias;
    bad.sample.n_bias = rig_vocab(&r);
    bad.sequence = 9;
    atn_stream *s = rig_submit(&r, rig_request(ids, N_PROMPT, N_NEW));
    rig_generate(&r, bad, &a[2]);
    rig_read_all(&r, s, &a[1], 1);
    assert_int_equal(a[2].n, 0);
    assert_int_equal(a[2].end.finish, ATN_FINISH_ERROR);
    assert_int_equal(a[2].end.status, ATN_NONFINITE);
    assert_int_equal(a[1].n, N_NEW);
    assert_memory_equal(a[0].ids, a[1].ids, N_NEW * sizeof a[0].ids[0]);
    rig_settle(&r, &m);
    assert_int_equal(m.sequences_kept, 0); /* its KV is not kept */
    assert_int_equal(m.ended_error, 1);
    rig_assert_clean(&r);
    rig_close(&r);
    free(a);
}

/* ---- the door ---- */

static void assert_refused(rig *r, atn_request q, atn_status want, const char *param, const char *words)
{
    atn_stream *s = (atn_stream *)r;
    atn_err err = {0};
    assert_int_equal(atn_engine_submit(r->engine, &q, &s, &err), want);
    assert_null(s);
    assert_string_equal(err.param, param);
    if (!strstr(err.msg, words)) {
        fail_msg("\"%s\" does not say \"%s\"", err.msg, words);
    }
}

static void test_refusals(void **state)
{
    (void)state;
    rig r;
    int32_t ids[300];
    atn_engine_params p = rig_params();
    atn_metrics m;

    p.kv_bytes = 600 << 10; /* a full context, and little more */
    rig_open(&r, TINY_LLAMA, "naive", 0, p);
    rig_prompt(ids, 300, 1);
    const atn_request ok = rig_request(ids, N_PROMPT, N_NEW);
    atn_request q = ok;
    q.n_tokens = 0;
    assert_refused(&r, q, ATN_INVALID, "tokens", "empty");
    q = ok;
    q.n_tokens = 256;
    q.max_new_tokens = 1;
    assert_refused(&r, q, ATN_CONTEXT, "tokens", "256 prompt tokens and 1 new ones do not fit the context of 256");
    q.n_tokens = 1;
    q.max_new_tokens = UINT32_MAX;
    assert_refused(&r, q, ATN_CONTEXT, "tokens", "4294967295");
    q = ok;
    q.n_choices = 0;
    assert_refused(&r, q, ATN_INVALID, "n_choices", "1 to 16");
    q.n_choices = 17;
    assert_refused(&r, q, ATN_INVALID, "n_choices", "1 to 16");
    q = ok;
    q.n_choices = 16;
    q.max_new_tokens = 200;
    assert_refused(&r, q, ATN_CONTEXT, "tokens", "KV pages");
    q = ok;
    for (int i = 0; i < 2; i++) {
        const int32_t bad[] = {300, i ? (int32_t)rig_vocab(&r) : -1};
        q.tokens = bad;
        q.n_tokens = 2;
        assert_refused(&r, q, ATN_INVALID, "tokens", "out of range 0..511");
        q = ok;
        q.stop_ids = bad;
        q.n_stop_ids = 2;
        assert_refused(&r, q, ATN_INVALID, "stop_ids", "out of range 0..511");
        q = ok;
    }
    q.stop_ids = ids;
    q.n_stop_ids = ATN_MAX_STOP_IDS + 1;
    assert_refused(&r, q, ATN_INVALID, "stop_ids", "64");
    const char long_stop[ATN_MAX_STOP_BYTES + 1] = {'x'};
    const atn_stop stops[ATN_MAX_STOPS + 1] = {{"", 0}, {long_stop, sizeof long_stop}};
    for (int i = 0; i < 2; i++) {
        q = ok;
        q.stops = stops + i;
        q.n_stops = 1;
        assert_refused(&r, q, ATN_INVALID, "stop", "1 to 256");
    }
    q.n_stops = ATN_MAX_STOPS + 1;
    assert_refused(&r, q, ATN_INVALID, "stop", "20");
    q = ok;
    q.sample.top_p = 0;
    assert_refused(&r, q, ATN_INVALID, "top_p", "above 0");

    answer *a = calloc(1, sizeof *a);
    rig_generate(&r, ok, a); /* and all is well */
    assert_int_equal(a->n, N_NEW);
    rig_assert_clean(&r);
    atn_engine_get_metrics(r.engine, &m);
    assert_int_equal(m.requests_refused, 15);
    assert_int_equal(m.requests_admitted, 1);
    rig_close(&r);
    free(a);
}

static void assert_no_start(rig *r, atn_engine_params p, atn_status want, const char *param, const char *words)
{
    atn_engine *e = (atn_engine *)r;
    atn_err err = {0};
    assert_int_equal(atn_engine_start(r->model, &p, &e, &err), want);
    assert_null(e);
    assert_string_equal(err.param, param);
    if (!strstr(err.msg, words)) {
        fail_msg("\"%s\" does not say \"%s\"", err.msg, words);
    }
}

static void test_start_budget(void **state)
{
    (void)state;
    rig r;
    atn_engine_info info;
    atn_engine_params p = rig_params();

    rig_open(&r, TINY_LLAMA, "naive", 0, p);
    atn_engine_get_info(r.engine, &info);
    assert_int_equal(info.page_tokens, 32);
    assert_int_equal(info.full_contexts, info.n_pages / info.pages_per_full_context);
    assert_true(info.full_contexts >= 1 && info.kv_bytes <= p.kv_bytes && info.weights_bytes > 0);
    assert_true(info.scratch_bytes > 0 && info.max_prompt_logprob_rows >= p.max_sequences);
    const size_t full = info.kv_bytes / info.n_pages * info.pages_per_full_context;
    char words[64];

    p.kv_bytes = full - 1;
    snprintf(words, sizeof words, "%zu bytes, one context of 256 tokens needs %zu", full - 1, full);
    assert_no_start(&r, p, ATN_NOMEM, "kv_bytes", words);
    p.kv_bytes = SIZE_MAX / 2;
    snprintf(words, sizeof words, "KV alone %zu", p.kv_bytes);
    assert_no_start(&r, p, ATN_NOMEM, "kv_bytes", words);
    p = rig_params();
    p.page_tokens = 33;
    assert_no_start(&r, p, ATN_INVALID, "page_tokens", "multiple of 32");
    p = rig_params();
    p.max_sequences = 0;
    assert_no_start(&r, p, ATN_INVALID, "max_sequences", "1 to");
    p = rig_params();
    p.step_tokens = 8;
    p.max_sequences = 13;
    assert_no_start(&r, p, ATN_INVALID, "max_sequences", "13 sequences, 1 to 12 are possible with step_tokens 8");
    p = rig_params();
    p.step_tokens = 0;
    assert_no_start(&r, p, ATN_INVALID, "step_tokens", "1 to");
    p = rig_params();
    p.max_waiting = 0;
    assert_no_start(&r, p, ATN_INVALID, "max_waiting", "1 to");

    p = rig_params();
    p.kv_bytes = full;
    atn_engine *second = NULL;
    atn_err err;
    assert_int_equal(atn_engine_start(r.model, &p, &second, &err), ATN_OK);
    atn_engine_get_info(second, &info);
    assert_int_equal(info.full_contexts, 1);
    atn_engine_stop(second);
    atn_engine_stop(NULL);
    atn_stream_release(NULL);
    rig_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_golden_greedy),
        cmocka_unit_test(test_golden_prompt_logprobs),
        cmocka_unit_test(test_length_and_usage),
        cmocka_unit_test(test_eos_and_stop_ids),
        cmocka_unit_test(test_stop_strings_anywhere),
        cmocka_unit_test(test_nonfinite_ends_one),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_start_budget),
    };
    return cmocka_run_group_tests_name("engine_generate", tests, NULL, NULL);
}
