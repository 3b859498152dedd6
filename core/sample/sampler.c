/* The sampler: logit bias, penalties, temperature, top-k, typical-p, top-p, min-p, draw.
 *
 * Filters work on a list of candidate ids in the scratch. It starts as all ids in order; a filter that ranks leaves it in
 * rank order and cuts it; min-p only drops. Weights are exp((logit - highest) / temperature), unnormalised; sums over the list go in blocks of
 * 1,024 entries. The list's order is a function of the logits and parameters alone, and so is the token drawn. */
#include "core/sample/logprob.h"
#include "core/sample/penalty.h"
#include "core/sample/ranking.h"
#include "core/sample/rng.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Below it a temperature is greedy: one unit in the last place of a logit of 10 is then worth a factor of 1e41. */
static const float greedy_below = 1e-8f;

struct atn_sampler_scratch {
    uint32_t n_vocab;
    float *logits;  /* [n_vocab] after bias and penalties */
    double *weight; /* [n_vocab] by id, valid for candidates */
    uint64_t *list; /* [n_vocab] candidates, as ranking keys */
};

struct atn_sampler {
    atn_sample_params p; /* p.bias points behind the struct */
    uint32_t n_vocab, choice;
    penalty *seen; /* NULL: no penalties */
    atn_logit_bias bias[];
};

/* The candidates during one draw. */
typedef struct candidates {
    atn_sampler_scratch *s;
    uint32_t n;
    double total; /* sum of the weights */
    ranking by_logit;
    bool ranked; /* by_logit holds for the list as it is */
    float max;
    double temperature;
} candidates;

size_t atn_sampler_scratch_bytes(uint32_t n_vocab)
{
    const atn_sampler_scratch *s = NULL;
    return sizeof *s + n_vocab * (sizeof *s->logits + sizeof *s->weight + sizeof *s->list);
}

atn_status atn_sampler_scratch_new(uint32_t n_vocab, atn_sampler_scratch **out, atn_err *err)
{
    atn_sampler_scratch *s = calloc(1, sizeof *s);

    *out = NULL;
    if (s) {
        s->n_vocab = n_vocab;
        s->logits = calloc(n_vocab, sizeof *s->logits);
        s->weight = calloc(n_vocab, sizeof *s->weight);
        s->list = calloc(n_vocab, sizeof *s->list);
    }
    if (!s || !s->logits || !s->weight || !s->list) {
        atn_sampler_scratch_free(s);
        return atn_fail(err, ATN_NOMEM, NULL, "no memory to sample from %u tokens", n_vocab);
    }
    *out = s;
    return ATN_OK;
}

void atn_sampler_scratch_free(atn_sampler_scratch *s)
{
    if (s) {
        free(s->logits);
        free(s->weight);
        free(s->list);
        free(s);
    }
}

static bool has_penalties(const atn_sample_params *p)
{
    return p->repetition_penalty != 1 || p->frequency_penalty != 0 || p->presence_penalty != 0;
}

atn_status atn_sampler_new(const atn_sample_params *p, uint32_t n_vocab, uint32_t choice, uint32_t max_tokens,
                           atn_sampler **out, atn_err *err)
{
    *out = NULL;
    ATN_TRY(atn_sample_check(p, n_vocab, err));
    atn_sampler *s = calloc(1, sizeof *s + p->n_bias * sizeof s->bias[0]);
    if (!s) {
        return atn_fail(err, ATN_NOMEM, NULL, "no memory for a sampler");
    }
    s->p = *p;
    s->p.bias = s->bias;
    s->n_vocab = n_vocab;
    s->choice = choice;
    if (p->n_bias > 0) {
        memcpy(s->bias, p->bias, p->n_bias * sizeof s->bias[0]);
    }
    if (has_penalties(p)) {
        s->seen = penalty_new(max_tokens < n_vocab ? max_tokens : n_vocab);
        if (!s->seen) {
            atn_sampler_free(s);
            return atn_fail(err, ATN_NOMEM, NULL, "no memory for penalties over %u tokens", max_tokens);
        }
    }
    *out = s;
    return ATN_OK;
}

void atn_sampler_free(atn_sampler *s)
{
    if (s) {
        penalty_free(s->seen);
        free(s);
    }
}

void atn_sampler_accept_prompt(atn_sampler *s, const int32_t *ids, uint32_t n)
{
    for (uint32_t i = 0; s->seen && i < n; i++) {
        penalty_count(s->seen, ids[i], 0);
    }
}

void atn_sampler_accept(atn_sampler *s, int32_t id)
{
    if (s->seen) {
        penalty_count(s->seen, id, 1);
    }
}

