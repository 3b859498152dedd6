/* Pre-tokenizers against Hugging Face `tokenizers` (tests/tools/make_token_fixtures.py), and each against the others. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "tests/unit/token/token_fixture.h"

static pre_walk *open_walk(const pre_spec *spec, pretokenizer **p)
{
    atn_err err = {0};
    pre_walk *w = NULL;
    assert_int_equal(pre_open(spec, p, &err), ATN_OK);
    assert_int_equal(pre_walk_open(*p, &w, &err), ATN_OK);
    return w;
}

/* Ends of all words: malloc'ed, n of them. */
static size_t *cut(pre_walk *w, gguf_str text, size_t *n)
{
    size_t *ends = calloc(text.n + 1, sizeof *ends);
    assert_non_null(ends);
    *n = 0;
    pre_walk_start(w, text.s, text.n);
    size_t at = 0;
    for (;;) {
        size_t from;
        size_t to;
        atn_err err = {0};
        assert_int_equal(pre_walk_next(w, &from, &to, &err), ATN_OK);
        if (from == to) {
            break;
        }
        assert_int_equal(from, at);
        at = to;
        ends[(*n)++] = to;
    }
    assert_int_equal(at, text.n);
    return ends;
}

static void test_oracle(void **state)
{
    (void)state;
    json_t *j = load_fixture("pretokenizers.json");
    const json_t *texts = json_object_get(j, "texts");
    const char *name;
    json_t *words;
    json_object_foreach(json_object_get(j, "words"), name, words)
    {
        pretokenizer *p;
        const pre_spec *spec = pre_find(name, strlen(name));
        assert_non_null(spec);
        pre_walk *w = open_walk(spec, &p);
        for (size_t i = 0; i < json_array_size(texts); i++) {
            gguf_str text = json_str(json_array_get(texts, i));
            const json_t *want = json_array_get(words, i);
            size_t n;
            size_t *ends = cut(w, text, &n);
            for (size_t k = 0; k < n && k < json_array_size(want); k++) {
                if ((long long)ends[k] != json_integer_value(json_array_get(want, k))) {
                    fail_msg("%s: text %zu \"%s\": word %zu ends at %zu, not %lld", name, i, text.s, k, ends[k],
                             json_integer_value(json_array_get(want, k)));
                }
            }
            assert_int_equal(n, json_array_size(want));
            free(ends);
        }
        pre_walk_close(w);
        pre_close(p);
    }
    json_decref(j);
}

/* Every row of the table has an oracle, under the name that it lists first. */
static void test_all_rows_have_an_oracle(void **state)
{
    (void)state;
    json_t *j = load_fixture("pretokenizers.json");
    for (size_t i = 0; pre_at(i) != NULL; i++) {
        char first[64];
        snprintf(first, sizeof first, "%.*s", (int)strcspn(pre_at(i)->names, " "), pre_at(i)->names);
        assert_non_null(json_object_get(json_object_get(j, "words"), first));
        assert_ptr_equal(pre_find(first, strlen(first)), pre_at(i));
    }
    json_decref(j);
}

static bool differ(pre_walk *a, pre_walk *b, const json_t *texts)
{
    bool differs = false;
    for (size_t i = 0; !differs && i < json_array_size(texts); i++) {
        gguf_str text = json_str(json_array_get(texts, i));
        size_t n_a;
        size_t n_b;
        size_t *ends_a = cut(a, text, &n_a);
        size_t *ends_b = cut(b, text, &n_b);
        differs = n_a != n_b || memcmp(ends_a, ends_b, n_a * sizeof *ends_a) != 0;
        free(ends_a);
        free(ends_b);
    }
    return differs;
}

