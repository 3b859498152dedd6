/* Sequences kept between turns: what is reused, what is not, who may, and what gives way under pressure. */
#include "engine_rig.h"

enum { N_FIRST = 70, N_NEW = 30, CONTEXT = 256 };

static atn_request turn(const int32_t *ids, uint32_t n, uint32_t max_new, uint64_t sequence)
{
    atn_request q = rig_request(ids, n, max_new);
    q.domain = 1;
    q.sequence = sequence;
    return q;
}

/* Runs a turn and the same without a session; both must say the same. Returns the tokens reused. */
static uint32_t compare_n(rig *r, const int32_t *ids, uint32_t n, uint32_t max_new, uint64_t sequence, answer *a)
{
    answer *fresh = calloc(1, sizeof *fresh);
    rig_generate(r, turn(ids, n, max_new, sequence), a);
    rig_generate(r, rig_request(ids, n, max_new), fresh);
    assert_int_equal(a->n, fresh->n);
    assert_memory_equal(a->ids, fresh->ids, a->n * sizeof a->ids[0]);
    assert_memory_equal(a->logprobs, fresh->logprobs, a->n * sizeof a->logprobs[0]);
    assert_int_equal(fresh->end.usage.cached_tokens, 0);
    free(fresh);
    return a->end.usage.cached_tokens;
}

static uint32_t compare(rig *r, const int32_t *ids, uint32_t n, uint64_t sequence, answer *a)
{
    return compare_n(r, ids, n, N_NEW, sequence, a);
}

static void test_next_turn_reuses(void **state)
{
    (void)state;
    rig r;
    answer *a = calloc(1, sizeof *a);
    int32_t ids[CONTEXT];
    atn_metrics m;

    rig_open(&r, TINY_LLAMA, "naive", 0, rig_params());
    rig_prompt(ids, CONTEXT, 1);
    assert_int_equal(compare(&r, ids, N_FIRST, 7, a), 0);
    /* The session's text goes on: prompt, answer, then new words. The answer's last token was never computed. */
    memcpy(ids + N_FIRST, a->ids, N_NEW * sizeof ids[0]);
    uint32_t n = N_FIRST + N_NEW + 10;
    assert_int_equal(compare(&r, ids, n, 7, a), N_FIRST + N_NEW - 1);
    memcpy(ids + n, a->ids, N_NEW * sizeof ids[0]);
    assert_int_equal(compare(&r, ids, n + N_NEW + 5, 7, a), n + N_NEW - 1);
    /* The very same again: its last token is computed once more, because its logits are asked for. */
    assert_int_equal(compare(&r, ids, n + N_NEW + 5, 7, a), n + N_NEW + 4);
    rig_settle(&r, &m);
    assert_int_equal(m.sequences_kept, 1);
    assert_int_equal(m.cached_tokens, N_FIRST + N_NEW - 1 + n + N_NEW - 1 + n + N_NEW + 4);
    rig_assert_clean(&r);
    rig_close(&r);
    free(a);
}

static void test_edited_and_shorter_text(void **state)
{
    (void)state;
    rig r;
    answer *a = calloc(1, sizeof *a);
    int32_t ids[CONTEXT];

    rig_open(&r, TINY_LLAMA, "naive", 0, rig_params());
    rig_prompt(ids, CONTEXT, 1);
    compare(&r, ids, 150, 7, a);
    ids[100]++; /* an edit in the middle */
    assert_int_equal(compare(&r, ids, 150, 7, a), 100);
    assert_int_equal(compare(&r, ids, 33, 7, a), 32);  /* cut short */
    assert_int_equal(compare(&r, ids, 150, 7, a), 33); /* grown again: all of what was kept */
    ids[0]++;
    assert_int_equal(compare(&r, ids, 150, 7, a), 0); /* another text */
    assert_int_equal(compare(&r, ids, 1, 7, a), 0);
    assert_int_equal(compare(&r, ids, 2, 7, a), 1);
    rig_assert_clean(&r);
    rig_close(&r);
    free(a);
}

