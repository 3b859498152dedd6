/* Penalties, see penalty.h: entries in order of first sight, found through an open-addressing index (linear probing) that is
 * at most half full. */
#include "core/sample/penalty.h"

#include <stdlib.h>

typedef struct entry {
    int32_t id;
    uint32_t n; /* times in the answer */
} entry;

struct penalty {
    uint32_t n, max;
    uint32_t mask;   /* slots - 1, a power of two less one */
    uint32_t *index; /* [mask + 1] entry number + 1, 0: empty */
    entry entries[];
};

penalty *penalty_new(uint32_t max_distinct)
{
    size_t slots = 2;

    while (slots / 2 < max_distinct) {
        slots *= 2;
    }
    penalty *p = calloc(1, sizeof *p + (size_t)max_distinct * sizeof p->entries[0]);
    if (p) {
        p->max = max_distinct;
        p->mask = (uint32_t)(slots - 1);
        p->index = calloc(slots, sizeof *p->index);
    }
    if (!p || !p->index) {
        penalty_free(p);
        return NULL;
    }
    return p;
}

void penalty_free(penalty *p)
{
    if (p) {
        free(p->index);
        free(p);
    }
}

void penalty_count(penalty *p, int32_t id, uint32_t n)
{
    uint32_t at = (uint32_t)id * 2654435761u >> 7 & p->mask; /* Fibonacci hashing (Knuth, TAOCP 3, 6.4) */

    while (p->index[at] != 0 && p->entries[p->index[at] - 1].id != id) {
        at = (at + 1) & p->mask;
    }
    if (p->index[at] == 0) {
        if (p->n == p->max) {
            return;
        }
        p->entries[p->n] = (entry){.id = id};
        p->index[at] = ++p->n;
    }
    p->entries[p->index[at] - 1].n += n;
}

void penalty_apply(const penalty *p, const atn_sample_params *params, float *logits)
{
    for (uint32_t i = 0; i < p->n; i++) {
        float *x = &logits[p->entries[i].id];
        *x = *x > 0 ? *x / params->repetition_penalty : *x * params->repetition_penalty;
        if (p->entries[i].n > 0) {
            *x -= params->frequency_penalty * (float)p->entries[i].n + params->presence_penalty;
        }
    }
}
