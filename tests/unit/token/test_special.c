/* Special tokens: control tokens only in trusted bytes, user-defined ones anywhere, segments otherwise one text. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "tests/unit/token/token_fixture.h"

enum { UNK, LT, GT, S, I, A, B, SPACE, AB, CTL, CTL_LONG, TAG, TAG_LONG, UNUSED, N_PIECES };

static const gguf_str pieces[N_PIECES] = {
    [UNK] = {"<unk>", 5},
    [LT] = {"<", 1},
    [GT] = {">", 1},
    [S] = {"s", 1},
    [I] = {"i", 1},
    [A] = {"a", 1},
    [B] = {"b", 1},
    [SPACE] = {" ", 1},
    [AB] = {"ab", 2},
    [CTL] = {"<s>", 3},
    [TAG] = {"<i>", 3},
    [UNUSED] = {"<b>", 3},
    [CTL_LONG] = {"<s><s>", 6},
    [TAG_LONG] = {"<i>ab", 5},
};

static atn_tokenizer *build(void)
{
    static const int32_t kinds[N_PIECES] = {2, 1, 1, 1, 1, 1, 1, 1, 1, 3, 3, 4, 4, 5};
    token_source src = source_of("llama", "", pieces, N_PIECES);
    src.kinds = kinds;
    src.add_space_prefix = 0;
    return build_ok(&src);
}

static void test_trust(void **state)
{
    (void)state;
    atn_tokenizer *t = build();
    assert_ids(t, "a<s>b", true, IDS(A, CTL, B));
    assert_ids(t, "a<s>b", false, IDS(A, LT, S, GT, B));
    assert_ids(t, "<i>", true, IDS(TAG));
    assert_ids(t, "<i>", false, IDS(TAG));
    assert_ids(t, "<unk>", false, IDS(LT, UNK, UNK, UNK, GT)); /* u, n, k have no tokens here */
    assert_ids(t, "<unk>", true, IDS(UNK));
    assert_ids(t, "<b>", true, IDS(LT, B, GT)); /* unused tokens are not for text */
    tokenizer_close(t);
}

static void test_longest_first_leftmost(void **state)
{
    (void)state;
    atn_tokenizer *t = build();
    assert_ids(t, "<s><s><s>", true, IDS(CTL_LONG, CTL));
    assert_ids(t, "<i>ab", false, IDS(TAG_LONG));
    assert_ids(t, "<i>a", false, IDS(TAG, A));
    assert_ids(t, "<<i>>", false, IDS(LT, TAG, GT));
    tokenizer_close(t);
}

static void assert_segments(const atn_tokenizer *t, const atn_segment *segs, size_t n_segs, const int32_t *want)
{
    atn_err err = {0};
    int32_t *ids;
    size_t n;
    assert_int_equal(atn_tokenize(t, segs, n_segs, 0, &ids, &n, &err), ATN_OK);
    for (size_t i = 0; i < n; i++) {
        assert_int_equal(ids[i], want[i]);
    }
    assert_int_equal(want[n], -1);
    free(ids);
}

#define YES(s) ((atn_segment){s, sizeof(s) - 1, true})
#define NO(s)  ((atn_segment){s, sizeof(s) - 1, false})

