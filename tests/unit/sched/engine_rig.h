/* What the engine tests share: a tiny model behind an engine, requests with defaults, and a reader that waits.
 * Header only, because every test is a program of its own. Tests run in the source folder. */
#ifndef ENGINE_RIG_H
#define ENGINE_RIG_H

#include <attnd/engine.h>

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <cmocka.h>

#define TINY_LLAMA   "tests/golden/data/tiny-llama-q8_0.gguf"
#define TINY_GPT2    "tests/golden/data/tiny-gpt2-f16.gguf"
#define TINY_GEMMA3  "tests/golden/data/tiny-gemma3-q8_0.gguf" /* layers with a window of 8 and global ones */
#define TINY_MISTRAL "tests/golden/data/tiny-mistral-f16.gguf" /* every layer has a window of 8 */

enum { RIG_MAX_EVENTS = 4096, RIG_PATIENCE_S = 120 };

typedef struct rig {
    atn_backend *backend;
    atn_model *model;
    atn_engine *engine;
    pthread_mutex_t lock;
    pthread_cond_t bell;
    uint64_t wakes; /* under lock */
} rig;

/* All that one choice said. */
typedef struct answer {
    int32_t ids[RIG_MAX_EVENTS];
    float logprobs[RIG_MAX_EVENTS];
    uint32_t n;
    atn_event end;
    bool ended;
} answer;

static inline void rig_wake(void *arg)
{
    rig *r = arg;
    pthread_mutex_lock(&r->lock);
    r->wakes++;
    pthread_cond_broadcast(&r->bell);
    pthread_mutex_unlock(&r->lock);
}

static inline atn_engine_params rig_params(void)
{
    return (atn_engine_params){
        .kv_bytes = 8 << 20,
        .kv_type = ATN_DTYPE_F32,
        .max_sequences = 32,
        .step_tokens = 64,
        .max_waiting = 64,
    };
}

/* r is zeroed; p->wake is set here. */
static inline void rig_open(rig *r, const char *file, const char *backend, uint32_t context, atn_engine_params p)
{
    atn_err err = {0};
    memset(r, 0, sizeof *r);
    pthread_mutex_init(&r->lock, NULL);
    pthread_cond_init(&r->bell, NULL);
    p.wake = rig_wake;
    p.wake_arg = r;
    if (atn_backend_open(backend, &(atn_backend_params){.n_threads = 1}, &r->backend, &err) != ATN_OK ||
        atn_model_open(file, &(atn_model_params){.context = context}, r->backend, &r->model, &err) != ATN_OK ||
        atn_engine_start(r->model, &p, &r->engine, &err) != ATN_OK) {
        fail_msg("%s: %s", err.param, err.msg);
    }
}

static inline void rig_close(rig *r)
{
    atn_engine_stop(r->engine);
    atn_model_close(r->model);
    atn_backend_close(r->backend);
    pthread_cond_destroy(&r->bell);
    pthread_mutex_destroy(&r->lock);
}

/* A copy of the tiny llama whose context is `context` positions, in /tmp; the caller unlinks it. RoPE goes on for ever. */
static inline void rig_long_llama(char path[64], uint32_t context)
{
    static const char key[] = "llama.context_length";
    FILE *in = fopen(TINY_LLAMA, "rb");
    assert_non_null(in);
    char *bytes = malloc(4 << 20);
    const size_t n = fread(bytes, 1, 4 << 20, in);
    fclose(in);
    char *at = memmem(bytes, n, key, sizeof key - 1);
    assert_non_null(at);
    memcpy(at + sizeof key - 1 + 4, &context, sizeof context); /* behind the value's type */
    strcpy(path, "/tmp/attnd-long-XXXXXX");
    FILE *out = fdopen(mkstemp(path), "wb");
    assert_non_null(out);
    assert_int_equal(fwrite(bytes, 1, n, out), n);
    assert_int_equal(fclose(out), 0);
    free(bytes);
}

static inline uint32_t rig_vocab(const rig *r)
{
    atn_model_info info;
    atn_model_get_info(r->model, &info);
    return info.n_vocab;
}

/* n ids that depend on seed alone, none of them special in the tiny models. */
static inline void rig_prompt(int32_t *ids, uint32_t n, uint32_t seed)
{
    for (uint32_t i = 0; i < n; i++) {
        seed = seed * 1664525 + 1013904223;
        ids[i] = (int32_t)(100 + (seed >> 16) % 150);
    }
}

