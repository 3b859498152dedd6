/* The sampler against exact expectations, and against a plain one (full sort, libm) over a large vocabulary. */
#include <attnd/sampler.h>
#include "core/sample/rng.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

enum { LARGE = 262144, POSITION = 7 };

static uint32_t next_random(uint32_t *seed)
{
    *seed = *seed * 1664525 + 1013904223;
    return *seed >> 8;
}

/* Roughly normal, with many equal values. */
static void random_row(float *x, uint32_t n, uint32_t seed)
{
    for (uint32_t i = 0; i < n; i++) {
        int sum = 0;
        for (int k = 0; k < 4; k++) {
            sum += (int)(next_random(&seed) % 2000) - 1000;
        }
        x[i] = (float)sum / 256;
    }
}

static atn_sampler *make(atn_sample_params p, uint32_t n_vocab)
{
    atn_sampler *s = NULL;
    atn_err err;
    assert_int_equal(atn_sampler_new(&p, n_vocab, 0, 64, &s, &err), ATN_OK);
    return s;
}

static atn_sampled sample_once(atn_sample_params p, const float *x, uint32_t n_vocab, const uint32_t *allowed)
{
    atn_sampler_scratch *scratch = NULL;
    atn_sampled out;
    atn_err err;
    atn_sampler *s = make(p, n_vocab);
    assert_int_equal(atn_sampler_scratch_new(n_vocab, &scratch, &err), ATN_OK);
    assert_int_equal(atn_sample(s, scratch, x, POSITION, allowed, &out, &err), ATN_OK);
    atn_sampler_free(s);
    atn_sampler_scratch_free(scratch);
    return out;
}

static atn_status sample_status(atn_sample_params p, const float *x, uint32_t n_vocab)
{
    atn_sampler_scratch *scratch = NULL;
    atn_sampled out;
    atn_err err;
    atn_sampler *s = make(p, n_vocab);
    assert_int_equal(atn_sampler_scratch_new(n_vocab, &scratch, &err), ATN_OK);
    const atn_status st = atn_sample(s, scratch, x, POSITION, NULL, &out, &err);
    atn_sampler_free(s);
    atn_sampler_scratch_free(scratch);
    return st;
}

static double log_softmax(const float *x, uint32_t n, int32_t id)
{
    double sum = 0;
    for (uint32_t i = 0; i < n; i++) {
        sum += exp((double)x[i] - x[id]);
    }
    return -log(sum);
}

static void test_greedy_and_logprobs(void **state)
{
    (void)state;
    const float x[] = {1, 3, -2, 3, 0.5f, 2};
    atn_sample_params p = atn_sample_defaults();
    p.n_top = 4;
    const atn_sampled out = sample_once(p, x, 6, NULL);

    assert_int_equal(out.id, 1); /* of the equal ones the lowest */
    assert_int_equal(out.n_top, 4);
    const int32_t want[] = {1, 3, 5, 0};
    for (int i = 0; i < 4; i++) {
        assert_int_equal(out.top[i].id, want[i]);
        assert_true(fabs(out.top[i].logprob - log_softmax(x, 6, want[i])) < 1e-6);
    }
    assert_true(out.logprob == out.top[0].logprob);

    p.n_top = 20; /* more than there are */
    assert_int_equal(sample_once(p, x, 6, NULL).n_top, 6);
    p.n_top = 0;
    assert_int_equal(sample_once(p, x, 6, NULL).n_top, 0);
}

static void test_logprobs_of_a_prompt(void **state)
{
    (void)state;
    float x[3000];
    atn_sampled out;
    atn_err err;

    random_row(x, 3000, 3);
    x[17] = -INFINITY;
    assert_int_equal(atn_logprobs(x, 3000, 2999, 5, &out, &err), ATN_OK);
    assert_int_equal(out.id, 2999);
    assert_true(fabs(out.logprob - log_softmax(x, 3000, 2999)) < 1e-5);
    for (uint32_t i = 0; i < 5; i++) {
        assert_true(fabs(out.top[i].logprob - log_softmax(x, 3000, out.top[i].id)) < 1e-5);
        uint32_t better = 0;
        for (int32_t j = 0; j < 3000; j++) {
            const float top = x[out.top[i].id];
            better += x[j] > top || (x[j] == top && j < out.top[i].id);
        }
        assert_int_equal(better, i);
    }
    assert_int_equal(atn_logprobs(x, 3000, 17, 0, &out, &err), ATN_OK);
    assert_true(out.logprob == -INFINITY);
    x[2500] = NAN;
    assert_int_equal(atn_logprobs(x, 3000, 2999, 0, &out, &err), ATN_NONFINITE);
}

