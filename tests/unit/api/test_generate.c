/* The native door and turns, driven event by event over a fake engine: shapes, stop strings, split characters, sessions,
 * back-pressure, pings, and every way a turn can end. */
#include "fake.h"

#define assert_has(text, part)                   \
    do {                                         \
        if (strstr(text, part) == NULL) {        \
            fail_msg("%s lacks %s", text, part); \
        }                                        \
    } while (0)

static atn_stream *newest(world *w)
{
    assert_true(w->engine.n_streams > 0);
    return &w->engine.streams[w->engine.n_streams - 1];
}

static void wake(world *w)
{
    api_on_engine_wake(w->a);
}

static void tick(world *w, uint64_t seconds)
{
    api_on_tick(w->a, (mono_time){mono_now().us + seconds * 1000000});
}

static void test_plain_answer(void **state)
{
    (void)state;
    world *w = world_new();
    fake_exchange *f = fake_post(w->a, "/generate", "{\"inputs\":\"ab\",\"odd\":1,\"parameters\":{\"more\":[]}}");
    atn_stream *s = newest(w);
    assert_int_equal(s->n_tokens, 3);
    assert_int_equal(s->tokens[0], FAKE_BOS);
    assert_int_equal(s->request.max_new_tokens, FAKE_CONTEXT - 3);
    assert_true(s->request.sample.temperature == 0);
    assert_int_equal(s->request.sequence, 0);
    fake_text(s, "hi");
    wake(w);
    assert_int_equal(f->status, 0);
    fake_last(s, FAKE_EOS, ATN_FINISH_EOS);
    wake(w);
    assert_int_equal(f->status, 200);
    assert_string_equal(f->body.data, "{\"generated_text\":\"hi\"}");
    assert_has(f->headers, "x-attnd-ignored-fields: 2\n");
    assert_has(f->headers, "x-compute-type: cpu\n");
    assert_has(f->headers, "x-prompt-tokens: 3\n");
    assert_has(f->headers, "x-generated-tokens: 3\n");
    assert_has(f->headers, "x-time-per-token: ");
    assert_null(strstr(f->headers, "x-session-id"));
    fake_close(f);
    world_free(w);
}

static void test_details(void **state)
{
    (void)state;
    world *w = world_new();
    fake_exchange *f = fake_post(w->a, "/generate",
                                 "{\"inputs\":\"a\",\"parameters\":{\"decoder_input_details\":true,\"top_n_tokens\":2,"
                                 "\"return_full_text\":true,\"do_sample\":true,\"seed\":9007199254740993}}");
    atn_stream *s = newest(w);
    assert_true(s->request.prompt_logprobs);
    assert_true(s->request.sample.temperature == 1);
    assert_true(s->request.sample.seed == 9007199254740993u);
    s->prompt_logprobs = calloc(2, sizeof *s->prompt_logprobs);
    s->prompt_logprobs[0].logprob = -0.25f;
    fake_event(
        s, (atn_event){.has_token = true, .token = {.id = 'h', .n_top = 2, .top = {{'h', -0.5f}, {FAKE_EOS, -1.5f}}}});
    fake_last(s, FAKE_EOS, ATN_FINISH_EOS);
    wake(w);
    assert_string_equal(
        f->body.data,
        "{\"generated_text\":\"ah\",\"details\":{\"finish_reason\":\"eos_token\",\"generated_tokens\":2,"
        "\"seed\":9007199254740993,\"prefill\":[{\"id\":256,\"text\":\"<s>\",\"logprob\":null},"
        "{\"id\":97,\"text\":\"a\",\"logprob\":-0.25}],\"tokens\":[{\"id\":104,\"text\":\"h\",\"logprob\":-0.5,"
        "\"special\":false},{\"id\":257,\"text\":\"</"
        "s>\",\"logprob\":-0.5,\"special\":true}],\"top_tokens\":[[{\"id\":104,"
        "\"text\":\"h\",\"logprob\":-0.5,\"special\":false},{\"id\":257,\"text\":\"</"
        "s>\",\"logprob\":-1.5,\"special\":true}"
        "],[]]}}");
    fake_close(f);
    world_free(w);
}

