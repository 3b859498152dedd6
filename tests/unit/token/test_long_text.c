/* A megabyte of one letter, of spaces, of emoji, of "us": tokenized on 64 KiB of stack, by both tokenizers, and back.
 * A quadratic step anywhere would take hours, which the test's time limit catches. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "tests/unit/token/token_fixture.h"

enum { BYTES = 1 << 20 };

static const char *const runs[] = {"a", " ", "us", "\xF0\x9F\x91\xA9\xE2\x80\x8D", "e\xCC\x81", "<b"};

typedef struct job {
    const atn_tokenizer *t;
    const char *run;
    bool same; /* came back as it went in */
    size_t n_ids;
} job;

static void *round_trip(void *arg)
{
    job *j = arg;
    size_t unit = strlen(j->run);
    char *text = malloc(BYTES);
    size_t n = 0;
    for (; text != NULL && n + unit + 1 <= BYTES; n += unit) {
        memcpy(text + n, j->run, unit);
    }
    if (text == NULL) {
        return NULL;
    }
    text[n++] = '.';
    atn_segment seg = {text, n, true};
    atn_err err = {0};
    int32_t *ids = NULL;
    char *back = NULL;
    size_t n_back = 0;
    j->same = atn_tokenize(j->t, &seg, 1, 0, &ids, &j->n_ids, &err) == ATN_OK &&
              atn_detokenize(j->t, ids, j->n_ids, true, &back, &n_back, &err) == ATN_OK && n_back == n &&
              memcmp(back, text, n) == 0;
    free(back);
    free(ids);
    free(text);
    return NULL;
}

static void run_all(const atn_tokenizer *t)
{
    for (size_t i = 0; i < sizeof runs / sizeof runs[0]; i++) {
        job j = {.t = t, .run = runs[i]};
        on_small_stack(round_trip, &j);
        if (!j.same) {
            fail_msg("a run of \"%s\" did not come back", runs[i]);
        }
        assert_true(j.n_ids > 0 && j.n_ids < BYTES + 2);
    }
}

/* Doublings of the letters, so that merging has work at every size. */
static size_t add_doublings(gguf_str *pieces, size_t n, char *space, const char *unit, size_t most)
{
    size_t len = strlen(unit);
    for (size_t size = 2 * len; size <= most; size *= 2) {
        for (size_t i = 0; i < size; i++) {
            space[i] = unit[i % len];
        }
        pieces[n++] = (gguf_str){space, size};
        space += size;
    }
    return n;
}

static void test_spm(void **state)
{
    (void)state;
    static char text[4096];
    gguf_str pieces[300] = {{"<unk>", 5}, {"<s>", 3}, {"<b>", 3}};
    int32_t kinds[300] = {2, 3, 4};
    char bytes[256][7];
    size_t n = 3;
    for (unsigned b = 0; b < 256; b++, n++) {
        snprintf(bytes[b], sizeof bytes[b], "<0x%02X>", b);
        pieces[n] = str(bytes[b]);
        kinds[n] = ATN_TOKEN_BYTE;
    }
    size_t first = n;
    pieces[n++] = str("a");
    pieces[n++] = str("u");
    pieces[n++] = str("s");
    pieces[n++] = str("us");
    n = add_doublings(pieces, n, text, "a", 512);
    n = add_doublings(pieces, n, text + 1024, "us", 512);
    n = add_doublings(pieces, n, text + 2048, "\xE2\x96\x81", 384);
    for (size_t i = first; i < n; i++) {
        kinds[i] = ATN_TOKEN_NORMAL;
    }
    token_source src = source_of("llama", "", pieces, n);
    src.kinds = kinds;
    atn_tokenizer *t = build_ok(&src);
    run_all(t);
    tokenizer_close(t);
}

static void test_bpe(void **state)
{
    (void)state;
    json_t *j = load_fixture("bpe.json");
    const json_t *fixture = json_object_get(j, "llama-bpe");
    size_t n;
    gguf_str *pieces = json_strings(json_object_get(fixture, "pieces"), &n);
    token_source src = source_of("gpt2", "llama-bpe", pieces, n);
    gguf_str *merges = json_strings(json_object_get(fixture, "merges"), &src.n_merges);
    src.merges = merges;
    atn_tokenizer *t = build_ok(&src);
    run_all(t);
    tokenizer_close(t);
    free(merges);
    free(pieces);
    json_decref(j);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_spm), cmocka_unit_test(test_bpe)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