static void test_bias_and_mask(void **state)
{
    (void)state;
    const float x[] = {1, 3, 2, 0};
    atn_sample_params p = atn_sample_defaults();
    p.bias = (atn_logit_bias[]){{0, 2.5f}};
    p.n_bias = 1;
    const atn_sampled out = sample_once(p, x, 4, NULL);
    assert_int_equal(out.id, 0);
    assert_true(fabs(out.logprob - log_softmax(x, 4, 0)) < 1e-6); /* of the raw logits */

    p.bias = (atn_logit_bias[]){{1, -INFINITY}};
    assert_int_equal(sample_once(p, x, 4, NULL).id, 2);
    const uint32_t allowed[] = {0x9}; /* 0 and 3 */
    assert_int_equal(sample_once(atn_sample_defaults(), x, 4, allowed).id, 0);
    p.bias = (atn_logit_bias[]){{0, -INFINITY}};
    assert_int_equal(sample_once(p, x, 4, allowed).id, 3);
}

/* Feeds prompt and answer, then samples greedily. */
static int32_t choose_after(atn_sample_params p, const float *x, const int32_t *prompt, uint32_t n_prompt,
                            const int32_t *answer, uint32_t n_answer)
{
    atn_sampler_scratch *scratch = NULL;
    atn_sampled out;
    atn_err err;
    atn_sampler *s = make(p, 4);
    assert_int_equal(atn_sampler_scratch_new(4, &scratch, &err), ATN_OK);
    atn_sampler_accept_prompt(s, prompt, n_prompt);
    for (uint32_t i = 0; i < n_answer; i++) {
        atn_sampler_accept(s, answer[i]);
    }
    assert_int_equal(atn_sample(s, scratch, x, POSITION, NULL, &out, &err), ATN_OK);
    atn_sampler_free(s);
    atn_sampler_scratch_free(scratch);
    return out.id;
}

static void test_penalties(void **state)
{
    (void)state;
    const float x[] = {2, 1.9f, 1, -1};
    const float low[] = {-1, -1.5f, -4, -9};
    const int32_t zero[] = {0, 0, 0};
    atn_sample_params p = atn_sample_defaults();

    p.repetition_penalty = 1.25f; /* 2 / 1.25 = 1.6 */
    assert_int_equal(choose_after(p, x, NULL, 0, NULL, 0), 0);
    assert_int_equal(choose_after(p, x, zero, 1, NULL, 0), 1);
    assert_int_equal(choose_after(p, x, NULL, 0, zero, 1), 1);
    assert_int_equal(choose_after(p, x, zero, 3, zero, 3), 1); /* once, however often: 1.6, not less */
    assert_int_equal(choose_after(p, (float[]){2, 1.5f, 1, 0}, zero, 3, zero, 3), 0);
    p.repetition_penalty = 1.6f; /* -1 * 1.6 */
    assert_int_equal(choose_after(p, low, zero, 1, NULL, 0), 1);

    p = atn_sample_defaults();
    p.frequency_penalty = 0.04f;                               /* three times 0.12 */
    assert_int_equal(choose_after(p, x, zero, 3, NULL, 0), 0); /* the prompt does not count */
    assert_int_equal(choose_after(p, x, NULL, 0, zero, 2), 0);
    assert_int_equal(choose_after(p, x, NULL, 0, zero, 3), 1);

    p = atn_sample_defaults();
    p.presence_penalty = 0.15f;
    assert_int_equal(choose_after(p, x, zero, 3, NULL, 0), 0);
    assert_int_equal(choose_after(p, x, NULL, 0, zero, 1), 1);
    assert_int_equal(choose_after(p, (float[]){2, 1.8f, 1, 0}, NULL, 0, zero, 3), 0); /* once */
    p.presence_penalty = -2;
    assert_int_equal(choose_after(p, x, NULL, 0, (int32_t[]){3, 2, 2}, 3), 2);
}

