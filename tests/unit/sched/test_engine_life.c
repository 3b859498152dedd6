/* The life of requests that do not end by themselves: cancelled, late, stalled, refused, or cut by the engine's end.
 * A request whose reader leaves its small ring full holds the only sequence: that is how others are kept queued. */
#include "engine_rig.h"

#include <unistd.h>

enum { N_PROMPT = 20, N_NEW = 60 };

static atn_engine_params one_at_a_time(void)
{
    atn_engine_params p = rig_params();
    p.max_sequences = 1;
    p.ring_events = 4;
    return p;
}

static int32_t prompt[N_PROMPT];

static atn_request simple(void)
{
    rig_prompt(prompt, N_PROMPT, 1);
    return rig_request(prompt, N_PROMPT, N_NEW);
}

static void wait_for(rig *r, bool (*there)(const atn_metrics *m))
{
    atn_metrics m;
    for (int i = 0; i < RIG_PATIENCE_S * 1000; i++) {
        atn_engine_get_metrics(r->engine, &m);
        if (there(&m)) {
            return;
        }
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
    fail_msg("it does not come about");
}

static bool is_running(const atn_metrics *m)
{
    return m->running == 1 && m->waiting == 0;
}

static bool has_stepped_20(const atn_metrics *m)
{
    return m->steps >= 20;
}

/* Reads to the end, which must be this one. Returns tokens read. */
static uint32_t drain(rig *r, atn_stream *s, atn_finish want)
{
    answer *a = calloc(1, sizeof *a);
    rig_read_all(r, s, a, 1);
    assert_int_equal(a->end.finish, want);
    const uint32_t n = a->n;
    free(a);
    return n;
}

static uint64_t steps_of(rig *r)
{
    bool busy;
    return atn_engine_steps(r->engine, &busy);
}

static void test_cancel_queued(void **state)
{
    (void)state;
    rig r;
    rig_open(&r, TINY_LLAMA, "naive", 0, one_at_a_time());
    atn_stream *holder = rig_submit(&r, simple());
    wait_for(&r, is_running);
    atn_stream *queued = rig_submit(&r, simple()), *behind = rig_submit(&r, simple());
    atn_stream_cancel(queued);
    atn_stream_cancel(queued);
    const atn_event ev = rig_next(&r, queued);
    assert_int_equal(ev.finish, ATN_FINISH_CANCELLED);
    assert_true(ev.last);
    assert_false(ev.has_token);
    assert_int_equal(ev.usage.generated_tokens, 0);
    atn_stream_release(queued);
    atn_stream_release(behind); /* unread: that cancels too */
    assert_int_equal(drain(&r, holder, ATN_FINISH_LENGTH), N_NEW);
    rig_assert_clean(&r);
    atn_metrics m;
    atn_engine_get_metrics(r.engine, &m);
    assert_int_equal(m.ended_cancelled, 2);
    rig_close(&r);
}

/* What was promised to the choices of a prompt that never got done is free again: the next request needs all of it. */
static void test_cancel_in_prefill(void **state)
{
    (void)state;
    rig r;
    char path[64];
    atn_engine_params p = rig_params();
    atn_engine_info info;
    int32_t *ids = calloc(4000, sizeof *ids);

    rig_long_llama(path, 4096);
    p.step_tokens = 3; /* the prompt takes 1,334 steps */
    p.max_sequences = 3;
    p.kv_bytes = 32 << 20;
    rig_open(&r, path, "naive", 0, p);
    atn_engine_get_info(r.engine, &info);
    rig_close(&r);
    p.kv_bytes = info.kv_bytes / info.n_pages * info.pages_per_full_context;
    rig_open(&r, path, "naive", 0, p);
    unlink(path);
    rig_prompt(ids, 4000, 1);
    atn_request q = rig_request(ids, 4000, 10);
    q.n_choices = 3;
    atn_stream *s = rig_submit(&r, q);
    wait_for(&r, has_stepped_20);
    atn_stream_cancel(s);
    for (uint32_t i = 0; i < 3; i++) {
        const atn_event ev = rig_next(&r, s);
        assert_int_equal(ev.finish, ATN_FINISH_CANCELLED);
        assert_false(ev.has_token);
        assert_int_equal(ev.last, i == 2);
    }
    atn_stream_release(s);
    rig_assert_clean(&r);
    assert_true(steps_of(&r) < 1334);

    s = rig_submit(&r, rig_request(ids, 1, 4095));
    assert_true(rig_next(&r, s).has_token);
    atn_stream_release(s);
    rig_assert_clean(&r);
    rig_close(&r);
    free(ids);
}

/* A cancelled sequence is gone within two steps of a batch that goes on. */
static void test_cancel_in_decode(void **state)
{
    (void)state;
    rig r;
    char path[64];
    atn_engine_params p = rig_params();

    rig_long_llama(path, 4096);
    p.kv_bytes = 32 << 20;
    rig_open(&r, path, "naive", 0, p);
    unlink(path);
    atn_request q = simple();
    q.max_new_tokens = 4000;
    atn_stream *s = rig_submit(&r, q);
    for (int i = 0; i < 5; i++) {
        assert_int_equal(rig_next(&r, s).finish, ATN_FINISH_NONE);
    }
    atn_stream_cancel(s);
    const uint64_t at = steps_of(&r);
    atn_event ev;
    do {
        ev = rig_next(&r, s);
    } while (!ev.last);
    assert_int_equal(ev.finish, ATN_FINISH_CANCELLED);
    atn_stream_release(s);
    rig_assert_clean(&r);
    assert_true(steps_of(&r) <= at + 2);

    q.n_choices = 4;
    s = rig_submit(&r, q);
    while (rig_next(&r, s).choice != 3) {
    }
    atn_stream_release(s); /* unread */
    rig_assert_clean(&r);
    rig_close(&r);
}

static void test_cancel_after_the_end(void **state)
{
    (void)state;
    rig r;
    atn_event ev;

    rig_open(&r, TINY_LLAMA, "naive", 0, rig_params());
    atn_stream *s = rig_submit(&r, simple());
    do {
        ev = rig_next(&r, s);
    } while (!ev.last);
    atn_stream_cancel(s);
    assert_false(atn_stream_next(s, &ev));
    atn_stream_release(s);
    rig_assert_clean(&r);
    rig_close(&r);
}

/* A full ring pauses its own request and nobody else's; nothing is lost. */
static void test_full_ring_pauses_one(void **state)
{
    (void)state;
    rig r;
    answer *a = calloc(3, sizeof *a);
    atn_engine_params p = rig_params();

    p.ring_events = 4;
    rig_open(&r, TINY_LLAMA, "naive", 0, p);
    rig_generate(&r, simple(), &a[0]);
    atn_stream *slow = rig_submit(&r, simple());
    atn_stream *other = rig_submit(&r, simple());
    rig_read_all(&r, other, &a[1], 1); /* to its end, while the first stands still */
    assert_int_equal(a[1].n, N_NEW);
    rig_read_all(&r, slow, &a[2], 1);
    assert_memory_equal(a[0].ids, a[1].ids, N_NEW * sizeof(int32_t));
    assert_memory_equal(a[0].ids, a[2].ids, N_NEW * sizeof(int32_t));
    rig_assert_clean(&r);
    rig_close(&r);
    free(a);
}

static void test_stall_is_cancelled(void **state)
{
    (void)state;
    rig r;
    atn_engine_params p = one_at_a_time();

    p.stall_ms = 200;
    rig_open(&r, TINY_LLAMA, "naive", 0, p);
    atn_stream *slow = rig_submit(&r, simple());
    wait_for(&r, is_running);
    assert_int_equal(drain(&r, rig_submit(&r, simple()), ATN_FINISH_LENGTH), N_NEW); /* had to wait for its sequence */
    rig_assert_clean(&r);
    rig_close(&r);
    /* What was in the ring is still there, and the final event has its slot. */
    atn_event ev;
    uint32_t n = 0;
    do {
        assert_true(atn_stream_next(slow, &ev));
        n++;
    } while (!ev.last);
    assert_int_equal(ev.finish, ATN_FINISH_CANCELLED);
    assert_in_range(n, 1, 4);
    atn_stream_release(slow);
}

static void test_overload(void **state)
{
    (void)state;
    rig r;
    atn_engine_params p = one_at_a_time();
    atn_stream *waiting[3], *none = NULL;
    atn_err err;
    atn_metrics m;

    p.max_waiting = 3;
    rig_open(&r, TINY_LLAMA, "naive", 0, p);
    atn_stream *holder = rig_submit(&r, simple());
    wait_for(&r, is_running);
    for (int i = 0; i < 3; i++) {
        waiting[i] = rig_submit(&r, simple());
    }
    const atn_request q = simple();
    for (int i = 0; i < 5; i++) {
        assert_int_equal(atn_engine_submit(r.engine, &q, &none, &err), ATN_OVERLOADED);
        assert_null(none);
    }
    assert_non_null(strstr(err.msg, "3 requests are waiting"));
    atn_engine_get_metrics(r.engine, &m);
    assert_int_equal(m.waiting, 3);
    assert_int_equal(m.requests_refused, 5);
    /* What was let in is served, in order. */
    assert_int_equal(drain(&r, holder, ATN_FINISH_LENGTH), N_NEW);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(drain(&r, waiting[i], ATN_FINISH_LENGTH), N_NEW);
    }
    drain(&r, rig_submit(&r, simple()), ATN_FINISH_LENGTH);
    rig_assert_clean(&r);
    rig_close(&r);
}

