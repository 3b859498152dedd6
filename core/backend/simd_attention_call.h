/* simd attention: what its driver is made of. simd_attention.c shares out the work; simd_attention_spans.c visits the keys.
 *
 * A query row and a head are a "query vector". A worker has up to 48 of them, which read one KV head, in its scratch.
 * Thread: a call is read by all workers, a scratch is one worker's. */
#ifndef ATN_SIMD_ATTENTION_CALL_H
#define ATN_SIMD_ATTENTION_CALL_H

#include "core/backend/simd_attention.h"

enum {
    SPAN = 512,
    BLOCK = ATTN_BLOCK,
    MAX_VECTORS = 48,
};

typedef struct query_vector {
    uint32_t row; /* of q and out */
    uint32_t head;
    uint64_t pos;
    uint64_t lo, hi; /* keys lo .. hi-1 are in sight of position and window */
    float scale;
    simd_softmax span, total;
    float *span_acc, *total_acc;
    uint32_t kept; /* this block's keys that have a weight, bit by bit; the weights lie packed */
    float keep;
} query_vector;

/* One worker's memory; the rows are packed by the call's head dimensions. */
typedef struct attn_scratch {
    query_vector vec[MAX_VECTORS];
    const float *q[MAX_VECTORS];
    const void *v[BLOCK];
    _Alignas(64) float scores[MAX_VECTORS * BLOCK];
    float keys[BLOCK * ATN_HEAD_DIM_MAX];
    float values[BLOCK * ATN_HEAD_DIM_MAX];
    float span_acc[MAX_VECTORS * ATN_HEAD_DIM_MAX];
    float total_acc[MAX_VECTORS * ATN_HEAD_DIM_MAX];
} attn_scratch;

/* How one sequence's work is cut. Its items are numbered tile by tile, in a tile by groups of heads, in a group by spans. */
typedef struct seq_plan {
    uint32_t first_item;
    uint32_t n_tiles;
    uint32_t span0, n_spans; /* n_spans items a group, 1 when spans are not shared out */
    uint32_t first_group;    /* of those whose spans are shared out */
    size_t first_state;
    bool split;
} seq_plan;

typedef struct attn_call {
    atn_backend *be;
    const atn_attn_args *a;
    const simd_attn_kernels *kern;
    simd_floats *floats;
    uint32_t rows;          /* of q: the bias is [n_head, rows, bias_stride] */
    uint32_t group;         /* query heads a KV head */
    uint32_t heads_an_item; /* query heads, all of one KV head, in one work item */
    uint32_t rows_an_item;
    uint32_t items_a_tile; /* groups of heads: items for one tile of rows where spans are not shared out */
    size_t state_stride;   /* floats: a span's simd_softmax, then its accumulator */
    const atn_attn_seq *seqs;
    uint32_t n_seqs;
    uint32_t n_items, n_groups;
    seq_plan *plan;       /* [n_seqs] */
    simd_softmax *finals; /* [rows, n_head], only with a probe */
    float *weights;       /* [n_head, max n_keys], only with a probe */
    size_t weights_stride;
    const atn_attn_seq *probe_seq;
    uint32_t probe_row;
} attn_call;

static inline attn_scratch *simd_scratch_of(const attn_call *c, uint32_t worker)
{
    return (attn_scratch *)c->floats->workers.base + worker;
}

/* The keys that a row at position pos may see by causality and window: lo .. hi-1. */
void simd_range_of(const attn_call *c, const atn_attn_seq *seq, uint64_t pos, uint64_t *lo, uint64_t *hi);
/* Sets up vector v of the scratch, but for its accumulators. */
void simd_vector_init(const attn_call *c, const atn_attn_seq *seq, uint32_t row, uint32_t head, attn_scratch *s,
                      uint32_t v);
/* The states of one span, from empty ones, of the scratch's first n vectors. */
void simd_span_run(const attn_call *c, attn_scratch *s, const atn_attn_seq *seq, uint32_t n, uint32_t kv_head,
                   uint64_t span);
/* weights[n_keys] of one row and head, from its final m and l. */
void simd_head_weights(const attn_call *c, attn_scratch *s, const atn_attn_seq *seq, uint32_t row, uint32_t head,
                       const simd_softmax *final, float *weights);

#endif
