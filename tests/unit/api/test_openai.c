/* The OpenAI doors, event by event: the exact bytes of answers, chunks and errors. */
#include "tests/unit/api/fake.h"

/* The frame that all answers have, up to the choices. "created" is the time of the request. */
static void assert_frame(const char **at, const char *prefix, const char *object)
{
    char want[160];
    int n = snprintf(want, sizeof want, "%s{\"id\":\"%s-r\",\"object\":\"%s\",\"created\":", prefix,
                     strncmp(object, "chat", 4) == 0 ? "chatcmpl" : "cmpl", object);
    if (strncmp(*at, want, (size_t)n) != 0) {
        fail_msg("expected %s\nin %s", want, *at);
    }
    char *end;
    assert_true(strtoll(*at + n, &end, 10) > 1500000000);
    static const char rest[] = ",\"model\":\"fake\",\"system_fingerprint\":\"fake-1\",\"choices\":[";
    if (strncmp(end, rest, sizeof rest - 1) != 0) {
        fail_msg("expected %s\nin %s", rest, end);
    }
    *at = end + sizeof rest - 1;
}

static void assert_next(const char **at, const char *want)
{
    if (strncmp(*at, want, strlen(want)) != 0) {
        fail_msg("expected %s\nin       %s", want, *at);
    }
    *at += strlen(want);
}

/* One chunk: `choices` is what stands between the brackets. */
static void assert_chunk(const char **at, const char *object, const char *choices, const char *end)
{
    assert_frame(at, "data: ", object);
    assert_next(at, choices);
    assert_next(at, end);
    assert_next(at, "\n\n");
}

static void whole_completion(void **state)
{
    (void)state;
    world *w = world_new();
    fake_exchange *f = fake_post(w->a, "/v1/completions", "{\"prompt\":\"ab\",\"max_tokens\":5,\"stop\":\"!\"}");
    atn_stream *s = &w->engine.streams[0];
    assert_int_equal(s->n_tokens, 3);
    assert_int_equal(s->tokens[0], FAKE_BOS);
    assert_int_equal(s->request.max_new_tokens, 5);
    assert_true(s->request.sample.temperature == 1);
    fake_text(s, "x\"y");
    fake_last(s, 'z', ATN_FINISH_LENGTH);
    api_on_engine_wake(w->a);
    const char *at = f->body.data;
    assert_int_equal(f->status, 200);
    assert_frame(&at, "", "text_completion");
    assert_string_equal(at, "{\"index\":0,\"text\":\"x\\\"yz\",\"logprobs\":null,\"finish_reason\":\"length\"}],"
                            "\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":4,\"total_tokens\":7,"
                            "\"prompt_tokens_details\":{\"cached_tokens\":3}}}");
    fake_close(f);
    world_free(w);
}

static void streamed_completion(void **state)
{
    (void)state;
    world *w = world_new();
    fake_exchange *f = fake_post(w->a, "/v1/completions",
                                 "{\"prompt\":\"ab\",\"stream\":true,\"stream_options\":{\"include_usage\":true}}");
    atn_stream *s = &w->engine.streams[0];
    assert_int_equal(s->request.max_new_tokens, 16);
    fake_token(s, 'x', 0);
    fake_token(s, 0xC3, 0); /* half a character: nothing to show */
    fake_token(s, 0xA9, 0);
    fake_last(s, FAKE_EOS, ATN_FINISH_EOS);
    api_on_engine_wake(w->a);
    static const char end[] = "],\"usage\":null}", obj[] = "text_completion";
    const char *at = f->body.data;
    assert_chunk(&at, obj, "{\"index\":0,\"text\":\"x\",\"logprobs\":null,\"finish_reason\":null}", end);
    assert_chunk(&at, obj, "{\"index\":0,\"text\":\"\xC3\xA9\",\"logprobs\":null,\"finish_reason\":null}", end);
    assert_chunk(&at, obj, "{\"index\":0,\"text\":\"\",\"logprobs\":null,\"finish_reason\":\"stop\"}", end);
    assert_chunk(&at, obj, "",
                 "],\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":4,\"total_tokens\":7,"
                 "\"prompt_tokens_details\":{\"cached_tokens\":3}}}");
    assert_string_equal(at, "data: [DONE]\n\n");
    assert_true(f->ended && f->clean);
    fake_close(f);
    world_free(w);
}

