/* The session table: a hash by (domain, id), a list by last use for expiry, and a line of turns for each session. */
#include "server/session/session.h"
#include "core/base/hash.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

struct sessions {
    session_limits limits;
    void (*drop)(void *arg, atn_domain domain, uint64_t sequence);
    void *drop_arg;
    session **buckets; /* [n_buckets], a power of two */
    size_t n_buckets, count;
    session *oldest, *newest;
    uint64_t next_sequence;
    uint64_t key[2]; /* of the hash, so that clients cannot choose a bucket */
};

atn_status sessions_open(const session_limits *limits, void (*drop)(void *arg, atn_domain domain, uint64_t sequence),
                         void *arg, sessions **out, atn_err *err)
{
    *out = NULL;
    sessions *t = calloc(1, sizeof *t);
    if (t == NULL) {
        return atn_fail(err, ATN_NOMEM, NULL, "no memory for the session table");
    }
    t->limits = *limits;
    t->drop = drop;
    t->drop_arg = arg;
    t->next_sequence = 1;
    t->n_buckets = 16;
    while (t->n_buckets < limits->max_sessions && t->n_buckets < 65536) {
        t->n_buckets *= 2;
    }
    t->buckets = calloc(t->n_buckets, sizeof(session *));
    if (t->buckets == NULL || getrandom(t->key, sizeof t->key, 0) != (ssize_t)sizeof t->key) {
        sessions_close(t);
        return atn_fail(err, ATN_NOMEM, NULL, "no memory or no random numbers for the session table");
    }
    *out = t;
    return ATN_OK;
}

void sessions_close(sessions *t)
{
    if (t == NULL) {
        return;
    }
    while (t->oldest != NULL) {
        sessions_delete(t, t->oldest);
    }
    free(t->buckets);
    free(t);
}

static bool id_byte(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' || c == '_' ||
           c == ':' || c == '-';
}

bool session_id_valid(const char *id, size_t n)
{
    if (n == 0 || n > SESSION_ID_MAX || id[0] == '.') {
        return false;
    }
    for (size_t i = 0; i < n; i++) {
        if (!id_byte(id[i])) {
            return false;
        }
    }
    return true;
}

static session **bucket_of(const sessions *t, atn_domain domain, const char *id)
{
    uint64_t h = hash_bytes(t->key[0] ^ domain, t->key[1], id, strlen(id));
    return &t->buckets[h & (t->n_buckets - 1)];
}

static void list_append(sessions *t, session *s)
{
    s->prev = t->newest;
    s->next = NULL;
    if (t->newest != NULL) {
        t->newest->next = s;
    } else {
        t->oldest = s;
    }
    t->newest = s;
}

static void list_remove(sessions *t, session *s)
{
    if (s->prev != NULL) {
        s->prev->next = s->next;
    } else {
        t->oldest = s->next;
    }
    if (s->next != NULL) {
        s->next->prev = s->prev;
    } else {
        t->newest = s->prev;
    }
}

static void touch(sessions *t, session *s, mono_time now)
{
    s->last_used = now;
    list_remove(t, s);
    list_append(t, s);
}

static bool expired(const sessions *t, const session *s, mono_time now)
{
    return t->limits.ttl_s > 0 && s->first == NULL &&
           mono_since_us(s->last_used, now) >= (uint64_t)t->limits.ttl_s * 1000000;
}

session *sessions_find(sessions *t, atn_domain domain, const char *id, mono_time now)
{
    session *s = *bucket_of(t, domain, id);
    while (s != NULL && (s->domain != domain || strcmp(s->id, id) != 0)) {
        s = s->next_hash;
    }
    if (s != NULL && expired(t, s, now)) {
        sessions_delete(t, s);
        return NULL;
    }
    return s;
}

static bool random_id(char out[SESSION_ID_MAX + 1])
{
    unsigned char bytes[16];
    if (getrandom(bytes, sizeof bytes, 0) != (ssize_t)sizeof bytes) {
        return false;
    }
    memcpy(out, "s-", 2);
    for (size_t i = 0; i < sizeof bytes; i++) {
        (void)snprintf(out + 2 + 2 * i, 3, "%02x", bytes[i]);
    }
    return true;
}

