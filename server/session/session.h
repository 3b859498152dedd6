/* Sessions: named token histories with an owner, so that a conversation goes on where it stopped.
 *
 * A session lives under (domain, id). Turns go through it one at a time: session_enter takes a seat in its line, the owner
 * of the first seat may run, session_leave commits or rolls back and lets the next one run. The KV of a session stays
 * in the engine under (domain, sequence), sequence being a number that is never used twice.
 *
 * Limits, all known at birth: sessions in all, tokens a session, turns that wait, idle time. A full table refuses with
 * numbers after it gave up what has expired; it never drops a live session to make room.
 *
 * Seams: a fork copies tokens and takes a new sequence; truncate shortens tokens; save and restore write tokens and
 * domain: none of them needs more than the functions below and the engine's.
 * Thread: the loop thread. */
#ifndef ATTND_SESSION_H
#define ATTND_SESSION_H

#include "core/base/clock.h"
#include <attnd/engine.h>

enum { SESSION_ID_MAX = 128 };

typedef struct sessions sessions; /* the table */
typedef struct session session;

typedef struct session_limits {
    uint32_t max_sessions;
    uint32_t ttl_s;             /* idle time after which one expires; 0: never */
    uint32_t max_tokens;        /* a session */
    uint32_t max_turns_waiting; /* a session, beside the one that runs */
} session_limits;

struct session {
    session *next_hash;
    session *prev, *next; /* by last use, oldest first */
    atn_domain domain;
    char id[SESSION_ID_MAX + 1];
    uint64_t sequence;
    int32_t *tokens; /* [n_tokens] */
    uint32_t n_tokens, cap_tokens;
    uint32_t turns;       /* completed */
    uint32_t last_cached; /* prompt tokens that the last turn found in the cache */
    mono_time created, last_used;
    struct session_seat *first, *last; /* the line; the first one runs */
    uint32_t n_seats;
    bool used;        /* a turn ran, so that the engine may keep something */
    bool provisional; /* made by a turn that has not succeeded yet: goes when it fails */
};

/* One turn's place in a session's line; embedded in the turn. */
typedef struct session_seat {
    session *s; /* NULL: not in a line */
    struct session_seat *next;
    void (*on_go)(struct session_seat *seat);   /* it became the first; not called from session_enter */
    void (*on_gone)(struct session_seat *seat); /* the session was deleted; the seat is already out of the line */
} session_seat;

/* drop is called whenever a session goes in which a turn ran, to free its KV. */
atn_status sessions_open(const session_limits *limits, void (*drop)(void *arg, atn_domain domain, uint64_t sequence),
                         void *arg, sessions **out, atn_err *err) ATN_MUST_CHECK;
void sessions_close(sessions *t); /* no seat may be taken any more; NULL is fine */

/* [A-Za-z0-9._:-], 1 .. SESSION_ID_MAX of them, not beginning with a dot. */
bool session_id_valid(const char *id, size_t n);

/* NULL when there is none, or it has expired. */
session *sessions_find(sessions *t, atn_domain domain, const char *id, mono_time now);
/* id "" makes a random one. ATN_CONFLICT when it exists, ATN_OVERLOADED at the limit. */
atn_status sessions_create(sessions *t, atn_domain domain, const char *id, mono_time now, session **out,
                           atn_err *err) ATN_MUST_CHECK;
/* Everybody in line is told (on_gone), the running one first; then the session is freed. */
void sessions_delete(sessions *t, session *s);
/* Expires idle sessions. */
void sessions_tick(sessions *t, mono_time now);
size_t sessions_count(const sessions *t);
const session_limits *sessions_limits(const sessions *t);
/* The oldest first; NULL: the end. s NULL: the first. */
session *sessions_next(const sessions *t, const session *s);

/* Takes a seat. *go: it is the first and may run now. ATN_OVERLOADED: too many wait. seat's callbacks must be set. */
atn_status session_enter(sessions *t, session *s, session_seat *seat, bool *go, atn_err *err) ATN_MUST_CHECK;
/* Leaves the line without a change to the session: failed, cancelled, or tired of waiting. A provisional session that
 * nobody waits for goes. A seat that is in no line is fine. */
void session_leave(sessions *t, session_seat *seat, mono_time now);
/* Leaves the line with the session's tokens set to tokens[n] (copied); the turn counts. ATN_NOMEM: rolled back. */
atn_status session_commit(sessions *t, session_seat *seat, const int32_t *tokens, uint32_t n, uint32_t cached,
                          mono_time now, atn_err *err) ATN_MUST_CHECK;

#endif
