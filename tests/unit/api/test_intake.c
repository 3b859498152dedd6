/* Bodies that are parsed on another thread: the answers are those of bodies that are not, whatever happens meanwhile.
 *
 * The runner keeps each job; a test runs its work and its end when it likes, the last test on real threads. */
#include "tests/unit/api/fake.h"

#include "server/api/door.h"
#include <pthread.h>
#include <unistd.h>

enum { MAX_JOBS = 64 };

typedef struct runner {
    struct {
        void (*work)(void *job);
        void (*done)(void *job);
        void *job;
    } jobs[MAX_JOBS];
    uint32_t n;
    bool refuse;
} runner;

static atn_status keep(void *arg, void (*work)(void *job), void (*done)(void *job), void *job, atn_err *err)
{
    runner *r = arg;
    if (r->refuse) {
        return atn_fail(err, ATN_NOMEM, NULL, "no thread");
    }
    assert_true(r->n < MAX_JOBS);
    r->jobs[r->n].work = work;
    r->jobs[r->n].done = done;
    r->jobs[r->n++].job = job;
    return ATN_OK;
}

static void work(runner *r, uint32_t i)
{
    r->jobs[i].work(r->jobs[i].job);
}

static void done(runner *r, uint32_t i)
{
    r->jobs[i].done(r->jobs[i].job);
}

static world *world_aside(runner *r)
{
    world *w = world_new();
    *r = (runner){0};
    w->a->set.run_aside = keep;
    w->a->set.run_arg = r;
    return w;
}

static void world_free_idle(world *w)
{
    assert_int_equal(w->a->aside_bytes, 0);
    world_free(w);
}

/* body, made `bytes` long by blanks before its closing brace. To be freed. */
static char *padded(const char *body, size_t bytes)
{
    size_t n = strlen(body);
    assert_true(n <= bytes);
    char *out = malloc(bytes + 1);
    memcpy(out, body, n - 1);
    memset(out + n - 1, ' ', bytes - n);
    out[bytes - 1] = body[n - 1];
    out[bytes] = '\0';
    return out;
}

static fake_exchange *post_padded(world *w, const char *path, const char *body, size_t bytes, const char *header,
                                  const char *value)
{
    char *text = padded(body, bytes);
    fake_exchange *f = fake_send(w->a, "POST", path, text, 1, header, value);
    free(text);
    return f;
}

static fake_exchange *post_large(world *w, const char *path, const char *body)
{
    return post_padded(w, path, body, INTAKE_ASIDE_BYTES + 1, NULL, NULL);
}

static atn_stream *newest(world *w)
{
    return &w->engine.streams[w->engine.n_streams - 1];
}

/* Ends the turn of the newest stream with a token of text. */
static void answer(world *w)
{
    fake_last(newest(w), 'z', ATN_FINISH_LENGTH);
    api_on_engine_wake(w->a);
}

static void small_bodies_are_parsed_at_once(void **state)
{
    (void)state;
    runner r;
    world *w = world_aside(&r);
    fake_exchange *f = post_padded(w, "/v1/completions", "{\"prompt\":\"ab\"}", INTAKE_ASIDE_BYTES, NULL, NULL);
    assert_int_equal(r.n, 0);
    assert_int_equal(w->engine.n_streams, 1);
    assert_null(f->x.body); /* nothing is kept of it while the turn runs */
    fake_close(f);
    world_free_idle(w);
}

#define MESSAGES "\"messages\":[{\"role\":\"user\",\"content\":\"ab\"}]"

