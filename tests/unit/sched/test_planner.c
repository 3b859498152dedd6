/* The planner's decisions, asserted as text: "d0 d2 p5:12" is a row each for 0 and 2, then 12 prompt rows of 5. */
#include "core/sched/planner.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

enum { MAX_SEQS = 96 };

static const char *plan_text(const plan_seq *seqs, size_t n, plan_limits lim)
{
    static char text[1024];
    plan_item items[MAX_SEQS];
    size_t at = 0;

    text[0] = 0;
    const size_t n_items = plan_step(seqs, n, &lim, items);
    for (size_t i = 0; i < n_items; i++) {
        const uint32_t id = seqs[items[i].seq].id;
        if (items[i].kind == PLAN_DECODE) {
            assert_int_equal(items[i].n, 1);
            at += (size_t)snprintf(text + at, sizeof text - at, "%sd%u", i ? " " : "", id);
        } else {
            at += (size_t)snprintf(text + at, sizeof text - at, "%sp%u:%u", i ? " " : "", id, items[i].n);
        }
    }
    return text;
}

static void test_decode_first_then_oldest_prompt(void **state)
{
    (void)state;
    const plan_seq seqs[] = {
        {.id = 0, .admitted = 4, .prefill_left = 30},
        {.id = 1, .admitted = 1},
        {.id = 2, .admitted = 3, .prefill_left = 10},
        {.id = 3, .admitted = 2},
    };
    const plan_limits wide = {.step_tokens = 64, .max_out = 8};

    assert_string_equal(plan_text(seqs, 4, wide), "d1 d3 p2:10 p0:30");
    assert_string_equal(plan_text(seqs, 4, (plan_limits){16, 8}), "d1 d3 p2:10 p0:4");
    assert_string_equal(plan_text(seqs, 0, wide), "");
}

static void test_paused_is_passed_over(void **state)
{
    (void)state;
    const plan_seq seqs[] = {
        {.id = 0, .admitted = 1, .paused = true},
        {.id = 1, .admitted = 2},
        {.id = 2, .admitted = 3, .prefill_left = 9, .paused = true},
        {.id = 3, .admitted = 4, .prefill_left = 5},
    };

    assert_string_equal(plan_text(seqs, 4, (plan_limits){32, 8}), "d1 p3:5");
    assert_string_equal(plan_text(seqs, 1, (plan_limits){32, 8}), "");
}

/* A prompt's last row and each row of one that wants them all take an output. */
static void test_output_limit(void **state)
{
    (void)state;
    plan_seq seqs[] = {
        {.id = 0, .admitted = 1},
        {.id = 1, .admitted = 2, .prefill_left = 20, .wants_all_rows = true},
        {.id = 2, .admitted = 3, .prefill_left = 20},
    };

    assert_string_equal(plan_text(seqs, 3, (plan_limits){64, 8}), "d0 p1:7 p2:19");
    assert_string_equal(plan_text(seqs, 3, (plan_limits){64, 64}), "d0 p1:20 p2:20");
    assert_string_equal(plan_text(seqs, 3, (plan_limits){64, 2}), "d0 p1:1 p2:19");
    seqs[2].prefill_left = 1;
    assert_string_equal(plan_text(seqs, 3, (plan_limits){64, 8}), "d0 p1:7");
}

/* More decoders than rows: they take turns, and nobody waits longer than the others' turns. */
static void test_small_budget_takes_turns(void **state)
{
    (void)state;
    plan_seq seqs[5];
    const plan_limits lim = {.step_tokens = 2, .max_out = 8};
    uint64_t turns = 0;
    const char *want[] = {"d0 d1", "d2 d3", "d4 d0", "d1 d2", "d3 d4", "d0 d1"};

    for (uint32_t i = 0; i < 5; i++) {
        seqs[i] = (plan_seq){.id = i, .admitted = i};
    }
    for (uint64_t step = 1; step <= 6; step++) {
        plan_item items[5];
        assert_string_equal(plan_text(seqs, 5, lim), want[step - 1]);
        const size_t n = plan_step(seqs, 5, &lim, items);
        for (size_t i = 0; i < n; i++) {
            seqs[items[i].seq].last_served = ++turns;
        }
    }
}

