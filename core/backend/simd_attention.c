/* simd attention: the driver, which shares out the work; its definition is in docs/numerics.md.
 *
 * A work item is up to 48 query vectors (rows and heads) that share a KV head, over all their spans of 512 keys; or, where
 * there would be too few items for the threads, over one span, whose state is kept until all are there and then merged, spans
 * ascending, like the others. How vectors are put into items, and whether spans are shared out, changes no bit. */
#include "core/backend/cpu.h"
#include "core/backend/simd_attention_call.h"
#include "core/backend/simd_rows.h"

#include <string.h>

enum {
    PLAN_SEQS = 256,              /* sequences that are shared out at a time */
    SPAN_STORE = 8 * 1024 * 1024, /* bytes of span states; calls that would need more are not shared out by spans */
};

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
            simd_vector_init(c, p.seq, p.seq->q_row + r, h, s, p.n);
            s->vec[p.n].span_acc = s->span_acc + (size_t)p.n * c->a->head_dim_v;
            s->vec[p.n].total_acc = s->total_acc + (size_t)p.n * c->a->head_dim_v;
            p.n++;
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
    attn_scratch *s = simd_scratch_of(c, worker);
    uint32_t seq = seq_of(c, item, false);
    const seq_plan *plan = &c->plan[seq];
    uint32_t local = item - plan->first_item;
    place p = place_vectors(c, s, seq, local / plan->n_spans);
    if (plan->split) {
        uint32_t span = local % plan->n_spans;
        for (uint32_t i = 0; i < p.n; i++) {
            s->vec[i].span_acc = state_at(c, &p, span, i) + sizeof(simd_softmax) / sizeof(float);
        }
        simd_span_run(c, s, p.seq, p.n, p.kv_head, plan->span0 + span);
        for (uint32_t i = 0; i < p.n; i++) {
            memcpy(state_at(c, &p, span, i), &s->vec[i].span, sizeof(simd_softmax));
        }
        return;
    }
    uint64_t lo = s->vec[0].lo, hi = s->vec[p.n - 1].hi; /* rows ascend, and so do their ranges */
    for (uint64_t span = lo / SPAN; span * SPAN < hi; span++) {
        simd_span_run(c, s, p.seq, p.n, p.kv_head, span);
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
    attn_scratch *s = simd_scratch_of(c, worker);
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
    simd_range_of(c, seq, seq->q_pos, &lo, &unused);
    simd_range_of(c, seq, (uint64_t)seq->q_pos + seq->n_q - 1, &unused, &hi);
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
            simd_range_of(c, seq, seq->q_pos, &lo, &unused);
            simd_range_of(c, seq, (uint64_t)seq->q_pos + seq->n_q - 1, &unused, &hi);
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
    while (c->n_items < 4 * threads && c->rows_an_item > 1 && c->rows_an_item * c->heads_an_item > ATTN_TILE) {
        c->rows_an_item = c->rows_an_item / 2;
        plan_seqs(c);
    }
    while (c->n_items < threads && c->heads_an_item > 1) {
        c->heads_an_item = (c->heads_an_item + 1) / 2;
        plan_seqs(c);
    }
}

/* ---- the probe ---- */

static void probe_head(void *arg, uint32_t head, uint32_t worker)
{
    const attn_call *c = arg;
    const simd_softmax *final = &c->finals[(size_t)c->probe_row * c->a->n_head + head];
    simd_head_weights(c, simd_scratch_of(c, worker), c->probe_seq, c->probe_row, head, final,
                      c->weights + head * c->weights_stride);
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
