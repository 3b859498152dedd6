/* Many requests at once: text that does not depend on the neighbours, choices that share their prompt, nothing left behind. */
#include "engine_rig.h"

#include <malloc.h>

enum { N_PROMPT = 45, N_NEW = 40, OTHERS = 16 };

static atn_request hot(const int32_t *ids, uint32_t n, uint32_t max_new, uint64_t seed)
{
    atn_request q = rig_request(ids, n, max_new);
    q.sample.temperature = 1.5f;
    q.sample.top_p = 0.95f;
    q.sample.seed = seed;
    return q;
}

static void assert_same(const answer *a, const answer *b)
{
    assert_int_equal(a->n, b->n);
    assert_memory_equal(a->ids, b->ids, a->n * sizeof a->ids[0]);
    assert_memory_equal(a->logprobs, b->logprobs, a->n * sizeof a->logprobs[0]); /* bits */
}

/* The same request alone, and among others that come before, beside and after it, whatever the step's budget. */
static void same_seed_same_text(const char *file, const uint32_t *budgets, int n_budgets)
{
    answer *want = calloc(1, sizeof *want), *got = calloc(1, sizeof *got);
    int32_t ids[OTHERS + 1][N_PROMPT];

    for (uint32_t i = 0; i <= OTHERS; i++) {
        rig_prompt(ids[i], N_PROMPT, i);
    }
    for (int b = 0; b < n_budgets; b++) {
        rig r;
        atn_stream *others[OTHERS];
        atn_engine_params p = rig_params();
        p.step_tokens = budgets[b];
        p.max_sequences = budgets[b] > 32 ? 32 : budgets[b] > 2 ? budgets[b] : 2;
        rig_open(&r, file, "naive", 0, p);
        rig_generate(&r, hot(ids[OTHERS], N_PROMPT, N_NEW, 4242), got);
        if (b == 0) {
            *want = *got;
        }
        assert_same(want, got);
        for (uint32_t i = 0; i < OTHERS / 2; i++) {
            others[i] = rig_submit(&r, hot(ids[i], 3 + i * 5, 20 + i, i));
        }
        atn_stream *s = rig_submit(&r, hot(ids[OTHERS], N_PROMPT, N_NEW, 4242));
        for (uint32_t i = OTHERS / 2; i < OTHERS; i++) {
            others[i] = rig_submit(&r, hot(ids[i], 1 + i * 2, 20 + i, i));
        }
        rig_read_all(&r, s, got, 1);
        assert_same(want, got);
        for (uint32_t i = 0; i < OTHERS; i++) {
            rig_read_all(&r, others[i], NULL, 1);
        }
        rig_assert_clean(&r);
        rig_close(&r);
    }
    assert_int_equal(want->n, N_NEW);
    free(want);
    free(got);
}

static void test_same_seed_same_text(void **state)
{
    (void)state;
    same_seed_same_text(TINY_LLAMA, (uint32_t[]){64, 7, 1, 200}, 4);
    same_seed_same_text(TINY_GEMMA3, (uint32_t[]){64, 7}, 2);
}

/* Randomness goes by the place in the text: an answer cut anywhere and asked to go on with the same seed goes on the same. */
static void test_continuation_is_the_same(void **state)
{
    (void)state;
    rig r;
    answer *a = calloc(2, sizeof *a);
    int32_t ids[N_PROMPT + N_NEW];

    rig_open(&r, TINY_LLAMA, "naive", 0, rig_params());
    rig_prompt(ids, N_PROMPT, 3);
    rig_generate(&r, hot(ids, N_PROMPT, N_NEW, 5), &a[0]);
    memcpy(ids + N_PROMPT, a[0].ids, N_NEW * sizeof ids[0]);
    for (uint32_t cut = 1; cut < N_NEW; cut += 9) {
        rig_generate(&r, hot(ids, N_PROMPT + cut, N_NEW - cut, 5), &a[1]);
        assert_int_equal(a[1].n, N_NEW - cut);
        assert_memory_equal(a[0].ids + cut, a[1].ids, a[1].n * sizeof ids[0]);
    }
    rig_assert_clean(&r);
    rig_close(&r);
    free(a);
}

