/* Pool: every chunk once, whatever the threads; workers that sleep when idle; the float environment. */
#include "core/base/clock.h"
#include "core/base/pool.h"

#include <dirent.h>
#include <fenv.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

static const uint32_t thread_counts[] = {1, 2, 5, 9};

enum { MAX_CHUNKS = 1000 };

typedef struct job {
    uint32_t n_threads;
    uint32_t times[MAX_CHUNKS]; /* plain: two threads on one chunk would be a race */
    float sums[MAX_CHUNKS];
    uint32_t bad_workers;
} job;

static void count_chunk(void *arg, uint32_t chunk, uint32_t worker)
{
    job *j = arg;
    j->times[chunk]++;
    float sum = 0;
    for (uint32_t i = 0; i < 100; i++) {
        sum += 1.0f / (float)(chunk * 100 + i + 1);
    }
    j->sums[chunk] = sum;
    if (worker >= j->n_threads) {
        j->bad_workers++;
    }
}

static void test_every_chunk_once_and_the_same_result(void **state)
{
    (void)state;
    job *first = calloc(1, sizeof *first), *j = calloc(1, sizeof *j);
    assert_true(first != NULL && j != NULL);
    for (size_t t = 0; t < sizeof thread_counts / sizeof *thread_counts; t++) {
        pool *p;
        atn_err err;
        assert_int_equal(pool_open(thread_counts[t], &p, &err), ATN_OK);
        assert_int_equal(pool_threads(p), thread_counts[t]);
        static const uint32_t sizes[] = {0, 1, 2, 3, 17, MAX_CHUNKS};
        for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
            memset(j, 0, sizeof *j);
            j->n_threads = thread_counts[t];
            pool_run(p, count_chunk, j, sizes[s]);
            for (uint32_t i = 0; i < MAX_CHUNKS; i++) {
                assert_int_equal(j->times[i], i < sizes[s]);
            }
            assert_int_equal(j->bad_workers, 0);
        }
        if (t == 0) {
            memcpy(first, j, sizeof *j);
        }
        assert_memory_equal(first->sums, j->sums, sizeof j->sums);
        pool_close(p);
    }
    free(first);
    free(j);
}

/* Many short jobs, whose argument lives on the stack and changes from job to job: a worker that comes late must not touch
 * the job before. */
static void add_one(void *arg, uint32_t chunk, uint32_t worker)
{
    uint32_t *cells = arg;
    (void)worker;
    cells[chunk] += chunk + 1;
}

static void test_stress(void **state)
{
    (void)state;
    for (uint32_t n_threads = 2; n_threads <= 8; n_threads *= 2) {
        pool *p;
        assert_int_equal(pool_open(n_threads, &p, NULL), ATN_OK);
        uint32_t wrong = 0;
        for (uint32_t run = 0; run < 4000; run++) {
            uint32_t cells[24] = {0};
            uint32_t n = run % 24 + 1;
            pool_run(p, add_one, cells, n);
            for (uint32_t i = 0; i < 24; i++) {
                wrong += cells[i] != (i < n ? i + 1 : 0);
            }
            if (run % 500 == 499) {
                usleep(2000); /* long enough for the workers to fall asleep */
            }
        }
        assert_int_equal(wrong, 0);
        pool_close(p);
    }
}

/* Threads of this process that are running or runnable, beside the caller. */
static int awake_threads(void)
{
    int awake = 0;
    DIR *d = opendir("/proc/self/task");
    assert_non_null(d);
    for (struct dirent *e; (e = readdir(d)) != NULL;) {
        char path[300], line[512] = "";
        snprintf(path, sizeof path, "/proc/self/task/%s/stat", e->d_name);
        FILE *f = e->d_name[0] != '.' ? fopen(path, "r") : NULL;
        if (f != NULL) {
            size_t n = fread(line, 1, sizeof line - 1, f);
            fclose(f);
            line[n] = '\0';
            const char *end = strrchr(line, ')');
            awake += end != NULL && end[2] == 'R' && atoi(e->d_name) != (int)gettid();
        }
    }
    closedir(d);
    return awake;
}

static void wait_until_all_sleep(void)
{
    int awake = 1;
    for (int i = 0; i < 5000 && awake > 0; i++) {
        usleep(1000);
        awake = awake_threads();
    }
    assert_int_equal(awake, 0);
}

typedef struct slow_job {
    atomic_uint workers; /* a bit each */
    uint32_t done[8];
} slow_job;

static void slow_chunk(void *arg, uint32_t chunk, uint32_t worker)
{
    slow_job *j = arg;
    atomic_fetch_or(&j->workers, 1u << worker);
    usleep(chunk % 2 == 0 ? 1000 : 4000);
    j->done[chunk]++;
}

