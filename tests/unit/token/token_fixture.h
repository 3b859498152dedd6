/* Helpers of the tokenizer tests: fixtures, and tokenizers built from plain arrays. Include after cmocka.h. */
#ifndef ATN_TOKEN_FIXTURE_H
#define ATN_TOKEN_FIXTURE_H

#include <jansson.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "core/token/vocab.h"

#define DATA "tests/unit/token/data/"

#ifdef __has_feature /* clang; gcc defines macros instead */
#define TOKEN_SANITIZED (__has_feature(address_sanitizer) || __has_feature(thread_sanitizer))
#elif defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define TOKEN_SANITIZED 1
#else
#define TOKEN_SANITIZED 0
#endif

static inline json_t *load_fixture(const char *name)
{
    char path[256];
    json_error_t why;
    snprintf(path, sizeof path, DATA "%s", name);
    json_t *j = json_load_file(path, JSON_ALLOW_NUL, &why);
    if (j == NULL) {
        fail_msg("%s: %s", path, why.text);
    }
    return j;
}

static inline gguf_str str(const char *s)
{
    return (gguf_str){s, strlen(s)};
}

static inline gguf_str json_str(const json_t *j)
{
    return (gguf_str){json_string_value(j), json_string_length(j)};
}

/* A source with nothing said; fill in pieces and what else matters. */
static inline token_source source_of(const char *model, const char *pre, const gguf_str *pieces, size_t n)
{
    return (token_source){.model = str(model),
                          .pre = str(pre),
                          .pieces = pieces,
                          .n_tokens = n,
                          .bos = -1,
                          .eos = -1,
                          .eot = -1,
                          .eom = -1,
                          .unknown = -1,
                          .add_bos = -1,
                          .add_eos = -1,
                          .add_space_prefix = -1};
}

static inline atn_tokenizer *build_ok(const token_source *src)
{
    atn_err err = {0};
    atn_tokenizer *t = NULL;
    atn_status status = vocab_build(src, false, &t, &err);
    if (status != ATN_OK) {
        fail_msg("vocab_build: %s: %s", err.param, err.msg);
    }
    return t;
}

/* Strings of a JSON array: malloc'ed, pointing into it. */
static inline gguf_str *json_strings(const json_t *list, size_t *n)
{
    *n = json_array_size(list);
    gguf_str *out = calloc(*n + 1, sizeof *out);
    assert_non_null(out);
    for (size_t i = 0; i < *n; i++) {
        out[i] = json_str(json_array_get(list, i));
    }
    return out;
}

/* Tokenizes one segment; ids malloc'ed. */
static inline int32_t *ids_of(const atn_tokenizer *t, gguf_str text, bool trusted, unsigned flags, size_t *n)
{
    atn_segment seg = {text.s, text.n, trusted};
    atn_err err = {0};
    int32_t *ids = NULL;
    if (atn_tokenize(t, &seg, 1, flags, &ids, n, &err) != ATN_OK) {
        fail_msg("atn_tokenize: %s", err.msg);
    }
    return ids;
}

/* Do the ids equal want? Up to a -1 that ends it. */
static inline void assert_ids(const atn_tokenizer *t, const char *text, bool trusted, const int32_t *want)
{
    size_t n;
    int32_t *ids = ids_of(t, str(text), trusted, 0, &n);
    for (size_t i = 0; i < n; i++) {
        if (ids[i] != want[i]) {
            fail_msg("\"%s\": token %zu is %d, not %d", text, i, ids[i], want[i]);
        }
    }
    assert_int_equal(want[n], -1);
    free(ids);
}
#define IDS(...) ((const int32_t[]){__VA_ARGS__ __VA_OPT__(, ) - 1})

/* Every text of a fixture: equal ids, offsets without a gap, and the text comes back. */
static inline void check_texts(const atn_tokenizer *t, const json_t *fixture, const char *name, bool round_trip)
{
    const json_t *texts = json_object_get(fixture, "texts");
    for (size_t i = 0; i < json_array_size(texts); i++) {
        gguf_str text = json_str(json_array_get(texts, i));
        const json_t *want = json_array_get(json_object_get(fixture, "ids"), i);
        atn_segment seg = {text.s, text.n, false};
        atn_err err = {0};
        int32_t *ids;
        size_t(*spans)[2];
        size_t n;
        assert_int_equal(atn_tokenize_offsets(t, &seg, 1, 0, &ids, &spans, &n, &err), ATN_OK);
        size_t at = 0;
        for (size_t k = 0; k < n; k++) {
            if (k >= json_array_size(want) || ids[k] != json_integer_value(json_array_get(want, k))) {
                fail_msg("%s, text %zu \"%s\": token %zu is %d, not %lld", name, i, text.s, k, ids[k],
                         json_integer_value(json_array_get(want, k)));
            }
            assert_true(spans[k][0] == at ||
                        (k > 0 && spans[k][0] == spans[k - 1][0])); /* bytes of one rewritten space */
            at = spans[k][1];
        }
        assert_int_equal(n, json_array_size(want));
        assert_int_equal(n == 0 ? 0 : at, text.n);
        char *back;
        size_t n_back;
        assert_int_equal(atn_detokenize(t, ids, n, false, &back, &n_back, &err), ATN_OK);
        if (round_trip && memmem(text.s, text.n, "\xE2\x96\x81", 3) == NULL) {
            assert_int_equal(n_back, text.n);
            assert_memory_equal(back, text.s, text.n);
        }
        free(back);
        free(ids);
        free(spans);
    }
}

/* Runs fn on a thread of 64 KiB of stack (more under a sanitizer, whose frames are larger). */
static inline void on_small_stack(void *(*fn)(void *), void *arg)
{
#if TOKEN_SANITIZED
    enum { STACK = 512 << 10 };
#else
    enum { STACK = 64 << 10 };
#endif
    pthread_attr_t attr;
    pthread_t thread;
    assert_int_equal(pthread_attr_init(&attr), 0);
    assert_int_equal(pthread_attr_setstacksize(&attr, STACK), 0);
    assert_int_equal(pthread_create(&thread, &attr, fn, arg), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    pthread_attr_destroy(&attr);
}

#endif
