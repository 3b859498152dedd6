/* Reference answers (tests/golden/data/<model>.json) and their comparison with what a runner computes: token ids, logits,
 * log-probabilities, greedy continuation, attention rows, interventions. The greatest errors are measured and printed. */
#ifndef GOLDEN_REFERENCE_H
#define GOLDEN_REFERENCE_H

#include "tests/golden/runner.h"

#include <jansson.h>
#include <math.h>

typedef struct tolerance {
    double logit, logprob, attention, intervention;
    double sure_gap; /* the first choice must agree where the reference's gap exceeds this */
} tolerance;

typedef struct measured {
    double logit, logprob, attention, intervention;
    unsigned n_logits, n_choices, n_weights;
} measured;

static inline json_t *reference_load(const char *path)
{
    json_error_t why;
    json_t *doc = json_load_file(path, 0, &why);
    if (doc == NULL) {
        fail_msg("%s: line %d: %s", path, why.line, why.text);
    }
    return doc;
}

static inline json_t *reference_get(json_t *o, const char *key)
{
    json_t *v = json_object_get(o, key);
    if (v == NULL) {
        fail_msg("the reference has no \"%s\"", key);
    }
    return v;
}

/* malloc'ed */
static inline int32_t *reference_ids(json_t *a, uint32_t *n)
{
    *n = (uint32_t)json_array_size(a);
    int32_t *ids = calloc(*n + 1, sizeof *ids);
    assert_non_null(ids);
    for (uint32_t i = 0; i < *n; i++) {
        ids[i] = (int32_t)json_integer_value(json_array_get(a, i));
    }
    return ids;
}

static inline double number_at(json_t *a, size_t i)
{
    return json_number_value(json_array_get(a, i));
}

static inline void within(double ours, double right, double most, double *worst, const char *what)
{
    double d = fabs(ours - right);
    if (!(d <= most)) {
        fail_msg("%s: %.7g, the reference says %.7g: off by %.2g, at most %.2g is allowed", what, ours, right, d, most);
    }
    *worst = d > *worst ? d : *worst;
}

static inline double logsumexp(const float *row, uint32_t n)
{
    double m = -INFINITY, sum = 0;
    for (uint32_t i = 0; i < n; i++) {
        m = (double)row[i] > m ? (double)row[i] : m;
    }
    for (uint32_t i = 0; i < n; i++) {
        sum += exp((double)row[i] - m);
    }
    return m + log(sum);
}

static inline int32_t first_choice(const float *row, uint32_t n)
{
    uint32_t best = 0;
    for (uint32_t i = 1; i < n; i++) {
        best = row[i] > row[best] ? i : best;
    }
    return (int32_t)best;
}

/* list: [[id, logit], ...] */
static inline void check_logits(const runner *r, json_t *list, const float *row, double most, double *worst,
                                const char *what)
{
    assert_true(json_array_size(list) > 0);
    for (size_t i = 0; i < json_array_size(list); i++) {
        json_t *pair = json_array_get(list, i);
        uint32_t id = (uint32_t)json_integer_value(json_array_get(pair, 0));
        assert_true(id < r->info.n_vocab);
        within((double)row[id], number_at(pair, 1), most, worst, what);
    }
}

/* One of steps[]: the five best logits, their log-probabilities, and the choice. */
static inline void check_step(const runner *r, json_t *step, const float *row, const tolerance *tol, measured *got)
{
    json_t *top = reference_get(step, "top5");
    check_logits(r, top, row, tol->logit, &got->logit, "logit of a step");
    double right = json_number_value(reference_get(step, "logsumexp")), ours = logsumexp(row, r->info.n_vocab);
    for (size_t i = 0; i < json_array_size(top); i++) {
        json_t *pair = json_array_get(top, i);
        double logit = (double)row[json_integer_value(json_array_get(pair, 0))];
        within(logit - ours, number_at(pair, 1) - right, tol->logprob, &got->logprob, "log-probability of a step");
    }
    if (json_number_value(reference_get(step, "gap")) > tol->sure_gap) {
        assert_int_equal(first_choice(row, r->info.n_vocab),
                         json_integer_value(json_array_get(json_array_get(top, 0), 0)));
        got->n_choices++;
    }
    got->n_logits += 5;
}

static inline void check_prompt_logprobs(const runner *r, json_t *list, const int32_t *ids, const float *logits,
                                         const tolerance *tol, measured *got)
{
    for (size_t i = 1; i < json_array_size(list); i++) {
        const float *row = logits + (i - 1) * r->info.n_vocab;
        double ours = (double)row[ids[i]] - logsumexp(row, r->info.n_vocab);
        within(ours, number_at(list, i), tol->logprob, &got->logprob, "log-probability of a prompt token");
    }
}

