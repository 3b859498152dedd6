/* The compute pool.
 *
 * A job is published by storing its fields and then its number of untaken chunks in `untaken`. Who lowers `untaken` from r
 * to r-1 owns chunk n-r, and only then reads the job's fields: they cannot change before that chunk is done, because
 * pool_run waits for `undone` to reach zero. So no worker has to check in: a worker whose core was taken away delays nobody
 * unless it holds a chunk. Waiting is a short spin, then sleep on a condition variable; who changes what others
 * may sleep on looks at their number after the change, and they look at the change after counting themselves. */
#include "core/base/pool.h"
#include "core/base/cgroup.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdalign.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <unistd.h>

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

#ifndef AT_MINSIGSTKSZ
#define AT_MINSIGSTKSZ 51
#endif

enum { MAX_THREADS = 1024, SPINS = 2000, STACK_BYTES = 2 << 20, LINE = 64 };

typedef struct worker {
    pool *p;
    uint32_t index; /* 1 .. n_threads-1 */
    pthread_t thread;
} worker;

struct pool {
    alignas(LINE) atomic_uint untaken;
    alignas(LINE) atomic_uint undone;
    alignas(LINE) atomic_uint sleepers; /* workers on `work`, or about to be */
    atomic_bool caller_sleeps;          /* pool_run on `finished`, or about to be */
    atomic_bool stop;
    /* The job: written by pool_run while no chunk is out. */
    void (*fn)(void *arg, uint32_t chunk, uint32_t worker);
    void *arg;
    uint32_t n_chunks;

    uint32_t n_threads;
    uint32_t n_started;   /* workers, without the caller */
    pthread_mutex_t lock; /* only for going to sleep and waking */
    pthread_cond_t work, finished;
    worker workers[];
};

static inline void relax(void)
{
#if defined(__x86_64__)
    _mm_pause();
#elif defined(__aarch64__)
    __asm__ volatile("isb");
#endif
}

void pool_set_float_env(void)
{
#if defined(__x86_64__)
    const unsigned wanted =
        0x1F80; /* all exceptions masked, round to nearest, no flush-to-zero, no denormals-are-zero */
    if ((_mm_getcsr() & ~0x3Fu) != wanted) {
        _mm_setcsr(wanted);
    }
#elif defined(__aarch64__)
    uint64_t zero = 0;
    __asm__ volatile("msr fpcr, %0" : : "r"(zero));
#endif
}

static void take_chunks(pool *p, uint32_t index)
{
    unsigned r = atomic_load_explicit(&p->untaken, memory_order_relaxed);
    while (r != 0) {
        if (!atomic_compare_exchange_weak_explicit(&p->untaken, &r, r - 1, memory_order_acquire,
                                                   memory_order_relaxed)) {
            continue;
        }
        p->fn(p->arg, p->n_chunks - r, index);
        if (atomic_fetch_sub(&p->undone, 1) == 1 && atomic_load(&p->caller_sleeps)) {
            pthread_mutex_lock(&p->lock);
            pthread_cond_signal(&p->finished);
            pthread_mutex_unlock(&p->lock);
        }
        r = atomic_load_explicit(&p->untaken, memory_order_relaxed);
    }
}

static bool has_work(pool *p)
{
    return atomic_load(&p->untaken) != 0 || atomic_load(&p->stop);
}

static void wait_for_work(pool *p)
{
    for (int i = 0; i < SPINS; i++) {
        if (atomic_load_explicit(&p->untaken, memory_order_relaxed) != 0) {
            return;
        }
        relax();
    }
    pthread_mutex_lock(&p->lock);
    atomic_fetch_add(&p->sleepers, 1);
    while (!has_work(p)) {
        pthread_cond_wait(&p->work, &p->lock);
    }
    atomic_fetch_sub(&p->sleepers, 1);
    pthread_mutex_unlock(&p->lock);
}

static void *worker_main(void *arg)
{
    worker *w = arg;
    pool_set_float_env();
    while (!atomic_load(&w->p->stop)) {
        take_chunks(w->p, w->index);
        wait_for_work(w->p);
    }
    return NULL;
}

static void wait_for_the_rest(pool *p)
{
    for (int i = 0; i < SPINS; i++) {
        if (atomic_load(&p->undone) == 0) {
            return;
        }
        relax();
    }
    pthread_mutex_lock(&p->lock);
    atomic_store(&p->caller_sleeps, true);
    while (atomic_load(&p->undone) != 0) {
        pthread_cond_wait(&p->finished, &p->lock);
    }
    atomic_store(&p->caller_sleeps, false);
    pthread_mutex_unlock(&p->lock);
}

