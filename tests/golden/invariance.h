/* One request run in many ways - alone or among 16 others, in chunks of several sizes - and its logits compared byte by byte. */
#ifndef GOLDEN_INVARIANCE_H
#define GOLDEN_INVARIANCE_H

#include "tests/golden/runner.h"

enum { N_OTHERS = 16, MAX_ROWS = 64 + N_OTHERS * 3, MAX_IDS = 80 };

typedef struct request {
    int32_t ids[MAX_IDS];
    uint32_t n;        /* of the prompt */
    uint32_t n_decode; /* more, fed one by one */
} request;

static inline uint32_t next_random(uint64_t *rng)
{
    *rng = *rng * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*rng >> 33);
}

static inline request draw(uint64_t seed, uint32_t n, uint32_t n_decode, uint32_t n_vocab)
{
    request q = {.n = n, .n_decode = n_decode};
    uint64_t rng = seed;
    for (uint32_t i = 0; i < n + n_decode; i++) {
        q.ids[i] = (int32_t)(next_random(&rng) % n_vocab);
    }
    return q;
}

/* Where a sequence is, and the span it takes next. */
typedef struct runner_up {
    kv_seq *seq;
    request q;
    uint32_t chunk;
} runner_up;

/* Rows of u's next span (0 when it is done), its tokens put at *tokens. */
static inline uint32_t next_span(const runner_up *u, int32_t *tokens)
{
    uint32_t at = kv_seq_len(u->seq), n = 1;
    if (at == u->q.n + u->q.n_decode) {
        return 0;
    }
    if (at < u->q.n) {
        n = u->q.n - at < u->chunk ? u->q.n - at : u->chunk;
    }
    memcpy(tokens, u->q.ids + at, n * sizeof *tokens);
    return n;
}

/* The logits of q's last prompt row and of each decode row: out [n_decode + 1, n_vocab]. n_others other sequences of other
 * lengths share every step in spans of up to others_chunk (1 to 3) rows; the request's own span lies among theirs. */
static inline void run_request(runner *r, const request *q, uint32_t chunk, uint32_t n_others, uint32_t others_chunk,
                               float *out)
{
    runner_up u[N_OTHERS + 1];
    uint32_t mine = n_others / 3;
    for (uint32_t i = 0; i <= n_others; i++) {
        u[i].seq = runner_seq(r);
        u[i].chunk = i == mine ? chunk : 1 + i % others_chunk;
        u[i].q = i == mine ? *q : draw(1000 + i, 1 + 4 * i, 8, r->info.n_vocab);
    }
    uint32_t n_kept = 0;
    while (kv_seq_len(u[mine].seq) < q->n + q->n_decode) {
        int32_t tokens[MAX_ROWS], wanted[1];
        model_span spans[N_OTHERS + 1];
        model_batch b = {.tokens = tokens, .spans = spans, .out_rows = wanted};
        uint32_t rows = 0;
        for (uint32_t i = 0; i <= n_others; i++) {
            uint32_t n = next_span(&u[i], tokens + rows);
            if (n > 0) {
                spans[b.n_spans++] = (model_span){.seq = u[i].seq, .row = rows, .n = n};
                rows += n;
            }
            if (i == mine && kv_seq_len(u[i].seq) + n >= q->n) {
                wanted[0] = (int32_t)rows - 1;
                b.n_out = 1;
            }
        }
        const float *logits = runner_step(r, &b);
        if (b.n_out == 1) {
            memcpy(out + (size_t)n_kept * r->info.n_vocab, logits, r->info.n_vocab * sizeof *out);
            n_kept++;
        }
    }
    assert_int_equal(n_kept, q->n_decode + 1);
    for (uint32_t i = 0; i <= n_others; i++) {
        kv_seq_free(u[i].seq);
    }
}

/* Compares with `right` [n_decode + 1, n_vocab], or fills it when *have_right is false; counts the runs that differ. */
typedef struct comparison {
    float *right, *ours;
    bool have_right;
    unsigned n_runs, n_differ;
} comparison;

static inline void compare(comparison *c, runner *r, const request *q, uint32_t chunk, uint32_t n_others,
                           uint32_t others_chunk)
{
    size_t bytes = (size_t)(q->n_decode + 1) * r->info.n_vocab * sizeof(float);
    if (!c->have_right) {
        c->right = malloc(bytes);
        c->ours = malloc(bytes);
        assert_true(c->right != NULL && c->ours != NULL);
        run_request(r, q, 64, 0, 1, c->right);
        c->have_right = true;
        bool moves = false; /* logits that are all alike would be equal whatever the batch */
        for (uint32_t i = 1; i < r->info.n_vocab; i++) {
            moves |= c->right[i] != c->right[0];
        }
        assert_true(moves);
    }
    memset(c->ours, 0xff, bytes);
    run_request(r, q, chunk, n_others, others_chunk, c->ours);
    c->n_runs++;
    c->n_differ += memcmp(c->ours, c->right, bytes) != 0;
}

/* Chunks of 1, 7 and 64, alone and among others. */
static inline void compare_all(comparison *c, runner *r, const request *q, uint32_t others_chunk)
{
    const uint32_t chunks[] = {1, 7, 64};
    for (size_t k = 0; k < 3; k++) {
        compare(c, r, q, chunks[k], 0, others_chunk);
        compare(c, r, q, chunks[k], N_OTHERS, others_chunk);
    }
}

static inline void comparison_free(comparison *c)
{
    free(c->right);
    free(c->ours);
}

#endif