static void test_stream_events(void **state)
{
    (void)state;
    world *w = world_new();
    fake_exchange *f = fake_post(w->a, "/generate_stream", "{\"inputs\":\"a\",\"parameters\":{\"details\":true}}");
    assert_false(f->begun);
    atn_stream *s = newest(w);
    fake_token(s, 0xc3, 0);
    wake(w);
    assert_true(f->begun);
    assert_string_equal(f->type, "text/event-stream");
    assert_has(f->headers, "X-Accel-Buffering: no\n");
    assert_string_equal(f->body.data, "data:{\"index\":1,\"token\":{\"id\":195,\"text\":\"\",\"logprob\":-0.5,"
                                      "\"special\":false},\"generated_text\":null,\"details\":null}\n\n");
    buf_clear(&f->body);
    fake_last(s, 0xa9, ATN_FINISH_LENGTH);
    wake(w);
    assert_string_equal(f->body.data,
                        "data:{\"index\":2,\"token\":{\"id\":169,\"text\":\"\xc3\xa9\",\"logprob\":-0.5,"
                        "\"special\":false},\"generated_text\":\"\xc3\xa9\",\"details\":{\"finish_reason\":"
                        "\"length\",\"generated_tokens\":2,\"seed\":null,\"input_length\":2}}\n\n");
    assert_true(f->ended && f->clean);
    fake_close(f);
    world_free(w);
}

static void test_compat_is_an_array(void **state)
{
    (void)state;
    world *w = world_new();
    fake_exchange *f = fake_post(w->a, "/", "{\"inputs\":\"a\"}");
    fake_last(newest(w), 'x', ATN_FINISH_LENGTH);
    wake(w);
    assert_string_equal(f->body.data, "[{\"generated_text\":\"x\"}]");
    fake_close(f);
    world_free(w);
}

/* TGI shows the stop string; the rest of a token after it is cut from the text. */
static void test_stop_string_is_shown(void **state)
{
    (void)state;
    world *w = world_new();
    fake_exchange *f = fake_post(w->a, "/generate", "{\"inputs\":\"a\",\"parameters\":{\"stop\":[\"sto\"]}}");
    atn_stream *s = newest(w);
    assert_int_equal(s->request.n_stops, 1);
    fake_token(s, 'x', 0);
    fake_event(s, (atn_event){.has_token = true,
                              .token = {.id = FAKE_WORD},
                              .finish = ATN_FINISH_STOP,
                              .stop_cut = 4,
                              .stop_tail = 1,
                              .last = true});
    wake(w);
    assert_string_equal(f->body.data, "{\"generated_text\":\"xsto\"}");
    fake_close(f);
    world_free(w);
}

/* A renderer that writes down what it is told, for the rules that TGI's shape does not show. */
static char told[1024];

static void tell_piece(turn *t, const turn_piece *p)
{
    (void)t;
    size_t n = strlen(told);
    snprintf(told + n, sizeof told - n, "%u:%s%.*s%s ", p->answer,
             p->token == NULL ? "-"
             : p->special     ? "!"
                              : "",
             (int)p->n, p->text, p->finish != ATN_FINISH_NONE ? "." : "");
}

static void tell_end(turn *t)
{
    buf b;
    buf_init(&b, 4096);
    for (uint32_t i = 0; i < t->n_answers; i++) {
        buf_printf(&b, "[%s]", t->answers[i].text.len > 0 ? t->answers[i].text.data : "");
    }
    turn_reply(t, "text/plain", &b);
    buf_free(&b);
}

static const turn_render teller = {.on_piece = tell_piece, .on_end = tell_end};
static exchange_ops direct_ops;

static fake_exchange *start_direct(world *w, uint32_t n_prompts, uint32_t n_choices)
{
    told[0] = '\0';
    direct_ops = fake_ops;
    fake_exchange *f = calloc(1, sizeof *f);
    buf_init(&f->body, 1 << 20);
    f->x.ops = &direct_ops;
    f->x.who.key_hash = 1;
    turn_spec spec = {.render = &teller, .n_prompts = n_prompts};
    params_init(&spec.params);
    spec.params.n_choices = n_choices;
    spec.prompts = calloc(n_prompts, sizeof *spec.prompts);
    atn_err err;
    for (uint32_t i = 0; i < n_prompts; i++) {
        assert_int_equal(turn_tokenize(w->a, "prompt", "ab", 2, &spec.prompts[i], &err), ATN_OK);
    }
    turn_start(w->a, &f->x, &spec);
    return f;
}