/* No id is an alias of another row, of "default" least of all: the texts tell each pair of rows apart. */
static void test_no_row_is_another(void **state)
{
    (void)state;
    static const char *const ids[] = {
        "gpt-2",  "llama-bpe", "llama3",       "llama-v3",       "qwen2",  "qwen35",      "smollm",    "starcoder",
        "refact", "tekken",    "deepseek-llm", "deepseek-coder", "falcon", "deepseek-v3", "gpt-4o",    "phi-2",
        "olmo",   "mpt",       "stablelm2",    "bloom",          "viking", "seed-coder",  "command-r", "smaug-bpe"};
    json_t *j = load_fixture("pretokenizers.json");
    const json_t *texts = json_object_get(j, "texts");
    pretokenizer *other;
    pre_walk *plain = open_walk(pre_find("default", 7), &other);
    for (size_t i = 0; i < sizeof ids / sizeof ids[0]; i++) {
        pretokenizer *p;
        const pre_spec *spec = pre_find(ids[i], strlen(ids[i]));
        assert_non_null(spec);
        pre_walk *w = open_walk(spec, &p);
        if (!differ(w, plain, texts)) {
            fail_msg("%s cuts as default does", ids[i]);
        }
        pre_walk_close(w);
        pre_close(p);
    }
    pre_walk_close(plain);
    pre_close(other);
    for (size_t a = 0; pre_at(a) != NULL; a++) {
        for (size_t b = 0; b < a; b++) {
            pretokenizer *pa;
            pretokenizer *pb;
            pre_walk *wa = open_walk(pre_at(a), &pa);
            pre_walk *wb = open_walk(pre_at(b), &pb);
            bool same_rules =
                pre_at(a)->whole_words == pre_at(b)->whole_words && pre_at(a)->add_bos == pre_at(b)->add_bos;
            if (same_rules && !differ(wa, wb, texts)) {
                fail_msg("\"%s\" and \"%s\" cut alike", pre_at(a)->names, pre_at(b)->names);
            }
            pre_walk_close(wa);
            pre_walk_close(wb);
            pre_close(pa);
            pre_close(pb);
        }
    }
    json_decref(j);
}

static void test_unknown_names(void **state)
{
    (void)state;
    static const char *const names[] = {"",        " ",    "gpt", "llama-bp", "llama-bpe ", "llama-bpe llama3",
                                        "kimi-k2", "GPT-2"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        assert_null(pre_find(names[i], strlen(names[i])));
    }
    assert_null(pre_find("gpt-2", 4));
}

/* Texts that are one word, or none: every pattern gets through them, on 64 KiB of stack. */
static const char *const runs[] = {
    "a",  "A",    " ",  "\n", "us", "1", "!", "\xF0\x9F\x91\xA9\xE2\x80\x8D", "e\xCC\x81", "\xE4\xB8\xAD",
    " a", "\r\n", "\t "};

static void walk_run(const char *run, size_t bytes)
{
    char *text = malloc(bytes);
    assert_non_null(text);
    size_t unit = strlen(run);
    size_t n = 0;
    for (; n + unit + 1 <= bytes; n += unit) {
        memcpy(text + n, run, unit);
    }
    text[n++] = '1'; /* so that a run of spaces is not at the end, of no stage's piece either */
    for (size_t i = 0; pre_at(i) != NULL; i++) {
        pretokenizer *p;
        pre_walk *w = open_walk(pre_at(i), &p);
        size_t n_words;
        free(cut(w, (gguf_str){text, n}, &n_words));
        pre_walk_close(w);
        pre_close(p);
    }
    free(text);
}

static void *walk_runs(void *arg)
{
    (void)arg;
    for (size_t r = 0; r < sizeof runs / sizeof runs[0]; r++) {
        walk_run(runs[r], 64 << 10);
    }
    walk_run(" ", 1 << 20);
    walk_run("A", 1 << 20);
    return NULL;
}

static void test_long_runs(void **state)
{
    (void)state;
    on_small_stack(walk_runs, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_oracle),
        cmocka_unit_test(test_all_rows_have_an_oracle),
        cmocka_unit_test(test_no_row_is_another),
        cmocka_unit_test(test_unknown_names),
        cmocka_unit_test(test_long_runs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