void pool_run(pool *p, void (*fn)(void *arg, uint32_t chunk, uint32_t worker), void *arg, uint32_t n_chunks)
{
    pool_set_float_env();
    if (p->n_threads == 1 || n_chunks <= 1) {
        for (uint32_t i = 0; i < n_chunks; i++) {
            fn(arg, i, 0);
        }
        return;
    }
    p->fn = fn;
    p->arg = arg;
    p->n_chunks = n_chunks;
    atomic_store_explicit(&p->undone, n_chunks, memory_order_relaxed);
    atomic_store(&p->untaken, n_chunks);
    if (atomic_load(&p->sleepers) != 0) {
        pthread_mutex_lock(&p->lock);
        pthread_cond_broadcast(&p->work);
        pthread_mutex_unlock(&p->lock);
    }
    take_chunks(p, 0);
    wait_for_the_rest(p);
}

/* Starts one worker. Signals stay with the threads that handle them; the stack has room for a signal frame of any
 * register file the kernel may have to save (AMX tiles make it larger than the traditional minimum). */
static int start(worker *w)
{
    pthread_attr_t attr;
    sigset_t all, before;
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    size_t stack = (STACK_BYTES + (size_t)getauxval(AT_MINSIGSTKSZ) + page - 1) & ~(page - 1);
    int failed = pthread_attr_init(&attr);
    if (failed != 0) {
        return failed;
    }
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    failed = pthread_attr_setstacksize(&attr, stack);
    if (failed == 0) {
        failed = pthread_create(&w->thread, &attr, worker_main, w);
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attr);
    if (failed == 0) {
        char name[16];
        snprintf(name, sizeof name, "attnd-pool-%u", (unsigned)(w->index % 1000));
        pthread_setname_np(w->thread, name);
    }
    return failed;
}

atn_status pool_open(uint32_t n_threads, pool **out, atn_err *err)
{
    *out = NULL;
    uint32_t n = n_threads > 0 ? n_threads : pool_cpu_count();
    if (n_threads == 0 && n > MAX_THREADS) {
        n = MAX_THREADS;
    }
    if (n > MAX_THREADS) {
        return atn_fail(err, ATN_INVALID, "threads", "%u threads: 1 to %d are possible", (unsigned)n, MAX_THREADS);
    }
    size_t bytes = (sizeof(pool) + (n - 1) * sizeof(worker) + LINE - 1) & ~(size_t)(LINE - 1);
    pool *p = aligned_alloc(LINE, bytes);
    if (p == NULL) {
        return atn_fail(err, ATN_NOMEM, NULL, "no memory for a pool of %u threads", (unsigned)n);
    }
    memset(p, 0, bytes);
    p->n_threads = n;
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->work, NULL);
    pthread_cond_init(&p->finished, NULL);
    for (uint32_t i = 0; i < n - 1; i++) {
        p->workers[i] = (worker){.p = p, .index = i + 1};
        int failed = start(&p->workers[i]);
        if (failed != 0) {
            pool_close(p);
            return atn_fail(err, ATN_NOMEM, "threads", "thread %u of %u could not be started (error %d)",
                            (unsigned)(i + 2), (unsigned)n, failed);
        }
        p->n_started++;
    }
    *out = p;
    return ATN_OK;
}

void pool_close(pool *p)
{
    if (p == NULL) {
        return;
    }
    pthread_mutex_lock(&p->lock);
    atomic_store(&p->stop, true);
    pthread_cond_broadcast(&p->work);
    pthread_mutex_unlock(&p->lock);
    for (uint32_t i = 0; i < p->n_started; i++) {
        pthread_join(p->workers[i].thread, NULL);
    }
    pthread_cond_destroy(&p->work);
    pthread_cond_destroy(&p->finished);
    pthread_mutex_destroy(&p->lock);
    free(p);
}

uint32_t pool_threads(const pool *p)
{
    return p->n_threads;
}

/* ---- what this process may use ---- */

static uint32_t affinity_count(void)
{
    for (int n_cpus = 1024; n_cpus <= 1 << 16; n_cpus *= 4) {
        cpu_set_t *set = CPU_ALLOC((size_t)n_cpus);
        size_t bytes = CPU_ALLOC_SIZE((size_t)n_cpus);
        if (set == NULL) {
            break;
        }
        int count = sched_getaffinity(0, bytes, set) == 0 ? CPU_COUNT_S(bytes, set) : 0;
        CPU_FREE(set);
        if (count > 0) {
            return (uint32_t)count;
        }
    }
    return 1;
}

uint32_t pool_cpu_count(void)
{
    uint32_t count = affinity_count();
    uint64_t whole = cgroup_cpu_milli("") / 1000; /* a thread on a part of a CPU would hold up all others */
    if (whole < count) {
        count = whole > 0 ? (uint32_t)whole : 1;
    }
    return count;
}