static void test_held_text(void **state)
{
    (void)state;
    world *w = world_new();
    fake_exchange *f = start_direct(w, 1, 1);
    atn_stream *s = newest(w);
    fake_token(s, 'a', 0);
    fake_token(s, 's', 1);
    fake_token(s, 't', 2);
    fake_token(s, 'x', 0); /* it was no stop string */
    fake_token(s, 's', 1);
    fake_token(s, 0xc3, 0); /* nor was this; half a character */
    fake_event(
        s, (atn_event){
               .has_token = true, .token = {.id = FAKE_WORD}, .finish = ATN_FINISH_STOP, .stop_cut = 4, .last = true});
    wake(w);
    assert_string_equal(told, "0:a 0: 0: 0:stx 0: 0:s 0:\xef\xbf\xbd. ");
    assert_string_equal(f->body.data, "[astxs\xef\xbf\xbd]");
    fake_close(f);
    /* The end without a stop string releases what was held; a stop that cuts more than there is cuts all. */
    f = start_direct(w, 1, 1);
    s = newest(w);
    fake_token(s, 's', 1);
    fake_event(s, (atn_event){.finish = ATN_FINISH_LENGTH, .last = true});
    wake(w);
    assert_string_equal(told, "0: 0:-s. ");
    fake_close(f);
    f = start_direct(w, 1, 1);
    s = newest(w);
    fake_event(
        s,
        (atn_event){.has_token = true, .token = {.id = 'a'}, .finish = ATN_FINISH_STOP, .stop_cut = 99, .last = true});
    wake(w);
    assert_string_equal(told, "0:. ");
    fake_close(f);
    /* The token that ends an answer is no text; control tokens never are. */
    f = start_direct(w, 1, 1);
    s = newest(w);
    fake_token(s, FAKE_BOS, 0);
    fake_event(s, (atn_event){.has_token = true, .token = {.id = 'a'}, .finish = ATN_FINISH_STOP_ID, .last = true});
    wake(w);
    assert_string_equal(told, "0:! 0:. ");
    fake_close(f);
    world_free(w);
}

static void test_prompts_and_choices(void **state)
{
    (void)state;
    world *w = world_new();
    fake_exchange *f = start_direct(w, 2, 2);
    assert_int_equal(w->engine.n_streams, 2);
    for (uint32_t i = 0; i < 2; i++) {
        for (uint32_t c = 0; c < 2; c++) {
            fake_event(&w->engine.streams[i], (atn_event){.choice = 1 - c,
                                                          .has_token = true,
                                                          .token = {.id = (int32_t)('a' + 2 * i + 1 - c)},
                                                          .finish = ATN_FINISH_LENGTH,
                                                          .last = c == 1});
        }
    }
    wake(w);
    assert_string_equal(f->body.data, "[a][b][c][d]");
    fake_close(f);
    /* One prompt is refused: those before it are given up. */
    w->engine.refuse = ATN_OVERLOADED;
    w->engine.refuse_from = 4;
    f = start_direct(w, 3, 1);
    assert_int_equal(f->status, 429);
    assert_int_equal(w->engine.n_streams, 4);
    assert_true(w->engine.streams[2].released && w->engine.streams[3].released);
    fake_close(f);
    world_free(w);
}

static void test_best_of(void **state)
{
    (void)state;
    world *w = world_new();
    fake_exchange *f = fake_post(
        w->a, "/generate", "{\"inputs\":\"a\",\"parameters\":{\"best_of\":2,\"do_sample\":true,\"details\":true}}");
    atn_stream *s = newest(w);
    assert_int_equal(s->request.n_choices, 2);
    fake_event(
        s,
        (atn_event){.choice = 0, .has_token = true, .token = {.id = 'x', .logprob = -2}, .finish = ATN_FINISH_LENGTH});
    fake_event(s, (atn_event){.choice = 1, .has_token = true, .token = {.id = 'y', .logprob = -1}});
    fake_event(s, (atn_event){.choice = 1,
                              .has_token = true,
                              .token = {.id = 'z', .logprob = -1.5f},
                              .finish = ATN_FINISH_LENGTH,
                              .last = true});
    wake(w);
    assert_has(f->body.data,
               "{\"generated_text\":\"yz\",\"details\":{\"finish_reason\":\"length\",\"generated_tokens\":2,");
    assert_has(f->body.data,
               "\"best_of_sequences\":[{\"generated_text\":\"x\",\"finish_reason\":\"length\",\"generated_tokens\":1,");
    fake_close(f);
    world_free(w);
}