static void test_borders(void **state)
{
    (void)state;
    atn_tokenizer *t = build();
    /* merges and user-defined tokens cross any border */
    assert_segments(t, (atn_segment[]){NO("a"), YES("b")}, 2, IDS(AB));
    assert_segments(t, (atn_segment[]){NO("<"), YES("i"), NO(">")}, 3, IDS(TAG));
    /* a control token crosses a border of trusted segments, of no other */
    assert_segments(t, (atn_segment[]){YES("<"), YES("s>")}, 2, IDS(CTL));
    assert_segments(t, (atn_segment[]){YES("<"), YES(""), NO(""), YES("s>")}, 4, IDS(CTL));
    assert_segments(t, (atn_segment[]){YES("<s"), NO(">")}, 2, IDS(LT, S, GT));
    assert_segments(t, (atn_segment[]){NO("<"), YES("s>")}, 2, IDS(LT, S, GT));
    assert_segments(t, (atn_segment[]){YES("<"), NO("s"), YES(">")}, 3, IDS(LT, S, GT));
    /* a long one that would leave trust gives way to a short one that does not */
    assert_segments(t, (atn_segment[]){YES("<s><s"), NO(">")}, 2, IDS(CTL, LT, S, GT));
    assert_segments(t, (atn_segment[]){NO("<s>"), YES("<s>"), NO("<s>"), YES("<s>")}, 4,
                    IDS(LT, S, GT, CTL, LT, S, GT, CTL));
    assert_segments(t, NULL, 0, IDS());
    assert_segments(t, (atn_segment[]){YES(""), NO("")}, 2, IDS());
    tokenizer_close(t);
}

static void test_invalid_text(void **state)
{
    (void)state;
    atn_tokenizer *t = build();
    atn_err err = {0};
    int32_t *ids = NULL;
    size_t n;
    assert_int_equal(atn_tokenize(t, (atn_segment[]){NO("ab"), NO("a\xFF")}, 2, 0, &ids, &n, &err), ATN_INVALID);
    assert_non_null(strstr(err.msg, "byte 3"));
    assert_int_equal(atn_tokenize(t, (atn_segment[]){NO("ab\xC3")}, 1, 0, &ids, &n, &err), ATN_INVALID);
    assert_non_null(strstr(err.msg, "byte 2"));
    /* halves of a character in two segments are one character */
    assert_segments(t, (atn_segment[]){NO("\xC3"), NO("\xA9")}, 2, IDS(UNK));
    tokenizer_close(t);
}

/* A naive model of the rules, on random texts and segments: at each byte the longest allowed special token. */
static void test_random_segments(void **state)
{
    (void)state;
    static const char letters[] = "<<>>sssiab";
    atn_tokenizer *t = build();
    uint32_t rng = 1;
    for (int round = 0; round < 3000; round++) {
        char text[24];
        bool trusted[24];
        atn_segment segs[24];
        size_t n = 0;
        size_t n_segs = 0;
        while (n < 20) {
            size_t len = (rng >> 16) % 6;
            segs[n_segs] = (atn_segment){text + n, 0, (rng >> 12 & 1) != 0};
            for (size_t k = 0; k < len && n < 20; k++) {
                rng = rng * 1664525 + 1013904223;
                text[n] = letters[(rng >> 16) % 10];
                trusted[n++] = segs[n_segs].trusted;
                segs[n_segs].n++;
            }
            rng = rng * 1664525 + 1013904223;
            if (++n_segs == 24) {
                break;
            }
        }
        atn_err err = {0};
        int32_t *ids;
        size_t(*spans)[2];
        size_t n_ids;
        assert_int_equal(atn_tokenize_offsets(t, segs, n_segs, 0, &ids, &spans, &n_ids, &err), ATN_OK);
        size_t at = 0;
        for (size_t k = 0; k < n_ids; k++) {
            assert_int_equal(spans[k][0], at);
            int32_t best = -1;
            for (int32_t id = CTL; id <= TAG_LONG; id++) {
                bool fits = pieces[id].n <= n - at && memcmp(text + at, pieces[id].s, pieces[id].n) == 0;
                for (size_t b = 0; fits && id <= CTL_LONG && b < pieces[id].n; b++) {
                    fits = trusted[at + b];
                }
                best = fits && (best < 0 || pieces[id].n > pieces[best].n) ? id : best;
            }
            if (best >= 0) {
                assert_int_equal(ids[k], best);
            } else {
                assert_true(ids[k] < CTL);
            }
            at = spans[k][1];
        }
        assert_int_equal(at, n);
        free(ids);
        free(spans);
    }
    tokenizer_close(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_trust),           cmocka_unit_test(test_longest_first_leftmost),
        cmocka_unit_test(test_borders),         cmocka_unit_test(test_invalid_text),
        cmocka_unit_test(test_random_segments),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
