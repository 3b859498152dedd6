/* Which tokens a text holds, and how often the answer does: what repetition, frequency and presence penalties look at.
 * A hash table with its memory taken at birth. Thread: one owner. */
#ifndef ATN_PENALTY_H
#define ATN_PENALTY_H

#include <attnd/sampler.h>

typedef struct penalty penalty;

penalty *penalty_new(uint32_t max_distinct); /* NULL: no memory */
void penalty_free(penalty *p);
/* id is in the text; n more times in the answer. Ids beyond max_distinct are a caller's error and are not kept. */
void penalty_count(penalty *p, int32_t id, uint32_t n);
/* Changes logits[n_vocab] of the ids seen: repetition first (divides what is positive, multiplies the rest), then
 * frequency times the count in the answer, then presence. */
void penalty_apply(const penalty *p, const atn_sample_params *params, float *logits);

#endif