static void test_failures(void **state)
{
    (void)state;
    static const struct {
        atn_event ev;
        int status;
        const char *body;
    } cases[] = {
        {{.finish = ATN_FINISH_ERROR, .status = ATN_NONFINITE, .last = true}, 424, "\"error_type\":\"generation\""},
        {{.finish = ATN_FINISH_ERROR, .last = true}, 424, "Request failed during generation: internal error"},
        {{.finish = ATN_FINISH_DEADLINE, .last = true}, 504, "\"error_type\":\"timeout\""},
        {{.finish = ATN_FINISH_CANCELLED, .last = true}, 503, "\"error_type\":\"unavailable\""},
    };
    world *w = world_new();
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        fake_exchange *f = fake_post(w->a, "/generate", "{\"inputs\":\"a\",\"deadline_ms\":60000}");
        assert_int_equal(newest(w)->request.deadline_ms <= 60000, 1);
        fake_token(newest(w), 'x', 0);
        fake_event(newest(w), cases[i].ev);
        wake(w);
        assert_int_equal(f->status, cases[i].status);
        assert_has(f->body.data, cases[i].body);
        fake_close(f);
        /* In a stream the same words come as an event. */
        f = fake_post(w->a, "/generate_stream", "{\"inputs\":\"a\",\"deadline_ms\":60000}");
        fake_token(newest(w), 'x', 0);
        wake(w);
        buf_clear(&f->body);
        fake_event(newest(w), cases[i].ev);
        wake(w);
        assert_has(f->body.data, "data:{\"error\":\"");
        assert_has(f->body.data, cases[i].body);
        assert_true(f->ended);
        fake_close(f);
    }
    w->engine.refuse = ATN_OVERLOADED;
    fake_exchange *f = fake_post(w->a, "/generate_stream", "{\"inputs\":\"a\"}");
    assert_int_equal(f->status, 429);
    assert_false(f->begun);
    assert_has(f->headers, "Retry-After: 1\n");
    assert_has(f->body.data, "\"error_type\":\"overloaded\"");
    fake_close(f);
    world_free(w);
}

static void test_client_leaves(void **state)
{
    (void)state;
    world *w = world_new();
    fake_exchange *f = fake_post(w->a, "/generate_stream", "{\"inputs\":\"a\",\"session_id\":\"x\",\"create\":true}");
    fake_token(newest(w), 'x', 0);
    wake(w);
    assert_int_equal(api_active(w->a), 1);
    fake_close(f);
    assert_int_equal(api_active(w->a), 0);
    assert_true(newest(w)->released);
    assert_int_equal(sessions_count(w->a->sessions), 0); /* rolled back to nothing */
    assert_int_equal(w->engine.n_dropped, 1);
    world_free(w);
}

static void test_slow_reader_pauses(void **state)
{
    (void)state;
    world *w = world_new();
    fake_exchange *f = fake_post(w->a, "/generate_stream", "{\"inputs\":\"a\"}");
    atn_stream *s = newest(w);
    fake_text(s, "abc");
    f->queued = 1 << 20;
    wake(w);
    assert_int_equal(s->taken, 0);
    f->queued = 0;
    f->x.on_writable(&f->x);
    assert_int_equal(s->taken, 3);
    f->queued = 1 << 20;
    fake_last(s, 'd', ATN_FINISH_LENGTH);
    wake(w);
    assert_false(f->ended);
    f->queued = 0;
    tick(w, 0); /* a missed signal costs a tick, no more */
    assert_true(f->ended);
    fake_close(f);
    /* A write that fails ends the draining; the exchange's close does the rest. */
    f = fake_post(w->a, "/generate_stream", "{\"inputs\":\"a\"}");
    s = newest(w);
    f->refuse_writes = true;
    fake_text(s, "abc");
    wake(w);
    assert_int_equal(s->taken, 1);
    tick(w, 100);
    fake_close(f);
    world_free(w);
}

static void test_pings(void **state)
{
    (void)state;
    world *w = world_new();
    fake_exchange *f = fake_post(w->a, "/generate_stream", "{\"inputs\":\"a\"}");
    tick(w, 9);
    assert_false(f->begun);
    tick(w, 11); /* also before the first token */
    assert_true(f->begun);
    assert_string_equal(f->body.data, ": ping\n\n");
    tick(w, 9);
    assert_string_equal(f->body.data, ": ping\n\n");
    fake_close(f);
    f = fake_post(w->a, "/generate", "{\"inputs\":\"a\"}");
    tick(w, 11);
    assert_int_equal(f->status, 0);
    fake_close(f);
    world_free(w);
}

static void test_context_numbers(void **state)
{
    (void)state;
    world *w = world_new();
    char body[256];
    static const struct {
        int chars, max_new, status;
    } cases[] = {
        {FAKE_CONTEXT - 2, -1, 200}, /* BOS + text = context - 1: one token */
        {FAKE_CONTEXT - 1, -1, 422}, {FAKE_CONTEXT, -1, 422},    {FAKE_CONTEXT - 1, 0, 200}, {FAKE_CONTEXT, 0, 422},
        {3, FAKE_CONTEXT - 4, 200},  {3, FAKE_CONTEXT - 3, 422}, {3, INT32_MAX, 422},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char text[FAKE_CONTEXT + 1];
        memset(text, 'a', sizeof text);
        text[cases[i].chars] = '\0';
        if (cases[i].max_new >= 0) {
            snprintf(body, sizeof body, "{\"inputs\":\"%s\",\"parameters\":{\"max_new_tokens\":%d}}", text,
                     cases[i].max_new);
        } else {
            snprintf(body, sizeof body, "{\"inputs\":\"%s\"}", text);
        }
        fake_exchange *f = fake_post(w->a, "/generate", body);
        assert_int_equal(f->status, cases[i].status == 200 ? 0 : cases[i].status);
        if (cases[i].status == 200) {
            atn_request *r = &newest(w)->request;
            assert_true(r->n_tokens + r->max_new_tokens <= FAKE_CONTEXT);
            assert_int_equal(r->max_new_tokens, cases[i].max_new < 0 ? 1 : cases[i].max_new);
        } else {
            assert_has(f->body.data, "the context holds 64");
        }
        fake_close(f);
    }
    world_free(w);
}