static void test_deadlines(void **state)
{
    (void)state;
    rig r;
    rig_open(&r, TINY_LLAMA, "naive", 0, one_at_a_time());
    atn_request q = simple();
    atn_metrics m;
    atn_stream *holder = rig_submit(&r, q); /* stands still with a full ring */
    wait_for(&r, is_running);
    q.deadline_ms = 20;
    atn_stream *queued = rig_submit(&r, q);
    const atn_event ev = rig_next(&r, queued);
    assert_int_equal(ev.finish, ATN_FINISH_DEADLINE);
    assert_int_equal(ev.status, ATN_DEADLINE);
    assert_true(ev.last);
    atn_stream_release(queued);
    atn_stream_release(holder);
    rig_settle(&r, &m);
    assert_int_equal(m.ended_deadline, 1);

    atn_stream *running = rig_submit(&r, q);
    rig_settle(&r, &m);
    assert_int_equal(m.ended_deadline, 2);
    assert_in_range(drain(&r, running, ATN_FINISH_DEADLINE), 0, 4);
    q.deadline_ms = 1000 * RIG_PATIENCE_S;
    drain(&r, rig_submit(&r, q), ATN_FINISH_LENGTH);
    rig_assert_clean(&r);
    rig_close(&r);
}

/* A request that does not get to run ends like one whose deadline passed, though it named none; one that runs does not. */
static void test_queue_limit(void **state)
{
    (void)state;
    rig r;
    atn_engine_params p = one_at_a_time();
    atn_metrics m;

    p.queue_ms = 20;
    rig_open(&r, TINY_LLAMA, "naive", 0, p);
    atn_stream *holder = rig_submit(&r, simple()); /* stands still with a full ring */
    wait_for(&r, is_running);
    for (int i = 0; i < 2; i++) {
        atn_request q = simple();
        q.deadline_ms = i == 0 ? 0 : 1000 * RIG_PATIENCE_S; /* the nearer one counts */
        q.prompt_logprobs = true; /* for which a request that never ran has no room */
        atn_stream *queued = rig_submit(&r, q);
        const atn_event ev = rig_next(&r, queued);
        assert_int_equal(ev.finish, ATN_FINISH_DEADLINE);
        assert_int_equal(ev.status, ATN_DEADLINE);
        assert_true(ev.last && !ev.has_token);
        assert_true(ev.usage.queue_us >= 20000);
        assert_null(atn_stream_prompt_logprobs(queued));
        atn_stream_release(queued);
    }
    assert_int_equal(drain(&r, holder, ATN_FINISH_LENGTH), N_NEW);
    rig_settle(&r, &m);
    assert_int_equal(m.ended_deadline, 2);
    rig_assert_clean(&r);
    rig_close(&r);
}

