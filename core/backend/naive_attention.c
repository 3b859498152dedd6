/* naive attention: softmax(q k) v with an online softmax (Milakov & Gimelshein 2018, arXiv:1805.02867).
 *
 * One query row and one head are a "query vector": its keys are visited in spans of 512 logical positions counted from 0,
 * each span from an empty state in blocks of 32, and the spans' states are merged ascending. A work item is up to 16 query
 * vectors that share a KV head, so that a block of keys is addressed and widened once for all of them; how vectors are put
 * into items changes no bit. A key outside a vector's sight is never in its lists, and one outside every vector's sight is
 * never read. A score of -infinity removes its key; a score of NaN or +infinity makes that query vector's output NaN. */
#include "core/backend/backend_impl.h"
#include "core/backend/mathfn_inline.h"

#include <math.h>
#include <string.h>

enum { SPAN = 512, BLOCK = 32, MAX_VECTORS = 16 };

/* The online softmax of some keys: their largest score, the sum of exp(score - m), and beside it acc = sum of exp(score - m) v. */
typedef struct softmax_state {
    double m, l;
    bool seen; /* false: no key yet, m and l mean nothing */
} softmax_state;

typedef struct query_vector {
    uint32_t row; /* of q and out */
    uint32_t head;
    uint64_t pos;
    uint64_t lo, hi; /* keys lo .. hi-1 are in sight of position and window */
    double scale;
    softmax_state span, total;
} query_vector;

/* One worker's memory; the rows are packed by the call's head dimensions. */
typedef struct attn_scratch {
    query_vector vec[MAX_VECTORS];
    const float *k[BLOCK], *v[BLOCK]; /* this block's keys in sight of any vector, as floats */
    double q[MAX_VECTORS * ATN_HEAD_DIM_MAX];
    double span_acc[MAX_VECTORS * ATN_HEAD_DIM_MAX];
    double total_acc[MAX_VECTORS * ATN_HEAD_DIM_MAX];
    float k_rows[BLOCK * ATN_HEAD_DIM_MAX], v_rows[BLOCK * ATN_HEAD_DIM_MAX]; /* widened from half floats */
} attn_scratch;

typedef struct final_state {
    double m, l; /* a row's weights are exp(score - m) / l */
} final_state;

typedef struct attn_call {
    atn_backend *be;
    const atn_attn_args *a;
    uint32_t rows;          /* of q: the bias is [n_head, rows, bias_stride] */
    uint32_t group;         /* query heads a KV head */
    uint32_t heads_an_item; /* query heads, all of one KV head, in one work item */
    uint32_t rows_an_item;
    uint32_t items_a_tile; /* work items for one tile of rows: all heads */
    final_state *finals;   /* [rows, n_head], only with a probe */
    float *weights;        /* [n_head, max n_keys], only with a probe */
    size_t weights_stride;
    const atn_attn_seq *probe_seq;
    uint32_t probe_row;
} attn_call;

atn_status naive_reserve_attention(atn_backend *be, atn_err *err)
{
    if (!hostmem_new((size_t)be->caps.n_threads * sizeof(attn_scratch), false, &be->attn_scratch)) {
        return atn_fail(err, ATN_NOMEM, NULL, "no memory for the attention scratch of %u threads", be->caps.n_threads);
    }
    return ATN_OK;
}

/* ---- sight ---- */