static void test_domains_and_names(void **state)
{
    (void)state;
    rig r;
    answer *a = calloc(1, sizeof *a);
    int32_t ids[N_FIRST];
    atn_metrics m;

    rig_open(&r, TINY_LLAMA, "naive", 0, rig_params());
    rig_prompt(ids, N_FIRST, 1);
    rig_generate(&r, turn(ids, N_FIRST, N_NEW, 7), a);
    rig_generate(&r, turn(ids, N_FIRST, N_NEW, 8), a);
    assert_int_equal(a->end.usage.cached_tokens, 0);
    atn_request q = turn(ids, N_FIRST, N_NEW, 7);
    q.domain = 2;
    rig_generate(&r, q, a);
    assert_int_equal(a->end.usage.cached_tokens, 0);
    rig_settle(&r, &m);
    assert_int_equal(m.sequences_kept, 3);

    /* Dropping takes one name of one domain. */
    atn_engine_drop(r.engine, 1, 7);
    atn_engine_drop(r.engine, 1, 99);
    rig_generate(&r, q, a);
    assert_int_equal(a->end.usage.cached_tokens, N_FIRST - 1);
    rig_generate(&r, turn(ids, N_FIRST, N_NEW, 8), a);
    assert_int_equal(a->end.usage.cached_tokens, N_FIRST - 1);
    rig_settle(&r, &m);
    assert_int_equal(m.sequences_kept, 2);
    rig_generate(&r, turn(ids, N_FIRST, N_NEW, 7), a);
    assert_int_equal(a->end.usage.cached_tokens, 0);
    rig_assert_clean(&r);
    rig_close(&r);
    free(a);
}

/* Choice 0 is the one kept. A cancelled turn leaves what it has computed; a request without a name leaves nothing. */
static void test_what_is_kept(void **state)
{
    (void)state;
    rig r;
    answer *a = calloc(3, sizeof *a);
    int32_t ids[CONTEXT];
    atn_metrics m;

    rig_open(&r, TINY_LLAMA, "naive", 0, rig_params());
    rig_prompt(ids, CONTEXT, 1);
    rig_generate(&r, turn(ids, N_FIRST, N_NEW, 0), a);
    rig_settle(&r, &m);
    assert_int_equal(m.sequences_kept, 0);

    atn_request q = turn(ids, N_FIRST, N_NEW, 7);
    q.n_choices = 3;
    q.sample.temperature = 2;
    rig_generate(&r, q, a);
    memcpy(ids + N_FIRST, a[0].ids, N_NEW * sizeof ids[0]);
    assert_int_equal(compare(&r, ids, N_FIRST + N_NEW + 5, 7, a), N_FIRST + N_NEW - 1);
    /* Several choices of a turn that reuses. */
    q.tokens = ids;
    q.n_tokens = N_FIRST + N_NEW + 20;
    rig_generate(&r, q, a);
    assert_int_equal(a[2].n, N_NEW);
    assert_int_equal(a[2].end.usage.cached_tokens, N_FIRST + N_NEW + 5);

    atn_stream *s = rig_submit(&r, turn(ids, N_FIRST, 150, 9));
    for (int i = 0; i < 3; i++) {
        rig_next(&r, s);
    }
    atn_stream_release(s);
    rig_settle(&r, &m);
    assert_int_equal(m.sequences_kept, 2);
    assert_int_equal(compare(&r, ids, N_FIRST, 9, a), N_FIRST - 1);
    rig_assert_clean(&r);
    rig_close(&r);
    free(a);
}

/* Two turns of one session at once: the second finds nothing to reuse, and both are right. */
static void test_two_turns_at_once(void **state)
{
    (void)state;
    rig r;
    answer *a = calloc(3, sizeof *a);
    int32_t ids[N_FIRST];
    atn_metrics m;

    rig_open(&r, TINY_LLAMA, "naive", 0, rig_params());
    rig_prompt(ids, N_FIRST, 1);
    rig_generate(&r, turn(ids, N_FIRST, N_NEW, 7), &a[0]);
    atn_stream *s = rig_submit(&r, turn(ids, N_FIRST, N_NEW, 7)), *t = rig_submit(&r, turn(ids, N_FIRST, N_NEW, 7));
    rig_read_all(&r, s, &a[1], 1);
    rig_read_all(&r, t, &a[2], 1);
    assert_memory_equal(a[0].ids, a[1].ids, N_NEW * sizeof ids[0]);
    assert_memory_equal(a[0].ids, a[2].ids, N_NEW * sizeof ids[0]);
    assert_int_equal(a[1].end.usage.cached_tokens, N_FIRST - 1);
    rig_settle(&r, &m);
    assert_int_equal(m.sequences_kept, 1);

    /* Dropped while it runs: it runs on, and is not kept. */
    atn_request q = turn(ids, N_FIRST, 150, 7);
    s = rig_submit(&r, q);
    rig_next(&r, s);
    atn_engine_drop(r.engine, 1, 7);
    atn_event ev;
    do {
        ev = rig_next(&r, s);
    } while (!ev.last);
    assert_int_equal(ev.finish, ATN_FINISH_LENGTH);
    atn_stream_release(s);
    rig_settle(&r, &m);
    assert_int_equal(m.sequences_kept, 0);
    rig_assert_clean(&r);
    rig_close(&r);
    free(a);
}