/* Every id that can be drawn is, and no other: probabilities are 8:4:2:1 of 15 for ids 3, 1, 0, 2. */
static void assert_support(atn_sample_params p, const char *want)
{
    const float unit = 0.6931471805599453f;
    const float x[] = {unit, 2 * unit, 0, 3 * unit};
    atn_sampler_scratch *scratch = NULL;
    char got[5] = "....";
    atn_sampled out;
    atn_err err;

    if (p.temperature == 0) {
        p.temperature = 1;
    }
    atn_sampler *s = make(p, 4);
    assert_int_equal(atn_sampler_scratch_new(4, &scratch, &err), ATN_OK);
    for (uint32_t i = 0; i < 1000; i++) {
        assert_int_equal(atn_sample(s, scratch, x, i, NULL, &out, &err), ATN_OK);
        got[out.id] = (char)('0' + out.id);
    }
    atn_sampler_free(s);
    atn_sampler_scratch_free(scratch);
    assert_string_equal(got, want);
}

static void test_filters_keep_exactly(void **state)
{
    (void)state;
    const atn_sample_params off = atn_sample_defaults();
    atn_sample_params p = off;

    assert_support(off, "0123");
    p.top_k = 2;
    assert_support(p, ".1.3");
    p.top_k = 1;
    assert_support(p, "...3");
    p.top_k = INT32_MAX;
    assert_support(p, "0123");

    /* Equal values go by id, and the two zeros are equal. */
    p = off;
    p.top_k = 1;
    p.temperature = 1;
    assert_int_equal(sample_once(p, (float[]){-1, -0.0f, 0.0f, -2}, 4, NULL).id, 1);

    p = off; /* 8/15 = 0.533, 12/15 = 0.8, 14/15 = 0.933 */
    p.top_p = 0.5f;
    assert_support(p, "...3");
    p.top_p = 0.54f;
    assert_support(p, ".1.3");
    p.top_p = 0.81f;
    assert_support(p, "01.3");
    p.top_p = 1e-30f;
    assert_support(p, "...3");

    p = off; /* relative to the best: 1, 0.5, 0.25, 0.125 */
    p.min_p = 0.2f;
    assert_support(p, "01.3");
    p.min_p = 0.3f;
    assert_support(p, ".1.3");
    p.min_p = 1;
    assert_support(p, "...3");

    p = off; /* top-p goes by what top-k left: 8/12 = 0.67 */
    p.top_k = 2;
    p.top_p = 0.6f;
    assert_support(p, "...3");
    p.top_p = 0.7f;
    assert_support(p, ".1.3");

    /* -log2 p is 0.907, 1.907, 2.907, 3.907; the entropy 1.640: nearest is id 1 (0.267), then 3 (0.733), 0 (1.267). */
    p = off;
    p.typical_p = 0.2f;
    assert_support(p, ".1..");
    p.typical_p = 0.5f;
    assert_support(p, ".1.3");
    p.typical_p = 0.85f;
    assert_support(p, "01.3");
    p.top_p = 0.5f; /* of 14: 8 is enough */
    assert_support(p, "...3");
    p.typical_p = 0.2f; /* typical comes first: the best is gone, and min-p goes by what is left */
    p.top_p = 1;
    p.min_p = 0.9f;
    assert_support(p, ".1..");
    /* Temperature comes before all of them: at 2 the best has 2.83 of 7.24 = 0.39. */
    p = off;
    p.temperature = 2;
    p.top_p = 0.5f;
    assert_support(p, ".1.3");
}