static void token_with_tops(atn_stream *s, int32_t id, const int32_t *tops, uint32_t n, atn_finish finish)
{
    atn_event ev = {.has_token = true,
                    .token = {.id = id, .logprob = -1, .n_top = n},
                    .finish = finish,
                    .last = finish != ATN_FINISH_NONE};
    for (uint32_t i = 0; i < n; i++) {
        ev.token.top[i] = (atn_top){tops[i], -0.25f * (float)(i + 1)};
    }
    fake_event(s, ev);
}

/* Halves of characters are written as OpenAI does; offsets count characters; the chosen token is among the alternatives. */
static void completion_logprobs(void **state)
{
    (void)state;
    world *w = world_new();
    fake_exchange *f = fake_post(w->a, "/v1/completions", "{\"prompt\":\"ab\",\"logprobs\":2}");
    atn_stream *s = &w->engine.streams[0];
    assert_int_equal(s->request.sample.n_top, 2);
    assert_false(s->request.prompt_logprobs);
    token_with_tops(s, 'x', (int32_t[]){'x', 'y'}, 2, ATN_FINISH_NONE);
    token_with_tops(s, 0xC3, (int32_t[]){'y', 'z'}, 2, ATN_FINISH_NONE);
    token_with_tops(s, 0xA9, (int32_t[]){0xC3, 0xA9}, 2, ATN_FINISH_NONE);
    token_with_tops(s, 'q', (int32_t[]){'q', FAKE_EOS}, 2, ATN_FINISH_LENGTH);
    api_on_engine_wake(w->a);
    const char *at = f->body.data;
    assert_frame(&at, "", "text_completion");
    assert_next(&at, "{\"index\":0,\"text\":\"x\xC3\xA9q\",\"logprobs\":"
                     "{\"tokens\":[\"x\",\"bytes:\\\\xc3\",\"bytes:\\\\xa9\",\"q\"],\"token_logprobs\":[-1,-1,-1,-1],"
                     "\"top_logprobs\":[{\"x\":-0.25,\"y\":-0.5},{\"y\":-0.25,\"z\":-0.5,\"bytes:\\\\xc3\":-1},"
                     "{\"bytes:\\\\xc3\":-0.25,\"bytes:\\\\xa9\":-0.5},{\"q\":-0.25,\"</s>\":-0.5}],"
                     "\"text_offset\":[0,1,1,2]},\"finish_reason\":\"length\"}]");
    fake_close(f);
    world_free(w);
}

/* The prompt's own log-probabilities come first, in a chunk of their own when streamed. */
static void echo_with_logprobs(void **state)
{
    (void)state;
    for (int stream = 0; stream < 2; stream++) {
        world *w = world_new();
        fake_exchange *f = fake_post(w->a, "/v1/completions",
                                     stream ? "{\"prompt\":\"\xC3\xA9"
                                              "b\",\"logprobs\":0,\"echo\":true,\"stream\":true,\"max_tokens\":1}"
                                            : "{\"prompt\":\"\xC3\xA9"
                                              "b\",\"logprobs\":0,\"echo\":true,\"max_tokens\":1}");
        atn_stream *s = &w->engine.streams[0];
        assert_true(s->request.prompt_logprobs);
        s->prompt_logprobs = calloc(4, sizeof *s->prompt_logprobs);
        for (int i = 0; i < 3; i++) {
            s->prompt_logprobs[i] = (atn_sampled){.id = s->tokens[i + 1], .logprob = (float)-(i + 2)};
        }
        fake_last(s, 'x', ATN_FINISH_LENGTH);
        api_on_engine_wake(w->a);
        const char *at = f->body.data;
        assert_frame(&at, stream ? "data: " : "", "text_completion");
        if (stream) {
            assert_next(&at, "{\"index\":0,\"text\":\"\xC3\xA9"
                             "b\",\"logprobs\":{\"tokens\":[\"<s>\",\"bytes:\\\\xc3\","
                             "\"bytes:\\\\xa9\",\"b\"],\"token_logprobs\":[null,-2,-3,-4],\"top_logprobs\":null,"
                             "\"text_offset\":[0,0,0,1]},\"finish_reason\":null}]}\n\n");
            assert_chunk(&at, "text_completion",
                         "{\"index\":0,\"text\":\"x\",\"logprobs\":{\"tokens\":[\"x\"],\"token_logprobs\":[-0.5],"
                         "\"top_logprobs\":null,\"text_offset\":[2]},\"finish_reason\":\"length\"}",
                         "]}");
        } else {
            assert_next(&at,
                        "{\"index\":0,\"text\":\"\xC3\xA9"
                        "bx\",\"logprobs\":{\"tokens\":[\"<s>\",\"bytes:\\\\xc3\","
                        "\"bytes:\\\\xa9\",\"b\",\"x\"],\"token_logprobs\":[null,-2,-3,-4,-0.5],\"top_logprobs\":null,"
                        "\"text_offset\":[0,0,0,1,2]},\"finish_reason\":\"length\"}],");
        }
        fake_close(f);
        world_free(w);
    }
}