/* Names that arrive while the engine thread is held up. As many as its table takes are each looked up; one more, and all that is
 * kept goes, and the turn that runs is not kept either, but runs on. */
static void test_a_flood_of_names(void **state)
{
    (void)state;
    const struct {
        uint32_t n_names, kept;
    } cases[] = {{1024, 2}, {1025, 0}};

    for (int i = 0; i < 2; i++) {
        rig r;
        int32_t ids[N_FIRST];
        answer *a = calloc(1, sizeof *a);
        atn_event ev;
        atn_metrics m;

        rig_open(&r, TINY_LLAMA, "naive", 0, rig_params());
        rig_prompt(ids, N_FIRST, 1);
        rig_generate(&r, turn(ids, N_FIRST, N_NEW, 7), a);
        rig_settle(&r, &m);
        pthread_mutex_lock(&r.lock);
        atn_stream *s = rig_submit(&r, turn(ids, N_FIRST, 60, 8));
        while (!atn_stream_next(s, &ev)) { /* once this is there the engine waits in rig_wake */
            nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
        }
        for (uint32_t k = 0; k < cases[i].n_names; k++) {
            atn_engine_drop(r.engine, 1, 1000 + k);
        }
        pthread_mutex_unlock(&r.lock);
        while (!ev.last) {
            ev = rig_next(&r, s);
        }
        assert_int_equal(ev.finish, ATN_FINISH_LENGTH);
        atn_stream_release(s);
        rig_settle(&r, &m);
        assert_int_equal(m.sequences_kept, cases[i].kept);
        rig_assert_clean(&r);
        rig_close(&r);
        free(a);
    }
}

/* Idle sequences give way to work, least recently used first, and only as many as are needed. */
static void test_eviction(void **state)
{
    (void)state;
    rig r;
    answer *a = calloc(1, sizeof *a);
    int32_t ids[CONTEXT];
    atn_metrics m;
    atn_engine_params p = rig_params();
    atn_engine_info info;

    rig_open(&r, TINY_LLAMA, "naive", 0, p);
    atn_engine_get_info(r.engine, &info);
    p.kv_bytes = info.kv_bytes / info.n_pages * info.pages_per_full_context;
    p.ring_events = 4; /* nobody runs far ahead of its reader */
    rig_close(&r);
    rig_open(&r, TINY_LLAMA, "naive", 0, p); /* eight blocks of 32 positions */
    rig_prompt(ids, CONTEXT, 1);
    /* What is kept holds what it has computed, not what it was promised: three of the eight blocks, so that five are left. */
    atn_stream *s = rig_submit(&r, turn(ids, 70, 180, 1));
    assert_true(rig_next(&r, s).has_token);
    atn_stream_release(s);
    rig_generate(&r, rig_request(ids, 150, 4), a);
    assert_int_equal(a->n, 4);
    rig_settle(&r, &m);
    assert_int_equal(m.idle_evictions, 0);
    atn_engine_drop(r.engine, 1, 1);

    for (uint64_t name = 1; name <= 4; name++) { /* two blocks each: full */
        rig_generate(&r, turn(ids, 60, 4, name), a);
    }
    rig_generate(&r, turn(ids, 60, 4, 1), a); /* 1 is used again: 2 is the oldest now */
    assert_int_equal(a->end.usage.cached_tokens, 59);
    rig_settle(&r, &m);
    assert_int_equal(m.sequences_kept, 4);
    assert_int_equal(m.kv_pages_free, 0);
    assert_int_equal(m.idle_evictions, 0);

    rig_generate(&r, turn(ids, 30, 2, 5), a); /* one block: one of the four goes */
    rig_settle(&r, &m);
    assert_int_equal(m.idle_evictions, 1);
    assert_int_equal(m.sequences_kept, 4);
    rig_generate(&r, turn(ids, 60, 4, 3), a);
    assert_int_equal(a->end.usage.cached_tokens, 59);
    rig_generate(&r, turn(ids, 60, 4, 1), a);
    assert_int_equal(a->end.usage.cached_tokens, 59);
    rig_generate(&r, turn(ids, 60, 4, 4), a);
    assert_int_equal(a->end.usage.cached_tokens, 59);
    rig_generate(&r, turn(ids, 60, 4, 2), a);
    assert_int_equal(a->end.usage.cached_tokens, 0);

    /* A session that wants the whole pool for itself: all others go, its own pages stay of use. */
    rig_generate(&r, turn(ids, 200, 56, 1), a);
    assert_int_equal(a->n, 56);
    assert_true(a->end.usage.cached_tokens >= 60);
    rig_settle(&r, &m);
    assert_int_equal(m.sequences_kept, 1);
    rig_assert_clean(&r);
    rig_close(&r);
    free(a);
}

