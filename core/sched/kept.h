/* Sequences kept between turns: the KV and tokens of a session's last turn, under (domain, name), least recently used first to
 * go. A page is reached only by its own domain, because a lookup compares both. Thread: the engine thread. */
#ifndef ATN_KEPT_H
#define ATN_KEPT_H

#include <attnd/engine.h>
#include "core/kv/kv.h"

typedef struct kept kept;
struct kept {
    kept *older, *newer;
    atn_domain domain;
    uint64_t sequence;
    kv_seq *kv;      /* owned */
    int32_t *tokens; /* [kv_seq_len] owned */
};

typedef struct kept_list {
    kept *oldest, *newest;
    uint32_t n, n_pages; /* pages held, those included that a turn under way shares */
} kept_list;

/* Hands over a node (made by the caller with calloc, so that a turn's end needs no memory), replacing what has its name. */
void kept_put(kept_list *l, kept *k);
/* Takes it out; the caller owns it. NULL: nothing under that name. */
kept *kept_take(kept_list *l, atn_domain domain, uint64_t sequence);
/* Frees the least recently used. False when there is none. */
bool kept_evict(kept_list *l);
void kept_evict_all(kept_list *l);
/* Pages that are free once all are evicted: those that nobody shares. No two kept ones share a page. */
uint32_t kept_pages_alone(const kept_list *l);
void kept_free(kept *k); /* one that is in no list; NULL is fine */

#endif
