/* Sampling: from a row of logits to the next token.
 *
 * Order of the stages: logit bias, penalties, temperature, top-k, typical-p, top-p, min-p, draw. temperature 0 is greedy.
 * Ties go to the lowest id. The random number is a pure function of (seed, choice, position), so that the text depends on
 * nothing else; reductions over the vocabulary go in fixed blocks of 1,024 ids.
 * Thread: a sampler belongs to one sequence, its scratch to one thread.
 */
#ifndef ATTND_SAMPLER_H
#define ATTND_SAMPLER_H

#include <attnd/status.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { ATN_MAX_TOP = 20, ATN_MAX_LOGIT_BIAS = 1024 };

typedef struct atn_logit_bias {
    int32_t id;
    float bias; /* added to the logit; -INFINITY bans */
} atn_logit_bias;

typedef struct atn_sample_params {
    float temperature;        /* 0 .. 100; 0: greedy */
    int32_t top_k;            /* 0: off */
    float top_p;              /* 0 < x <= 1; 1: off (Holtzman et al. 2020, arXiv:1904.09751) */
    float min_p;              /* 0 .. 1; 0: off (Nguyen et al. 2024, arXiv:2407.01082) */
    float typical_p;          /* 0 < x <= 1; 1: off (Meister et al. 2022, arXiv:2202.00666) */
    float repetition_penalty; /* > 0; 1: off (Keskar et al. 2019, arXiv:1909.05858); over prompt and answer */
    float frequency_penalty;  /* -2 .. 2; 0: off; over the answer, as OpenAI has it */
    float presence_penalty;   /* -2 .. 2; 0: off */
    uint64_t seed;
    const atn_logit_bias *bias; /* [n_bias], copied */
    uint32_t n_bias;
    uint32_t n_top; /* log-probabilities to report beside the chosen one, 0 .. ATN_MAX_TOP */
} atn_sample_params;

/* Greedy with everything off. */
atn_sample_params atn_sample_defaults(void);
/* ATN_INVALID with the field's name and range. n_vocab bounds the bias ids. */
atn_status atn_sample_check(const atn_sample_params *p, uint32_t n_vocab, atn_err *err) ATN_MUST_CHECK;

typedef struct atn_top {
    int32_t id;
    float logprob;
} atn_top;

typedef struct atn_sampled {
    int32_t id;
    float logprob; /* natural log over the whole vocabulary, of the raw logits (before bias, penalties, temperature) */
    uint32_t n_top;
    atn_top top[ATN_MAX_TOP]; /* by logprob, ties by id */
} atn_sampled;

typedef struct atn_sampler atn_sampler;
typedef struct atn_sampler_scratch atn_sampler_scratch; /* work space for one thread, shared by its samplers */

size_t atn_sampler_scratch_bytes(uint32_t n_vocab); /* before making one */
atn_status atn_sampler_scratch_new(uint32_t n_vocab, atn_sampler_scratch **out, atn_err *err) ATN_MUST_CHECK;
void atn_sampler_scratch_free(atn_sampler_scratch *s);
/* max_tokens: prompt plus answer; all memory is taken here. choice: 0 .. n-1 of a request with several answers. */
atn_status atn_sampler_new(const atn_sample_params *p, uint32_t n_vocab, uint32_t choice, uint32_t max_tokens,
                           atn_sampler **out, atn_err *err) ATN_MUST_CHECK;
void atn_sampler_free(atn_sampler *s);
/* Tells the sampler of tokens already in the text (for the repetition penalty). */
void atn_sampler_accept_prompt(atn_sampler *s, const int32_t *ids, uint32_t n);
void atn_sampler_accept(atn_sampler *s, int32_t id);
/* logits[n_vocab] are read only; position: index of the token being chosen in the whole sequence. allowed: bit mask over
 * the vocabulary, 1 = may be chosen, applied before top-k, or NULL. Allocates nothing. ATN_NONFINITE when no finite logit is
 * left or one is NaN. */
atn_status atn_sample(atn_sampler *s, atn_sampler_scratch *scratch, const float *logits, uint32_t position,
                      const uint32_t *allowed, atn_sampled *out, atn_err *err) ATN_MUST_CHECK;
/* Log-probability of id in a raw logits row, and the n_top best (for prompt logprobs). */
atn_status atn_logprobs(const float *logits, uint32_t n_vocab, int32_t id, uint32_t n_top, atn_sampled *out,
                        atn_err *err) ATN_MUST_CHECK;

#endif