/* The row with bias, penalties and mask; the row itself when there are none. */
static const float *adjusted(const atn_sampler *s, atn_sampler_scratch *scratch, const float *logits,
                             const uint32_t *allowed)
{
    float *x = scratch->logits;

    if (s->p.n_bias == 0 && !s->seen && !allowed) {
        return logits;
    }
    memcpy(x, logits, s->n_vocab * sizeof *x);
    for (uint32_t i = 0; i < s->p.n_bias; i++) {
        x[s->bias[i].id] += s->bias[i].bias;
    }
    if (s->seen) {
        penalty_apply(s->seen, &s->p, x);
    }
    for (uint32_t i = 0; allowed && i < s->n_vocab; i++) {
        if (!(allowed[i / 32] >> (i % 32) & 1)) {
            x[i] = -INFINITY;
        }
    }
    return x;
}

/* ---- the candidate list ---- */

static double exponent(const candidates *c, const float *x, uint32_t id)
{
    return ((double)x[id] - c->max) / c->temperature;
}

static double block_total(const candidates *c, uint32_t from, uint32_t *to)
{
    double sum = 0;

    *to = c->n - from < LOGPROB_BLOCK ? c->n : from + LOGPROB_BLOCK;
    for (uint32_t i = from; i < *to; i++) {
        sum += c->s->weight[ranking_id(c->s->list[i])];
    }
    return sum;
}

static void add_up(candidates *c)
{
    c->total = 0;
    for (uint32_t i = 0, to; i < c->n; i = to) {
        c->total += block_total(c, i, &to);
    }
}

static void rank(candidates *c, const float *x)
{
    if (!c->ranked) {
        for (uint32_t i = 0; i < c->n; i++) {
            const uint32_t id = ranking_id(c->s->list[i]);
            c->s->list[i] = ranking_key(x[id], id);
        }
        ranking_start(&c->by_logit, c->s->list, c->n);
        c->ranked = true;
    }
}

/* The list becomes its first n by rank. */
static void cut(candidates *c, uint32_t n)
{
    c->n = n;
    c->by_logit.n = c->by_logit.ranked = n;
}

/* Smallest number of leading candidates in the order of r that hold a share of the total. */
static uint32_t leading_share(const candidates *c, ranking *r, double share)
{
    const double enough = share * c->total;
    double sum = 0;
    uint32_t n = 0;

    while (n < c->n && (n == 0 || sum < enough)) {
        sum += c->s->weight[ranking_at(r, n++)];
    }
    return n;
}

/* Drops the candidates of less weight; the order of the others stays. */
static void drop_light(candidates *c, double least)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < c->n; i++) {
        c->s->list[n] = c->s->list[i];
        n += c->s->weight[ranking_id(c->s->list[i])] >= least;
    }
    c->n = n;
}

/* A logit that at least k ids reach: the k-th of the blocks' highest. -inf when there are fewer blocks. Spares ranking most of
 * the vocabulary. */
static float reached_by(candidates *c, const float *x, uint32_t n_vocab, uint32_t k)
{
    const uint32_t n_blocks = (n_vocab + LOGPROB_BLOCK - 1) / LOGPROB_BLOCK;
    ranking blocks;

    if (k > n_blocks) {
        return -INFINITY;
    }
    for (uint32_t b = 0; b < n_blocks; b++) {
        c->s->weight[b] = logprob_highest(x, n_vocab, b);
        c->s->list[b] = ranking_key((float)c->s->weight[b], b);
    }
    ranking_start(&blocks, c->s->list, n_blocks);
    return (float)c->s->weight[ranking_at(&blocks, k - 1)];
}

/* All ids that may be chosen, in order, or the k best by rank. */
static void start(candidates *c, const float *x, uint32_t n_vocab, uint32_t k)
{
    const bool limited = k > 0 && k < n_vocab;
    const float bar = limited ? reached_by(c, x, n_vocab, k) : -INFINITY;

    for (uint32_t id = 0; id < n_vocab; id++) {
        c->s->list[c->n] = id;
        c->n += x[id] >= bar && x[id] > -INFINITY;
    }
    if (limited) {
        const uint32_t n = k < c->n ? k : c->n;
        rank(c, x);
        ranking_at(&c->by_logit, n - 1);
        cut(c, n);
    }
}

/* Weights of the candidates, and their sum. */
static void weigh(candidates *c, const float *x, uint32_t n_vocab)
{
    if (c->ranked) {
        for (uint32_t i = 0; i < c->n; i++) {
            const uint32_t id = ranking_id(c->s->list[i]);
            logprob_weights(x + id, 1, c->max, c->temperature, c->s->weight + id);
        }
    } else {
        logprob_weights(x, n_vocab, c->max, c->temperature, c->s->weight);
    }
    add_up(c);
}

