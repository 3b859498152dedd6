/* The session table: owners, limits, expiry, and the line of turns. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <string.h>
#include "server/session/session.h"

typedef struct person {
    session_seat seat;
    sessions *table;
    char name;
    bool leaves_at_once; /* fails when its turn comes */
} person;

static char said[256];
static uint64_t dropped[16];
static size_t n_dropped;

static void say(char name, char what)
{
    size_t n = strlen(said);
    snprintf(said + n, sizeof said - n, "%c%c ", name, what);
}

static void on_go(session_seat *seat)
{
    person *p = (person *)seat;
    say(p->name, '+');
    if (p->leaves_at_once) {
        session_leave(p->table, seat, (mono_time){0});
    }
}

static void on_gone(session_seat *seat)
{
    say(((person *)seat)->name, '-');
}

static void drop(void *arg, atn_domain domain, uint64_t sequence)
{
    (void)arg, (void)domain;
    dropped[n_dropped++] = sequence;
}

static mono_time seconds(uint64_t s)
{
    return (mono_time){s * 1000000};
}

static sessions *open_table(void)
{
    session_limits limits = {.max_sessions = 2, .ttl_s = 10, .max_tokens = 100, .max_turns_waiting = 2};
    sessions *t;
    atn_err err;
    said[0] = '\0';
    n_dropped = 0;
    assert_int_equal(sessions_open(&limits, drop, NULL, &t, &err), ATN_OK);
    return t;
}

static session *make(sessions *t, atn_domain domain, const char *id, uint64_t at)
{
    session *s;
    atn_err err;
    assert_int_equal(sessions_create(t, domain, id, seconds(at), &s, &err), ATN_OK);
    return s;
}

static bool enter(sessions *t, session *s, person *p, char name)
{
    atn_err err;
    bool go;
    *p = (person){
        .seat = {.on_go = on_go, .on_gone = on_gone}, .table = t, .name = name, .leaves_at_once = p->leaves_at_once};
    assert_int_equal(session_enter(t, s, &p->seat, &go, &err), ATN_OK);
    return go;
}

static void test_ids(void **state)
{
    (void)state;
    assert_true(session_id_valid("a.B-9_:", 7));
    assert_false(session_id_valid("", 0));
    assert_false(session_id_valid(".a", 2));
    assert_false(session_id_valid("a/b", 3));
    assert_false(session_id_valid("a\nb", 3));
    assert_false(session_id_valid("\xc3\xa9", 2));
    char longest[SESSION_ID_MAX + 2];
    memset(longest, 'a', sizeof longest);
    assert_true(session_id_valid(longest, SESSION_ID_MAX));
    assert_false(session_id_valid(longest, SESSION_ID_MAX + 1));
}

static void test_owners_and_limits(void **state)
{
    (void)state;
    sessions *t = open_table();
    session *s = make(t, 1, "x", 0), *other;
    atn_err err;
    assert_ptr_equal(sessions_find(t, 1, "x", seconds(1)), s);
    for (atn_domain d = 2; d < 300; d++) { /* some share its bucket */
        assert_null(sessions_find(t, d, "x", seconds(1)));
    }
    assert_int_equal(sessions_create(t, 1, "x", seconds(1), &other, &err), ATN_CONFLICT);
    other = make(t, 2, "x", 1);
    assert_ptr_not_equal(other, s);
    assert_true(other->sequence != s->sequence);
    assert_int_equal(sessions_create(t, 3, "y", seconds(9), &other, &err), ATN_OVERLOADED);
    assert_non_null(strstr(err.msg, "limit is 2"));
    /* At 10 s the first has expired and makes room. */
    assert_int_equal(sessions_create(t, 3, "", seconds(10), &other, &err), ATN_OK);
    assert_true(session_id_valid(other->id, strlen(other->id)));
    assert_null(sessions_find(t, 1, "x", seconds(10)));
    sessions_close(t);
    assert_int_equal(n_dropped, 0); /* no turn ran in any of them */
}

