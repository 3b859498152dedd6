/* The compute pool: runs chunks of one job on several threads.
 *
 * Workers take chunk numbers dynamically, spin briefly when idle and then sleep; the caller works too. A job's result must
 * not depend on which thread takes which chunk. Every thread sets the float environment of docs/numerics.md.
 * Thread: pool_run from one thread at a time. */
#ifndef ATN_POOL_H
#define ATN_POOL_H

#include <attnd/status.h>
#include <stdint.h>

typedef struct pool pool;

/* CPUs this process may use: affinity mask and cgroup v1/v2 quota, at least 1. */
uint32_t pool_cpu_count(void);
/* n_threads counts the caller; 1 starts no thread; 0: pool_cpu_count(). Errors: ATN_INVALID (more than 1024), ATN_NOMEM. */
atn_status pool_open(uint32_t n_threads, pool **out, atn_err *err) ATN_MUST_CHECK;
void pool_close(pool *p);
uint32_t pool_threads(const pool *p);
/* fn(arg, chunk, worker) for every chunk in 0 .. n_chunks-1; worker is 0 .. pool_threads-1. Returns when all are done.
 * One chunk, or one thread: runs in the caller. Sets the caller's float environment too. */
void pool_run(pool *p, void (*fn)(void *arg, uint32_t chunk, uint32_t worker), void *arg, uint32_t n_chunks);
/* Round to nearest, denormals kept, exceptions masked: for every thread that computes. */
void pool_set_float_env(void);

#endif