static void best_of_takes_the_likeliest(void **state)
{
    (void)state;
    world *w = world_new();
    fake_exchange *f = fake_post(w->a, "/v1/completions", "{\"prompt\":\"a\",\"n\":2,\"best_of\":4}");
    atn_stream *s = &w->engine.streams[0];
    assert_int_equal(s->request.n_choices, 4);
    const float logprobs[] = {-3, -1, -4, -2};
    for (uint32_t i = 0; i < 4; i++) {
        fake_event(s, (atn_event){.choice = i,
                                  .has_token = true,
                                  .token = {.id = 'a' + (int32_t)i, .logprob = logprobs[i]},
                                  .finish = ATN_FINISH_LENGTH,
                                  .last = i == 3});
    }
    api_on_engine_wake(w->a);
    const char *at = f->body.data;
    assert_frame(&at, "", "text_completion");
    assert_next(&at, "{\"index\":0,\"text\":\"b\",\"logprobs\":null,\"finish_reason\":\"length\"},"
                     "{\"index\":1,\"text\":\"d\",\"logprobs\":null,\"finish_reason\":\"length\"}],"
                     "\"usage\":{\"prompt_tokens\":2,\"completion_tokens\":4,");
    fake_close(f);
    world_free(w);
}

static void whole_chat(void **state)
{
    (void)state;
    world *w = world_new();
    fake_exchange *f =
        fake_post(w->a, "/v1/chat/completions",
                  "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],\"logprobs\":true,\"top_logprobs\":1,"
                  "\"return_token_ids\":true}");
    atn_stream *s = &w->engine.streams[0];
    token_with_tops(s, 0xC3, (int32_t[]){'y'}, 1, ATN_FINISH_NONE);
    token_with_tops(s, 'z', (int32_t[]){'z'}, 1, ATN_FINISH_STOP_ID);
    api_on_engine_wake(w->a);
    const char *at = f->body.data;
    assert_frame(&at, "", "chat.completion");
    assert_next(&at, "{\"index\":0,\"message\":{\"role\":\"assistant\",\"content\":\"\xEF\xBF\xBD\",\"refusal\":null},"
                     "\"logprobs\":{\"content\":["
                     "{\"token\":\"\xEF\xBF\xBD\",\"logprob\":-1,\"bytes\":[195],\"top_logprobs\":["
                     "{\"token\":\"y\",\"logprob\":-0.25,\"bytes\":[121]}]},"
                     "{\"token\":\"z\",\"logprob\":-1,\"bytes\":[122],\"top_logprobs\":["
                     "{\"token\":\"z\",\"logprob\":-0.25,\"bytes\":[122]}]}],\"refusal\":null},"
                     "\"finish_reason\":\"stop\",\"token_ids\":[195,122]}],\"usage\":{");
    assert_non_null(strstr(at, "\"prompt_token_ids\":[256,117,"));
    fake_close(f);
    world_free(w);
}

static void assert_stops(const atn_stream *s, const char *const *own, uint32_t n_own, const char *const *family,
                         uint32_t n_family)
{
    assert_int_equal(s->request.n_stops, n_own + n_family);
    for (uint32_t i = 0; i < n_own + n_family; i++) {
        assert_string_equal(s->stops[i], i < n_own ? own[i] : family[i - n_own]);
    }
}

/* A family without a token for it ends a turn where the next role's line begins: behind the request's own stop strings,
 * beside as many of them as ever, and not where the model shall go on behind its end or where there are no turns. */
