/* attnd-bench: how fast a model computes, without HTTP: prefill of a prompt and decode of one or more sequences.
 *
 * Like llama-bench: `ppN` times N prompt tokens computed in one go, `tgN` times N single-token steps after it; `-b` decodes
 * several sequences in one batch. One JSON line a test, so that runs can be alternated with a peer's and put side by side
 * (tests/bench/bench.py does). Token ids are arbitrary but fixed: speed does not depend on them. */
#include <attnd/backend.h>
#include <attnd/model.h>
#include "core/base/clock.h"
#include "core/kv/kv.h"
#include "core/model/model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct options {
    const char *model, *backend;
    uint32_t threads, prompt, generate, batch, chunk;
    atn_dtype kv_type;
} options;

typedef struct bench {
    options opt;
    atn_backend *be;
    atn_model *model;
    kv_pool *kv;
    model_scratch *scratch;
    kv_seq **seqs;
    int32_t *tokens;
    model_span *spans;
    int32_t *out_rows;
} bench;

static void die(const atn_err *err)
{
    fprintf(stderr, "attnd-bench: %s%s%s\n", err->param, err->param[0] ? ": " : "", err->msg);
    exit(1);
}

static uint32_t number(const char *flag, const char *text)
{
    char *end;
    unsigned long v = strtoul(text ? text : "", &end, 10);
    if (!text || !*text || *end || v > 1000000) {
        fprintf(stderr, "attnd-bench: %s takes a number from 0 to 1000000\n", flag);
        exit(2);
    }
    return (uint32_t)v;
}

static options parse(int argc, char **argv)
{
    options o = {.backend = "auto", .prompt = 512, .generate = 32, .batch = 1, .chunk = 512, .kv_type = ATN_DTYPE_F16};
    for (int i = 1; i < argc; i++) {
        const char *flag = argv[i];
        const char *value = i + 1 < argc ? argv[i + 1] : NULL;
        i++;
        if (!strcmp(flag, "-m")) {
            o.model = value;
        } else if (!strcmp(flag, "--backend")) {
            o.backend = value ? value : "";
        } else if (!strcmp(flag, "-t")) {
            o.threads = number(flag, value);
        } else if (!strcmp(flag, "-p")) {
            o.prompt = number(flag, value);
        } else if (!strcmp(flag, "-n")) {
            o.generate = number(flag, value);
        } else if (!strcmp(flag, "-b")) {
            o.batch = number(flag, value);
        } else if (!strcmp(flag, "-c")) {
            o.chunk = number(flag, value);
        } else {
            o.model = NULL;
            break;
        }
    }
    if (!o.model || !o.batch || !o.chunk) {
        fprintf(stderr, "usage: attnd-bench -m FILE [--backend NAME] [-t threads] [-p prompt tokens] [-n generated tokens] "
                        "[-b sequences] [-c chunk]\n");
        exit(2);
    }
    return o;
}

static void open_all(bench *b)
{
    atn_err err = {0};
    const options *o = &b->opt;
    uint32_t context = o->prompt + o->generate + 1;
    if (atn_backend_open(o->backend, &(atn_backend_params){.n_threads = o->threads}, &b->be, &err) ||
        atn_model_open(o->model, &(atn_model_params){.context = context}, b->be, &b->model, &err)) {
        die(&err);
    }
    kv_config cfg = {.type = o->kv_type, .page_tokens = 32, .max_step = o->chunk};
    model_kv_layers(b->model, &cfg.layers, &cfg.n_layers);
    cfg.budget_bytes = kv_page_bytes(&cfg) * (size_t)kv_config_pages_for(&cfg, context) * o->batch;
    uint32_t rows = o->chunk > o->batch ? o->chunk : o->batch;
    if (kv_pool_open(b->be, &cfg, &b->kv, &err) || model_scratch_new(b->model, b->kv, rows, o->batch, &b->scratch, &err)) {
        die(&err);
    }
    b->seqs = calloc(o->batch, sizeof *b->seqs);
    b->tokens = calloc(rows, sizeof *b->tokens);
    b->spans = calloc(o->batch, sizeof *b->spans);
    b->out_rows = calloc(o->batch, sizeof *b->out_rows);
    if (!b->seqs || !b->tokens || !b->spans || !b->out_rows) {
        atn_fail(&err, ATN_NOMEM, NULL, "out of memory");
        die(&err);
    }
    for (uint32_t i = 0; i < o->batch; i++) {
        if (kv_seq_new(b->kv, context, &b->seqs[i], &err)) {
            die(&err);
        }
    }
    atn_model_info info;
    atn_model_get_info(b->model, &info);
    for (uint32_t i = 0; i < rows; i++) {
        b->tokens[i] = (int32_t)((i * 7919u + 13u) % info.n_vocab);
    }
}

