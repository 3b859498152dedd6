/* simd attention: from sight and pages to the softmax states of a span. The arithmetic is in simd_attention_body.h.
 *
 * A block of 32 keys is transposed and widened once for all vectors of the scratch. A key outside a vector's sight has no part in
 * it; one outside every vector's sight is never read. */
#include "core/backend/simd_attention_call.h"

#include <math.h>
#include <string.h>

/* What is read in place of a key that nobody sees: its scores are never looked at. */
static const float no_key[ATN_HEAD_DIM_MAX];

/* ---- sight ---- */

void simd_range_of(const attn_call *c, const atn_attn_seq *seq, uint64_t pos, uint64_t *lo, uint64_t *hi)
{
    const atn_attn_args *a = c->a;
    *lo = a->window && pos + 1 > a->window ? pos + 1 - a->window : 0;
    *hi = (a->causal || a->window) && pos + 1 < seq->n_keys ? pos + 1 : seq->n_keys;
}

void simd_vector_init(const attn_call *c, const atn_attn_seq *seq, uint32_t row, uint32_t head, attn_scratch *s,
                      uint32_t i)
{
    const atn_attn_args *a = c->a;
    query_vector *v = &s->vec[i];
    s->q[i] = mat_row(a->q, row) + (size_t)head * a->head_dim;
    *v = (query_vector){.row = row, .head = head, .pos = (uint64_t)seq->q_pos + (row - seq->q_row)};
    simd_range_of(c, seq, v->pos, &v->lo, &v->hi);
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

/* Where the rows of K (or of V) of the block at b0 lie that are in `need`; others are no_key, and their pages are not looked at.
 * A page of -1 has no row either. */
static void block_rows(const attn_call *c, bool value, const atn_attn_seq *seq, uint64_t b0, uint32_t kv_head,
                       uint32_t need, const void **rows)
{
    const atn_kv_layout *kv = &c->a->kv;
    const char *base = (const char *)(value ? kv->v_buf : kv->k_buf)->mem.base + (value ? kv->v_off : kv->k_off) +
                       kv_head * kv->head_stride;
    uint64_t page = b0 / kv->page_tokens;
    uint32_t slot = (uint32_t)(b0 % kv->page_tokens);
    for (uint32_t j = 0; j < BLOCK; j++) {
        rows[j] = no_key;
        if ((need >> j & 1u) && seq->pages[page] >= 0) {
            rows[j] = base + (size_t)seq->pages[page] * kv->page_stride + slot * kv->row_stride;
        }
        if (++slot == kv->page_tokens) {
            slot = 0;
            page++;
        }
    }
}

/* The keys before hi of the block at b0. */
static uint32_t bits_below(uint64_t hi, uint64_t b0)
{
    return hi <= b0 ? 0 : hi - b0 >= BLOCK ? UINT32_MAX : (1u << (hi - b0)) - 1;
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
static void mix_tile(const attn_call *c, attn_scratch *s, uint32_t first, uint32_t n, atn_dtype type,
                     const void *const *ahead)
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
        c->kern->mix(&m, n, type, list, ahead ? ahead : list, shared, c->a->head_dim_v);
    }
    for (uint32_t i = 0; i < n && differ; i++) {
        uint32_t rest = list_values(s, v[i].kept & ~same, list);
        if (rest) {
            simd_mix one = {.acc = {m.acc[i]}, .keep = {shared ? 1.0f : m.keep[i]}, .p = {m.p[i] + shared}};
            c->kern->mix(&one, 1, type, list, list, rest, c->a->head_dim_v);
        }
    }
}

/* Rows of half floats become rows of floats. */
static void widen_values(const attn_call *c, attn_scratch *s, uint32_t need)
{
    for (uint32_t j = 0; j < BLOCK; j++) {
        if (need >> j & 1u) {
            float *room = s->values + j * c->a->head_dim_v;
            c->kern->widen(s->v[j], room, c->a->head_dim_v);
            s->v[j] = room;
        }
    }
}

/* Takes block b0 into the span states of n vectors. Values are fetched a block ahead and keys two: about as long as memory takes. */
static void block_visit(const attn_call *c, attn_scratch *s, const atn_attn_seq *seq, uint32_t n, uint32_t kv_head,
                        uint64_t b0, uint64_t hi)
{
    const atn_kv_layout *kv = &c->a->kv;
    const void *rows[BLOCK], *ahead[BLOCK];
    uint32_t sight[MAX_VECTORS], need = 0;
    for (uint32_t i = 0; i < n; i++) {
        sight[i] = block_sight(c, seq, &s->vec[i], b0);
        need |= sight[i];
    }
    if (need == 0) {
        return;
    }
    block_rows(c, true, seq, b0, kv_head, need, s->v);
    block_rows(c, false, seq, b0, kv_head, need, rows);
    block_rows(c, true, seq, b0 + BLOCK, kv_head, bits_below(hi, b0 + BLOCK), ahead);
    c->kern->keys(kv->type, rows, ahead, c->a->head_dim, s->keys);
    c->kern->scores(s->q, n, s->keys, c->a->head_dim, s->scores);
    block_rows(c, false, seq, b0 + 2 * BLOCK, kv_head, bits_below(hi, b0 + 2 * BLOCK), ahead);
    bool widen = n > ATTN_TILE && kv->type == ATN_DTYPE_F16;
    if (widen) {
        widen_values(c, s, need);
    }
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
    for (uint32_t i = 0; i < n; i += ATTN_TILE) {
        mix_tile(c, s, i, n - i < ATTN_TILE ? n - i : ATTN_TILE, widen ? ATN_DTYPE_F32 : kv->type, i ? NULL : ahead);
    }
}

/* ---- spans and rows ---- */

void simd_span_run(const attn_call *c, attn_scratch *s, const atn_attn_seq *seq, uint32_t n, uint32_t kv_head,
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
    uint64_t end = hi < (span + 1) * SPAN ? hi : (span + 1) * SPAN;
    for (uint64_t b0 = lo / BLOCK * BLOCK; b0 < end; b0 += BLOCK) {
        block_visit(c, s, seq, n, kv_head, b0, hi);
    }
}

/* ---- the probe ---- */

void simd_head_weights(const attn_call *c, attn_scratch *s, const atn_attn_seq *seq, uint32_t row, uint32_t head,
                       const simd_softmax *final, float *weights)
{
    query_vector *v = &s->vec[0];
    const void *rows[BLOCK];
    simd_vector_init(c, seq, row, head, s, 0);
    memset(weights, 0, seq->n_keys * sizeof *weights);
    for (uint64_t b0 = v->lo / BLOCK * BLOCK; b0 < v->hi; b0 += BLOCK) {
        uint32_t sight = block_sight(c, seq, v, b0);
        block_rows(c, false, seq, b0, head / c->group, sight, rows);
        c->kern->keys(c->a->kv.type, rows, rows, c->a->head_dim, s->keys);
        c->kern->scores(s->q, 1, s->keys, c->a->head_dim, s->scores);
        adjust_scores(c, seq, v, b0, s->scores);
        c->kern->weights(s->scores, final->m, final->l);
        for (uint32_t j = 0; j < BLOCK; j++) {
            if (sight >> j & 1u) {
                weights[b0 + j] = s->scores[j];
            }
        }
    }
}
