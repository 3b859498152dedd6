/* A list in order of use, see kept.h. There are at most as many entries as pages, and they are looked up once a turn, so the
 * list is walked. */
#include "core/sched/kept.h"

#include <stdlib.h>

static void unlink_node(kept_list *l, kept *k)
{
    *(k->older ? &k->older->newer : &l->oldest) = k->newer;
    *(k->newer ? &k->newer->older : &l->newest) = k->older;
    k->older = k->newer = NULL;
    l->n--;
    l->n_pages -= kv_seq_pages_held(k->kv);
}

kept *kept_take(kept_list *l, atn_domain domain, uint64_t sequence)
{
    for (kept *k = l->newest; k; k = k->older) {
        if (k->sequence == sequence && k->domain == domain) {
            unlink_node(l, k);
            return k;
        }
    }
    return NULL;
}

void kept_put(kept_list *l, kept *k)
{
    kept_free(kept_take(l, k->domain, k->sequence));
    k->older = l->newest;
    k->newer = NULL;
    *(l->newest ? &l->newest->newer : &l->oldest) = k;
    l->newest = k;
    l->n++;
    l->n_pages += kv_seq_pages_held(k->kv);
}

bool kept_evict(kept_list *l)
{
    kept *k = l->oldest;

    if (!k) {
        return false;
    }
    unlink_node(l, k);
    kept_free(k);
    return true;
}

void kept_evict_all(kept_list *l)
{
    while (kept_evict(l)) {
    }
}

uint32_t kept_pages_alone(const kept_list *l)
{
    uint32_t n = 0;
    for (const kept *k = l->oldest; k; k = k->newer) {
        n += kv_seq_pages_alone(k->kv);
    }
    return n;
}

void kept_free(kept *k)
{
    if (k) {
        kv_seq_free(k->kv);
        free(k->tokens);
        free(k);
    }
}