/* Layers with a window have given back what lies behind it: a text that goes on is reused, one that was changed behind the
 * window is computed anew, and either says the same as without a session. */
static void windowed(const char *file)
{
    rig r;
    answer *a = calloc(1, sizeof *a);
    int32_t ids[128];

    rig_open(&r, file, "naive", 0, rig_params());
    rig_prompt(ids, 128, 1);
    assert_int_equal(compare(&r, ids, 50, 7, a), 0);
    memcpy(ids + 50, a->ids, N_NEW * sizeof ids[0]);
    assert_int_equal(compare(&r, ids, 90, 7, a), 50 + N_NEW - 1);
    /* 119 positions are computed, and the windowed layers hold the pages from 96 on: position 97 sees back to 90. */
    assert_int_equal(compare(&r, ids, 98, 7, a), 0);
    memcpy(ids + 98, a->ids, N_NEW * sizeof ids[0]);
    ids[110]++; /* 127 are computed; position 110 sees back to 103 */
    assert_int_equal(compare_n(&r, ids, 118, 10, 7, a), 110);
    ids[100]++;
    assert_int_equal(compare_n(&r, ids, 118, 10, 7, a), 0);
    rig_assert_clean(&r);
    rig_close(&r);
    free(a);
}

static void test_windows(void **state)
{
    (void)state;
    windowed(TINY_GEMMA3);
    windowed(TINY_MISTRAL);
}

/* Nothing is evicted for a request that would have to wait all the same. */
static void test_no_eviction_in_vain(void **state)
{
    (void)state;
    rig r;
    answer *a = calloc(1, sizeof *a);
    int32_t ids[CONTEXT];
    atn_metrics m;
    atn_engine_params p = rig_params();
    atn_engine_info info;

    rig_open(&r, TINY_LLAMA, "naive", 0, p);
    atn_engine_get_info(r.engine, &info);
    p.kv_bytes = info.kv_bytes / info.n_pages * info.pages_per_full_context;
    p.ring_events = 4;
    rig_close(&r);
    rig_open(&r, TINY_LLAMA, "naive", 0, p); /* eight blocks: two will be kept, five run and stand still, one is free */
    rig_prompt(ids, CONTEXT, 1);
    rig_generate(&r, turn(ids, 60, 4, 1), a);
    atn_stream *holder = rig_submit(&r, rig_request(ids, 60, 100));
    assert_true(rig_next(&r, holder).has_token);
    atn_stream *big = rig_submit(&r, rig_request(ids, 150, 4)); /* five */
    for (int i = 0; i < 2; i++) { /* when the second is gone the engine has tried to admit the big one */
        atn_stream *behind = rig_submit(&r, rig_request(ids, 1, 1));
        atn_stream_cancel(behind);
        assert_int_equal(rig_next(&r, behind).finish, ATN_FINISH_CANCELLED);
        atn_stream_release(behind);
    }
    atn_stream_release(holder);
    rig_read_all(&r, big, a, 1);
    assert_int_equal(a->n, 4);
    rig_settle(&r, &m);
    assert_int_equal(m.idle_evictions, 0);
    assert_int_equal(m.sequences_kept, 1);
    rig_assert_clean(&r);
    rig_close(&r);
    free(a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_next_turn_reuses),  cmocka_unit_test(test_edited_and_shorter_text),
        cmocka_unit_test(test_domains_and_names), cmocka_unit_test(test_what_is_kept),
        cmocka_unit_test(test_two_turns_at_once), cmocka_unit_test(test_eviction),
        cmocka_unit_test(test_windows),           cmocka_unit_test(test_no_eviction_in_vain),
        cmocka_unit_test(test_a_flood_of_names),
    };
    return cmocka_run_group_tests_name("engine_sessions", tests, NULL, NULL);
}