static void test_distribution(void **state)
{
    (void)state;
    enum { N = 3000, KINDS = 5, DRAWS = 10000 };
    /* Three blocks of ids; the weight sits on five of them: exp(x / 0.5) is 16, 8, 4, 2, 1. */
    const int32_t ids[KINDS] = {2999, 1024, 5, 1023, 2048};
    float *x = malloc(N * sizeof *x);
    uint32_t counts[KINDS] = {0};
    double chi2 = 0;
    atn_sampler_scratch *scratch = NULL;
    atn_sampled out;
    atn_err err;
    atn_sample_params p = atn_sample_defaults();

    for (int i = 0; i < N; i++) {
        x[i] = -1000;
    }
    for (int i = 0; i < KINDS; i++) {
        x[ids[i]] = 0.5f * 0.6931471805599453f * (float)(4 - i);
    }
    p.temperature = 0.5f;
    p.seed = 1;
    p.top_k = 50; /* keeps the run short; changes no probability */
    atn_sampler *s = make(p, N);
    assert_int_equal(atn_sampler_scratch_new(N, &scratch, &err), ATN_OK);
    for (uint32_t i = 0; i < DRAWS; i++) {
        assert_int_equal(atn_sample(s, scratch, x, i, NULL, &out, &err), ATN_OK);
        for (int k = 0; k < KINDS; k++) {
            counts[k] += out.id == ids[k];
        }
    }
    for (int k = 0; k < KINDS; k++) {
        const double want = DRAWS * (double)(16 >> k) / 31, d = counts[k] - want;
        chi2 += d * d / want;
    }
    assert_true(chi2 < 18.5); /* 99.9 % of 4 degrees of freedom; the draws are fixed */
    atn_sampler_free(s);
    atn_sampler_scratch_free(scratch);
    free(x);
}

/* A plain sampler: the same definition, sorted in full, summed without blocks. */
typedef struct plain {
    float x;
    double w;
    int32_t id;
} plain;

static int by_rank(const void *a, const void *b)
{
    const plain *p = a, *q = b;
    return p->x != q->x ? (p->x < q->x) - (p->x > q->x) : (p->id > q->id) - (p->id < q->id);
}

static int32_t plain_sample(const atn_sample_params *p, const float *x, uint32_t n, uint32_t position)
{
    plain *c = malloc(n * sizeof *c);
    double total = 0, sum = 0;
    uint32_t kept = n;

    for (uint32_t i = 0; i < n; i++) {
        c[i] = (plain){.x = x[i], .id = (int32_t)i};
    }
    float max = x[0];
    for (uint32_t i = 0; i < n; i++) {
        max = x[i] > max ? x[i] : max;
    }
    if ((p->top_k > 0 && (uint32_t)p->top_k < n) || p->top_p < 1) {
        qsort(c, n, sizeof *c, by_rank);
    }
    if (p->top_k > 0 && (uint32_t)p->top_k < n) {
        kept = (uint32_t)p->top_k;
    }
    for (uint32_t i = 0; i < kept; i++) {
        c[i].w = exp(((double)c[i].x - max) / p->temperature);
        total += c[i].w;
    }
    if (p->top_p < 1) {
        uint32_t k = 0;
        for (sum = 0; k < kept && (k == 0 || sum < p->top_p * total); k++) {
            sum += c[k].w;
        }
        kept = k;
        total = sum;
    }
    if (p->min_p > 0) {
        uint32_t k = 0;
        total = 0;
        for (uint32_t i = 0; i < kept; i++) {
            if (c[i].w >= p->min_p) {
                c[k++] = c[i];
                total += c[i].w;
            }
        }
        kept = k;
    }
    const double target = rng_uniform(p->seed, 0, position) * total;
    uint32_t i = 0;
    for (sum = c[0].w; i + 1 < kept && sum <= target; sum += c[i].w) {
        i++;
    }
    const int32_t id = c[i].id;
    free(c);
    return id;
}

static void test_large_vocabulary_against_plain(void **state)
{
    (void)state;
    float *x = malloc(LARGE * sizeof *x);
    atn_sampler_scratch *scratch = NULL;
    atn_err err;
    const struct {
        float temperature, top_p, min_p;
        int32_t top_k;
    } cases[] = {
        {0.7f, 1, 0, 0},      {1, 0.95f, 0, 0},       {1, 1, 0.02f, 0}, {1.3f, 1, 0, 40},
        {3, 0.9f, 0, 0},      {1, 1, 0, 5000},        {1, 1, 0, 256},   {1, 1, 0, 257},
        {2, 1, 0, INT32_MAX}, {0.8f, 0.9f, 0.1f, 64}, {100, 1, 0, 0},
    };

    random_row(x, LARGE, 11);
    assert_int_equal(atn_sampler_scratch_new(LARGE, &scratch, &err), ATN_OK);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        atn_sample_params p = atn_sample_defaults();
        p.temperature = cases[i].temperature;
        p.top_p = cases[i].top_p;
        p.min_p = cases[i].min_p;
        p.top_k = cases[i].top_k;
        p.seed = 77 + i;
        atn_sampler *s = make(p, LARGE);
        for (uint32_t position = 0; position < 2; position++) {
            atn_sampled out;
            assert_int_equal(atn_sample(s, scratch, x, position, NULL, &out, &err), ATN_OK);
            assert_int_equal(out.id, plain_sample(&p, x, LARGE, position));
        }
        atn_sampler_free(s);
    }
    atn_sampler_scratch_free(scratch);
    free(x);
}