static void vector_init(const attn_call *c, const atn_attn_seq *seq, uint32_t row, uint32_t head, query_vector *v)
{
    const atn_attn_args *a = c->a;
    *v = (query_vector){.row = row, .head = head, .pos = (uint64_t)seq->q_pos + (row - seq->q_row), .hi = seq->n_keys};
    if ((a->causal || a->window) && v->pos + 1 < v->hi) {
        v->hi = v->pos + 1;
    }
    if (a->window && v->pos + 1 > a->window) {
        v->lo = v->pos + 1 - a->window;
    }
    v->scale = (double)a->scale * (a->head_scale ? (double)a->head_scale[head] : 1.0);
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
    const float *bias = bias_row(c, v);
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

static const float *as_floats(const kernels *kern, atn_dtype type, const void *src, float *room, uint32_t d)
{
    if (type == ATN_DTYPE_F32) {
        return (const float *)src;
    }
    kern->f16_row((const uint16_t *)src, room, d);
    return room;
}

static void load_keys(const attn_call *c, attn_scratch *s, const atn_attn_seq *seq, uint32_t kv_head, uint64_t b0,
                      uint32_t need)
{
    const atn_kv_layout *kv = &c->a->kv;
    for (uint32_t j = 0; j < BLOCK; j++) {
        if (need >> j & 1u) {
            const void *k = kv_address(kv, kv->k_buf, kv->k_off, seq->pages, b0 + j, kv_head);
            s->k[j] = as_floats(c->be->kern, kv->type, k, s->k_rows + j * c->a->head_dim, c->a->head_dim);
        }
    }
}

static void load_values(const attn_call *c, attn_scratch *s, const atn_attn_seq *seq, uint32_t kv_head, uint64_t b0,
                        uint32_t need)
{
    const atn_kv_layout *kv = &c->a->kv;
    for (uint32_t j = 0; j < BLOCK; j++) {
        if (need >> j & 1u) {
            const void *v = kv_address(kv, kv->v_buf, kv->v_off, seq->pages, b0 + j, kv_head);
            s->v[j] = as_floats(c->be->kern, kv->type, v, s->v_rows + j * c->a->head_dim_v, c->a->head_dim_v);
        }
    }
}

static void load_query(const attn_call *c, uint32_t row, uint32_t head, double *q)
{
    const float *src = mat_row(c->a->q, row) + (size_t)head * c->a->head_dim;
    for (uint32_t i = 0; i < c->a->head_dim; i++) {
        q[i] = (double)src[i];
    }
}

/* ---- one block for one vector ---- */

/* The scores of the keys of block b0 that v sees: score[n] and their indices inside the block, ascending. Returns n. */
static uint32_t block_scores(const attn_call *c, attn_scratch *s, const atn_attn_seq *seq, const query_vector *v,
                             const double *q, uint64_t b0, double *score, uint32_t *index)
{
    const atn_attn_args *a = c->a;
    uint32_t bits = block_sight(c, seq, v, b0);
    const float *keys[BLOCK];
    uint32_t n = 0;
    for (uint32_t j = 0; j < BLOCK; j++) {
        if (bits >> j & 1u) {
            keys[n] = s->k[j];
            index[n++] = j;
        }
    }
    c->be->kern->scores(q, keys, n, a->head_dim, score);
    const float *bias = bias_row(c, v);
    uint32_t kept = 0;
    for (uint32_t i = 0; i < n; i++) {
        uint64_t key = b0 + index[i];
        double x = score[i] * v->scale;
        if (a->softcap != 0.0f) {
            x = (double)a->softcap * mathfn_tanh_core(x / (double)a->softcap);
        }
        if (bias) {
            x += (double)bias[key];
        }
        if (seq->key_log_factor) {
            x += (double)seq->key_log_factor[key];
        }
        if (x != -(double)INFINITY) {
            score[kept] = x;
            index[kept++] = index[i];
        }
    }
    return kept;
}

static void block_visit(const attn_call *c, attn_scratch *s, const atn_attn_seq *seq, uint32_t i, uint64_t b0)
{
    query_vector *v = &s->vec[i];
    double score[BLOCK];
    uint32_t index[BLOCK];
    uint32_t n = block_scores(c, s, seq, v, s->q + (size_t)i * c->a->head_dim, b0, score, index);
    if (n == 0) {
        return;
    }
    softmax_state *st = &v->span;
    double m = st->seen ? st->m : -(double)INFINITY;
    for (uint32_t j = 0; j < n; j++) {
        m = score[j] > m ? score[j] : m;
    }
    double *acc = s->span_acc + (size_t)i * c->a->head_dim_v;
    double keep = 0.0;
    if (st->seen) {
        keep = mathfn_exp_core(st->m - m);
    } else {
        memset(acc, 0, c->a->head_dim_v * sizeof *acc);
        st->l = 0.0;
    }
    float p[BLOCK];
    const float *values[BLOCK];
    c->be->kern->exp_row(score, m, n, p);
    double l = st->l * keep;
    for (uint32_t j = 0; j < n; j++) {
        l += (double)p[j];
        values[j] = s->v[index[j]];
    }
    c->be->kern->mix(acc, keep, p, values, n, c->a->head_dim_v);
    *st = (softmax_state){.m = m, .l = l, .seen = true};
}

/* total = total joined with the span that just ended; the span is empty again after it. */
static void span_merge(const attn_call *c, attn_scratch *s, uint32_t i)
{
    softmax_state *span = &s->vec[i].span, *total = &s->vec[i].total;
    uint32_t d = c->a->head_dim_v;
    double *from = s->span_acc + (size_t)i * d, *to = s->total_acc + (size_t)i * d;
    if (!span->seen) {
        return;
    }
    if (!total->seen) {
        memcpy(to, from, d * sizeof *to);
        *total = *span;
    } else {
        double m = span->m > total->m ? span->m : total->m;
        double keep = mathfn_exp_core(total->m - m), add = mathfn_exp_core(span->m - m);
        for (uint32_t j = 0; j < d; j++) {
            to[j] = to[j] * keep + from[j] * add;
        }
        *total = (softmax_state){.m = m, .l = total->l * keep + span->l * add, .seen = true};
    }
    span->seen = false;
}

/* The sink, the division and the gate. */
static void vector_finish(const attn_call *c, const attn_scratch *s, uint32_t i)
{
    const atn_attn_args *a = c->a;
    const query_vector *v = &s->vec[i];
    float *out = mat_row(a->out, v->row) + (size_t)v->head * a->head_dim_v;
    double m = v->total.m, l = v->total.l, keep = 1.0;
    if (v->total.seen && a->sink) {
        double sink = (double)a->sink[v->head];
        m = sink > m ? sink : m;
        keep = mathfn_exp_core(v->total.m - m);
        l = l * keep + mathfn_exp_core(sink - m);
    }
    if (c->finals) {
        c->finals[(size_t)v->row * a->n_head + v->head] = (final_state){.m = m, .l = v->total.seen ? l : 1.0};
    }
    float gate = a->head_gate ? a->head_gate[v->head] : 1.0f;
    if (!v->total.seen || gate == 0.0f) {
        memset(out, 0, a->head_dim_v * sizeof *out);
        return;
    }
    double factor = keep / l * (double)gate;
    const double *acc = s->total_acc + (size_t)i * a->head_dim_v;
    for (uint32_t j = 0; j < a->head_dim_v; j++) {
        out[j] = (float)(acc[j] * factor);
    }
}

/* ---- work items ---- */

/* All n vectors of s->vec over the keys of seq, which they read through one KV head. */
static void vectors_run(const attn_call *c, attn_scratch *s, const atn_attn_seq *seq, uint32_t n, uint32_t kv_head)
{
    uint64_t lo = UINT64_MAX, hi = 0;
    for (uint32_t i = 0; i < n; i++) {
        load_query(c, s->vec[i].row, s->vec[i].head, s->q + (size_t)i * c->a->head_dim);
        lo = s->vec[i].lo < lo ? s->vec[i].lo : lo;
        hi = s->vec[i].hi > hi ? s->vec[i].hi : hi;
    }
    for (uint64_t b0 = lo / BLOCK * BLOCK; b0 < hi; b0 += BLOCK) {
        uint32_t need = 0;
        for (uint32_t i = 0; i < n; i++) {
            need |= block_sight(c, seq, &s->vec[i], b0);
        }
        if (need) {
            load_keys(c, s, seq, kv_head, b0, need);
            load_values(c, s, seq, kv_head, b0, need);
            for (uint32_t i = 0; i < n; i++) {
                block_visit(c, s, seq, i, b0);
            }
        }
        if ((b0 + BLOCK) % SPAN == 0 || b0 + BLOCK >= hi) {
            for (uint32_t i = 0; i < n; i++) {
                span_merge(c, s, i);
            }
        }
    }
    for (uint32_t i = 0; i < n; i++) {
        vector_finish(c, s, i);
    }
}

static uint32_t tiles_of(const attn_call *c, const atn_attn_seq *seq)
{
    return seq->n_q / c->rows_an_item + (seq->n_q % c->rows_an_item != 0);
}

static void item_run(void *arg, uint32_t chunk, uint32_t worker)
{
    const attn_call *c = arg;
    const atn_attn_seq *seq = c->a->seqs;
    uint32_t tile = chunk / c->items_a_tile, part = chunk % c->items_a_tile;
    while (tile >= tiles_of(c, seq)) {
        tile -= tiles_of(c, seq);
        seq++;
    }
    uint32_t parts_a_group = c->items_a_tile / c->a->n_head_kv;
    uint32_t kv_head = part / parts_a_group;
    uint32_t head = kv_head * c->group + part % parts_a_group * c->heads_an_item;
    uint32_t head_end = head + c->heads_an_item;
    if (head_end > (kv_head + 1) * c->group) {
        head_end = (kv_head + 1) * c->group;
    }
    uint32_t row_end = (tile + 1) * c->rows_an_item < seq->n_q ? (tile + 1) * c->rows_an_item : seq->n_q;
    attn_scratch *s = (attn_scratch *)c->be->attn_scratch.base + worker;
    uint32_t n = 0;
    for (uint32_t r = tile * c->rows_an_item; r < row_end; r++) {
        for (uint32_t h = head; h < head_end; h++) {
            vector_init(c, seq, seq->q_row + r, h, &s->vec[n++]);
        }
    }
    vectors_run(c, s, seq, n, kv_head);
}

/* Whole groups of heads together when there are rows enough to keep the threads busy, else head by head. */
static uint32_t plan_items(attn_call *c)
{
    uint32_t shares[2] = {c->group < MAX_VECTORS ? c->group : MAX_VECTORS, 1};
    uint32_t n_items = 0;
    for (int i = 0; i < 2; i++) {
        c->heads_an_item = shares[i];
        c->rows_an_item = MAX_VECTORS / shares[i];
        c->items_a_tile = c->a->n_head_kv * (c->group / shares[i] + (c->group % shares[i] != 0));
        n_items = 0;
        for (uint32_t q = 0; q < c->a->n_seqs; q++) {
            n_items += tiles_of(c, &c->a->seqs[q]) * c->items_a_tile;
        }
        if (n_items >= 4 * c->be->caps.n_threads) {
            break;
        }
    }
    return n_items;
}

/* ---- the probe ---- */

/* The weights of one head of probe_row, from its final m and l. */
static void probe_head(void *arg, uint32_t head, uint32_t worker)
{
    const attn_call *c = arg;
    const atn_attn_seq *seq = c->probe_seq;
    attn_scratch *s = (attn_scratch *)c->be->attn_scratch.base + worker;
    query_vector *v = &s->vec[0];
    float *weights = c->weights + head * c->weights_stride;
    final_state fin = c->finals[(size_t)c->probe_row * c->a->n_head + head];
    memset(weights, 0, seq->n_keys * sizeof *weights);
    vector_init(c, seq, c->probe_row, head, v);
    load_query(c, v->row, head, s->q);
    for (uint64_t b0 = v->lo / BLOCK * BLOCK; b0 < v->hi; b0 += BLOCK) {
        double score[BLOCK];
        uint32_t index[BLOCK];
        load_keys(c, s, seq, head / c->group, b0, block_sight(c, seq, v, b0));
        uint32_t n = block_scores(c, s, seq, v, s->q, b0, score, index);
        for (uint32_t j = 0; j < n; j++) {
            weights[b0 + index[j]] = (float)(mathfn_exp_core(score[j] - fin.m) / fin.l);
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

void naive_attention(atn_backend *be, const atn_attn_args *a)
{
    attn_call c = {.be = be, .a = a, .group = a->n_head / a->n_head_kv};
    if (a->head_dim > ATN_HEAD_DIM_MAX || a->head_dim_v > ATN_HEAD_DIM_MAX) {
        backend_set_failed(be, ATN_UNSUPPORTED, "attention heads wider than 1024 are not supported");
        return;
    }
    for (uint32_t q = 0; q < a->n_seqs; q++) {
        uint32_t end = a->seqs[q].q_row + a->seqs[q].n_q;
        c.rows = end > c.rows ? end : c.rows;
    }
    if (a->probe && !probe_reserve(&c)) {
        backend_set_failed(be, ATN_NOMEM, "no memory for an attention probe's weights");
        return;
    }
    pool_run(be->pool, item_run, &c, plan_items(&c));
    if (a->probe) {
        probe_run(&c);
    }
}
