/* Merging neighbours by priority: the loop that SentencePiece BPE and byte-level BPE share.
 *
 * Symbols are a linked list in one array, candidate pairs a binary heap; the best pair first, the leftmost among equals.
 * Every merge makes at most two new candidates, so n symbols take O(n log n) time, whatever they are, and no recursion.
 * Thread: one owner. */
#ifndef ATN_MERGE_H
#define ATN_MERGE_H

#include <attnd/status.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { MERGE_NONE = 0xFFFFFFFF };

typedef struct merge_symbol {
    uint32_t from, to;   /* bytes of the text; from == to: merged into another */
    uint32_t prev, next; /* MERGE_NONE at the ends */
    int32_t id;          /* -1: no token */
} merge_symbol;

typedef struct merge_pair {
    uint64_t order; /* priority << 32 | left symbol: the smallest is merged first */
    uint32_t to;    /* where the right symbol ended when this was a pair */
    int32_t id;     /* the token that it becomes */
} merge_pair;

/* May these neighbours merge? Sets the priority (smaller is better) and the token made. */
typedef bool merge_lookup(const void *arg, const merge_symbol *left, const merge_symbol *right, uint32_t *priority,
                          int32_t *id);

typedef struct merge {
    merge_symbol *symbols; /* [n] */
    size_t n, cap;
    merge_pair *heap; /* [n_heap] */
    size_t n_heap, cap_heap;
} merge;

void merge_free(merge *m);
void merge_clear(merge *m); /* no symbols, memory kept */
/* Appends a symbol, linked behind the last. false: no memory. */
bool merge_add(merge *m, uint32_t from, uint32_t to, int32_t id);
/* Merges until no pair is left. The result is the list that starts at symbol 0. false: no memory. */
bool merge_run(merge *m, merge_lookup *lookup, const void *arg);

#endif