/* Choice 0 of n is the request alone; every choice is a function of (seed, choice); greedy ones are all alike. */
static void choices(const char *file)
{
    rig r;
    answer *a = calloc(9, sizeof *a);
    int32_t ids[N_PROMPT];

    rig_open(&r, file, "naive", 0, rig_params());
    rig_prompt(ids, N_PROMPT, 3);
    atn_request q = hot(ids, N_PROMPT, N_NEW, 99);
    rig_generate(&r, q, &a[8]);
    q.n_choices = 4;
    rig_generate(&r, q, a);
    rig_generate(&r, q, a + 4);
    for (int c = 0; c < 4; c++) {
        assert_int_equal(a[c].n, N_NEW);
        assert_same(&a[c], &a[4 + c]);
        assert_int_equal(a[c].end.usage.prompt_tokens, N_PROMPT);
    }
    assert_same(&a[0], &a[8]);
    assert_memory_not_equal(a[0].ids, a[1].ids, 8 * sizeof(int32_t));
    assert_memory_not_equal(a[1].ids, a[2].ids, 8 * sizeof(int32_t));

    q.sample.temperature = 0;
    rig_generate(&r, q, a);
    for (int c = 1; c < 4; c++) {
        assert_same(&a[0], &a[c]);
    }
    q.max_new_tokens = 1;
    rig_generate(&r, q, a);
    assert_int_equal(a[3].n, 1);
    q.max_new_tokens = 0;
    rig_generate(&r, q, a);
    assert_int_equal(a[3].n, 0);
    assert_int_equal(a[3].end.finish, ATN_FINISH_LENGTH);

    atn_metrics m;
    rig_settle(&r, &m);
    assert_int_equal(m.prompt_tokens, 6 * N_PROMPT); /* once a request, not once a choice */
    rig_assert_clean(&r);
    rig_close(&r);
    free(a);
}

static void test_choices(void **state)
{
    (void)state;
    choices(TINY_LLAMA);
    choices(TINY_GEMMA3);
    choices(TINY_MISTRAL);
}

/* Choices end on their own: one stops at a token that the others may not meet. */
static void test_choices_end_one_by_one(void **state)
{
    (void)state;
    rig r;
    answer *a = calloc(8, sizeof *a), *b = calloc(8, sizeof *b);
    int32_t ids[N_PROMPT];
    int shorter = 0;

    rig_open(&r, TINY_LLAMA, "naive", 0, rig_params());
    rig_prompt(ids, N_PROMPT, 3);
    atn_request q = hot(ids, N_PROMPT, N_NEW, 7);
    q.n_choices = 8;
    rig_generate(&r, q, a);
    const int32_t stop_ids[] = {a[0].ids[4], a[3].ids[0], a[5].ids[20]};
    q.stop_ids = stop_ids;
    q.n_stop_ids = 3;
    rig_generate(&r, q, b);
    for (int c = 0; c < 8; c++) {
        assert_true(b[c].n <= a[c].n);
        assert_memory_equal(a[c].ids, b[c].ids, b[c].n * sizeof a[c].ids[0]);
        assert_int_equal(b[c].end.finish, b[c].n < N_NEW ? ATN_FINISH_STOP_ID : b[c].end.finish);
        shorter += b[c].n < a[c].n;
    }
    assert_true(shorter >= 3);
    assert_int_equal(b[3].n, 1);
    rig_assert_clean(&r);
    rig_close(&r);
    free(a);
    free(b);
}

/* A step of four rows for five sequences: they take turns, so that none is ever two tokens ahead of another. */
static void test_small_steps_take_turns(void **state)
{
    (void)state;
    rig r;
    int32_t ids[N_PROMPT];
    uint32_t n[5] = {0};
    atn_engine_params p = rig_params();
    atn_event ev;

    p.step_tokens = 4;
    p.max_sequences = 5;
    rig_open(&r, TINY_LLAMA, "naive", 0, p);
    rig_prompt(ids, N_PROMPT, 3);
    atn_request q = hot(ids, N_PROMPT, 20, 7);
    q.n_choices = 5;
    atn_stream *s = rig_submit(&r, q);
    do {
        uint32_t least = UINT32_MAX, most = 0;
        ev = rig_next(&r, s);
        n[ev.choice]++;
        for (int c = 0; c < 5; c++) {
            least = n[c] < least ? n[c] : least;
            most = n[c] > most ? n[c] : most;
        }
        assert_true(most - least <= 1);
    } while (!ev.last);
    atn_stream_release(s);
    rig_assert_clean(&r);
    rig_close(&r);
}