/* Every door, with bodies that are fine and bodies that are not. */
static const struct {
    const char *path, *body;
    int status;      /* 0: a turn runs */
    const char *has; /* in the answer */
} doors[] = {
    {"/generate", "{\"inputs\":\"ab\"}", 0, "{\"generated_text\":\"z\"}"},
    {"/generate", "{\"inputs\":\"ab\",\"parameters\":{\"x\":1},\"y\":1}", 0, "{\"generated_text\":\"z\"}"},
    {"/generate_stream", "{\"inputs\":\"ab\"}", 0, "\"generated_text\":\"z\""},
    {"/", "{\"inputs\":\"ab\"}", 0, "[{\"generated_text\":\"z\"}]"},
    {"/v1/completions", "{\"prompt\":[97,98]}", 0, "\"id\":\"cmpl-r\""},
    {"/v1/chat/completions", "{" MESSAGES "}", 0, "\"id\":\"chatcmpl-r\""},
    {"/tokenize", "{\"inputs\":\"a\"}", 200, "\"stop\":1}]"},
    {"/tokenize", "{\"content\":\"ab\",\"z\":1}", 200, "{\"tokens\":[97,98]}"},
    {"/detokenize", "{\"tokens\":[97,98]}", 200, "{\"content\":\"ab\"}"},
    {"/apply-template", "{" MESSAGES "}", 200, "{\"prompt\":\"userab\"}"},
    {"/chat_tokenize", "{" MESSAGES "}", 200, "\"templated_text\":\"userab\""},
    {"/generate", "{\"inputs\":5}", 422, "inputs"},
    {"/generate", "{\"inputs\":\"a\",}", 422, "invalid JSON"},
    {"/generate", "{\"inputs\":\"a\",\"parameters\":{\"max_new_tokens\":63}}", 422, "the context holds 64"},
    {"/v1/completions", "{\"prompt\":\"\"}", 400, "\"param\":\"prompt\""},
    {"/v1/completions", "{\"prompt\":\"a\",\"model\":\"other\"}", 404, "model_not_found"},
    {"/v1/chat/completions", "{" MESSAGES ",\"tools\":[1]}", 400, "\"param\":\"tools\""},
    {"/tokenize", "{\"content\":5}", 400, "\"param\":\"content\""},
    {"/tokenize", "{\"inputs\":5}", 422, "\"error_type\""},
    {"/detokenize", "{\"tokens\":[9999]}", 400, "\"param\":\"tokens\""},
};

static void every_door_says_the_same_on_either_way(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof doors / sizeof doors[0]; i++) {
        char *body[2];
        bool ignored[2];
        for (int aside = 0; aside < 2; aside++) {
            runner r;
            world *w = world_aside(&r);
            w->a->set.strict_model = true;
            w->a->set.run_aside = aside ? keep : NULL;
            fake_exchange *f = post_large(w, doors[i].path, doors[i].body);
            assert_int_equal(r.n, aside);
            if (aside) {
                assert_int_equal(api_active(w->a), 1);
                work(&r, 0);
                assert_int_equal(f->answers, 0);
                assert_int_equal(w->engine.n_streams, 0);
                done(&r, 0);
            }
            assert_int_equal(w->engine.n_streams, doors[i].status == 0);
            assert_int_equal(api_active(w->a), doors[i].status == 0);
            if (doors[i].status == 0) {
                answer(w);
            }
            assert_int_equal(f->status, doors[i].status == 0 ? 200 : doors[i].status);
            if (strstr(f->body.data, doors[i].has) == NULL) {
                fail_msg("%s: no %s in %s", doors[i].path, doors[i].has, f->body.data);
            }
            ignored[aside] = strstr(f->headers, "x-attnd-ignored-fields: ") != NULL;
            body[aside] = buf_take(&f->body, NULL);
            fake_close(f);
            world_free_idle(w);
        }
        assert_int_equal(ignored[0], strstr(doors[i].body, "\"y\"") != NULL || strstr(doors[i].body, "\"z\"") != NULL);
        assert_int_equal(ignored[0], ignored[1]);
        char *created[2] = {strstr(body[0], "\"created\":"), strstr(body[1], "\"created\":")};
        if (created[0] != NULL) { /* the time may have moved on between the two */
            assert_int_equal(created[0] - body[0], created[1] - body[1]);
            memcpy(created[1], created[0], strlen("\"created\":1234567890"));
        }
        assert_string_equal(body[0], body[1]);
        free(body[0]);
        free(body[1]);
    }
}

static void a_client_that_leaves_is_forgotten(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof doors / sizeof doors[0]; i++) {
        for (int worked = 0; worked < 2; worked++) {
            runner r;
            world *w = world_aside(&r);
            fake_exchange *f = post_large(w, doors[i].path, doors[i].body);
            if (worked) {
                work(&r, 0);
            }
            fake_close(f);
            assert_int_equal(api_active(w->a), 1); /* the job is still out */
            assert_true(w->a->aside_bytes > 0);
            unsigned before = atomic_load(&fake_tokenized);
            if (!worked) {
                work(&r, 0);
            }
            done(&r, 0);
            assert_int_equal(atomic_load(&fake_tokenized), before); /* nobody wants it any more */
            assert_int_equal(w->engine.n_streams, 0);
            world_free_idle(w);
        }
    }
}