static void test_lists_are_bounded(void **state)
{
    (void)state;
    world *w = world_new();
    w->a->info.context = 1 << 20;
    fake_exchange *f =
        fake_post(w->a, "/generate", "{\"inputs\":\"a\",\"parameters\":{\"details\":true,\"top_n_tokens\":20}}");
    assert_int_equal(f->status, 422);
    assert_has(f->body.data, "the limit is 262144");
    fake_close(f);
    f = fake_post(w->a, "/generate_stream", "{\"inputs\":\"a\",\"parameters\":{\"details\":true,\"top_n_tokens\":20}}");
    assert_int_equal(f->status, 0);
    fake_close(f);
    world_free(w);
}

static void test_truncate(void **state)
{
    (void)state;
    world *w = world_new();
    fake_exchange *f = fake_post(w->a, "/generate", "{\"inputs\":\"abcdef\",\"parameters\":{\"truncate\":3}}");
    atn_stream *s = newest(w);
    assert_int_equal(s->n_tokens, 3);
    assert_int_equal(s->tokens[0], FAKE_BOS);
    assert_int_equal(s->tokens[1], 'e');
    fake_close(f);
    world_free(w);
}

/* One turn of a session: sends, answers "ok" and EOS, closes. Returns the prompt's tokens. */
static uint32_t session_turn(world *w, const char *body, uint64_t key, int status)
{
    fake_exchange *f = fake_send(w->a, "POST", "/generate", body, key, NULL, NULL);
    uint32_t n = 0;
    if (f->status == 0) {
        atn_stream *s = newest(w);
        n = s->n_tokens;
        fake_text(s, "ok");
        fake_last(s, FAKE_EOS, ATN_FINISH_EOS);
        wake(w);
    }
    assert_int_equal(f->status, status);
    fake_close(f);
    return n;
}

static void test_session_appends(void **state)
{
    (void)state;
    world *w = world_new();
    session_turn(w, "{\"inputs\":\"ab\",\"session_id\":\"x\"}", 1, 404);
    assert_int_equal(session_turn(w, "{\"inputs\":\"ab\",\"session_id\":\"x\",\"create\":true}", 1, 200), 3);
    uint64_t sequence = newest(w)->request.sequence;
    assert_true(sequence != 0);
    /* BOS a b o k, then c: no second BOS, no EOS. */
    fake_exchange *f = fake_send(w->a, "POST", "/generate", "{\"inputs\":\"c\",\"parameters\":{\"details\":true}}", 1,
                                 "X-Session-Id", "x");
    atn_stream *s = newest(w);
    static const int32_t expected[6] = {FAKE_BOS, 'a', 'b', 'o', 'k', 'c'};
    assert_int_equal(s->n_tokens, 6);
    assert_memory_equal(s->tokens, expected, sizeof expected);
    assert_true(s->request.sequence == sequence);
    fake_event(s, (atn_event){.finish = ATN_FINISH_ERROR, .last = true});
    wake(w);
    fake_close(f);
    /* The failed turn left nothing. */
    f = fake_send(w->a, "POST", "/generate", "{\"inputs\":\"d\",\"parameters\":{\"details\":true},\"turn\":2}", 1,
                  "X-Session-Id", "x");
    s = newest(w);
    assert_int_equal(s->n_tokens, 6);
    assert_int_equal(s->tokens[5], 'd');
    fake_last(s, 'e', ATN_FINISH_LENGTH);
    wake(w);
    assert_has(f->headers, "x-session-id: x\n");
    assert_has(f->headers, "x-session-turn: 2\n");
    assert_has(f->headers, "x-cached-tokens: 3\n");
    assert_has(f->body.data, "\"cached_tokens\":3");
    fake_close(f);
    /* A wrong turn number. */
    f = fake_send(w->a, "POST", "/generate", "{\"inputs\":\"d\",\"turn\":2}", 1, "X-Session-Id", "x");
    assert_int_equal(f->status, 409);
    assert_has(f->headers, "x-should-retry: false\n");
    assert_has(f->body.data, "next turn is 3");
    fake_close(f);
    /* Another key, another salt: no such session. */
    session_turn(w, "{\"inputs\":\"d\",\"session_id\":\"x\"}", 2, 404);
    session_turn(w, "{\"inputs\":\"d\",\"session_id\":\"x\",\"cache_salt\":\"s\"}", 1, 404);
    session_turn(w, "{\"inputs\":\"d\",\"session_id\":\"y\",\"cache_salt\":\"s\",\"create\":true}", 1, 200);
    session_turn(w, "{\"inputs\":\"d\",\"session_id\":\"y\",\"cache_salt\":\"s\"}", 2, 404);
    /* Session tokens are bounded by the setting, 40 here: 7 are there, the 2 new ones and 32 more do not fit. */
    f = fake_send(w->a, "POST", "/generate", "{\"inputs\":\"de\",\"parameters\":{\"max_new_tokens\":32}}", 1,
                  "X-Session-Id", "x");
    assert_int_equal(f->status, 413);
    assert_has(f->body.data, "a session holds 40");
    fake_close(f);
    f = fake_send(w->a, "POST", "/generate", "{\"inputs\":\"de\"}", 1, "X-Session-Id", "x");
    assert_int_equal(newest(w)->n_tokens, 9);
    assert_int_equal(newest(w)->request.max_new_tokens, 31);
    fake_close(f);
    world_free(w);
}

