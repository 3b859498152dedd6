/* Sequences: block tables that grow, share, shrink and give back.
 *
 * A page is shared only by sequences that agree on every position in it up to their lengths; who writes into a shared page
 * copies it first. Only the page of position len can be both shared and about to be written: full pages never change, and
 * pages past len are never shared. */
#include "core/kv/kv_internal.h"

#include <assert.h>
#include <stdlib.h>

static int32_t *column(const kv_seq *s, uint32_t col)
{
    return s->table + (size_t)col * s->max_blocks;
}

static int32_t take_page(kv_seq *s)
{
    kv_pool *p = s->pool;
    if (s->promised > 0) {
        s->promised--;
        p->n_reserved--;
    }
    int32_t page = p->free_pages[--p->n_free];
    p->refs[page] = 1;
    s->n_held++;
    return page;
}

/* Drops the sequence's hold of one page; the last holder's page is free again. */
static void drop_page(kv_seq *s, int32_t *entry)
{
    kv_pool *p = s->pool;
    int32_t page = *entry;
    *entry = -1;
    s->n_held--;
    if (--p->refs[page] > 0) {
        return;
    }
    p->free_pages[p->n_free++] = page;
    if (s->draws) {
        s->promised++;
        p->n_reserved++;
    }
}

static void drop_blocks(kv_seq *s, uint32_t group, uint32_t from, uint32_t to)
{
    const kv_group *g = &s->pool->groups[group];
    for (uint32_t c = 0; c < g->n_slices; c++) {
        int32_t *col = column(s, g->first_col + c);
        for (uint32_t b = from; b < to; b++) {
            drop_page(s, &col[b]);
        }
    }
}

atn_status kv_seq_new(kv_pool *p, uint32_t max_tokens, kv_seq **out, atn_err *err)
{
    *out = NULL;
    kv_seq *s = calloc(1, sizeof *s);
    if (s == NULL) {
        goto fail;
    }
    s->pool = p;
    s->max_tokens = max_tokens;
    s->max_blocks = kv_blocks(max_tokens, p->page_tokens);
    size_t entries = (size_t)p->n_cols * s->max_blocks;
    s->first = calloc(p->n_groups, sizeof *s->first);
    s->table = calloc(entries > 0 ? entries : 1, sizeof *s->table);
    if (s->first == NULL || s->table == NULL) {
        goto fail;
    }
    for (size_t i = 0; i < entries; i++) {
        s->table[i] = -1;
    }
    s->next = p->seqs;
    if (p->seqs != NULL) {
        p->seqs->prev = s;
    }
    p->seqs = s;
    *out = s;
    return ATN_OK;
fail:
    if (s != NULL) {
        free(s->first);
        free(s->table);
        free(s);
    }
    return atn_fail(err, ATN_NOMEM, NULL, "no memory for the block table of %u positions", max_tokens);
}

void kv_seq_free(kv_seq *s)
{
    if (s == NULL) {
        return;
    }
    kv_seq_truncate(s, 0);
    kv_seq_unreserve(s);
    if (s->prev != NULL) {
        s->prev->next = s->next;
    } else {
        s->pool->seqs = s->next;
    }
    if (s->next != NULL) {
        s->next->prev = s->prev;
    }
    free(s->first);
    free(s->table);
    free(s);
}

void kv_seq_give_reserve(kv_seq *s, uint32_t n)
{
    s->pool->n_loose -= n;
    s->promised += n;
    s->draws = true;
}

void kv_seq_unreserve(kv_seq *s)
{
    s->pool->n_reserved -= s->promised;
    s->promised = 0;
    s->draws = false;
}

uint32_t kv_seq_len(const kv_seq *s)
{
    return s->len;
}

uint32_t kv_seq_pages_held(const kv_seq *s)
{
    return s->n_held;
}

static uint32_t column_alone(const kv_seq *s, uint32_t group, uint32_t col)
{
    uint32_t n = 0;
    for (uint32_t b = s->first[group]; b < s->n_blocks; b++) {
        n += s->pool->refs[column(s, col)[b]] == 1;
    }
    return n;
}

uint32_t kv_seq_pages_alone(const kv_seq *s)
{
    uint32_t n = 0;
    for (uint32_t l = 0; l < s->pool->n_groups; l++) {
        const kv_group *g = &s->pool->groups[l];
        for (uint32_t c = 0; c < g->n_slices; c++) {
            n += column_alone(s, l, g->first_col + c);
        }
    }
    return n;
}

/* Must column col copy the page of position len before that is written? */
static bool must_copy(const kv_seq *s, uint32_t col)
{
    uint32_t pt = s->pool->page_tokens;
    return s->len % pt != 0 && s->pool->refs[column(s, col)[s->len / pt]] > 1;
}

