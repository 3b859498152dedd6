/* Candidates in order of merit, ordered only as far as somebody looks: a binary heap (Williams 1964) from which the best are
 * popped. One look at the first k of n costs O(n + k log n), whatever the values are.
 * Thread: one owner. */
#ifndef ATN_RANKING_H
#define ATN_RANKING_H

#include <stddef.h>
#include <stdint.h>

/* key[0 .. ranked) is sorted; the rest is a heap that grows from the end of the array towards its front. */
typedef struct ranking {
    uint64_t *key; /* [n] distinct; lowest first */
    uint32_t n, ranked;
} ranking;

/* A key that sorts by value, highest first, then by id, lowest first. value is no NaN. */
uint64_t ranking_key(float value, uint32_t id);
uint32_t ranking_id(uint64_t key);

/* Orders key[0..n) anew. */
void ranking_start(ranking *r, uint64_t *key, uint32_t n);
/* The id of rank i < n, 0 the best. */
uint32_t ranking_at(ranking *r, uint32_t i);

#endif