/* Keeps the candidates whose surprise is nearest to the entropy. With l the exponent and p = exp(l) / total, that is
 * |-log p - H| = |l - sum p l|. */
static void typical(candidates *c, const float *x, float typical_p)
{
    ranking by_distance;
    double mean = 0;

    for (uint32_t i = 0, to; i < c->n; i = to) {
        double part = 0;
        to = c->n - i < LOGPROB_BLOCK ? c->n : i + LOGPROB_BLOCK;
        for (uint32_t j = i; j < to; j++) {
            const uint32_t id = ranking_id(c->s->list[j]);
            part += c->s->weight[id] * exponent(c, x, id);
        }
        mean += part;
    }
    mean /= c->total;
    for (uint32_t i = 0; i < c->n; i++) {
        const uint32_t id = ranking_id(c->s->list[i]);
        c->s->list[i] = ranking_key((float)-fabs(exponent(c, x, id) - mean), id);
    }
    ranking_start(&by_distance, c->s->list, c->n);
    c->n = leading_share(c, &by_distance, typical_p);
    c->ranked = false;
    add_up(c);
}

static void top_p(candidates *c, const float *x, float share)
{
    if (!c->ranked) {
        /* All candidates below the average of what may be missing weigh less than that together: none of them is needed. */
        drop_light(c, (1 - (double)share) * c->total / c->n);
    }
    rank(c, x);
    cut(c, leading_share(c, &c->by_logit, share));
    add_up(c);
}

static void min_p(candidates *c, float part)
{
    double best = 0;

    for (uint32_t i = 0; i < c->n; i++) {
        const double w = c->s->weight[ranking_id(c->s->list[i])];
        best = w > best ? w : best;
    }
    drop_light(c, part * best);
    add_up(c);
}

/* The candidate at which the running sum of weights passes u * total. */
static int32_t draw(const candidates *c, double u)
{
    const double target = u * c->total;
    double sum = 0;

    for (uint32_t from = 0, to; from < c->n; from = to) {
        const double part = block_total(c, from, &to);
        if (sum + part <= target) {
            sum += part;
            continue;
        }
        for (uint32_t i = from; i < to; i++) {
            const uint32_t id = ranking_id(c->s->list[i]);
            sum += c->s->weight[id];
            if (sum > target) {
                return (int32_t)id;
            }
        }
    }
    return (int32_t)ranking_id(c->s->list[c->n - 1]); /* rounding left the target at the very end */
}

static int32_t draw_filtered(const atn_sampler *s, atn_sampler_scratch *scratch, const float *x, float max,
                             uint32_t position)
{
    candidates c = {.s = scratch, .max = max, .temperature = s->p.temperature};

    start(&c, x, s->n_vocab, (uint32_t)s->p.top_k);
    weigh(&c, x, s->n_vocab);
    if (s->p.typical_p < 1) {
        typical(&c, x, s->p.typical_p);
    }
    if (s->p.top_p < 1) {
        top_p(&c, x, s->p.top_p);
    }
    if (s->p.min_p > 0) {
        min_p(&c, s->p.min_p);
    }
    return draw(&c, rng_uniform(s->p.seed, s->choice, position));
}

atn_status atn_sample(atn_sampler *s, atn_sampler_scratch *scratch, const float *logits, uint32_t position,
                      const uint32_t *allowed, atn_sampled *out, atn_err *err)
{
    logprob_row row;
    float max;
    int32_t id;

    if (!logprob_scan(logits, s->n_vocab, &row)) {
        return atn_fail(err, ATN_NONFINITE, NULL, "a logit is not a number, or none is finite");
    }
    const float *x = adjusted(s, scratch, logits, allowed);
    if (x == logits) {
        max = row.max;
        id = row.argmax;
    } else if (!logprob_argmax(x, s->n_vocab, &max, &id)) {
        return atn_fail(err, ATN_NONFINITE, "logit_bias", "bias and penalties leave no token to choose");
    }
    if (s->p.temperature >= greedy_below) {
        id = draw_filtered(s, scratch, x, max, position);
    }
    logprob_report(logits, s->n_vocab, &row, id, s->p.n_top, out);
    return ATN_OK;
}

atn_status atn_logprobs(const float *logits, uint32_t n_vocab, int32_t id, uint32_t n_top, atn_sampled *out,
                        atn_err *err)
{
    logprob_row row;

    if (!logprob_scan(logits, n_vocab, &row)) {
        return atn_fail(err, ATN_NONFINITE, NULL, "a logit is not a number, or none is finite");
    }
    logprob_report(logits, n_vocab, &row, id, n_top, out);
    return ATN_OK;
}