static void close_all(bench *b)
{
    for (uint32_t i = 0; i < b->opt.batch; i++) {
        kv_seq_free(b->seqs[i]);
    }
    free(b->seqs);
    free(b->tokens);
    free(b->spans);
    free(b->out_rows);
    model_scratch_free(b->scratch);
    kv_pool_close(b->kv);
    atn_model_close(b->model);
    atn_backend_close(b->be);
}

static void step(bench *b, const model_batch *batch)
{
    atn_err err = {0};
    for (uint32_t i = 0; i < batch->n_spans; i++) {
        if (kv_seq_extend(batch->spans[i].seq, batch->spans[i].n, &err)) {
            die(&err);
        }
    }
    if (model_step(b->model, b->scratch, batch, &err)) {
        die(&err);
    }
    for (uint32_t i = 0; i < batch->n_spans; i++) {
        kv_seq_commit(batch->spans[i].seq, batch->spans[i].n);
    }
}

static void prefill(bench *b, kv_seq *seq)
{
    for (uint32_t at = 0; at < b->opt.prompt;) {
        uint32_t left = b->opt.prompt - at;
        uint32_t n = left < b->opt.chunk ? left : b->opt.chunk;
        model_span span = {.seq = seq, .row = 0, .n = n};
        int32_t last = (int32_t)n - 1;
        step(b, &(model_batch){.tokens = b->tokens, .n_rows = n, .spans = &span, .n_spans = 1, .out_rows = &last,
                               .n_out = at + n == b->opt.prompt});
        at += n;
    }
}

static void decode(bench *b)
{
    for (uint32_t t = 0; t < b->opt.generate; t++) {
        for (uint32_t i = 0; i < b->opt.batch; i++) {
            b->spans[i] = (model_span){.seq = b->seqs[i], .row = i, .n = 1};
            b->out_rows[i] = (int32_t)i;
        }
        step(b, &(model_batch){.tokens = b->tokens, .n_rows = b->opt.batch, .spans = b->spans, .n_spans = b->opt.batch,
                               .out_rows = b->out_rows, .n_out = b->opt.batch});
    }
}

static void report(const bench *b, const char *kind, uint32_t n, uint64_t tokens, uint64_t us)
{
    atn_backend_caps caps;
    atn_backend_get_caps(b->be, &caps);
    printf("{\"test\":\"%s%u\",\"backend\":\"%s\",\"threads\":%u,\"sequences\":%u,\"tokens_per_second\":%.2f}\n", kind, n, caps.name,
           caps.n_threads, b->opt.batch, (double)tokens * 1e6 / (double)us);
    fflush(stdout);
}

int main(int argc, char **argv)
{
    bench b = {.opt = parse(argc, argv)};
    open_all(&b);
    if (b.opt.prompt) {
        prefill(&b, b.seqs[0]); /* warm-up: pages of weights and scratch are touched */
        kv_seq_truncate(b.seqs[0], 0);
        mono_time t0 = mono_now();
        for (uint32_t i = 0; i < b.opt.batch; i++) {
            prefill(&b, b.seqs[i]);
        }
        report(&b, "pp", b.opt.prompt, (uint64_t)b.opt.prompt * b.opt.batch, mono_since_us(t0, mono_now()));
    }
    if (b.opt.generate) {
        mono_time t0 = mono_now();
        decode(&b);
        report(&b, "tg", b.opt.generate, (uint64_t)b.opt.generate * b.opt.batch, mono_since_us(t0, mono_now()));
    }
    close_all(&b);
    return 0;
}