static void test_session_one_at_a_time(void **state)
{
    (void)state;
    world *w = world_new();
    session_turn(w, "{\"inputs\":\"a\",\"session_id\":\"x\",\"create\":true}", 1, 200);
    static const char body[] = "{\"inputs\":\"a\",\"session_id\":\"x\"}";
    fake_exchange *f[4];
    for (int i = 0; i < 4; i++) {
        f[i] = fake_post(w->a, "/generate", body);
    }
    assert_int_equal(w->engine.n_streams, 2); /* only the first runs */
    assert_int_equal(f[3]->status, 429);      /* two may wait */
    assert_has(f[3]->body.data, "limit is 2");
    fake_close(f[3]);
    fake_close(f[1]); /* a waiting client leaves */
    fake_last(newest(w), 'y', ATN_FINISH_LENGTH);
    wake(w);
    assert_int_equal(f[0]->status, 200);
    assert_int_equal(w->engine.n_streams, 3);
    assert_int_equal(newest(w)->n_tokens, 7); /* BOS a o k, a y, a */
    fake_close(f[0]);
    /* Delete while one runs and one waits. */
    f[1] = fake_post(w->a, "/generate", body);
    fake_exchange *d = fake_send(w->a, "DELETE", "/v1/sessions/x", NULL, 2, NULL, NULL);
    assert_int_equal(d->status, 404);
    fake_close(d);
    d = fake_send(w->a, "DELETE", "/v1/sessions/x", NULL, 1, NULL, NULL);
    assert_int_equal(d->status, 204);
    fake_close(d);
    assert_int_equal(f[1]->status, 404);
    assert_int_equal(f[2]->status, 404);
    assert_true(newest(w)->released);
    assert_int_equal(api_active(w->a), 0);
    fake_close(f[1]);
    fake_close(f[2]);
    world_free(w);
}

static void test_deadline_while_waiting(void **state)
{
    (void)state;
    world *w = world_new();
    fake_exchange *f = fake_post(w->a, "/generate", "{\"inputs\":\"a\",\"session_id\":\"x\",\"create\":true}");
    fake_exchange *g = fake_post(w->a, "/generate", "{\"inputs\":\"a\",\"session_id\":\"x\",\"deadline_ms\":1}");
    while (g->status == 0) {
        tick(w, 0);
    }
    assert_int_equal(g->status, 504);
    assert_int_equal(w->engine.n_streams, 1);
    fake_close(g);
    fake_close(f);
    world_free(w);
}

