/* Over two thousand mutations and cuts of a good model, by a fixed random sequence: the reader refuses them with words or reads
 * them, and never touches a byte outside (the bytes are in a block of their exact size: sanitizers see it). */
#include "tests/fuzz/gguf_exercise.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <cmocka.h>

static const char model[] = "tests/golden/data/tiny-llama-q8_0.gguf";

typedef struct sample {
    unsigned char *bytes; /* [n] */
    size_t n, header;     /* bytes before the tensor data */
} sample;

static sample good;

static uint64_t next_random(void)
{
    static uint64_t x = 0x9E3779B97F4A7C15u;
    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
    return x;
}

static int load(void **state)
{
    (void)state;
    atn_err err;
    gguf *g;
    FILE *f = fopen(model, "rb");
    if (f == NULL || gguf_open(model, &g, &err) != ATN_OK) {
        return -1;
    }
    good.n = gguf_file_bytes(g);
    good.header = (size_t)g->files[0].data_start;
    good.bytes = malloc(good.n);
    bool all = good.bytes != NULL && fread(good.bytes, 1, good.n, f) == good.n;
    gguf_close(g);
    fclose(f);
    return all && exercise_gguf(good.bytes, good.n) == ATN_OK ? 0 : -1;
}

static int unload(void **state)
{
    (void)state;
    free(good.bytes);
    return 0;
}

static void count(atn_status s, size_t counts[2], size_t i)
{
    if (s == ATN_INTERNAL) {
        fail_msg("mutation %zu: the reader broke a promise", i);
    }
    counts[s != ATN_OK]++;
}

/* One to four bytes of the header changed: to anything, to a border value, or by one bit. */
static void test_bytes(void **state)
{
    (void)state;
    static const unsigned char borders[] = {0, 1, 0x7F, 0x80, 0xFF};
    size_t counts[2] = {0};
    for (size_t i = 0; i < 1500; i++) {
        size_t at[4];
        unsigned char before[4];
        size_t n = 1 + next_random() % 4;
        for (size_t k = 0; k < n; k++) {
            at[k] = next_random() % good.header;
            before[k] = good.bytes[at[k]];
            uint64_t r = next_random();
            good.bytes[at[k]] = (unsigned char)(r % 3 == 0   ? r >> 8
                                                : r % 3 == 1 ? borders[r / 3 % 5]
                                                             : before[k] ^ 1u << (r / 3 % 8));
        }
        count(exercise_gguf(good.bytes, good.n), counts, i);
        for (size_t k = n; k-- > 0;) {
            good.bytes[at[k]] = before[k];
        }
    }
    assert_true(counts[0] > 100 && counts[1] > 100); /* both ends are reached */
}

/* A 32- or 64-bit field anywhere set to a number that wraps when something is added to it or multiplied with it. */
static void test_numbers(void **state)
{
    (void)state;
    size_t counts[2] = {0};
    for (size_t i = 0; i < 800; i++) {
        unsigned char before[8];
        size_t width = i % 2 == 0 ? 8 : 4;
        size_t at = next_random() % (good.header - width);
        uint64_t r = next_random();
        uint64_t v = (uint64_t)1 << (r % (width * 8));
        v = r & 256 ? ~(v - 1) : v - (r >> 9) % 40;
        memcpy(before, good.bytes + at, width);
        memcpy(good.bytes + at, &v, width);
        count(exercise_gguf(good.bytes, good.n), counts, i);
        memcpy(good.bytes + at, before, width);
    }
    assert_true(counts[1] > 100);
}

static void test_cuts(void **state)
{
    (void)state;
    for (size_t i = 0; i < 400; i++) {
        size_t n = i < 300 ? next_random() % good.header : next_random() % good.n;
        unsigned char *exact = malloc(n > 0 ? n : 1);
        assert_non_null(exact);
        memcpy(exact, good.bytes, n);
        assert_int_equal(exercise_gguf(exact, n), ATN_FORMAT);
        free(exact);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bytes),
        cmocka_unit_test(test_numbers),
        cmocka_unit_test(test_cuts),
    };
    return cmocka_run_group_tests(tests, load, unload);
}