static void test_line_is_in_order(void **state)
{
    (void)state;
    sessions *t = open_table();
    session *s = make(t, 1, "x", 0);
    person p[4] = {0};
    atn_err err;
    bool go;
    assert_true(enter(t, s, &p[0], 'a'));
    assert_false(enter(t, s, &p[1], 'b'));
    assert_false(enter(t, s, &p[2], 'c'));
    p[3].seat = (session_seat){.on_go = on_go, .on_gone = on_gone};
    assert_int_equal(session_enter(t, s, &p[3].seat, &go, &err), ATN_OVERLOADED);
    assert_null(p[3].seat.s);
    const int32_t tokens[3] = {7, 8, 9};
    assert_int_equal(session_commit(t, &p[0].seat, tokens, 3, 2, seconds(1), &err), ATN_OK);
    assert_string_equal(said, "b+ ");
    assert_int_equal(s->n_tokens, 3);
    assert_int_equal(s->tokens[2], 9);
    assert_int_equal(s->turns, 1);
    assert_int_equal(s->last_cached, 2);
    session_leave(t, &p[1].seat, seconds(2)); /* failed: nothing changes */
    assert_string_equal(said, "b+ c+ ");
    assert_int_equal(s->turns, 1);
    assert_int_equal(s->n_tokens, 3);
    session_leave(t, &p[2].seat, seconds(3));
    session_leave(t, &p[2].seat, seconds(3)); /* in no line: fine */
    sessions_close(t);
}

static void test_waiting_turn_leaves(void **state)
{
    (void)state;
    sessions *t = open_table();
    session *s = make(t, 1, "x", 0);
    person p[3] = {0};
    enter(t, s, &p[0], 'a');
    enter(t, s, &p[1], 'b');
    enter(t, s, &p[2], 'c');
    session_leave(t, &p[1].seat, seconds(1));
    assert_string_equal(said, "");
    session_leave(t, &p[2].seat, seconds(1)); /* the last one: the end of the line must move */
    enter(t, s, &p[1], 'd');
    session_leave(t, &p[0].seat, seconds(1));
    assert_string_equal(said, "d+ ");
    session_leave(t, &p[1].seat, seconds(1));
    sessions_close(t);
}

static void test_failures_pass_the_turn_on(void **state)
{
    (void)state;
    sessions *t = open_table();
    session *s = make(t, 1, "x", 0);
    s->provisional = true;
    person p[3] = {0};
    p[1].leaves_at_once = p[2].leaves_at_once = true;
    enter(t, s, &p[0], 'a');
    enter(t, s, &p[1], 'b');
    enter(t, s, &p[2], 'c');
    session_leave(t, &p[0].seat, seconds(1));
    assert_string_equal(said, "b+ c+ ");
    assert_int_equal(sessions_count(t), 0); /* made by a turn that failed, and nobody waits */
    assert_int_equal(n_dropped, 1);
    sessions_close(t);
}

static void test_delete_tells_everybody(void **state)
{
    (void)state;
    sessions *t = open_table();
    session *s = make(t, 1, "x", 0);
    person p[2] = {0};
    enter(t, s, &p[0], 'a');
    enter(t, s, &p[1], 'b');
    uint64_t sequence = s->sequence;
    sessions_delete(t, s);
    assert_string_equal(said, "a- b- ");
    assert_null(p[0].seat.s);
    assert_int_equal(n_dropped, 1);
    assert_int_equal(dropped[0], sequence);
    assert_true(make(t, 1, "x", 0)->sequence != sequence);
    sessions_close(t);
}

static void test_busy_sessions_do_not_expire(void **state)
{
    (void)state;
    sessions *t = open_table();
    session *s = make(t, 1, "busy", 0);
    make(t, 1, "idle", 1);
    person p = {0};
    enter(t, s, &p, 'a');
    sessions_tick(t, seconds(100));
    assert_int_equal(sessions_count(t), 1);
    assert_ptr_equal(sessions_find(t, 1, "busy", seconds(100)), s);
    session_leave(t, &p.seat, seconds(100)); /* counts as use */
    sessions_tick(t, seconds(109));
    assert_int_equal(sessions_count(t), 1);
    sessions_tick(t, seconds(110));
    assert_int_equal(sessions_count(t), 0);
    sessions_close(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ids),
        cmocka_unit_test(test_owners_and_limits),
        cmocka_unit_test(test_line_is_in_order),
        cmocka_unit_test(test_waiting_turn_leaves),
        cmocka_unit_test(test_failures_pass_the_turn_on),
        cmocka_unit_test(test_delete_tells_everybody),
        cmocka_unit_test(test_busy_sessions_do_not_expire),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