atn_status sessions_create(sessions *t, atn_domain domain, const char *id, mono_time now, session **out, atn_err *err)
{
    *out = NULL;
    if (id[0] != '\0' && sessions_find(t, domain, id, now) != NULL) {
        return atn_fail(err, ATN_CONFLICT, "session_id", "the session exists already");
    }
    if (t->count >= t->limits.max_sessions) {
        sessions_tick(t, now);
    }
    if (t->count >= t->limits.max_sessions) {
        return atn_fail(err, ATN_OVERLOADED, "session_id", "there are %zu sessions, the limit is %u", t->count,
                        t->limits.max_sessions);
    }
    session *s = calloc(1, sizeof *s);
    if (s == NULL) {
        return atn_fail(err, ATN_NOMEM, NULL, "no memory for a session");
    }
    if (id[0] != '\0') {
        snprintf(s->id, sizeof s->id, "%s", id);
    } else if (!random_id(s->id)) {
        free(s);
        return atn_fail(err, ATN_INTERNAL, NULL, "no random numbers for a session id");
    }
    s->domain = domain;
    s->sequence = t->next_sequence++;
    s->created = s->last_used = now;
    session **bucket = bucket_of(t, domain, s->id);
    s->next_hash = *bucket;
    *bucket = s;
    list_append(t, s);
    t->count++;
    *out = s;
    return ATN_OK;
}

static void unlink_session(sessions *t, session *s)
{
    session **at = bucket_of(t, s->domain, s->id);
    while (*at != s) {
        at = &(*at)->next_hash;
    }
    *at = s->next_hash;
    list_remove(t, s);
    t->count--;
}

void sessions_delete(sessions *t, session *s)
{
    unlink_session(t, s);
    while (s->first != NULL) {
        session_seat *seat = s->first;
        s->first = seat->next;
        seat->s = NULL;
        seat->next = NULL;
        seat->on_gone(seat);
    }
    if (s->used) {
        t->drop(t->drop_arg, s->domain, s->sequence);
    }
    free(s->tokens);
    free(s);
}

void sessions_tick(sessions *t, mono_time now)
{
    for (session *s = t->oldest; s != NULL;) {
        session *next = s->next;
        if (expired(t, s, now)) {
            sessions_delete(t, s);
        } else if (s->first == NULL) {
            break; /* the rest was used later; busy ones stand anywhere */
        }
        s = next;
    }
}

size_t sessions_count(const sessions *t)
{
    return t->count;
}

const session_limits *sessions_limits(const sessions *t)
{
    return &t->limits;
}

session *sessions_next(const sessions *t, const session *s)
{
    return s != NULL ? s->next : t->oldest;
}

atn_status session_enter(sessions *t, session *s, session_seat *seat, bool *go, atn_err *err)
{
    if (s->n_seats > t->limits.max_turns_waiting) {
        return atn_fail(err, ATN_OVERLOADED, "session_id", "%u turns wait for this session, the limit is %u",
                        s->n_seats - 1, t->limits.max_turns_waiting);
    }
    seat->s = s;
    seat->next = NULL;
    if (s->last != NULL) {
        s->last->next = seat;
    } else {
        s->first = seat;
    }
    s->last = seat;
    s->n_seats++;
    *go = s->first == seat;
    s->used = true;
    return ATN_OK;
}

static void remove_seat(session *s, session_seat *seat)
{
    session_seat *before = NULL;
    for (session_seat *p = s->first; p != seat; p = p->next) {
        before = p;
    }
    if (before != NULL) {
        before->next = seat->next;
    } else {
        s->first = seat->next;
    }
    if (s->last == seat) {
        s->last = before;
    }
    s->n_seats--;
    seat->s = NULL;
    seat->next = NULL;
}

void session_leave(sessions *t, session_seat *seat, mono_time now)
{
    session *s = seat->s;
    if (s == NULL) {
        return;
    }
    bool was_first = s->first == seat;
    remove_seat(s, seat);
    if (s->first == NULL && s->provisional) {
        sessions_delete(t, s);
        return;
    }
    touch(t, s, now);
    if (was_first && s->first != NULL) {
        s->first->on_go(s->first); /* may leave in turn: s is not ours to touch after */
    }
}

atn_status session_commit(sessions *t, session_seat *seat, const int32_t *tokens, uint32_t n, uint32_t cached,
                          mono_time now, atn_err *err)
{
    session *s = seat->s;
    if (n > s->cap_tokens) {
        int32_t *grown = realloc(s->tokens, (size_t)n * sizeof *grown);
        if (grown == NULL) {
            session_leave(t, seat, now);
            return atn_fail(err, ATN_NOMEM, "session_id", "no memory for the session's %u tokens", n);
        }
        s->tokens = grown;
        s->cap_tokens = n;
    }
    memcpy(s->tokens, tokens, (size_t)n * sizeof *tokens);
    s->n_tokens = n;
    s->last_cached = cached;
    s->turns++;
    s->provisional = false;
    session_leave(t, seat, now);
    return ATN_OK;
}
