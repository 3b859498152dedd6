/* Row reductions, see logprob.h. The maximum of a block does not depend on the order of comparison, so it is found in lanes
 * that a compiler can keep in vector registers; sums run in one fixed order. */
#include "core/sample/logprob.h"
#include "core/backend/mathfn.h"
#include "core/backend/mathfn_inline.h"

#include <math.h>

enum { LANES = 16 };

static uint32_t block_end(uint32_t start, uint32_t n)
{
    return n - start < LOGPROB_BLOCK ? n : start + LOGPROB_BLOCK;
}

/* Highest of x[0..n), NaN when one of them is. */
static float highest_of(const float *x, uint32_t n)
{
    float lane[LANES], highest = -INFINITY;
    int nan[LANES] = {0}, any_nan = 0;
    uint32_t i = 0;

    for (int l = 0; l < LANES; l++) {
        lane[l] = -INFINITY;
    }
    for (; i + LANES <= n; i += LANES) {
        for (int l = 0; l < LANES; l++) {
            const float v = x[i + (uint32_t)l];
            lane[l] = v > lane[l] ? v : lane[l];
            nan[l] |= v != v;
        }
    }
    for (; i < n; i++) {
        lane[0] = x[i] > lane[0] ? x[i] : lane[0];
        nan[0] |= x[i] != x[i];
    }
    for (int l = 0; l < LANES; l++) {
        highest = lane[l] > highest ? lane[l] : highest;
        any_nan |= nan[l];
    }
    return any_nan ? NAN : highest;
}

float logprob_highest(const float *logits, uint32_t n_vocab, uint32_t block)
{
    const uint32_t start = block * LOGPROB_BLOCK;
    return highest_of(logits + start, block_end(start, n_vocab) - start);
}

bool logprob_argmax(const float *logits, uint32_t n_vocab, float *max, int32_t *argmax)
{
    float highest = -INFINITY;
    uint32_t block = 0;

    for (uint32_t b = 0; b < n_vocab; b = block_end(b, n_vocab)) {
        const float h = highest_of(logits + b, block_end(b, n_vocab) - b);
        if (isnan(h)) {
            return false;
        }
        if (h > highest) {
            highest = h;
            block = b;
        }
    }
    if (!isfinite(highest)) {
        return false;
    }
    while (logits[block] != highest) {
        block++;
    }
    *max = highest;
    *argmax = (int32_t)block;
    return true;
}

/* Inserts id into top[0..*n), which is kept by logit (in .logprob), ties by id; at most max stay. */
static void top_insert(atn_top *top, uint32_t *n, uint32_t max, int32_t id, float logit)
{
    uint32_t at = *n < max ? (*n)++ : max - 1;

    while (at > 0 && top[at - 1].logprob < logit) {
        top[at] = top[at - 1];
        at--;
    }
    top[at] = (atn_top){.id = id, .logprob = logit};
}

/* The n_top best by logit, excluded ids left out. Returns how many there are. */
static uint32_t best_of(const float *logits, uint32_t n_vocab, atn_top *top, uint32_t n_top)
{
    uint32_t n = 0;
    float bar = -INFINITY; /* the last of a full list */

    for (uint32_t i = 0; n_top > 0 && i < n_vocab; i++) {
        if (logits[i] > bar) {
            top_insert(top, &n, n_top, (int32_t)i, logits[i]);
            bar = n == n_top ? top[n - 1].logprob : -INFINITY;
        }
    }
    return n;
}

void logprob_weights(const float *logits, uint32_t n, float max, double temperature, double *weight)
{
    for (uint32_t i = 0; i < n; i++) {
        const double x = ((double)logits[i] - max) / temperature;
        weight[i] = x > -700 ? x : -700;
    }
    for (uint32_t i = 0; i < n; i++) {
        weight[i] = mathfn_exp_held(weight[i]);
    }
}

/* Sum of x[0..n): element i goes to lane i mod 4, then lanes 0+1 and 2+3. */
static double sum_of(const double *x, uint32_t n)
{
    double lane[4] = {0};
    uint32_t i = 0;

    for (; i + 4 <= n; i += 4) {
        for (int l = 0; l < 4; l++) {
            lane[l] += x[i + (uint32_t)l];
        }
    }
    for (; i < n; i++) {
        lane[i % 4] += x[i];
    }
    return (lane[0] + lane[1]) + (lane[2] + lane[3]);
}

bool logprob_scan(const float *logits, uint32_t n_vocab, logprob_row *row)
{
    double sum = 0, part[LOGPROB_BLOCK];

    if (!logprob_argmax(logits, n_vocab, &row->max, &row->argmax)) {
        return false;
    }
    for (uint32_t b = 0; b < n_vocab; b = block_end(b, n_vocab)) {
        const uint32_t n = block_end(b, n_vocab) - b;
        logprob_weights(logits + b, n, row->max, 1, part);
        sum += sum_of(part, n);
    }
    row->log_sum = row->max + mathfn_log_d(sum);
    return true;
}

float logprob_of(const logprob_row *row, float logit)
{
    return (float)(logit - row->log_sum);
}

void logprob_report(const float *logits, uint32_t n_vocab, const logprob_row *row, int32_t id, uint32_t n_top,
                    atn_sampled *out)
{
    out->id = id;
    out->logprob = logprob_of(row, logits[id]);
    out->n_top = best_of(logits, n_vocab, out->top, n_top);
    for (uint32_t i = 0; i < out->n_top; i++) {
        out->top[i].logprob = logprob_of(row, out->top[i].logprob);
    }
}