static void results_come_in_any_order(void **state)
{
    (void)state;
    runner r;
    world *w = world_aside(&r);
    fake_exchange *f[3];
    static const char *const texts[3] = {"{\"prompt\":\"x\"}", "{\"prompt\":\"y\"}", "{\"prompt\":\"z\"}"};
    for (int i = 0; i < 3; i++) {
        f[i] = post_large(w, "/v1/completions", texts[i]);
    }
    fake_exchange *small = fake_post(w->a, "/v1/completions", "{\"prompt\":\"w\"}");
    assert_int_equal(w->engine.streams[0].tokens[1], 'w'); /* it passes by */
    assert_int_equal(api_active(w->a), 4);
    static const uint32_t order[3] = {2, 0, 1};
    for (uint32_t i = 0; i < 3; i++) {
        work(&r, order[i]);
        done(&r, order[i]);
        assert_int_equal(newest(w)->tokens[1], 'x' + (int32_t)order[i]);
        answer(w);
        assert_int_equal(f[order[i]]->status, 200);
    }
    for (int i = 0; i < 3; i++) {
        fake_close(f[i]);
    }
    fake_close(small);
    world_free_idle(w);
}

/* What a door needs of the request besides its body was copied. */
static void the_head_is_copied(void **state)
{
    (void)state;
    runner r;
    world *w = world_aside(&r);
    char header[] = "talk";
    fake_exchange *f = post_padded(w, "/generate", "{\"inputs\":\"ab\",\"create\":true}", INTAKE_ASIDE_BYTES + 1,
                                   "x-session-id", header);
    memcpy(header, "gone", sizeof header);
    f->header_names[0] = NULL;
    f->x.request_id = NULL;
    f->x.who.key_hash = 77;
    work(&r, 0);
    done(&r, 0);
    answer(w);
    assert_int_equal(f->status, 200);
    assert_non_null(strstr(f->headers, "x-session-id: talk\n"));
    assert_int_equal(newest(w)->request.domain, 1);
    fake_close(f);
    char much[SESSION_ID_MAX + 2];
    memset(much, 'a', sizeof much - 1);
    much[sizeof much - 1] = '\0';
    const char *const values[] = {much, "", "a b"};
    for (int i = 0; i < 3; i++) {
        f = fake_send(w->a, "POST", "/generate", "{\"inputs\":\"ab\",\"create\":true}", 1, "x-session-id", values[i]);
        assert_int_equal(f->status, 422);
        assert_non_null(strstr(f->body.data, "session_id must be"));
        fake_close(f);
    }
    world_free_idle(w);
}

static void there_is_a_limit(void **state)
{
    (void)state;
    runner r;
    world *w = world_aside(&r);
    w->a->set.max_body = 8000;
    fake_exchange *f[INTAKE_ASIDE_BODIES];
    for (int i = 0; i < INTAKE_ASIDE_BODIES; i++) {
        f[i] = post_padded(w, "/v1/completions", "{\"prompt\":\"x\"}", 8000, NULL, NULL);
        assert_int_equal(f[i]->status, 0);
    }
    for (int i = 0; i < 2; i++) {
        fake_exchange *over = post_large(w, i == 0 ? "/v1/completions" : "/tokenize", "{\"inputs\":\"x\"}");
        assert_int_equal(over->status, 429);
        assert_non_null(strstr(over->headers, "Retry-After: 1\n"));
        assert_non_null(strstr(over->body.data, "128000 bytes"));
        fake_close(over);
    }
    fake_exchange *small = fake_post(w->a, "/v1/completions", "{\"prompt\":\"x\"}"); /* is no load of that kind */
    assert_int_equal(w->engine.n_streams, 1);
    fake_close(small);
    fake_close(f[0]); /* a client that left still has its body there */
    work(&r, 0);
    fake_exchange *over = post_large(w, "/v1/completions", "{\"prompt\":\"x\"}");
    assert_int_equal(over->status, 429);
    fake_close(over);
    done(&r, 0);
    f[0] = post_large(w, "/v1/completions", "{\"prompt\":\"x\"}");
    assert_int_equal(f[0]->status, 0);
    for (uint32_t i = 1; i < r.n; i++) {
        work(&r, i);
        done(&r, i);
    }
    for (int i = 0; i < INTAKE_ASIDE_BODIES; i++) {
        fake_close(f[i]);
    }
    world_free_idle(w);
}

