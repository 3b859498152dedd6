/* Philox4x32-10 against the known answers of the Random123 distribution (kat_vectors), and the uniform made of it. */
#include "core/sample/rng.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>

static void test_known_answers(void **state)
{
    (void)state;
    const struct {
        uint32_t counter[4], key[2], want[4];
    } cases[] = {
        {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
         {0xffffffff, 0xffffffff},
         {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
         {0xa4093822, 0x299f31d0},
         {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        uint32_t out[4];
        rng_philox(cases[i].counter, cases[i].key, out);
        assert_memory_equal(out, cases[i].want, sizeof out);
    }
}

static void test_uniform_is_the_top_bits(void **state)
{
    (void)state;
    assert_true(rng_uniform(0, 0, 0) == (double)(0x6627e8d5e169c58dull >> 11) / 9007199254740992.0);
}

/* Each argument matters, all its bits: 2^53 + 1 and 2^63 - 1 are seeds of their own. */
static void test_every_bit_counts(void **state)
{
    (void)state;
    const double base = rng_uniform(1ull << 53, 0, 7);
    assert_true(base != rng_uniform((1ull << 53) + 1, 0, 7));
    assert_true(base != rng_uniform(INT64_MAX, 0, 7));
    for (int bit = 0; bit < 64; bit++) {
        assert_true(rng_uniform(0, 0, 7) != rng_uniform(1ull << bit, 0, 7));
    }
    for (int bit = 0; bit < 32; bit++) {
        assert_true(rng_uniform(5, 0, 0) != rng_uniform(5, 1u << bit, 0));
        assert_true(rng_uniform(5, 0, 0) != rng_uniform(5, 0, 1u << bit));
    }
}

static void test_uniform_is_uniform(void **state)
{
    (void)state;
    enum { DRAWS = 200000, BINS = 20 };
    uint32_t counts[BINS] = {0};
    double chi2 = 0, lowest = 1, highest = 0;

    for (uint32_t i = 0; i < DRAWS; i++) {
        const double u = rng_uniform(42, 0, i);
        assert_true(u >= 0 && u < 1);
        lowest = u < lowest ? u : lowest;
        highest = u > highest ? u : highest;
        counts[(int)(u * BINS)]++;
    }
    for (int i = 0; i < BINS; i++) {
        const double want = (double)DRAWS / BINS, d = counts[i] - want;
        chi2 += d * d / want;
    }
    assert_true(chi2 < 43.8); /* 99.9 % of 19 degrees of freedom; the draws are fixed */
    assert_true(lowest < 1e-4 && highest > 1 - 1e-4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_known_answers),
        cmocka_unit_test(test_uniform_is_the_top_bits),
        cmocka_unit_test(test_every_bit_counts),
        cmocka_unit_test(test_uniform_is_uniform),
    };
    return cmocka_run_group_tests_name("rng", tests, NULL, NULL);
}
