/* The paged KV cache: one byte budget, fixed pages, reference counts, block tables a group.
 *
 * Layers of equal KV shape and window form a group. A page holds page_tokens positions of `unit` layers, where unit is the
 * greatest common divisor of the groups' layer counts, so that all pages are of one size and one budget serves all groups;
 * a group of m layers has m / unit slices, each with its own column in the block table. A window group gives back pages that
 * every future query is past. Inside a page, layer slot s of the unit lies at s * layer_bytes: first K, then V, each
 * [n_head_kv][page_tokens][head_dim] in the KV type.
 * Handles are indices; the memory is a backend buffer (PagedAttention: Kwon et al. 2023, arXiv:2309.06180).
 * Thread: the engine thread. All memory is taken in kv_pool_open and kv_seq_new; extend, commit, truncate and fork allocate
 * nothing. */
#ifndef ATN_KV_H
#define ATN_KV_H

#include <attnd/backend.h>

typedef struct kv_pool kv_pool;
typedef struct kv_seq kv_seq;

typedef struct kv_layer {
    uint32_t n_head_kv, head_dim_k, head_dim_v;
    uint32_t window; /* 0: sees everything */
} kv_layer;

typedef struct kv_config {
    const kv_layer *layers; /* [n_layers] */
    uint32_t n_layers;
    atn_dtype type;       /* F32 or F16 */
    uint32_t page_tokens; /* a multiple of 32 */
    size_t budget_bytes;  /* pages are as many as fit */
    uint32_t max_step;    /* most positions one kv_seq_extend adds (a prefill chunk): bounds a window group's pages */
} kv_config;

typedef struct kv_stats {
    uint32_t n_pages, n_free, n_reserved; /* reserved: promised to admitted sequences and not yet taken */
    size_t page_bytes;
} kv_stats;

/* Takes the budget and touches it. ATN_INVALID, ATN_UNSUPPORTED (type), ATN_NOMEM (budget below one page, or no memory). */
atn_status kv_pool_open(atn_backend *be, const kv_config *cfg, kv_pool **out, atn_err *err) ATN_MUST_CHECK;
void kv_pool_close(kv_pool *p); /* every sequence must be freed before */
void kv_pool_get_stats(const kv_pool *p, kv_stats *out);
/* Bytes of one page for this configuration, without opening a pool. */
size_t kv_page_bytes(const kv_config *cfg);
/* Most pages that a sequence of n_tokens positions ever holds at once; UINT32_MAX: that or more, beyond every pool. */
uint32_t kv_pages_for(const kv_pool *p, uint32_t n_tokens);
uint32_t kv_config_pages_for(const kv_config *cfg, uint32_t n_tokens);

/* Promises: a sequence takes its worst case at admission, so that extend cannot fail later. kv_reserve is false when fewer
 * than n pages are neither held nor promised. kv_seq_give_reserve hands the promise to a sequence, which uses it
 * up page by page; kv_seq_unreserve gives the rest back (a turn's end). */
bool kv_reserve(kv_pool *p, uint32_t n);
void kv_unreserve(kv_pool *p, uint32_t n);

/* An empty sequence of at most max_tokens positions. ATN_NOMEM. */
atn_status kv_seq_new(kv_pool *p, uint32_t max_tokens, kv_seq **out, atn_err *err) ATN_MUST_CHECK;
void kv_seq_free(kv_seq *s); /* gives back pages and promises; NULL is fine */
/* The promise the sequence draws from: adds n (already kv_reserve'd) / gives back what is left. */
void kv_seq_give_reserve(kv_seq *s, uint32_t n);
void kv_seq_unreserve(kv_seq *s);
/* How many more pages the sequence may need to reach n_tokens positions, beyond those it holds alone: the promise that makes
 * its extends safe. What it gives back itself while it draws from a promise returns to the promise. A fork makes pages shared,
 * so that both sides need kv_seq_pages_to anew: kv_pages_for_choices is what all of it comes to. */
uint32_t kv_seq_pages_to(const kv_seq *s, uint32_t n_tokens);
/* Pages for one sequence that computes n_prompt positions and is then forked to n_choices, each going on to n_tokens: held
 * ones included. After the forks, kv_seq_unreserve of the first and a fresh kv_seq_pages_to for each of them fits in it. */
uint32_t kv_pages_for_choices(const kv_pool *p, uint32_t n_prompt, uint32_t n_tokens, uint32_t n_choices);
uint32_t kv_seq_len(const kv_seq *s);
uint32_t kv_seq_pages_held(const kv_seq *s);  /* counted once each, shared or not */
uint32_t kv_seq_pages_alone(const kv_seq *s); /* those that no other sequence shares */
/* Makes room for positions len .. len+n-1 in every group, copying a shared last page first (copy on write). ATN_NOMEM only
 * when the promise it draws from (if any) and the pages nobody was promised do not suffice; ATN_INVALID above max_tokens or
 * max_step. Then nothing changed. */
atn_status kv_seq_extend(kv_seq *s, uint32_t n, atn_err *err) ATN_MUST_CHECK;
/* The positions made room for are written: len += n, and window groups give back pages wholly out of sight. */
void kv_seq_commit(kv_seq *s, uint32_t n);
/* Longest length <= n at which the sequence can go on: every group still holds what position n sees. 0: none. */
uint32_t kv_seq_reusable(const kv_seq *s, uint32_t n);
/* len = n; n must be kv_seq_reusable. */
void kv_seq_truncate(kv_seq *s, uint32_t n);
/* child (empty, of the same pool, of at least parent's length) shares all pages of parent. Pages are counted, not copied. */
void kv_seq_fork(const kv_seq *parent, kv_seq *child);

/* Addresses for one layer: the layout's buffers, strides and offsets, and the block table column.
 * pages[i] is the page of positions i*page_tokens ..; -1 where given back or not yet taken. Valid until the next call that
 * changes s. */
void kv_layer_layout(const kv_pool *p, uint32_t layer, atn_kv_layout *out);
const int32_t *kv_seq_pages(const kv_seq *s, uint32_t layer);

/* NULL when the books balance, else what does not: every page is free or counted by exactly as many tables as its reference
 * count says; free + held = total; promises add up. For debug builds after every step, and for tests. */
const char *kv_pool_check(kv_pool *p);

#endif
