/* simd attention: the driver, which shares out work and knows about sight, spans and pages; the arithmetic is in
 * simd_attention_body.h and its definition in docs/numerics.md.
 *
 * A query row and a head are a "query vector". A work item is up to 48 vectors that share a KV head, so that a block of 32 keys
 * is transposed and widened once for all of them, over all their spans of 512 keys; or, where there would be too few items
 * for the threads, over one span, whose state is kept until all are there and then merged, spans ascending, like the others.
 * How vectors are put into items, and whether spans are shared out, changes no bit. A key outside a vector's sight has no
 * part in it; one outside every vector's sight is never read. */
#include "core/backend/cpu.h"
#include "core/backend/simd_attention.h"
#include "core/backend/simd_rows.h"

#include <math.h>
#include <string.h>

enum {
    SPAN = 512,
    BLOCK = SIMD_BLOCK,
    MAX_VECTORS = 48,
    PLAN_SEQS = 256,              /* sequences that are shared out at a time */
    SPAN_STORE = 8 * 1024 * 1024, /* bytes of span states; calls that would need more are not shared out by spans */
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

/* What is read in place of a key that nobody sees: its scores are never looked at. */
static const float no_key[ATN_HEAD_DIM_MAX];

bool simd_floats_pick(const char *isa, simd_floats *out)
{
    *out = (simd_floats){0};
    if (strcmp(isa, simd_attn_generic.isa) == 0) {
        out->attn = &simd_attn_generic;
        out->rows = &simd_rows_generic;
    }
#if defined(__x86_64__)
    if (strcmp(isa, simd_attn_avx2.isa) == 0 && cpu_detect().avx2) {
        out->attn = &simd_attn_avx2;
        out->rows = &simd_rows_avx2;
    }
#endif
    return out->attn != NULL;
}

atn_status simd_floats_reserve(simd_floats *f, uint32_t n_threads, atn_err *err)
{
    if (!hostmem_new((size_t)n_threads * sizeof(attn_scratch), false, &f->workers) ||
        !hostmem_new(SPAN_STORE, false, &f->spans)) {
        return atn_fail(err, ATN_NOMEM, NULL, "no memory for the attention scratch of %u threads", n_threads);
    }
    return ATN_OK;
}

void simd_floats_free(simd_floats *f)
{
    hostmem_free(&f->workers);
    hostmem_free(&f->spans);
}

static attn_scratch *scratch_of(const attn_call *c, uint32_t worker)
{
    return (attn_scratch *)c->floats->workers.base + worker;
}

/* ---- sight ---- */

/* The keys that row position `pos` may see by causality and window: lo .. hi-1. */
static void range_of(const attn_call *c, const atn_attn_seq *seq, uint64_t pos, uint64_t *lo, uint64_t *hi)
{
    const atn_attn_args *a = c->a;
    *lo = a->window && pos + 1 > a->window ? pos + 1 - a->window : 0;
    *hi = (a->causal || a->window) && pos + 1 < seq->n_keys ? pos + 1 : seq->n_keys;
}

static void vector_init(const attn_call *c, const atn_attn_seq *seq, uint32_t row, uint32_t head, query_vector *v)
{
    const atn_attn_args *a = c->a;
    *v = (query_vector){.row = row, .head = head, .pos = (uint64_t)seq->q_pos + (row - seq->q_row)};
    range_of(c, seq, v->pos, &v->lo, &v->hi);
    v->scale = a->scale * (a->head_scale ? a->head_scale[head] : 1.0f);
    v->span.m = v->total.m = -INFINITY;
}

static const float *bias_row(const attn_call *c, const query_vector *v)
{
    const atn_attn_args *a = c->a;
    return a->bias ? a->bias + ((size_t)v->head * c->rows + v->row) * a->bias_stride : NULL;
}

/* Bit j says whether v sees key b0 + j. Nothing of K or V is read here. */
static uint32_t block_sight(const attn_call *c, const atn_attn_seq *seq, const query_vector *v, uint64_t b0)
{
    uint64_t from = v->lo > b0 ? v->lo : b0;
    uint64_t to = v->hi < b0 + BLOCK ? v->hi : b0 + BLOCK;
    if (from >= to) {
        return 0;
    }
    const float *bias = bias_row(c, v);
    if (!seq->key_mask && !seq->key_log_factor && !bias) {
        return (uint32_t)((UINT64_MAX >> (64 - (to - from))) << (from - b0));
    }
    uint32_t bits = 0;
    for (uint64_t j = from; j < to; j++) {
        bool hidden = (seq->key_mask && !seq->key_mask[j]) ||
                      (seq->key_log_factor && seq->key_log_factor[j] == -INFINITY) || (bias && bias[j] == -INFINITY);
        bits |= (uint32_t)!hidden << (j - b0);
    }
    return bits;
}

/* ---- keys and values ---- */

static const void *kv_address(const atn_kv_layout *kv, const atn_buffer *buf, size_t off, const int32_t *pages,
                              uint64_t pos, uint32_t kv_head)
{
    int32_t page = pages[pos / kv->page_tokens];
    assert(page >= 0);
    return (const char *)buf->mem.base + (size_t)page * kv->page_stride + off + kv_head * kv->head_stride +
           (pos % kv->page_tokens) * kv->row_stride;
}

static void load_keys(const attn_call *c, attn_scratch *s, const atn_attn_seq *seq, uint32_t kv_head, uint64_t b0,
                      uint32_t need)
{
    const atn_kv_layout *kv = &c->a->kv;
    const void *rows[BLOCK];
    for (uint32_t j = 0; j < BLOCK; j++) {
        rows[j] = need >> j & 1u ? kv_address(kv, kv->k_buf, kv->k_off, seq->pages, b0 + j, kv_head) : no_key;
    }
    c->kern->keys(kv->type, rows, c->a->head_dim, s->keys);
}

/* Where the block's values lie; with `widen` as floats. */
static void load_values(const attn_call *c, attn_scratch *s, const atn_attn_seq *seq, uint32_t kv_head, uint64_t b0,
                        uint32_t need, bool widen)
{
    const atn_kv_layout *kv = &c->a->kv;
    for (uint32_t j = 0; j < BLOCK; j++) {
        if (need >> j & 1u) {
            s->v[j] = kv_address(kv, kv->v_buf, kv->v_off, seq->pages, b0 + j, kv_head);
            if (widen) {
                float *room = s->values + j * c->a->head_dim_v;
                c->kern->widen(s->v[j], room, c->a->head_dim_v);
                s->v[j] = room;
            }
        }
    }
}

/* ---- one block ---- */

/* The kernel wants 32 floats a row: the end of a row that is shorter is copied. */
static const float *block_of(const float *row, uint64_t b0, uint32_t n_keys, float *room)
{
    if (!row || b0 + BLOCK <= n_keys) {
        return row ? row + b0 : NULL;
    }
    memset(room, 0, BLOCK * sizeof *room);
    memcpy(room, row + b0, (n_keys - b0) * sizeof *room);
    return room;
}

/* Dot products become scores. */
static void adjust_scores(const attn_call *c, const atn_attn_seq *seq, const query_vector *v, uint64_t b0, float *s)
{
    float bias[BLOCK], factor[BLOCK];
    c->kern->adjust(s, v->scale, c->a->softcap, block_of(bias_row(c, v), b0, seq->n_keys, bias),
                    block_of(seq->key_log_factor, b0, seq->n_keys, factor));
}

static void pack(float *p, uint32_t kept)
{
    uint32_t n = 0;
    for (uint32_t j = 0; kept; j++, kept >>= 1) {
        if (kept & 1u) {
            p[n++] = p[j];
        }
    }
}

/* The values of the block's keys in `of`, ascending. Returns how many. */
static uint32_t list_values(const attn_scratch *s, uint32_t of, const void **list)
{
    uint32_t n = 0;
    for (uint32_t j = 0; of; j++, of >>= 1) {
        if (of & 1u) {
            list[n++] = s->v[j];
        }
    }
    return n;
}

/* Takes the values into up to six vectors: first together, as far as all keep the same keys, then each what is left. */
static void mix_tile(const attn_call *c, attn_scratch *s, uint32_t first, uint32_t n, atn_dtype type)
{
    simd_mix m;
    uint32_t differ = 0;
    query_vector *v = s->vec + first;
    for (uint32_t i = 0; i < n; i++) {
        m.acc[i] = v[i].span_acc;
        m.keep[i] = v[i].keep;
        m.p[i] = s->scores + (size_t)(first + i) * BLOCK;
        differ |= v[i].kept ^ v[0].kept;
    }
    uint32_t same = differ ? (differ & -differ) - 1 : UINT32_MAX; /* the bits below the first that differs */
    const void *list[BLOCK];
    uint32_t shared = list_values(s, v[0].kept & same, list);
    if (shared) {
        c->kern->mix(&m, n, type, list, shared, c->a->head_dim_v);
    }
    for (uint32_t i = 0; i < n && differ; i++) {
        uint32_t rest = list_values(s, v[i].kept & ~same, list);
        if (rest) {
            simd_mix one = {.acc = {m.acc[i]}, .keep = {shared ? 1.0f : m.keep[i]}, .p = {m.p[i] + shared}};
            c->kern->mix(&one, 1, type, list, rest, c->a->head_dim_v);
        }
    }
}

/* Takes block b0 into the span states of n vectors. */
static void block_visit(const attn_call *c, attn_scratch *s, const atn_attn_seq *seq, uint32_t n, uint32_t kv_head,
                        uint64_t b0)
{
    uint32_t sight[MAX_VECTORS], need = 0;
    for (uint32_t i = 0; i < n; i++) {
        sight[i] = block_sight(c, seq, &s->vec[i], b0);
        need |= sight[i];
    }
    if (need == 0) {
        return;
    }
    load_keys(c, s, seq, kv_head, b0, need);
    c->kern->scores(s->q, n, s->keys, c->a->head_dim, s->scores);
    bool widen = n > SIMD_TILE && c->a->kv.type == ATN_DTYPE_F16;
    load_values(c, s, seq, kv_head, b0, need, widen);
    for (uint32_t i = 0; i < n; i++) {
        query_vector *v = &s->vec[i];
        float *p = s->scores + (size_t)i * BLOCK;
        v->kept = 0;
        if (sight[i]) {
            adjust_scores(c, seq, v, b0, p);
            v->kept = c->kern->softmax(p, sight[i], &v->span, &v->keep);
            if (v->kept & (v->kept + 1)) { /* not just the first few */
                pack(p, v->kept);
            }
        }
    }
    for (uint32_t i = 0; i < n; i += SIMD_TILE) {
        mix_tile(c, s, i, n - i < SIMD_TILE ? n - i : SIMD_TILE, widen ? ATN_DTYPE_F32 : c->a->kv.type);
    }
}

/* ---- spans and rows ---- */

/* The vectors' states of one span, from empty ones. */
static void span_run(const attn_call *c, attn_scratch *s, const atn_attn_seq *seq, uint32_t n, uint32_t kv_head,
                     uint64_t span)
{
    uint64_t lo = UINT64_MAX, hi = 0;
    for (uint32_t i = 0; i < n; i++) {
        query_vector *v = &s->vec[i];
        v->span = (simd_softmax){.m = -INFINITY};
        memset(v->span_acc, 0, c->a->head_dim_v * sizeof(float));
        lo = v->lo < lo ? v->lo : lo;
        hi = v->hi > hi ? v->hi : hi;
    }
    lo = lo > span * SPAN ? lo : span * SPAN;
    hi = hi < (span + 1) * SPAN ? hi : (span + 1) * SPAN;
    for (uint64_t b0 = lo / BLOCK * BLOCK; b0 < hi; b0 += BLOCK) {
        block_visit(c, s, seq, n, kv_head, b0);
    }
}

/* The sink, the division and the gate. */
static void vector_finish(const attn_call *c, query_vector *v)
{
    const atn_attn_args *a = c->a;
    float *out = mat_row(a->out, v->row) + (size_t)v->head * a->head_dim_v;
    float gate = a->head_gate ? a->head_gate[v->head] : 1.0f;
    if (v->total.seen) {
        c->kern->finish(&v->total, v->total_acc, a->sink ? &a->sink[v->head] : NULL, gate, out, a->head_dim_v);
    } else {
        v->total.l = 1.0f;
    }
    if (!v->total.seen || gate == 0.0f) {
        memset(out, 0, a->head_dim_v * sizeof *out);
    }
    if (c->finals) {
        c->finals[(size_t)v->row * a->n_head + v->head] = v->total;
    }
}

/* ---- work items ---- */

/* The place of a work item or group: n vectors of one tile of rows and one group of heads. */
typedef struct place {
    const atn_attn_seq *seq;
    const seq_plan *plan;
    uint32_t kv_head, n;
    uint32_t span;      /* of those that are shared out */
    size_t first_state; /* of the group's first span */
} place;

static uint32_t min_u32(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

/* Sets up the vectors of group `local` of a sequence. */
static place place_vectors(const attn_call *c, attn_scratch *s, uint32_t seq, uint32_t local)
{
    place p = {.seq = &c->seqs[seq], .plan = &c->plan[seq]};
    uint32_t tile = local / c->items_a_tile, part = local % c->items_a_tile;
    uint32_t parts_a_kv_head = c->items_a_tile / c->a->n_head_kv;
    p.kv_head = part / parts_a_kv_head;
    uint32_t head = p.kv_head * c->group + part % parts_a_kv_head * c->heads_an_item;
    uint32_t head_end = min_u32(head + c->heads_an_item, (p.kv_head + 1) * c->group);
    uint32_t row_end = min_u32((tile + 1) * c->rows_an_item, p.seq->n_q);
    for (uint32_t r = tile * c->rows_an_item; r < row_end; r++) {
        for (uint32_t h = head; h < head_end; h++) {
            query_vector *v = &s->vec[p.n];
            vector_init(c, p.seq, p.seq->q_row + r, h, v);
            v->span_acc = s->span_acc + (size_t)p.n * c->a->head_dim_v;
            v->total_acc = s->total_acc + (size_t)p.n * c->a->head_dim_v;
            s->q[p.n++] = mat_row(c->a->q, v->row) + (size_t)h * c->a->head_dim;
        }
    }
    p.first_state = p.plan->first_state + (size_t)local * p.plan->n_spans * c->rows_an_item * c->heads_an_item;
    return p;
}

static float *state_at(const attn_call *c, const place *p, uint32_t span, uint32_t i)
{
    size_t at = p->first_state + (size_t)span * c->rows_an_item * c->heads_an_item + i;
    return (float *)c->floats->spans.base + at * c->state_stride;
}

/* The sequence that item (or group) x belongs to: the last one whose first is not above it and that has any. */
static uint32_t seq_of(const attn_call *c, uint32_t x, bool groups)
{
    uint32_t lo = 0, hi = c->n_seqs;
    while (hi - lo > 1) {
        uint32_t mid = (lo + hi) / 2;
        if ((groups ? c->plan[mid].first_group : c->plan[mid].first_item) <= x) {
            lo = mid;
        } else {
            hi = mid;
        }
    }
    return lo;
}

static void item_run(void *arg, uint32_t item, uint32_t worker)
{
    const attn_call *c = arg;
    attn_scratch *s = scratch_of(c, worker);
    uint32_t seq = seq_of(c, item, false);
    const seq_plan *plan = &c->plan[seq];
    uint32_t local = item - plan->first_item;
    place p = place_vectors(c, s, seq, local / plan->n_spans);
    if (plan->split) {
        uint32_t span = local % plan->n_spans;
        for (uint32_t i = 0; i < p.n; i++) {
            s->vec[i].span_acc = state_at(c, &p, span, i) + sizeof(simd_softmax) / sizeof(float);
        }
        span_run(c, s, p.seq, p.n, p.kv_head, plan->span0 + span);
        for (uint32_t i = 0; i < p.n; i++) {
            memcpy(state_at(c, &p, span, i), &s->vec[i].span, sizeof(simd_softmax));
        }
        return;
    }
    uint64_t lo = s->vec[0].lo, hi = s->vec[p.n - 1].hi; /* rows ascend, and so do their ranges */
    for (uint64_t span = lo / SPAN; span * SPAN < hi; span++) {
        span_run(c, s, p.seq, p.n, p.kv_head, span);
        for (uint32_t i = 0; i < p.n; i++) {
            query_vector *v = &s->vec[i];
            if (v->span.seen) {
                c->kern->merge(&v->total, v->total_acc, &v->span, v->span_acc, c->a->head_dim_v);
            }
        }
    }
    for (uint32_t i = 0; i < p.n; i++) {
        vector_finish(c, &s->vec[i]);
    }
}

/* Merges the spans that items have left for one group. */
static void group_merge(void *arg, uint32_t group, uint32_t worker)
{
    const attn_call *c = arg;
    attn_scratch *s = scratch_of(c, worker);
    uint32_t seq = seq_of(c, group, true);
    place p = place_vectors(c, s, seq, group - c->plan[seq].first_group);
    for (uint32_t i = 0; i < p.n; i++) {
        query_vector *v = &s->vec[i];
        for (uint32_t span = 0; span < p.plan->n_spans; span++) {
            const float *state = state_at(c, &p, span, i);
            simd_softmax from;
            memcpy(&from, state, sizeof from);
            if (from.seen) {
                c->kern->merge(&v->total, v->total_acc, &from, state + sizeof from / sizeof(float), c->a->head_dim_v);
            }
        }
        vector_finish(c, v);
    }
}

/* ---- the plan ---- */

static uint32_t tiles_of(const attn_call *c, const atn_attn_seq *seq)
{
    return seq->n_q / c->rows_an_item + (seq->n_q % c->rows_an_item != 0);
}

/* About how many keys an item of this sequence visits for all of its vectors. */
static uint64_t item_work(const attn_call *c, const atn_attn_seq *seq)
{
    uint64_t lo, hi, unused;
    range_of(c, seq, seq->q_pos, &lo, &unused);
    range_of(c, seq, (uint64_t)seq->q_pos + seq->n_q - 1, &unused, &hi);
    return (hi > lo ? hi - lo : 0) * min_u32(seq->n_q, c->rows_an_item);
}

/* Cuts the sequences by the call's rows_an_item and heads_an_item. */
static void plan_seqs(attn_call *c)
{
    uint32_t parts_a_kv_head = c->group / c->heads_an_item + (c->group % c->heads_an_item != 0);
    uint32_t shares = 4 * c->be->caps.n_threads;
    size_t capacity = c->floats->spans.bytes / sizeof(float) / c->state_stride, used = 0;
    uint64_t work = 0;
    c->items_a_tile = c->a->n_head_kv * parts_a_kv_head;
    c->n_items = c->n_groups = 0;
    for (uint32_t q = 0; q < c->n_seqs; q++) {
        work += c->seqs[q].n_q ? item_work(c, &c->seqs[q]) * tiles_of(c, &c->seqs[q]) * c->items_a_tile : 0;
    }
    for (uint32_t q = 0; q < c->n_seqs; q++) {
        const atn_attn_seq *seq = &c->seqs[q];
        seq_plan *p = &c->plan[q];
        *p =
            (seq_plan){.first_item = c->n_items, .first_group = c->n_groups, .n_tiles = tiles_of(c, seq), .n_spans = 1};
        uint32_t groups = p->n_tiles * c->items_a_tile;
        if (seq->n_q && item_work(c, seq) * shares > work) {
            uint64_t lo, hi, unused;
            range_of(c, seq, seq->q_pos, &lo, &unused);
            range_of(c, seq, (uint64_t)seq->q_pos + seq->n_q - 1, &unused, &hi);
            uint64_t n_spans = hi > lo ? (hi - 1) / SPAN - lo / SPAN + 1 : 0;
            uint64_t states = n_spans * groups * c->rows_an_item * c->heads_an_item;
            if (n_spans > 1 && states <= capacity - used) {
                p->split = true;
                p->span0 = (uint32_t)(lo / SPAN);
                p->n_spans = (uint32_t)n_spans;
                p->first_state = used;
                used += states;
                c->n_groups += groups;
            }
        }
        c->n_items += groups * p->n_spans;
    }
}

/* As many vectors an item as leave enough items for the threads: rows are given up first, then heads. */
static void plan_call(attn_call *c)
{
    uint32_t threads = c->be->caps.n_threads;
    c->heads_an_item = min_u32(c->group, MAX_VECTORS);
    c->rows_an_item = MAX_VECTORS / c->heads_an_item;
    plan_seqs(c);
    while (c->n_items < 4 * threads && c->rows_an_item > 1 && c->rows_an_item * c->heads_an_item > SIMD_TILE) {
        c->rows_an_item = c->rows_an_item / 2;
        plan_seqs(c);
    }
    while (c->n_items < threads && c->heads_an_item > 1) {
        c->heads_an_item = (c->heads_an_item + 1) / 2;
        plan_seqs(c);
    }
}

/* ---- the probe ---- */

/* The weights of one head of probe_row, from its final m and l. */
static void probe_head(void *arg, uint32_t head, uint32_t worker)
{
    const attn_call *c = arg;
    const atn_attn_seq *seq = c->probe_seq;
    attn_scratch *s = scratch_of(c, worker);
    query_vector *v = &s->vec[0];
    float *weights = c->weights + head * c->weights_stride;
    simd_softmax fin = c->finals[(size_t)c->probe_row * c->a->n_head + head];
    memset(weights, 0, seq->n_keys * sizeof *weights);
    vector_init(c, seq, c->probe_row, head, v);
    s->q[0] = mat_row(c->a->q, v->row) + (size_t)head * c->a->head_dim;
    for (uint64_t b0 = v->lo / BLOCK * BLOCK; b0 < v->hi; b0 += BLOCK) {
        uint32_t sight = block_sight(c, seq, v, b0);
        load_keys(c, s, seq, head / c->group, b0, sight);
        c->kern->scores(s->q, 1, s->keys, c->a->head_dim, s->scores);
        adjust_scores(c, seq, v, b0, s->scores);
        c->kern->weights(s->scores, fin.m, fin.l);
        for (uint32_t j = 0; j < BLOCK; j++) {
            if (sight >> j & 1u) {
                weights[b0 + j] = s->scores[j];
            }
        }
    }
}

static void probe_run(attn_call *c)
{
    const atn_attn_args *a = c->a;
    for (uint32_t q = 0; q < a->n_seqs; q++) {
        c->probe_seq = &a->seqs[q];
        for (uint32_t r = 0; r < a->seqs[q].n_q; r++) {
            c->probe_row = a->seqs[q].q_row + r;
            pool_run(c->be->pool, probe_head, c, a->n_head);
            for (uint32_t h = 0; h < a->n_head; h++) {
                a->probe(a->probe_arg, c->probe_row, h, c->weights + h * c->weights_stride, a->seqs[q].n_keys);
            }
        }
    }
}

/* Room for every row's final state and for one row's weights of all heads. False: no memory. */
static bool probe_reserve(attn_call *c)
{
    const atn_attn_args *a = c->a;
    for (uint32_t q = 0; q < a->n_seqs; q++) {
        c->weights_stride = a->seqs[q].n_keys > c->weights_stride ? a->seqs[q].n_keys : c->weights_stride;
    }
    size_t finals = (size_t)c->rows * a->n_head * sizeof *c->finals;
    size_t bytes = finals + c->weights_stride * a->n_head * sizeof *c->weights;
    hostmem *room = &c->be->probe_scratch;
    if (bytes > room->bytes) {
        hostmem grown;
        if (!hostmem_new(bytes, false, &grown)) {
            return false;
        }
        hostmem_free(room);
        *room = grown;
    }
    c->finals = room->base;
    c->weights = (float *)((char *)room->base + finals);
    return true;
}

void simd_attention(atn_backend *be, const atn_attn_args *a)
{
    simd_floats *floats = be->state;
    seq_plan plan[PLAN_SEQS];
    attn_call c = {
        .be = be, .a = a, .kern = floats->attn, .floats = floats, .plan = plan, .group = a->n_head / a->n_head_kv};
    if (a->head_dim > ATN_HEAD_DIM_MAX || a->head_dim_v > ATN_HEAD_DIM_MAX) {
        backend_set_failed(be, ATN_UNSUPPORTED, "attention heads wider than 1024 are not supported");
        return;
    }
    c.state_stride = sizeof(simd_softmax) / sizeof(float) + a->head_dim_v;
    for (uint32_t q = 0; q < a->n_seqs; q++) {
        uint32_t end = a->seqs[q].q_row + a->seqs[q].n_q;
        c.rows = end > c.rows ? end : c.rows;
    }
    if (a->probe && !probe_reserve(&c)) {
        backend_set_failed(be, ATN_NOMEM, "no memory for an attention probe's weights");
        return;
    }
    for (uint32_t at = 0; at < a->n_seqs; at += PLAN_SEQS) {
        c.seqs = a->seqs + at;
        c.n_seqs = min_u32(a->n_seqs - at, PLAN_SEQS);
        plan_call(&c);
        pool_run(be->pool, item_run, &c, c.n_items);
        if (c.n_groups) {
            pool_run(be->pool, group_merge, &c, c.n_groups);
        }
    }
    if (a->probe) {
        probe_run(&c);
    }
}