/* The engine's end cuts all streams with a final event; streams outlive it. */
static void test_stop_with_work(void **state)
{
    (void)state;
    enum { N = 12 };
    rig r;
    atn_stream *s[N];
    atn_engine_params p = rig_params();

    p.max_sequences = 4;
    p.ring_events = 8;
    rig_open(&r, TINY_LLAMA, "naive", 0, p);
    for (int i = 0; i < N; i++) {
        atn_request q = simple();
        q.n_choices = 1 + (uint32_t)i % 3;
        q.sequence = (uint64_t)i;
        s[i] = rig_submit(&r, q);
    }
    rig_next(&r, s[0]);
    rig_close(&r);
    for (int i = 0; i < N; i++) {
        atn_event ev = {0};
        uint32_t n_ended = 0;
        while (atn_stream_next(s[i], &ev)) {
            n_ended += ev.finish != ATN_FINISH_NONE;
        }
        assert_true(ev.last);
        assert_int_equal(ev.finish, ATN_FINISH_CANCELLED);
        assert_int_equal(n_ended, 1 + (uint32_t)i % 3);
        atn_stream_cancel(s[i]);
        atn_stream_release(s[i]);
    }
}

/* Requests from many threads, cancelled at any moment; one that runs beside them is not touched by it. */
static void *storm(void *arg)
{
    rig *r = arg;
    static _Atomic uint32_t seeds;
    uint32_t seed = ++seeds * 7919;

    for (int i = 0; i < 60; i++) {
        int32_t ids[40];
        atn_stream *s = NULL;
        atn_err err;
        atn_event ev;
        rig_prompt(ids, 40, seed);
        seed = seed * 1664525 + 1013904223;
        atn_request q = rig_request(ids, 1 + (seed >> 8) % 40, (seed >> 16) % 12);
        q.n_choices = 1 + (seed >> 20) % 3;
        q.sequence = (seed >> 12) % 5;
        q.deadline_ms = (seed >> 24) % 4 == 0 ? 1 : 0;
        if (atn_engine_submit(r->engine, &q, &s, &err) != ATN_OK) {
            continue;
        }
        for (uint32_t k = (seed >> 10) % 64; k > 0; k--) {
            atn_stream_next(s, &ev);
        }
        if (seed >> 28 < 8) {
            atn_stream_cancel(s);
        }
        if (seed >> 27 & 1) {
            atn_engine_drop(r->engine, 0, q.sequence);
        }
        atn_stream_release(s);
    }
    return NULL;
}