/* While prompts wait a quarter of the rows is theirs; alone, decoders have them all. */
static void test_prompts_are_not_starved(void **state)
{
    (void)state;
    plan_seq seqs[9];

    for (uint32_t i = 0; i < 8; i++) {
        seqs[i] = (plan_seq){.id = i, .admitted = i};
    }
    seqs[8] = (plan_seq){.id = 8, .admitted = 8, .prefill_left = 100};
    assert_string_equal(plan_text(seqs, 9, (plan_limits){8, 16}), "d0 d1 d2 d3 d4 d5 p8:2");
    assert_string_equal(plan_text(seqs, 8, (plan_limits){8, 16}), "d0 d1 d2 d3 d4 d5 d6 d7");
    assert_string_equal(plan_text(seqs, 9, (plan_limits){2, 16}), "d0 p8:1");
    assert_string_equal(plan_text(seqs, 9, (plan_limits){1, 16}), "d0");
    seqs[8].paused = true;
    assert_string_equal(plan_text(seqs, 9, (plan_limits){8, 16}), "d0 d1 d2 d3 d4 d5 d6 d7");
    /* The last row of a prompt always finds an output. */
    seqs[8] = (plan_seq){.id = 8, .admitted = 8, .prefill_left = 1};
    assert_string_equal(plan_text(seqs, 9, (plan_limits){64, 8}), "d0 d1 d2 d3 d4 d5 d6 p8:1");
}

/* Whatever prompts arrive, every decoder is served at least every second step, with as many as a step serves. */
static void serve_for_long(uint32_t step_tokens)
{
    enum { STEPS = 200 };
    plan_seq seqs[MAX_SEQS];
    uint64_t prompt_rows = 0, turns = 0, last[MAX_SEQS] = {0};
    const uint32_t n_decoders = plan_most_seqs(step_tokens);
    const plan_limits lim = {.step_tokens = step_tokens, .max_out = 2 * step_tokens + 1};

    assert_true(n_decoders + 36 <= MAX_SEQS);
    for (uint32_t i = 0; i < n_decoders; i++) {
        seqs[i] = (plan_seq){.id = i, .admitted = i};
    }
    for (uint64_t step = 1; step <= STEPS; step++) {
        const uint32_t n_prompts = (uint32_t)(step % 37); /* a storm that comes and goes */
        for (uint32_t i = 0; i < n_prompts; i++) {
            seqs[n_decoders + i] = (plan_seq){.id = 100 + i, .admitted = 100 + step + i, .prefill_left = 1000};
        }
        plan_item items[MAX_SEQS];
        uint32_t rows = 0;
        const size_t n = plan_step(seqs, n_decoders + n_prompts, &lim, items);
        for (size_t i = 0; i < n; i++) {
            seqs[items[i].seq].last_served = ++turns;
            last[items[i].seq] = step;
            rows += items[i].n;
            prompt_rows += items[i].kind == PLAN_PREFILL ? items[i].n : 0;
        }
        assert_true(rows <= lim.step_tokens);
        for (uint32_t i = 0; i < n_decoders; i++) {
            assert_true(step - last[i] <= 1);
        }
    }
    assert_true(prompt_rows >=
                (step_tokens > 1 ? STEPS - STEPS / 37 - 1 : 0) * (step_tokens < 4 ? 1 : step_tokens / 4));
}

static void test_decode_every_second_step(void **state)
{
    (void)state;
    const uint32_t budgets[] = {1, 2, 3, 4, 7, 32};
    for (size_t i = 0; i < sizeof budgets / sizeof budgets[0]; i++) {
        serve_for_long(budgets[i]);
    }
    assert_int_equal(plan_most_seqs(1), 2);
    assert_int_equal(plan_most_seqs(2), 2);
    assert_int_equal(plan_most_seqs(32), 48);
    assert_int_equal(plan_most_seqs(256), 384);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_decode_first_then_oldest_prompt),
        cmocka_unit_test(test_paused_is_passed_over),
        cmocka_unit_test(test_output_limit),
        cmocka_unit_test(test_small_budget_takes_turns),
        cmocka_unit_test(test_prompts_are_not_starved),
        cmocka_unit_test(test_decode_every_second_step),
    };
    return cmocka_run_group_tests_name("planner", tests, NULL, NULL);
}