static inline void check_logits_last(const runner *r, json_t *list, const float *row, const tolerance *tol,
                                     measured *got)
{
    assert_int_equal(json_array_size(list), r->info.n_vocab);
    for (uint32_t i = 0; i < r->info.n_vocab; i++) {
        within((double)row[i], number_at(list, i), tol->logit, &got->logit, "logit of the last row");
        got->n_logits++;
    }
}

/* ---- attention ---- */

/* Every softmax row of one position: w[layer][head][key]. */
typedef struct caught_rows {
    const runner *r;
    uint32_t first_row_pos; /* position of row 0 of the batch */
    uint32_t pos;           /* the one to keep */
    uint32_t n_keys;
    float *w;
    uint64_t calls;
} caught_rows;

static inline void catch_row(void *arg, uint32_t layer, uint32_t row, uint32_t head, const float *weights,
                             uint32_t n_keys)
{
    caught_rows *c = arg;
    c->calls++;
    if (c->first_row_pos + row == c->pos) {
        assert_true(n_keys >= c->n_keys);
        memcpy(c->w + ((size_t)layer * c->r->info.n_head + head) * c->n_keys, weights, c->n_keys * sizeof *weights);
    }
}

/* The rows of position n - 1 of ids[n], in chunks of at most r->max_rows. The caller frees w. */
static inline caught_rows catch_attention(runner *r, const int32_t *ids, uint32_t n)
{
    caught_rows c = {.r = r, .pos = n - 1, .n_keys = n};
    c.w = calloc((size_t)r->info.n_layer * r->info.n_head * n, sizeof *c.w);
    assert_non_null(c.w);
    kv_seq *seq = runner_seq(r);
    model_batch like = {.probe = catch_row, .probe_arg = &c};
    uint64_t want = 0;
    for (uint32_t at = 0; at < n; at += r->max_rows) {
        uint32_t k = n - at < r->max_rows ? n - at : r->max_rows;
        bool last = at + k == n;
        c.first_row_pos = at;
        runner_rows(r, seq, ids + at, k, false, last ? &like : NULL);
        want += last ? (uint64_t)k * r->info.n_layer * r->info.n_head : 0;
    }
    assert_int_equal(c.calls, want); /* every layer, row and head, once */
    kv_seq_free(seq);
    return c;
}

static inline const float *caught_row(const caught_rows *c, uint32_t layer, uint32_t head)
{
    return c->w + ((size_t)layer * c->r->info.n_head + head) * c->n_keys;
}

/* att: {position, rows: {layer: [head][key]}} */
static inline void check_attention(runner *r, json_t *att, const int32_t *ids, uint32_t n, const tolerance *tol,
                                   measured *got)
{
    assert_int_equal(json_integer_value(reference_get(att, "position")), n - 1);
    caught_rows c = catch_attention(r, ids, n);
    const char *layer;
    json_t *heads;
    json_object_foreach(reference_get(att, "rows"), layer, heads)
    {
        assert_int_equal(json_array_size(heads), r->info.n_head);
        for (uint32_t h = 0; h < r->info.n_head; h++) {
            const float *row = caught_row(&c, (uint32_t)strtoul(layer, NULL, 10), h);
            json_t *right = json_array_get(heads, h);
            assert_int_equal(json_array_size(right), n);
            for (uint32_t k = 0; k < n; k++) {
                within((double)row[k], number_at(right, k), tol->attention, &got->attention, "attention weight");
                got->n_weights++;
            }
        }
    }
    free(c.w);
}

/* ---- interventions ---- */

static inline uint32_t uint_of(json_t *o, const char *key)
{
    return (uint32_t)json_integer_value(reference_get(o, key));
}

static inline void check_intervention(runner *r, json_t *one, const int32_t *ids, uint32_t n, const tolerance *tol,
                                      measured *got)
{
    size_t n_heads = (size_t)r->info.n_layer * r->info.n_head;
    float *gate = calloc(n_heads, sizeof *gate), *scale = calloc(n_heads, sizeof *scale),
          *factor = calloc(n, sizeof *factor);
    assert_true(gate != NULL && scale != NULL && factor != NULL);
    for (size_t i = 0; i < n_heads; i++) {
        gate[i] = scale[i] = 1.0f;
    }
    json_t *list, *what;
    size_t i;
    model_batch like = {0};
    if ((list = json_object_get(one, "ablate")) != NULL) {
        like.head_gate = gate;
        json_array_foreach(list, i, what)
        {
            gate[uint_of(what, "layer") * r->info.n_head + uint_of(what, "head")] = 0.0f;
        }
    } else if ((list = json_object_get(one, "scale")) != NULL) {
        like.head_scale = scale;
        json_array_foreach(list, i, what)
        {
            scale[uint_of(what, "layer") * r->info.n_head + uint_of(what, "head")] =
                (float)json_number_value(reference_get(what, "factor"));
        }
    } else {
        like.key_log_factor = factor;
        json_array_foreach(reference_get(one, "token_factor"), i, what)
        {
            factor[uint_of(what, "position")] = (float)log(json_number_value(reference_get(what, "factor")));
        }
    }
    kv_seq *seq = runner_seq(r);
    const float *logits = runner_prompt(r, seq, ids, n, r->max_rows, &like);
    check_logits(r, reference_get(one, "top5_last"), logits, tol->intervention, &got->intervention,
                 "logit under intervention");
    kv_seq_free(seq);
    free(gate);
    free(scale);
    free(factor);
}

