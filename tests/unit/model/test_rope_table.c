/* Rotary tables against long double: plain, linear, Llama 3's divisors, YaRN. */
#include "core/model/rope_table.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { N_POS = 300, N_ROT = 16 };

static atn_backend *be;

/* The table of these parameters; the caller frees it. */
static float *fill(const rope_params *p, const float *divisors)
{
    atn_err err;
    atn_buffer *buf;
    float *out = calloc(N_POS * N_ROT, sizeof *out);
    assert_non_null(out);
    assert_int_equal(atn_buffer_new(be, sizeof(float) * (N_POS * N_ROT + 16), false, &buf, &err), ATN_OK);
    atn_mat table = {.buf = buf, .off = 64, .cols = N_ROT, .stride = N_ROT};
    assert_int_equal(rope_table_fill(p, divisors, N_POS, N_ROT, &table, &err), ATN_OK);
    atn_buffer_read(buf, 64, out, sizeof(float) * N_POS * N_ROT);
    atn_buffer_free(buf);
    return out;
}

/* Every entry is the float nearest to size * cos and sin of pos * freq[i], but for the last bit. */
static void check(float *table, const long double *freq, long double size)
{
    for (int pos = 0; pos < N_POS; pos++) {
        for (int i = 0; i < N_ROT / 2; i++) {
            long double angle = pos * freq[i];
            const float *at = table + pos * N_ROT + 2 * i;
            assert_true(fabsl((long double)at[0] - size * cosl(angle)) <= 6.1e-8L * size);
            assert_true(fabsl((long double)at[1] - size * sinl(angle)) <= 6.1e-8L * size);
        }
    }
    free(table);
}

static void plain(void **state)
{
    (void)state;
    rope_params p = {.base = 10000.0};
    long double freq[N_ROT / 2];
    for (int i = 0; i < N_ROT / 2; i++) {
        freq[i] = powl(10000.0L, -2.0L * i / N_ROT);
    }
    check(fill(&p, NULL), freq, 1.0L);
}

static void linear_and_divisors(void **state)
{
    (void)state;
    rope_params p = {.base = 500000.0, .scaling = ROPE_SCALING_LINEAR, .factor = 8.0};
    float divisors[N_ROT / 2] = {1, 1, 1, 2.5f, 4, 8, 8, 8};
    long double freq[N_ROT / 2];
    for (int i = 0; i < N_ROT / 2; i++) {
        freq[i] = powl(500000.0L, -2.0L * i / N_ROT) / 8.0L / (long double)divisors[i];
    }
    check(fill(&p, divisors), freq, 1.0L);
}

static void yarn(void **state)
{
    (void)state;
    rope_params p = {.base = 10000.0,
                     .scaling = ROPE_SCALING_YARN,
                     .factor = 4.0,
                     .attn_factor = 1.0,
                     .ext_factor = 1.0,
                     .beta_fast = 32.0,
                     .beta_slow = 1.0,
                     .n_ctx_orig = 512};
    /* Pairs that turn 32 and 1 times in 512 positions: 16 ln(512 / (2 pi t)) / (2 ln 10000) = 0.81 and 3.82, so that pair 0 keeps
     * its frequency, pairs from 4 on are interpolated, and those between are mixed. */
    const long double mix[N_ROT / 2] = {0.0L, 0.25L, 0.5L, 0.75L, 1.0L, 1.0L, 1.0L, 1.0L};
    long double freq[N_ROT / 2];
    for (int i = 0; i < N_ROT / 2; i++) {
        long double f = powl(10000.0L, -2.0L * i / N_ROT);
        freq[i] = f / 4.0L * mix[i] + f * (1.0L - mix[i]);
    }
    check(fill(&p, NULL), freq, 1.0L + 0.1L * logl(4.0L));
}

static int open_backend(void **state)
{
    (void)state;
    atn_err err;
    return atn_backend_open("naive", &(atn_backend_params){.n_threads = 1}, &be, &err) == ATN_OK ? 0 : -1;
}

static int close_backend(void **state)
{
    (void)state;
    atn_backend_close(be);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(plain), cmocka_unit_test(linear_and_divisors),
                                       cmocka_unit_test(yarn)};
    return cmocka_run_group_tests(tests, open_backend, close_backend);
}