/* A turn waits for its session no longer than the limit, whether it named a deadline or not; one that runs is left alone. */
static void test_queue_limit_in_line(void **state)
{
    (void)state;
    world *w = world_new();
    fake_exchange *f = fake_post(w->a, "/generate", "{\"inputs\":\"a\",\"session_id\":\"x\",\"create\":true}");
    fake_exchange *g = fake_post(w->a, "/generate", "{\"inputs\":\"a\",\"session_id\":\"x\",\"deadline_ms\":3600000}");
    fake_exchange *h = fake_post(w->a, "/generate_stream", "{\"inputs\":\"a\",\"session_id\":\"x\"}");
    tick(w, 20);
    assert_int_equal(g->status, 0);
    assert_true(h->begun); /* pinged */
    tick(w, 31);
    assert_int_equal(g->status, 504);
    assert_has(g->body.data, "\"error_type\":\"timeout\"");
    assert_has(g->body.data, "waited 30 s");
    assert_has(h->body.data, "data:{\"error\":\"the request waited 30 s for its turn, which is the limit\"");
    assert_true(h->ended);
    assert_int_equal(f->status, 0);
    assert_int_equal(w->engine.n_streams, 1);
    fake_close(g);
    fake_close(h);
    /* The engine's own limit is told in the same words, unless the deadline was earlier. */
    fake_event(newest(w), (atn_event){.finish = ATN_FINISH_DEADLINE, .status = ATN_DEADLINE, .last = true});
    wake(w);
    assert_int_equal(f->status, 504);
    assert_has(f->body.data, "waited 30 s");
    fake_close(f);
    world_free(w);
}

/* No memory is load: clients come again. */
static void test_no_memory_is_load(void **state)
{
    (void)state;
    world *w = world_new();
    static const char *const routes[] = {"/generate", "/v1/completions"};
    static const char *const bodies[] = {"{\"inputs\":\"a\"}", "{\"prompt\":\"a\"}"};
    static const char *const want[] = {"\"error_type\":\"overloaded\"", "\"type\":\"overloaded_error\""};
    for (int i = 0; i < 2; i++) {
        fake_exchange *f = fake_post(w->a, routes[i], bodies[i]);
        fake_event(newest(w), (atn_event){.finish = ATN_FINISH_ERROR, .status = ATN_NOMEM, .last = true});
        wake(w);
        assert_int_equal(f->status, 429);
        assert_has(f->headers, "Retry-After: 1");
        assert_has(f->body.data, want[i]);
        fake_close(f);
    }
    world_free(w);
}

static void test_pings_while_waiting(void **state)
{
    (void)state;
    world *w = world_new();
    fake_exchange *f = fake_post(w->a, "/generate", "{\"inputs\":\"a\",\"session_id\":\"x\",\"create\":true}");
    fake_exchange *g = fake_post(w->a, "/generate_stream", "{\"inputs\":\"a\",\"session_id\":\"x\"}");
    fake_exchange *h = fake_post(w->a, "/generate_stream", "{\"inputs\":\"a\",\"session_id\":\"x\",\"turn\":9}");
    tick(w, 11);
    assert_true(g->begun);
    assert_string_equal(g->body.data, ": ping\n\n");
    assert_false(h->begun); /* may yet be refused by a status */
    assert_int_equal(w->engine.n_streams, 1);
    fake_close(h);
    fake_close(g);
    fake_close(f);
    world_free(w);
}

static void test_session_objects(void **state)
{
    (void)state;
    world *w = world_new();
    fake_exchange *f = fake_send(w->a, "POST", "/v1/sessions", NULL, 1, NULL, NULL);
    assert_int_equal(f->status, 201);
    assert_has(f->body.data, "{\"id\":\"s-");
    fake_close(f);
    f = fake_post(w->a, "/v1/sessions", "{\"session_id\":\"mine\"}");
    assert_int_equal(f->status, 201);
    fake_close(f);
    f = fake_post(w->a, "/v1/sessions", "{\"session_id\":\"mine\"}");
    assert_int_equal(f->status, 409);
    fake_close(f);
    f = fake_send(w->a, "POST", "/v1/sessions", "{\"session_id\":\"mine\"}", 2, NULL, NULL);
    assert_int_equal(f->status, 201);
    fake_close(f);
    f = fake_send(w->a, "POST", "/v1/sessions", NULL, 2, NULL, NULL);
    assert_int_equal(f->status, 429);
    assert_has(f->body.data, "the limit is 3");
    fake_close(f);
    f = fake_send(w->a, "GET", "/v1/sessions", NULL, 2, NULL, NULL);
    assert_int_equal(f->status, 200);
    assert_has(f->body.data, "\"id\":\"mine\"");
    assert_null(strstr(f->body.data, "\"id\":\"s-"));
    fake_close(f);
    f = fake_send(w->a, "GET", "/v1/sessions/mine", NULL, 1, NULL, NULL);
    assert_int_equal(f->status, 200);
    assert_has(f->body.data, "\"tokens\":0,\"turns\":0");
    fake_close(f);
    f = fake_send(w->a, "GET", "/v1/sessions/none", NULL, 1, NULL, NULL);
    assert_int_equal(f->status, 404);
    assert_has(f->body.data, "\"param\":\"session_id\"");
    fake_close(f);
    tick(w, 61);
    assert_int_equal(sessions_count(w->a->sessions), 0);
    world_free(w);
}