static inline atn_request rig_request(const int32_t *ids, uint32_t n, uint32_t max_new)
{
    return (atn_request){.tokens = ids,
                         .n_tokens = n,
                         .max_new_tokens = max_new,
                         .n_choices = 1,
                         .sample = atn_sample_defaults(),
                         .ignore_eos = true};
}

static inline atn_stream *rig_submit(rig *r, atn_request q)
{
    atn_stream *s = NULL;
    atn_err err = {0};
    if (atn_engine_submit(r->engine, &q, &s, &err) != ATN_OK) {
        fail_msg("%s: %s", err.param, err.msg);
    }
    return s;
}

/* The next event; waits for it. */
static inline atn_event rig_next(rig *r, atn_stream *s)
{
    atn_event ev;
    struct timespec limit;
    clock_gettime(CLOCK_REALTIME, &limit);
    limit.tv_sec += RIG_PATIENCE_S;
    pthread_mutex_lock(&r->lock);
    uint64_t seen = r->wakes;
    pthread_mutex_unlock(&r->lock);
    while (!atn_stream_next(s, &ev)) {
        pthread_mutex_lock(&r->lock);
        while (r->wakes == seen) {
            if (pthread_cond_timedwait(&r->bell, &r->lock, &limit) != 0) {
                pthread_mutex_unlock(&r->lock);
                fail_msg("no event for %d seconds", RIG_PATIENCE_S);
            }
        }
        seen = r->wakes;
        pthread_mutex_unlock(&r->lock);
    }
    return ev;
}

/* Reads to the last event and releases. answers: [n_choices], may be NULL. Checks what every stream must hold to. */
static inline void rig_read_all(rig *r, atn_stream *s, answer *answers, uint32_t n_choices)
{
    bool ended[ATN_MAX_CHOICES] = {0};
    uint32_t n_ended = 0, n_tokens[ATN_MAX_CHOICES] = {0};

    for (uint32_t c = 0; answers && c < n_choices; c++) {
        answers[c].n = 0;
        answers[c].ended = false;
    }
    for (bool last = false; !last;) {
        const atn_event ev = rig_next(r, s);
        assert_true(ev.choice < n_choices);
        assert_false(ended[ev.choice]);
        n_tokens[ev.choice] += ev.has_token;
        if (answers && ev.has_token) {
            answer *a = &answers[ev.choice];
            a->ids[a->n] = ev.token.id;
            a->logprobs[a->n++] = ev.token.logprob;
        }
        if (ev.finish != ATN_FINISH_NONE) {
            ended[ev.choice] = true;
            n_ended++;
            assert_int_equal(ev.usage.generated_tokens, n_tokens[ev.choice]);
            if (answers) {
                answers[ev.choice].end = ev;
                answers[ev.choice].ended = true;
            }
        }
        last = ev.last;
        assert_int_equal(last, n_ended == n_choices);
    }
    atn_event more;
    assert_false(atn_stream_next(s, &more));
    atn_stream_release(s);
}

static inline void rig_generate(rig *r, atn_request q, answer *answers)
{
    rig_read_all(r, rig_submit(r, q), answers, q.n_choices);
}

/* Waits until nothing waits or runs. */
static inline void rig_settle(rig *r, atn_metrics *m)
{
    for (int i = 0; i < RIG_PATIENCE_S * 1000; i++) {
        bool busy;
        atn_engine_steps(r->engine, &busy);
        atn_engine_get_metrics(r->engine, m);
        if (m->waiting == 0 && m->running == 0 && !busy) {
            atn_engine_get_metrics(r->engine, m);
            return;
        }
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
    fail_msg("the engine does not come to rest");
}

/* At rest: every page is free or kept, and every request that was let in has ended once. */
static inline void rig_assert_clean(rig *r)
{
    atn_metrics m;
    rig_settle(r, &m);
    assert_int_equal(m.kv_pages_free + m.kv_pages_kept, m.kv_pages_total);
    assert_int_equal(m.requests_admitted,
                     m.ended_stop + m.ended_length + m.ended_cancelled + m.ended_error + m.ended_deadline);
}

#endif