static void test_cancel_storm(void **state)
{
    (void)state;
    rig r;
    pthread_t threads[4];
    atn_engine_params p = rig_params();

    p.max_sequences = 6;
    p.max_waiting = 8;
    p.ring_events = 4;
    rig_open(&r, TINY_LLAMA, "naive", 0, p);
    atn_stream *steady = rig_submit(&r, simple());
    for (int i = 0; i < 4; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, storm, &r), 0);
    }
    for (int i = 0; i < 4; i++) {
        pthread_join(threads[i], NULL);
    }
    answer *a = calloc(2, sizeof *a);
    rig_read_all(&r, steady, &a[0], 1);
    rig_generate(&r, simple(), &a[1]);
    assert_int_equal(a[0].n, N_NEW);
    assert_memory_equal(a[0].ids, a[1].ids, N_NEW * sizeof(int32_t));
    assert_memory_equal(a[0].logprobs, a[1].logprobs, N_NEW * sizeof(float));
    rig_assert_clean(&r);
    rig_close(&r);
    free(a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cancel_queued),
        cmocka_unit_test(test_cancel_in_prefill),
        cmocka_unit_test(test_cancel_in_decode),
        cmocka_unit_test(test_cancel_after_the_end),
        cmocka_unit_test(test_full_ring_pauses_one),
        cmocka_unit_test(test_stall_is_cancelled),
        cmocka_unit_test(test_overload),
        cmocka_unit_test(test_deadlines),
        cmocka_unit_test(test_queue_limit),
        cmocka_unit_test(test_stop_with_work),
        cmocka_unit_test(test_cancel_storm),
    };
    return cmocka_run_group_tests_name("engine_life", tests, NULL, NULL);
}
