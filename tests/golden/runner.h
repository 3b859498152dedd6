/* Runs a model below the engine: sequences, batches and logits by hand, for the golden tests. Everything fails the running
 * cmocka test on an error. */
#ifndef GOLDEN_RUNNER_H
#define GOLDEN_RUNNER_H

#include "core/model/model.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

typedef struct runner {
    atn_backend *be;
    atn_model *m;
    kv_pool *kv;
    model_scratch *s;
    atn_model_info info;
    uint32_t max_rows;
} runner;

typedef struct runner_params {
    uint32_t context, max_rows, max_out, n_seqs;
    atn_dtype kv_type;
} runner_params;

#define RUN_OK(expr)                                                                  \
    do {                                                                              \
        atn_err err = {0};                                                            \
        atn_status run_status_ = (expr);                                              \
        if (run_status_ != ATN_OK) {                                                  \
            fail_msg("%s: %s: %s", atn_status_name(run_status_), err.param, err.msg); \
        }                                                                             \
    } while (0)

/* Takes the backend over. */
static inline void runner_open_on(runner *r, atn_backend *be, const char *path, const runner_params *p)
{
    memset(r, 0, sizeof *r);
    r->be = be;
    r->max_rows = p->max_rows;
    RUN_OK(atn_model_open(path, &(atn_model_params){.context = p->context}, be, &r->m, &err));
    atn_model_get_info(r->m, &r->info);
    kv_config cfg = {.type = p->kv_type, .page_tokens = 32, .max_step = p->max_rows};
    model_kv_layers(r->m, &cfg.layers, &cfg.n_layers);
    cfg.budget_bytes = kv_page_bytes(&cfg) * kv_config_pages_for(&cfg, r->info.context) * p->n_seqs;
    RUN_OK(kv_pool_open(be, &cfg, &r->kv, &err));
    RUN_OK(model_scratch_new(r->m, r->kv, p->max_rows, p->max_out, &r->s, &err));
}

static inline void runner_open(runner *r, const char *backend, uint32_t n_threads, const char *path,
                               const runner_params *p)
{
    atn_backend *be;
    RUN_OK(atn_backend_open(backend, &(atn_backend_params){.n_threads = n_threads}, &be, &err));
    runner_open_on(r, be, path, p);
}

static inline void runner_close(runner *r)
{
    assert_null(kv_pool_check(r->kv));
    model_scratch_free(r->s);
    kv_pool_close(r->kv);
    atn_model_close(r->m);
    atn_backend_close(r->be);
}

static inline kv_seq *runner_seq(runner *r)
{
    kv_seq *s;
    RUN_OK(kv_seq_new(r->kv, r->info.context, &s, &err));
    return s;
}

/* One step: makes room, computes, commits. b needs everything but n_rows. */
static inline const float *runner_step(runner *r, model_batch *b)
{
    b->n_rows = 0;
    for (uint32_t i = 0; i < b->n_spans; i++) {
        RUN_OK(kv_seq_extend(b->spans[i].seq, b->spans[i].n, &err));
        b->n_rows += b->spans[i].n;
    }
    RUN_OK(model_step(r->m, r->s, b, &err));
    for (uint32_t i = 0; i < b->n_spans; i++) {
        kv_seq_commit(b->spans[i].seq, b->spans[i].n);
    }
    return model_logits(r->s);
}

/* One sequence's rows, at most max_rows of them; logits of all rows or of the last. like: interventions and probe, or NULL. */
static inline const float *runner_rows(runner *r, kv_seq *seq, const int32_t *ids, uint32_t n, bool all,
                                       const model_batch *like)
{
    int32_t *rows = calloc(n, sizeof *rows);
    assert_non_null(rows);
    for (uint32_t i = 0; i < n; i++) {
        rows[i] = (int32_t)i;
    }
    model_span span = {.seq = seq, .row = 0, .n = n};
    model_batch b = like != NULL ? *like : (model_batch){0};
    b.tokens = ids;
    b.spans = &span;
    b.n_spans = 1;
    b.out_rows = all ? rows : rows + n - 1;
    b.n_out = all ? n : 1;
    const float *logits = runner_step(r, &b);
    free(rows);
    return logits;
}

/* A whole prompt in chunks of at most `chunk`; logits of the last row. */
static inline const float *runner_prompt(runner *r, kv_seq *seq, const int32_t *ids, uint32_t n, uint32_t chunk,
                                         const model_batch *like)
{
    const float *logits = NULL;
    for (uint32_t at = 0; at < n; at += chunk) {
        logits = runner_rows(r, seq, ids + at, n - at < chunk ? n - at : chunk, false, like);
    }
    return logits;
}

#endif
