/* Reductions over a row of logits: its maximum, the logarithm of the sum of exponentials, and the best few.
 *
 * Everything goes in fixed blocks of 1,024 ids, so that a result depends on the row alone. Thread: pure. */
#ifndef ATN_LOGPROB_H
#define ATN_LOGPROB_H

#include <attnd/sampler.h>

enum { LOGPROB_BLOCK = 1024 };

typedef struct logprob_row {
    float max;      /* highest logit */
    int32_t argmax; /* lowest id that has it */
    double log_sum; /* natural log of the sum of exp(logit) */
} logprob_row;

/* Maximum and lowest id that has it. False when a logit is NaN or the highest is not finite: +inf counts as broken, -inf as
 * excluded. */
bool logprob_argmax(const float *logits, uint32_t n_vocab, float *max, int32_t *argmax);
/* Highest logit of a block; NaN when one of them is. */
float logprob_highest(const float *logits, uint32_t n_vocab, uint32_t block);
/* Fills row. False as above. */
bool logprob_scan(const float *logits, uint32_t n_vocab, logprob_row *row);
/* weight[i] = exp((logits[i] - max) / temperature), at least 1e-304. */
void logprob_weights(const float *logits, uint32_t n, float max, double temperature, double *weight);
/* Log-probability of one logit of the row. */
float logprob_of(const logprob_row *row, float logit);
/* Fills out with id's log-probability and the n_top best, by logit, ties by id; excluded ids are never among them. */
void logprob_report(const float *logits, uint32_t n_vocab, const logprob_row *row, int32_t id, uint32_t n_top,
                    atn_sampled *out);

#endif