/* ---- a whole prompt ---- */

static inline void check_ids(const runner *r, json_t *prompt, const int32_t *ids, uint32_t n)
{
    json_t *text = json_object_get(prompt, "text");
    if (text == NULL) {
        return; /* a synthetic model: ids alone */
    }
    atn_segment seg = {.text = json_string_value(text), .n = json_string_length(text), .trusted = true};
    int32_t *ours;
    size_t n_ours;
    RUN_OK(atn_tokenize(atn_model_tokenizer(r->m), &seg, 1, ATN_TOKENIZE_BOS, &ours, &n_ours, &err));
    assert_int_equal(n_ours, n);
    assert_memory_equal(ours, ids, n * sizeof *ids);
    free(ours);
}

/* Everything that the reference says of a prompt of at most max_rows tokens. When seq is not NULL it is left after the prompt. */
static inline void check_prompt(runner *r, json_t *prompt, const tolerance *tol, measured *got, kv_seq *seq)
{
    uint32_t n;
    int32_t *ids = reference_ids(reference_get(prompt, "ids"), &n);
    check_ids(r, prompt, ids, n);
    assert_true(n <= r->max_rows);
    const float *logits = runner_rows(r, seq, ids, n, true, NULL);
    check_prompt_logprobs(r, reference_get(prompt, "prompt_logprobs"), ids, logits, tol, got);
    const float *last = logits + (size_t)(n - 1) * r->info.n_vocab;
    if (json_object_get(prompt, "logits_last") != NULL) {
        check_logits_last(r, json_object_get(prompt, "logits_last"), last, tol, got);
    }
    check_step(r, json_array_get(reference_get(prompt, "steps"), 0), last, tol, got);
    if (json_object_get(prompt, "attention") != NULL) {
        check_attention(r, json_object_get(prompt, "attention"), ids, n, tol, got);
    }
    json_t *one;
    size_t i;
    json_array_foreach(json_object_get(prompt, "interventions"), i, one)
    {
        check_intervention(r, one, ids, n, tol, got);
    }
    free(ids);
}

/* The greedy continuations of several prompts in one batch a step. seqs[i] stands after prompt i; each step's choice is the
 * reference's, so that a near tie that falls the other way (only where the gap is below sure_gap) spoils nothing after it. */
static inline void check_greedy(runner *r, json_t **prompts, kv_seq **seqs, uint32_t n, const tolerance *tol,
                                measured *got)
{
    for (size_t k = 1;; k++) {
        int32_t tokens[16], rows[16];
        model_span spans[16];
        json_t *steps[16];
        uint32_t n_rows = 0;
        assert_true(n <= 16);
        for (uint32_t i = 0; i < n; i++) {
            json_t *step = json_array_get(reference_get(prompts[i], "steps"), k);
            if (step != NULL) {
                steps[n_rows] = step;
                tokens[n_rows] =
                    (int32_t)json_integer_value(json_array_get(reference_get(prompts[i], "greedy_ids"), k - 1));
                spans[n_rows] = (model_span){.seq = seqs[i], .row = n_rows, .n = 1};
                rows[n_rows] = (int32_t)n_rows;
                n_rows++;
            }
        }
        if (n_rows == 0) {
            return;
        }
        model_batch b = {.tokens = tokens, .spans = spans, .n_spans = n_rows, .out_rows = rows, .n_out = n_rows};
        const float *logits = runner_step(r, &b);
        for (uint32_t i = 0; i < n_rows; i++) {
            check_step(r, steps[i], logits + (size_t)i * r->info.n_vocab, tol, got);
        }
    }
}

static inline void print_measured(const char *what, const measured *got)
{
    printf("%s: %u logits within %.2g, log-probabilities %.2g, %u attention weights %.2g, interventions %.2g; %u "
           "choices equal\n",
           what, got->n_logits, got->logit, got->logprob, got->n_weights, got->attention, got->intervention,
           got->n_choices);
}

#endif