static void test_not_ready(void **state)
{
    (void)state;
    world *w = world_new();
    atn_engine *e = w->a->engine;
    w->a->engine = NULL;
    fake_exchange *f = fake_post(w->a, "/generate", "{\"inputs\":\"a\"}");
    assert_int_equal(f->status, 503);
    assert_has(f->headers, "Retry-After: 5\n");
    fake_close(f);
    w->a->engine = e;
    f = fake_post(w->a, "/generate", "{\"inputs\":\"a\"}");
    api_set_draining(w->a);
    fake_exchange *g = fake_post(w->a, "/generate", "{\"inputs\":\"a\"}");
    assert_int_equal(g->status, 503);
    fake_close(g);
    fake_last(newest(w), 'x', ATN_FINISH_LENGTH); /* what runs may end */
    wake(w);
    assert_int_equal(f->status, 200);
    fake_close(f);
    world_free(w);
}

static void test_tokenize(void **state)
{
    (void)state;
    world *w = world_new();
    static const struct {
        const char *path, *body;
        int status;
        const char *answer;
    } cases[] = {
        {"/tokenize", "{\"inputs\":\"ab\"}", 200,
         "[{\"id\":256,\"text\":\"<s>\",\"start\":0,\"stop\":0},{\"id\":97,\"text\":\"a\",\"start\":0,\"stop\":1},"
         "{\"id\":98,\"text\":\"b\",\"start\":1,\"stop\":2}]"},
        {"/tokenize", "{\"content\":\"ab\"}", 200, "{\"tokens\":[97,98]}"},
        {"/tokenize", "{\"content\":\"a\",\"add_special\":true,\"with_pieces\":true}", 200,
         "{\"tokens\":[{\"id\":256,\"piece\":\"<s>\"},{\"id\":97,\"piece\":\"a\"}]}"},
        {"/tokenize", "{\"content\":\"\xc3\xa9\",\"with_pieces\":true}", 200,
         "{\"tokens\":[{\"id\":195,\"piece\":[195]},{\"id\":169,\"piece\":[169]}]}"},
        {"/tokenize", "{\"content\":\"\"}", 200, "{\"tokens\":[]}"},
        {"/tokenize", "{\"inputs\":\"\"}", 422, "\"error_type\":\"validation\""},
        {"/tokenize", "{\"inputs\":1}", 422, "\"error_type\":\"validation\""},
        {"/tokenize", "{}", 422, "inputs"},
        {"/tokenize", "{\"content\":1}", 400, "\"param\":\"content\""},
        {"/detokenize", "{\"tokens\":[104,105,257]}", 200, "{\"content\":\"hi</s>\"}"},
        {"/detokenize", "{\"tokens\":[]}", 200, "{\"content\":\"\"}"},
        {"/detokenize", "{\"tokens\":[259]}", 400, "\"param\":\"tokens\""},
        {"/detokenize", "{\"tokens\":\"a\"}", 400, "\"param\":\"tokens\""},
        {"/detokenize", "{}", 400, "\"param\":\"tokens\""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        fake_exchange *f = fake_post(w->a, cases[i].path, cases[i].body);
        assert_int_equal(f->status, cases[i].status);
        if (f->status == 200) {
            assert_string_equal(f->body.data, cases[i].answer);
        } else {
            assert_has(f->body.data, cases[i].answer);
        }
        fake_close(f);
    }
    world_free(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plain_answer),
        cmocka_unit_test(test_details),
        cmocka_unit_test(test_stream_events),
        cmocka_unit_test(test_compat_is_an_array),
        cmocka_unit_test(test_stop_string_is_shown),
        cmocka_unit_test(test_held_text),
        cmocka_unit_test(test_prompts_and_choices),
        cmocka_unit_test(test_best_of),
        cmocka_unit_test(test_failures),
        cmocka_unit_test(test_client_leaves),
        cmocka_unit_test(test_slow_reader_pauses),
        cmocka_unit_test(test_pings),
        cmocka_unit_test(test_pings_while_waiting),
        cmocka_unit_test(test_context_numbers),
        cmocka_unit_test(test_truncate),
        cmocka_unit_test(test_lists_are_bounded),
        cmocka_unit_test(test_session_appends),
        cmocka_unit_test(test_session_one_at_a_time),
        cmocka_unit_test(test_deadline_while_waiting),
        cmocka_unit_test(test_queue_limit_in_line),
        cmocka_unit_test(test_no_memory_is_load),
        cmocka_unit_test(test_session_objects),
        cmocka_unit_test(test_not_ready),
        cmocka_unit_test(test_tokenize),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