static void what_can_be_refused_at_once_is(void **state)
{
    (void)state;
    runner r;
    world *w = world_aside(&r);
    fake_exchange *f =
        post_padded(w, "/v1/completions", "{\"prompt\":\"a\"}", INTAKE_ASIDE_BYTES + 1, "content-type", "text/plain");
    assert_int_equal(f->status, 415);
    fake_close(f);
    r.refuse = true;
    f = post_large(w, "/v1/completions", "{\"prompt\":\"a\"}");
    assert_int_equal(f->status, atn_status_http(ATN_NOMEM));
    fake_close(f);
    w->a->tok = NULL;
    w->a->engine = NULL;
    f = post_large(w, "/tokenize", "{\"inputs\":\"a\"}");
    assert_int_equal(f->status, 503);
    fake_close(f);
    assert_int_equal(r.n, 0);
    world_free_idle(w);
}

/* Draining refuses what comes and lets end what came; the last moment is that of a client that left. */
static void draining_waits_for_it(void **state)
{
    (void)state;
    runner r;
    world *w = world_aside(&r);
    fake_exchange *f = post_large(w, "/v1/completions", "{\"prompt\":\"a\"}");
    fake_exchange *cut = post_large(w, "/v1/completions", "{\"prompt\":\"a\"}");
    api_set_draining(w->a);
    fake_exchange *late = post_large(w, "/v1/completions", "{\"prompt\":\"a\"}");
    assert_int_equal(late->status, 503);
    assert_int_equal(r.n, 2);
    fake_close(late);
    assert_int_equal(api_active(w->a), 2);
    api_on_tick(w->a, mono_now());
    work(&r, 0);
    done(&r, 0);
    answer(w);
    assert_int_equal(f->status, 200);
    fake_close(f);
    assert_int_equal(api_active(w->a), 1);
    fake_close(cut);
    work(&r, 1);
    assert_int_equal(api_active(w->a), 1);
    done(&r, 1);
    world_free_idle(w);
}

static void a_deadline_counts_from_arrival(void **state)
{
    (void)state;
    runner r;
    world *w = world_aside(&r);
    fake_exchange *f = post_large(w, "/v1/completions", "{\"prompt\":\"a\",\"deadline_ms\":1}");
    usleep(2000);
    work(&r, 0);
    done(&r, 0);
    assert_int_equal(f->status, 504);
    assert_int_equal(w->engine.n_streams, 0);
    fake_close(f);
    world_free_idle(w);
}

static void *run_all(void *arg)
{
    runner *r = arg;
    for (uint32_t i = 0; i < r->n; i++) {
        work(r, i);
    }
    return NULL;
}

/* One thread parses, this one goes on serving and closing: what a race detector shall see. */
static void beside_the_loop(void **state)
{
    (void)state;
    enum { ROUNDS = 20, N = sizeof doors / sizeof doors[0] };
    for (int round = 0; round < ROUNDS; round++) {
        runner r;
        world *w = world_aside(&r);
        fake_exchange *f[N];
        pthread_t thread;
        for (size_t i = 0; i < N; i++) {
            f[i] = post_large(w, doors[i].path, doors[i].body);
        }
        assert_int_equal(pthread_create(&thread, NULL, run_all, &r), 0);
        fake_exchange *small = fake_post(w->a, "/v1/completions", "{\"prompt\":\"w\"}");
        for (size_t i = 1; i < N; i += 2) {
            fake_close(f[i]);
        }
        api_on_tick(w->a, mono_now());
        answer(w);
        assert_int_equal(small->status, 200);
        fake_close(small);
        assert_int_equal(pthread_join(thread, NULL), 0);
        for (size_t i = 0; i < N; i++) {
            done(&r, (uint32_t)i);
            if (i % 2 == 0) {
                fake_close(f[i]);
            }
        }
        world_free_idle(w);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(small_bodies_are_parsed_at_once),
        cmocka_unit_test(every_door_says_the_same_on_either_way),
        cmocka_unit_test(a_client_that_leaves_is_forgotten),
        cmocka_unit_test(results_come_in_any_order),
        cmocka_unit_test(the_head_is_copied),
        cmocka_unit_test(there_is_a_limit),
        cmocka_unit_test(what_can_be_refused_at_once_is),
        cmocka_unit_test(draining_waits_for_it),
        cmocka_unit_test(a_deadline_counts_from_arrival),
        cmocka_unit_test(beside_the_loop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