/* The token is a function of (logits, parameters, seed, choice, position): not of what was sampled before or beside it. */
static void test_seed_reproduces(void **state)
{
    (void)state;
    enum { N = 500, DRAWS = 64 };
    float x[N];
    int32_t first[DRAWS];
    atn_sampler_scratch *scratch = NULL;
    atn_sampler *a = NULL, *b = NULL, *other_choice = NULL;
    atn_sampled out;
    atn_err err;
    int same = 0;
    atn_sample_params p = atn_sample_defaults();

    random_row(x, N, 5);
    p.temperature = 2;
    p.seed = UINT64_MAX;
    assert_int_equal(atn_sampler_scratch_new(N, &scratch, &err), ATN_OK);
    assert_int_equal(atn_sampler_new(&p, N, 3, 64, &a, &err), ATN_OK);
    assert_int_equal(atn_sampler_new(&p, N, 3, 64, &b, &err), ATN_OK);
    assert_int_equal(atn_sampler_new(&p, N, 4, 64, &other_choice, &err), ATN_OK);
    for (uint32_t i = 0; i < DRAWS; i++) {
        assert_int_equal(atn_sample(a, scratch, x, i, NULL, &out, &err), ATN_OK);
        first[i] = out.id;
    }
    for (uint32_t i = DRAWS; i-- > 0;) { /* backwards, with another sampler between */
        assert_int_equal(atn_sample(other_choice, scratch, x, i, NULL, &out, &err), ATN_OK);
        same += out.id == first[i];
        assert_int_equal(atn_sample(b, scratch, x, i, NULL, &out, &err), ATN_OK);
        assert_int_equal(out.id, first[i]);
    }
    assert_true(same < DRAWS / 4);
    atn_sampler_free(a);
    atn_sampler_free(b);
    atn_sampler_free(other_choice);
    atn_sampler_scratch_free(scratch);
}

static void test_extremes(void **state)
{
    (void)state;
    enum { N = 4096 };
    float x[N];
    const atn_sample_params greedy = atn_sample_defaults();
    atn_sample_params p = greedy;

    for (uint32_t seed = 0; seed < 20; seed++) { /* rows with many ties for the best */
        random_row(x, N, seed);
        for (int i = 0; i < N; i++) {
            x[i] = x[i] > 4 ? 4 : x[i];
        }
        p.temperature = 1e-30f;
        p.seed = seed;
        assert_int_equal(sample_once(p, x, N, NULL).id, sample_once(greedy, x, N, NULL).id);
    }
    for (int i = 0; i < N; i++) {
        x[i] = i % 2 ? 3e38f : -3e38f;
    }
    for (int kind = 0; kind < 5; kind++) {
        p = greedy;
        p.temperature = kind % 2 ? 1e-7f : 100;
        p.top_p = kind == 1 ? 1e-6f : 1;
        p.min_p = kind == 2 ? 1 : 0;
        p.typical_p = kind == 3 ? 1e-6f : 1;
        p.top_k = kind == 4 ? 3 : 0;
        assert_int_equal(sample_once(p, x, N, NULL).id % 2, 1);
    }
    for (int i = 0; i < N; i++) {
        x[i] = -INFINITY;
    }
    x[3000] = -7;
    p.temperature = 1;
    p.min_p = 0;
    p.typical_p = 1;
    const atn_sampled only = sample_once(p, x, N, NULL);
    assert_int_equal(only.id, 3000);
    assert_true(only.logprob == 0);
}

