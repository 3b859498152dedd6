/* The structs behind kv.h, shared by kv_pool.c (configuration, memory, promises, check) and kv_seq.c (sequences).
 * Thread: the engine thread. */
#ifndef ATN_KV_INTERNAL_H
#define ATN_KV_INTERNAL_H

#include "core/kv/kv.h"

typedef struct kv_group {
    kv_layer shape;
    uint32_t n_slices;  /* layers / unit: columns of the block table */
    uint32_t first_col; /* the group's columns are first_col .. first_col + n_slices - 1 */
} kv_group;

typedef struct kv_place {
    uint32_t group, col, slot; /* a layer's group, its column of the block table, its layer slot inside a page */
} kv_place;

struct kv_pool {
    atn_buffer *mem; /* [n_pages * page_bytes] */
    uint32_t n_layers, n_groups, n_cols;
    uint32_t page_tokens, max_step;
    atn_dtype type;
    size_t page_bytes;
    kv_group *groups; /* [n_groups] */
    kv_place *places; /* [n_layers] */

    uint32_t n_pages, n_free;
    uint32_t n_loose;    /* promised through kv_reserve, not yet given to a sequence */
    uint32_t n_reserved; /* n_loose + the promises of all sequences; at most n_free */
    int32_t *free_pages; /* [n_pages] a stack: the page given back last is taken first */
    uint32_t *refs;      /* [n_pages] table entries that name the page; 0: free */
    uint32_t *seen;      /* [n_pages] for kv_pool_check */
    struct kv_seq *seqs; /* all sequences, a doubly linked list */
};

struct kv_seq {
    kv_pool *pool;
    struct kv_seq *prev, *next;
    uint32_t max_tokens, max_blocks;
    uint32_t len;      /* positions written */
    uint32_t n_blocks; /* blocks there is room in: every column holds blocks first .. n_blocks - 1 */
    uint32_t n_held;
    uint32_t promised;
    bool draws;      /* from a promise: pages it gives back return to it */
    uint32_t *first; /* [n_groups] first block held; below it a window group gave its pages back */
    int32_t *table;  /* [n_cols][max_blocks] */
};

static inline uint32_t kv_blocks(uint32_t n_tokens, uint32_t page_tokens)
{
    return n_tokens / page_tokens + (n_tokens % page_tokens != 0);
}

/* Most blocks that a sequence of n_tokens positions holds at once in a column of a group with this window. */
uint32_t kv_column_blocks(uint32_t window, uint32_t page_tokens, uint32_t max_step, uint32_t n_tokens);

#endif