/* Eight choices of a long prompt fit a pool that holds it twice. */
static void test_choices_share_the_prompt(void **state)
{
    (void)state;
    rig r;
    int32_t ids[200];
    answer *a = calloc(8, sizeof *a);
    atn_engine_params p = rig_params();
    atn_engine_info info;

    rig_open(&r, TINY_LLAMA, "naive", 0, p);
    atn_engine_get_info(r.engine, &info);
    p.kv_bytes = info.kv_bytes / info.n_pages * info.pages_per_full_context * 2;
    rig_close(&r);
    rig_open(&r, TINY_LLAMA, "naive", 0, p);
    rig_prompt(ids, 200, 3);
    atn_request q = hot(ids, 200, 20, 7);
    q.n_choices = 8;
    rig_generate(&r, q, a);
    for (int c = 0; c < 8; c++) {
        assert_int_equal(a[c].n, 20);
    }
    rig_assert_clean(&r);
    rig_close(&r);
    free(a);
}

/* More requests than the pool holds at once: they take turns, in order, and all of them end. */
static void test_small_pool_serves_all(void **state)
{
    (void)state;
    enum { REQUESTS = 40 };
    rig r;
    int32_t ids[100];
    atn_stream *s[REQUESTS];
    answer *a = calloc(4, sizeof *a);
    atn_engine_params p = rig_params();
    atn_engine_info info;

    rig_open(&r, TINY_LLAMA, "naive", 0, p);
    atn_engine_get_info(r.engine, &info);
    p.kv_bytes = info.kv_bytes / info.n_pages * info.pages_per_full_context * 2;
    rig_close(&r);
    rig_open(&r, TINY_LLAMA, "naive", 0, p);
    rig_prompt(ids, 100, 3);
    for (uint32_t i = 0; i < REQUESTS; i++) {
        atn_request q = hot(ids, 10 + i * 7 % 60, 5 + i * 13 % 70, i);
        q.n_choices = 1 + i % 4;
        s[i] = rig_submit(&r, q);
    }
    for (uint32_t i = 0; i < REQUESTS; i++) {
        rig_read_all(&r, s[i], a, 1 + i % 4);
        for (uint32_t c = 0; c <= i % 4; c++) {
            assert_int_equal(a[c].end.finish, ATN_FINISH_LENGTH);
            assert_int_equal(a[c].n, 5 + i * 13 % 70);
        }
    }
    rig_assert_clean(&r);
    rig_close(&r);
    free(a);
}

/* Thousands of short requests leave no page, no ring and no byte behind. */
static void test_many_short_requests(void **state)
{
    (void)state;
    enum { ROUNDS = 125, EACH = 16 };
    rig r;
    int32_t ids[12];
    size_t in_use = 0;
    const size_t slack = 24 << 10; /* the allocator's caches move; less than one smallest block a request */

    rig_open(&r, TINY_GPT2, "openblas", 0, rig_params());
    for (uint32_t round = 0; round < ROUNDS; round++) {
        atn_stream *s[EACH];
        for (uint32_t i = 0; i < EACH; i++) {
            rig_prompt(ids, 12, round * EACH + i);
            atn_request q = hot(ids, 1 + i % 12, 1 + i % 3, i);
            q.n_choices = 1 + i % 2;
            s[i] = rig_submit(&r, q);
        }
        for (uint32_t i = 0; i < EACH; i++) {
            rig_read_all(&r, s[i], NULL, 1 + i % 2);
        }
        if (round == 20 || round == ROUNDS - 1) {
            rig_assert_clean(&r);
            const size_t now = mallinfo2().uordblks; /* sanitizers report 0, and find leaks themselves */
            assert_true(round == 20 || now <= in_use + slack);
            in_use = now;
        }
    }
    atn_metrics m;
    rig_settle(&r, &m);
    assert_int_equal(m.requests_admitted, ROUNDS * EACH);
    assert_int_equal(m.kv_pages_free, m.kv_pages_total);
    rig_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_seed_same_text),
        cmocka_unit_test(test_continuation_is_the_same),
        cmocka_unit_test(test_choices),
        cmocka_unit_test(test_choices_end_one_by_one),
        cmocka_unit_test(test_small_steps_take_turns),
        cmocka_unit_test(test_choices_share_the_prompt),
        cmocka_unit_test(test_small_pool_serves_all),
        cmocka_unit_test(test_many_short_requests),
    };
    return cmocka_run_group_tests_name("engine_batch", tests, NULL, NULL);
}