static void a_plain_chat_ends_at_the_next_role_line(void **state)
{
    (void)state;
#define CHAT    "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}]"
#define SIXTEEN "\"a\",\"b\",\"c\",\"d\",\"e\",\"f\",\"g\",\"h\",\"i\",\"j\",\"k\",\"l\",\"m\",\"n\",\"o\",\"p\""
    static const char *const own[] = {"a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l", "m", "n", "o", "p"};
    static const char *const family[] = {"\nsystem:", "\nuser:", "\nassistant:", "\ntool:"};
    static const struct {
        const char *path, *body;
        uint32_t n_own, n_family;
    } cases[] = {
        {"/v1/chat/completions", CHAT "}", 0, 4},
        {"/v1/chat/completions", CHAT ",\"stop\":\"a\"}", 1, 4},
        {"/v1/chat/completions", CHAT ",\"stop\":[" SIXTEEN "]}", 16, 4},
        {"/v1/chat/completions", CHAT ",\"stop\":\"a\",\"ignore_eos\":true}", 1, 0},
        {"/v1/completions", "{\"prompt\":\"a\",\"stop\":[" SIXTEEN "]}", 16, 0},
        {"/generate", "{\"inputs\":\"a\",\"parameters\":{\"stop\":[" SIXTEEN "]}}", 16, 0},
    };
    world *w = world_new();
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        fake_exchange *f = fake_post(w->a, cases[i].path, cases[i].body);
        assert_stops(&w->engine.streams[i], own, cases[i].n_own, family, cases[i].n_family);
        fake_close(f);
    }
    fake_exchange *f = fake_post(w->a, "/v1/chat/completions", CHAT ",\"stop\":[\"q\"," SIXTEEN "]}");
    assert_int_equal(f->status, 400);
    assert_non_null(strstr(f->body.data, "17 strings, at most 16"));
    fake_close(f);
    /* What was held back for it is not shown. */
    f = fake_post(w->a, "/v1/chat/completions", CHAT "}");
    atn_stream *s = &w->engine.streams[w->engine.n_streams - 1];
    static const char said[] = " hi\nuser";
    for (uint32_t i = 0; i + 1 < sizeof said; i++) {
        fake_token(s, (unsigned char)said[i], i < 3 ? 0 : i - 2);
    }
    fake_event(s, (atn_event){.has_token = true,
                              .token = {.id = ':'},
                              .finish = ATN_FINISH_STOP,
                              .stop_index = 1,
                              .stop_cut = 6,
                              .last = true});
    api_on_engine_wake(w->a);
    assert_int_equal(f->status, 200);
    assert_non_null(
        strstr(f->body.data, "\"content\":\" hi\",\"refusal\":null},\"logprobs\":null,\"finish_reason\":\"stop\""));
    fake_close(f);
    world_free(w);
#undef SIXTEEN
#undef CHAT
}

static void streamed_chat(void **state)
{
    (void)state;
    world *w = world_new();
    fake_exchange *f =
        fake_post(w->a, "/v1/chat/completions",
                  "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],\"stream\":true,\"n\":2,\"max_tokens\":3}");
    atn_stream *s = &w->engine.streams[0];
    fake_token(s, 'x', 0);
    fake_event(s, (atn_event){.choice = 1, .has_token = true, .token = {.id = FAKE_EOS}, .finish = ATN_FINISH_EOS});
    fake_last(s, 'y', ATN_FINISH_LENGTH);
    api_on_engine_wake(w->a);
    static const char end[] = "]}", obj[] = "chat.completion.chunk";
    const char *at = f->body.data;
    for (int i = 0; i < 2; i++) {
        char role[160];
        snprintf(role, sizeof role,
                 "{\"index\":%d,\"delta\":{\"role\":\"assistant\",\"content\":\"\"},\"logprobs\":null,\"finish_"
                 "reason\":null}",
                 i);
        assert_chunk(&at, obj, role, end);
    }
    assert_chunk(&at, obj, "{\"index\":0,\"delta\":{\"content\":\"x\"},\"logprobs\":null,\"finish_reason\":null}", end);
    assert_chunk(&at, obj, "{\"index\":1,\"delta\":{},\"logprobs\":null,\"finish_reason\":\"stop\"}", end);
    assert_chunk(&at, obj, "{\"index\":0,\"delta\":{\"content\":\"y\"},\"logprobs\":null,\"finish_reason\":null}", end);
    assert_chunk(&at, obj, "{\"index\":0,\"delta\":{},\"logprobs\":null,\"finish_reason\":\"length\"}", end);
    assert_string_equal(at, "data: [DONE]\n\n");
    fake_close(f);
    world_free(w);
}

