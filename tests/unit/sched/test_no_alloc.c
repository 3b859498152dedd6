/* No allocation in the decode step: the allocator is wrapped in this program, and calls on the engine thread are counted while
 * sequences of all kinds decode. A planted call shows that the count counts. */
#include "engine_rig.h"

#include <errno.h>
#include <stdatomic.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)

int main(void)
{
    puts("skipped: sanitizers wrap the allocator themselves");
    return 77;
}

#else

void *__libc_malloc(size_t n);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *p, size_t n);
void *__libc_memalign(size_t align, size_t n);
void __libc_free(void *p);

static _Thread_local bool on_engine; /* set where the engine calls us back */
static atomic_bool counting;
static atomic_ulong calls;

static void count(void)
{
    if (on_engine && atomic_load_explicit(&counting, memory_order_relaxed)) {
        atomic_fetch_add(&calls, 1);
    }
}

void *malloc(size_t n)
{
    count();
    return __libc_malloc(n);
}

void *calloc(size_t n, size_t size)
{
    count();
    return __libc_calloc(n, size);
}

void *realloc(void *p, size_t n)
{
    count();
    return __libc_realloc(p, n);
}

void *aligned_alloc(size_t align, size_t n)
{
    count();
    return __libc_memalign(align, n);
}

int posix_memalign(void **out, size_t align, size_t n)
{
    count();
    *out = __libc_memalign(align, n);
    return *out ? 0 : ENOMEM;
}

void free(void *p)
{
    if (p) {
        count();
    }
    __libc_free(p);
}

static atomic_bool planted;

static void wake(void *arg)
{
    on_engine = true;
    if (atomic_load(&planted)) {
        void *volatile p = malloc(1);
        free(p);
    }
    rig_wake(arg);
}

enum { SEQUENCES = 6, N_PROMPT = 10, N_NEW = 240, ROUNDS = 5 };

/* Sequences with penalties, filters, stop strings, log-probabilities, two choices, and a session. */
static atn_stream *submit(rig *r, uint32_t i)
{
    static const atn_stop stops[] = {{"never ever", 10}, {"\xff\xfe\xfd", 3}};
    int32_t ids[N_PROMPT];

    rig_prompt(ids, N_PROMPT, i);
    atn_request q = rig_request(ids, N_PROMPT, N_NEW);
    q.sample.temperature = i % 2 ? 1.2f : 0;
    q.sample.top_p = i % 3 ? 0.9f : 1;
    q.sample.top_k = i == 1 ? 40 : 0;
    q.sample.min_p = i == 2 ? 0.01f : 0;
    q.sample.typical_p = i == 3 ? 0.9f : 1;
    q.sample.repetition_penalty = i == 4 ? 1.1f : 1;
    q.sample.frequency_penalty = i == 5 ? 0.3f : 0;
    q.sample.n_top = i % 2 ? 20 : 0;
    q.sample.seed = i;
    q.n_choices = i == 0 ? 2 : 1;
    q.sequence = i;
    q.stops = stops;
    q.n_stops = 2;
    return rig_submit(r, q);
}

/* All six to step 235 of 240; counts from the step in which the last of them decodes. Returns the calls. */
static unsigned long run_round(rig *r, uint64_t *n_steps)
{
    atn_stream *s[SEQUENCES];
    atn_event ev;
    bool busy;

    for (uint32_t i = 0; i < SEQUENCES; i++) {
        s[i] = submit(r, i);
    }
    for (uint32_t i = 0; i < SEQUENCES; i++) {
        for (int k = 0; k < 3; k++) {
            rig_next(r, s[i]); /* all of them decode now */
        }
    }
    atomic_store(&calls, 0);
    atomic_store(&counting, true);
    const uint64_t from = atn_engine_steps(r->engine, &busy);
    for (int k = 0; k < N_NEW - 40; k++) {
        ev = rig_next(r, s[SEQUENCES - 1]);
        assert_int_equal(ev.finish, ATN_FINISH_NONE);
        for (uint32_t i = 0; i + 1 < SEQUENCES; i++) {
            for (uint32_t c = 0; c < (i == 0 ? 2 : 1); c++) {
                atn_stream_next(s[i], &ev);
            }
        }
    }
    *n_steps += atn_engine_steps(r->engine, &busy) - from;
    atomic_store(&counting, false);
    const unsigned long n = atomic_load(&calls);
    for (uint32_t i = 0; i < SEQUENCES; i++) {
        atn_stream_release(s[i]);
    }
    rig_assert_clean(r);
    return n;
}

static void run(const char *backend)
{
    rig r;
    atn_err err;
    uint64_t n_steps = 0;
    atn_engine_params p = rig_params();

    /* A ring that is full once in a while keeps the engine no more than a few steps ahead of the count. */
    p.ring_events = 16;
    rig_open(&r, TINY_LLAMA, backend, 0, p);
    atn_engine_stop(r.engine);
    p.wake = wake;
    p.wake_arg = &r;
    assert_int_equal(atn_engine_start(r.model, &p, &r.engine, &err), ATN_OK);
    for (int i = 0; i <= ROUNDS; i++) {
        assert_int_equal(run_round(&r, &n_steps), 0);
    }
    assert_true(n_steps >= 1000);
    atomic_store(&planted, true);
    assert_true(run_round(&r, &n_steps) > 0);
    atomic_store(&planted, false);
    rig_close(&r);
}

static void test_naive(void **state)
{
    (void)state;
    run("naive");
}

static void test_openblas(void **state)
{
    (void)state;
    run("openblas");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_naive),
        cmocka_unit_test(test_openblas),
    };
    return cmocka_run_group_tests_name("no_alloc", tests, NULL, NULL);
}

#endif
