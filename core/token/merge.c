/* merge.h: the linked list of symbols and the heap of pairs. */
#include "core/token/merge.h"

#include <stdlib.h>

void merge_free(merge *m)
{
    free(m->symbols);
    free(m->heap);
    *m = (merge){0};
}

void merge_clear(merge *m)
{
    m->n = 0;
    m->n_heap = 0;
}

/* Room for one more item. Sizes cannot overflow: there are at most 2^31 symbols and two pairs a symbol. */
static bool grow(void **items, size_t n, size_t *cap, size_t item_bytes)
{
    if (n < *cap) {
        return true;
    }
    size_t want = *cap == 0 ? 64 : *cap + *cap / 2;
    void *more = realloc(*items, want * item_bytes);
    if (more == NULL) {
        return false;
    }
    *items = more;
    *cap = want;
    return true;
}

bool merge_add(merge *m, uint32_t from, uint32_t to, int32_t id)
{
    void *items = m->symbols;
    if (!grow(&items, m->n, &m->cap, sizeof *m->symbols)) {
        return false;
    }
    m->symbols = items;
    uint32_t at = (uint32_t)m->n;
    m->symbols[at] = (merge_symbol){from, to, at == 0 ? MERGE_NONE : at - 1, MERGE_NONE, id};
    if (at > 0) {
        m->symbols[at - 1].next = at;
    }
    m->n++;
    return true;
}

static bool heap_push(merge *m, merge_pair p)
{
    void *items = m->heap;
    if (!grow(&items, m->n_heap, &m->cap_heap, sizeof *m->heap)) {
        return false;
    }
    m->heap = items;
    size_t at = m->n_heap++;
    while (at > 0) {
        size_t up = (at - 1) / 2;
        if (m->heap[up].order <= p.order) {
            break;
        }
        m->heap[at] = m->heap[up];
        at = up;
    }
    m->heap[at] = p;
    return true;
}

static merge_pair heap_pop(merge *m)
{
    merge_pair top = m->heap[0];
    merge_pair last = m->heap[--m->n_heap];
    size_t at = 0;
    for (;;) {
        size_t down = 2 * at + 1;
        if (down >= m->n_heap) {
            break;
        }
        if (down + 1 < m->n_heap && m->heap[down + 1].order < m->heap[down].order) {
            down++;
        }
        if (last.order <= m->heap[down].order) {
            break;
        }
        m->heap[at] = m->heap[down];
        at = down;
    }
    if (m->n_heap > 0) {
        m->heap[at] = last;
    }
    return top;
}

static bool try_pair(merge *m, uint32_t left, uint32_t right, merge_lookup *lookup, const void *arg)
{
    if (left == MERGE_NONE || right == MERGE_NONE) {
        return true;
    }
    uint32_t priority;
    int32_t id;
    if (!lookup(arg, &m->symbols[left], &m->symbols[right], &priority, &id)) {
        return true;
    }
    return heap_push(m, (merge_pair){(uint64_t)priority << 32 | left, m->symbols[right].to, id});
}

bool merge_run(merge *m, merge_lookup *lookup, const void *arg)
{
    for (uint32_t i = 1; i < m->n; i++) {
        if (!try_pair(m, i - 1, i, lookup, arg)) {
            return false;
        }
    }
    while (m->n_heap > 0) {
        merge_pair p = heap_pop(m);
        uint32_t at = (uint32_t)p.order; /* the low half */
        merge_symbol *left = &m->symbols[at];
        if (left->from == left->to || left->next == MERGE_NONE) {
            continue;
        }
        /* Symbols only grow, so the pair is as it was when its right side still ends in the same place. */
        merge_symbol *right = &m->symbols[left->next];
        if (right->to != p.to) {
            continue;
        }
        left->to = right->to;
        left->id = p.id;
        left->next = right->next;
        right->from = right->to;
        if (left->next != MERGE_NONE) {
            m->symbols[left->next].prev = at;
        }
        if (!try_pair(m, left->prev, at, lookup, arg) || !try_pair(m, at, left->next, lookup, arg)) {
            return false;
        }
    }
    return true;
}