/* openai-python and openai-node raise on a data event that holds an error, and on nothing else. */
static void an_error_in_a_stream_is_a_data_event(void **state)
{
    (void)state;
    static const char *const urls[] = {"/v1/completions", "/v1/chat/completions"};
    for (int i = 0; i < 2; i++) {
        world *w = world_new();
        fake_exchange *f = fake_post(w->a, urls[i],
                                     i == 0 ? "{\"prompt\":\"a\",\"stream\":true}"
                                            : "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],\"stream\":true}");
        atn_stream *s = &w->engine.streams[0];
        fake_token(s, 'x', 0);
        fake_event(s, (atn_event){.finish = ATN_FINISH_ERROR, .status = ATN_NONFINITE, .last = true});
        api_on_engine_wake(w->a);
        const char *error = strstr(f->body.data, "data: {\"error\":{\"message\":\"");
        assert_non_null(error);
        assert_non_null(strstr(error, "\"type\":\"server_error\",\"param\":null,\"code\":\"nonfinite\"}}\n\n"));
        assert_null(strstr(f->body.data, "[DONE]"));
        fake_close(f);
        world_free(w);
    }
}

static void an_answer_too_large_to_hold_is_refused_at_the_door(void **state)
{
    (void)state;
    world *w = world_new();
    w->a->info.context = 100000;
    static const char body[] =
        "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],\"logprobs\":true,\"top_logprobs\":20}";
    fake_exchange *f = fake_post(w->a, "/v1/chat/completions", body);
    assert_int_equal(f->status, 400);
    assert_non_null(strstr(f->body.data, "\"param\":\"top_logprobs\""));
    assert_int_equal(w->engine.n_streams, 0);
    fake_close(f);
    world_free(w);
}

static void a_text_that_does_not_fit_is_named_as_the_door_calls_it(void **state)
{
    (void)state;
#define CHAT "{\"messages\":[{\"role\":\"user\",\"content\":\"ab\"}],"
    static const char *const cases[][3] = {
        {"/v1/completions", "{\"prompt\":\"ab\",\"max_tokens\":62}", "max_tokens"},
        {"/v1/completions", "{\"prompt\":\"%064d\"}", "prompt"},
        {"/v1/chat/completions", CHAT "\"max_tokens\":62}", "max_tokens"},
        {"/v1/chat/completions", CHAT "\"max_completion_tokens\":62}", "max_completion_tokens"},
        {"/v1/chat/completions", "{\"messages\":[{\"role\":\"user\",\"content\":\"%064d\"}]}", "messages"},
    };
#undef CHAT
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        world *w = world_new();
        char body[256], want[64], *hole;
        snprintf(body, sizeof body, "%s", cases[i][1]);
        if ((hole = strstr(body, "%064d")) != NULL) {
            snprintf(hole, sizeof body - (size_t)(hole - body), "%064d%s", 0, strstr(cases[i][1], "%064d") + 5);
        }
        snprintf(want, sizeof want, "\"param\":\"%s\"", cases[i][2]);
        fake_exchange *f = fake_post(w->a, cases[i][0], body);
        assert_int_equal(f->status, 400);
        assert_non_null(strstr(f->body.data, "\"type\":\"exceed_context_size_error\""));
        assert_non_null(strstr(f->body.data, want));
        fake_close(f);
        world_free(w);
    }
}