uint32_t kv_seq_pages_to(const kv_seq *s, uint32_t n_tokens)
{
    const kv_pool *p = s->pool;
    if (n_tokens <= s->len) {
        return 0;
    }
    uint32_t blocks = kv_blocks(n_tokens, p->page_tokens);
    uint32_t grown = blocks > s->n_blocks ? blocks - s->n_blocks : 0;
    uint32_t n = 0;
    for (uint32_t l = 0; l < p->n_groups; l++) {
        const kv_group *g = &p->groups[l];
        uint32_t most = kv_column_blocks(g->shape.window, p->page_tokens, p->max_step, n_tokens);
        for (uint32_t c = 0; c < g->n_slices; c++) {
            uint32_t need = grown + must_copy(s, g->first_col + c);
            if (g->shape.window != 0) { /* what it gives back on the way it can take again */
                uint32_t alone = column_alone(s, l, g->first_col + c);
                uint32_t room = most > alone ? most - alone : 0;
                need = room < need ? room : need;
            }
            n += need;
        }
    }
    return n;
}

atn_status kv_seq_extend(kv_seq *s, uint32_t n, atn_err *err)
{
    kv_pool *p = s->pool;
    if (n > p->max_step || n > s->max_tokens - s->len) {
        return atn_fail(err, ATN_INVALID, NULL, "%u more positions: a step takes at most %u, the sequence %u", n,
                        p->max_step, s->max_tokens - s->len);
    }
    if (n == 0) {
        return ATN_OK;
    }
    uint32_t blocks = kv_blocks(s->len + n, p->page_tokens);
    blocks = blocks > s->n_blocks ? blocks : s->n_blocks;
    uint32_t need = p->n_cols * (blocks - s->n_blocks);
    for (uint32_t c = 0; c < p->n_cols; c++) {
        need += must_copy(s, c);
    }
    if (need > s->promised + (p->n_free - p->n_reserved)) {
        return atn_fail(err, ATN_NOMEM, NULL, "%u KV pages needed, %u to be had", need,
                        s->promised + (p->n_free - p->n_reserved));
    }
    for (uint32_t c = 0; c < p->n_cols; c++) {
        int32_t *col = column(s, c);
        if (must_copy(s, c)) {
            int32_t *entry = &col[s->len / p->page_tokens];
            int32_t shared = *entry;
            drop_page(s, entry);
            *entry = take_page(s);
            atn_buffer_copy(p->mem, (size_t)*entry * p->page_bytes, p->mem, (size_t)shared * p->page_bytes,
                            p->page_bytes);
        }
        for (uint32_t b = s->n_blocks; b < blocks; b++) {
            col[b] = take_page(s);
        }
    }
    s->n_blocks = blocks;
    return ATN_OK;
}

void kv_seq_commit(kv_seq *s, uint32_t n)
{
    kv_pool *p = s->pool;
    s->len += n;
    assert(kv_blocks(s->len, p->page_tokens) <= s->n_blocks);
    for (uint32_t g = 0; g < p->n_groups; g++) {
        uint32_t window = p->groups[g].shape.window;
        if (window == 0 || s->len < window) {
            continue;
        }
        uint32_t first = (s->len - window + 1) / p->page_tokens; /* the oldest page that position len sees */
        first = first < s->n_blocks ? first : s->n_blocks;
        if (first > s->first[g]) {
            drop_blocks(s, g, s->first[g], first);
            s->first[g] = first;
        }
    }
}

uint32_t kv_seq_reusable(const kv_seq *s, uint32_t n)
{
    const kv_pool *p = s->pool;
    n = n < s->len ? n : s->len;
    for (uint32_t g = 0; g < p->n_groups; g++) {
        if (s->first[g] > 0 && (uint64_t)n + 1 < (uint64_t)s->first[g] * p->page_tokens + p->groups[g].shape.window) {
            return 0; /* position n would see a page that is gone; and so would every earlier one */
        }
    }
    return n;
}

void kv_seq_truncate(kv_seq *s, uint32_t n)
{
    const kv_pool *p = s->pool;
    assert(n == kv_seq_reusable(s, n));
    uint32_t blocks = kv_blocks(n, p->page_tokens);
    for (uint32_t g = 0; g < p->n_groups; g++) {
        uint32_t from = n == 0 ? s->first[g] : blocks;
        drop_blocks(s, g, from, s->n_blocks);
        if (n == 0) {
            s->first[g] = 0;
        }
    }
    s->len = n;
    s->n_blocks = blocks;
}

void kv_seq_fork(const kv_seq *parent, kv_seq *child)
{
    kv_pool *p = parent->pool;
    uint32_t blocks = kv_blocks(parent->len, p->page_tokens);
    assert(child->pool == p && child->n_blocks == 0 && child->max_blocks >= blocks);
    for (uint32_t l = 0; l < p->n_groups; l++) {
        const kv_group *g = &p->groups[l];
        child->first[l] = parent->first[l];
        for (uint32_t c = g->first_col; c < g->first_col + g->n_slices; c++) {
            for (uint32_t b = parent->first[l]; b < blocks; b++) {
                int32_t page = column(parent, c)[b];
                column(child, c)[b] = page;
                p->refs[page]++;
                child->n_held++;
            }
        }
    }
    child->len = parent->len;
    child->n_blocks = blocks;
}

const int32_t *kv_seq_pages(const kv_seq *s, uint32_t layer)
{
    return column(s, s->pool->places[layer].col);
}