static void test_nonfinite(void **state)
{
    (void)state;
    enum { N = 2100 };
    float x[N];
    const float bad[] = {NAN, INFINITY};
    const uint32_t at[] = {0, 15, 16, 1023, 1024, N - 1};
    atn_sample_params p = atn_sample_defaults();
    atn_logit_bias all[4];

    for (size_t i = 0; i < sizeof at / sizeof at[0]; i++) {
        for (int k = 0; k < 2; k++) {
            for (int hot = 0; hot < 2; hot++) {
                random_row(x, N, 9);
                x[at[i]] = bad[k];
                p.temperature = (float)hot;
                assert_int_equal(sample_status(p, x, N), ATN_NONFINITE);
            }
        }
    }
    for (int i = 0; i < N; i++) {
        x[i] = -INFINITY;
    }
    assert_int_equal(sample_status(p, x, N), ATN_NONFINITE);
    for (int i = 0; i < 4; i++) {
        all[i] = (atn_logit_bias){i, -INFINITY};
        x[i] = 1;
    }
    p.bias = all;
    p.n_bias = 4;
    assert_int_equal(sample_status(p, x, 4), ATN_NONFINITE); /* all banned */
    p.temperature = 0;
    assert_int_equal(sample_status(p, x, 4), ATN_NONFINITE);
    p.n_bias = 3;
    assert_int_equal(sample_status(p, x, 4), ATN_OK);
}

static void assert_refused(atn_sample_params p, const char *param)
{
    atn_sampler *s = NULL;
    atn_err err = {0};
    assert_int_equal(atn_sample_check(&p, 100, &err), ATN_INVALID);
    assert_string_equal(err.param, param);
    assert_true(err.msg[0] != 0);
    assert_int_equal(atn_sampler_new(&p, 100, 0, 10, &s, &err), ATN_INVALID);
    assert_null(s);
}

static void test_ranges(void **state)
{
    (void)state;
#define REFUSE(field, value, name)                    \
    do {                                              \
        atn_sample_params p_ = atn_sample_defaults(); \
        p_.field = value;                             \
        assert_refused(p_, name);                     \
    } while (0)
#define ACCEPT(field, value)                                         \
    do {                                                             \
        atn_sample_params p_ = atn_sample_defaults();                \
        atn_err err_;                                                \
        p_.field = value;                                            \
        assert_int_equal(atn_sample_check(&p_, 100, &err_), ATN_OK); \
    } while (0)
    REFUSE(temperature, -1, "temperature");
    REFUSE(temperature, 1e30f, "temperature");
    REFUSE(temperature, NAN, "temperature");
    ACCEPT(temperature, 1e-30f);
    ACCEPT(temperature, 100);
    REFUSE(top_k, -5, "top_k");
    ACCEPT(top_k, INT32_MAX);
    REFUSE(top_p, 0, "top_p");
    REFUSE(top_p, 1.0001f, "top_p");
    REFUSE(top_p, NAN, "top_p");
    REFUSE(min_p, 2, "min_p");
    REFUSE(min_p, -0.1f, "min_p");
    REFUSE(typical_p, 0, "typical_p");
    REFUSE(typical_p, INFINITY, "typical_p");
    REFUSE(repetition_penalty, 0, "repetition_penalty");
    REFUSE(repetition_penalty, 1e30f, "repetition_penalty");
    REFUSE(frequency_penalty, 2.1f, "frequency_penalty");
    REFUSE(presence_penalty, -1e30f, "presence_penalty");
    REFUSE(n_top, ATN_MAX_TOP + 1, "n_top");
    ACCEPT(seed, UINT64_MAX);

    atn_sample_params p = atn_sample_defaults();
    const atn_logit_bias bad[] = {{-1, 0}, {100, 0}, {INT32_MAX, 0}, {0, NAN}, {0, INFINITY}, {0, 1e30f}};
    p.n_bias = 1;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        p.bias = &bad[i];
        assert_refused(p, "logit_bias");
    }
    p.n_bias = ATN_MAX_LOGIT_BIAS + 1;
    assert_refused(p, "logit_bias");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_greedy_and_logprobs),
        cmocka_unit_test(test_logprobs_of_a_prompt),
        cmocka_unit_test(test_bias_and_mask),
        cmocka_unit_test(test_penalties),
        cmocka_unit_test(test_filters_keep_exactly),
        cmocka_unit_test(test_distribution),
        cmocka_unit_test(test_large_vocabulary_against_plain),
        cmocka_unit_test(test_seed_reproduces),
        cmocka_unit_test(test_extremes),
        cmocka_unit_test(test_nonfinite),
        cmocka_unit_test(test_ranges),
    };
    return cmocka_run_group_tests_name("sampler", tests, NULL, NULL);
}