static void models_and_probes(void **state)
{
    (void)state;
    world *w = world_new();
    w->a->set.model_id = "org/fake";
    w->a->opened_unix = 1700000000;
    static const struct {
        const char *path;
        int status;
        const char *body;
    } cases[] = {
        {"/v1/models", 200,
         "{\"object\":\"list\",\"data\":[{\"id\":\"org/"
         "fake\",\"object\":\"model\",\"created\":1700000000,\"owned_by\":\"attnd\"}]}"},
        {"/v1/models/org/fake", 200,
         "{\"id\":\"org/fake\",\"object\":\"model\",\"created\":1700000000,\"owned_by\":\"attnd\"}"},
        {"/v1/models/org", 404, NULL},
        {"/livez", 200, "{\"status\":\"ok\"}"},
        {"/readyz", 200, "{\"status\":\"ok\"}"},
        {"/health", 200, "{\"status\":\"ok\"}"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        fake_exchange *f = fake_send(w->a, "GET", cases[i].path, NULL, 1, NULL, NULL);
        assert_int_equal(f->status, cases[i].status);
        if (cases[i].body != NULL) {
            assert_string_equal(f->body.data, cases[i].body);
        }
        fake_close(f);
    }
    api_set_draining(w->a);
    fake_exchange *f = fake_send(w->a, "GET", "/livez", NULL, 1, NULL, NULL);
    assert_int_equal(f->status, 200);
    fake_close(f);
    f = fake_send(w->a, "GET", "/readyz", NULL, 1, NULL, NULL);
    assert_int_equal(f->status, 503);
    fake_close(f);
    world_free(w);
}

static void a_stalled_engine_is_not_alive(void **state)
{
    (void)state;
    world *w = world_new();
    w->engine.busy = true;
    fake_exchange *first = fake_send(w->a, "GET", "/livez", NULL, 1, NULL, NULL);
    assert_int_equal(first->status, 200); /* it only begins */
    fake_close(first);
    w->engine.steps = 7;
    mono_time now = mono_now();
    const uint64_t stall = (uint64_t)(HEALTH_STALL_S + 1) * 1000000;
    assert_true(now.us > stall);
    api_on_tick(w->a, (mono_time){now.us - stall});
    api_on_tick(w->a, (mono_time){now.us - 1});
    const int want[] = {503, 200};
    for (int i = 0; i < 2; i++) {
        w->engine.steps += (unsigned)i; /* it moves again */
        fake_exchange *f = fake_send(w->a, "GET", "/livez", NULL, 1, NULL, NULL);
        assert_int_equal(f->status, want[i]);
        fake_close(f);
    }
    world_free(w);
}

static void before_the_model_is_there(void **state)
{
    (void)state;
    world *w = world_new();
    w->a->engine = NULL;
    w->a->tok = NULL;
    static const struct {
        const char *method, *path;
        int status;
    } cases[] = {
        {"GET", "/livez", 200},
        {"GET", "/metrics", 200},
        {"GET", "/", 200},
        {"GET", "/readyz", 503},
        {"GET", "/health", 503},
        {"GET", "/info", 503},
        {"GET", "/v1/models", 503},
        {"GET", "/v1/models/fake", 503},
        {"POST", "/v1/completions", 503},
        {"POST", "/v1/chat/completions", 503},
        {"POST", "/apply-template", 503},
        {"POST", "/chat_tokenize", 503},
        {"POST", "/tokenize", 503},
        {"POST", "/detokenize", 503},
        {"POST", "/generate", 503},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        fake_exchange *f = fake_send(w->a, cases[i].method, cases[i].path, "{\"prompt\":\"a\"}", 1, NULL, NULL);
        assert_int_equal(f->status, cases[i].status);
        assert_true(cases[i].status == 200 || strstr(f->headers, "Retry-After: ") != NULL);
        fake_close(f);
    }
    world_free(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(whole_completion),
        cmocka_unit_test(streamed_completion),
        cmocka_unit_test(completion_logprobs),
        cmocka_unit_test(echo_with_logprobs),
        cmocka_unit_test(best_of_takes_the_likeliest),
        cmocka_unit_test(whole_chat),
        cmocka_unit_test(a_plain_chat_ends_at_the_next_role_line),
        cmocka_unit_test(streamed_chat),
        cmocka_unit_test(an_error_in_a_stream_is_a_data_event),
        cmocka_unit_test(an_answer_too_large_to_hold_is_refused_at_the_door),
        cmocka_unit_test(a_text_that_does_not_fit_is_named_as_the_door_calls_it),
        cmocka_unit_test(models_and_probes),
        cmocka_unit_test(a_stalled_engine_is_not_alive),
        cmocka_unit_test(before_the_model_is_there),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