/* Workers that sleep are woken, all take part, and the last chunk of the slowest is waited for. */
static void test_sleeping_workers_take_part(void **state)
{
    (void)state;
    pool *p;
    slow_job j = {0};
    assert_int_equal(pool_open(4, &p, NULL), ATN_OK);
    pool_run(p, slow_chunk, &j, 8);
    for (uint32_t run = 2; run < 100; run++) {
        wait_until_all_sleep();
        atomic_store(&j.workers, 0);
        pool_run(p, slow_chunk, &j, 8);
        for (int i = 0; i < 8; i++) {
            assert_int_equal(j.done[i], run);
        }
        if (run > 5 && atomic_load(&j.workers) == 15) {
            break;
        }
    }
    assert_int_equal(atomic_load(&j.workers), 15);
    pool_close(p);
}

/* A rounding mode or flush-to-zero left behind in the caller must reach no chunk. */
static void check_floats(void *arg, uint32_t chunk, uint32_t worker)
{
    volatile float one = 1.0f, ulp4 = 0x1p-25f, tiny = 0x1p-140f, half = 0.5f;
    (void)chunk;
    (void)worker;
    bool right = one + ulp4 == 1.0f && -one - ulp4 == -1.0f && tiny * half == 0x1p-141f && tiny != 0;
    if (!right) {
        atomic_fetch_add((atomic_uint *)arg, 1);
    }
    usleep(300); /* time for every worker to take some */
}

static void test_float_environment(void **state)
{
    (void)state;
    for (size_t t = 0; t < 3; t++) {
        pool *p;
        atomic_uint wrong = 0;
        fesetround(FE_UPWARD);
#if defined(__x86_64__)
        __builtin_ia32_ldmxcsr(__builtin_ia32_stmxcsr() | 0x8040); /* flush to zero, denormals are zero */
#endif
        check_floats(&wrong, 0, 0);
        assert_int_equal(atomic_load(&wrong), 1);                        /* the test itself can see it */
        assert_int_equal(pool_open(thread_counts[t], &p, NULL), ATN_OK); /* threads inherit the environment */
        pool_run(p, check_floats, &wrong, 60);
        assert_int_equal(atomic_load(&wrong), 1);
        pool_close(p);
        fesetround(FE_TONEAREST);
        pool_set_float_env();
    }
}

static void test_idle_workers_sleep(void **state)
{
    (void)state;
    pool *p;
    uint32_t cells[8] = {0};
    assert_int_equal(pool_open(4, &p, NULL), ATN_OK);
    pool_run(p, add_one, cells, 8);
    wait_until_all_sleep();
    pool_run(p, add_one, cells, 8); /* and wake up again */
    for (uint32_t i = 0; i < 8; i++) {
        assert_int_equal(cells[i], 2 * (i + 1));
    }
    pool_close(p);
}

static void test_limits(void **state)
{
    (void)state;
    pool *p = (pool *)1;
    atn_err err;
    assert_int_equal(pool_open(1025, &p, &err), ATN_INVALID);
    assert_null(p);
    assert_string_equal(err.param, "threads");
    assert_string_equal(err.msg, "1025 threads: 1 to 1024 are possible");
    pool_close(NULL);
    assert_int_equal(pool_open(0, &p, &err), ATN_OK);
    assert_int_equal(pool_threads(p), pool_cpu_count());
    pool_close(p);
    cpu_set_t set, before;
    assert_int_equal(sched_getaffinity(0, sizeof before, &before), 0);
    CPU_ZERO(&set);
    for (int i = 0; i < CPU_SETSIZE; i++) {
        if (CPU_ISSET(i, &before)) {
            CPU_SET(i, &set);
            break;
        }
    }
    assert_int_equal(sched_setaffinity(0, sizeof set, &set), 0);
    assert_int_equal(pool_cpu_count(), 1);
    assert_int_equal(sched_setaffinity(0, sizeof before, &before), 0);
    assert_in_range(pool_cpu_count(), 1, (uint32_t)CPU_COUNT(&before));
}

static void test_clock_does_not_go_back(void **state)
{
    (void)state;
    mono_time a = mono_now();
    for (int i = 0; i < 1000; i++) {
        mono_time b = mono_now();
        assert_true(b.us >= a.us);
        a = b;
    }
    assert_int_equal(mono_since_us((mono_time){5}, (mono_time){12}), 7);
    assert_int_equal(mono_since_us((mono_time){12}, (mono_time){5}), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_chunk_once_and_the_same_result),
        cmocka_unit_test(test_stress),
        cmocka_unit_test(test_sleeping_workers_take_part),
        cmocka_unit_test(test_float_environment),
        cmocka_unit_test(test_idle_workers_sleep),
        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_clock_does_not_go_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
