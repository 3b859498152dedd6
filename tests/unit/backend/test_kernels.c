/* The compiled bodies of the kernels give the bits that docs/numerics.md defines, and a faster dequantisation the same
 * floats. */
#include "tests/parity/weights.h"
#include "core/backend/backend_impl.h"
#include "core/backend/blas.h"
#include "core/backend/cpu.h"
#include "core/backend/mathfn.h"

enum { N = 203, KEYS = 7 };

static bool have_avx2(void)
{
    return cpu_detect().avx2;
}

static void fill(float *x, size_t n, uint32_t seed)
{
    for (size_t i = 0; i < n; i++) {
        x[i] = rnd_float(&seed);
    }
}

/* ---- the definition, written out ---- */

static double plain_dot(const float *a, const float *b, uint32_t n)
{
    double lane[16] = {0};
    for (uint32_t i = 0; i < n; i++) {
        lane[i % 16] += (double)a[i] * (double)b[i];
    }
    for (uint32_t half = 8; half; half /= 2) {
        for (uint32_t l = 0; l < half; l++) {
            lane[l] += lane[l + half];
        }
    }
    return lane[0];
}

static void check_definition(const kernels *kern)
{
    static float w[N], x[2 * N], kv[KEYS * N], p[KEYS];
    static double q[N], acc[N], want[N], s[KEYS], out[2];
    const float *rows[KEYS];
    uint32_t seed = 5;
    fill(kv, KEYS * N, 6);
    fill(p, KEYS, 7);
    fill(w, N, 8);
    fill(x, 2 * N, 9);
    for (uint32_t j = 0; j < KEYS; j++) {
        rows[j] = kv + j * N;
    }
    for (uint32_t d = 1; d <= N; d++) {
        kern->dot_rows(w, x, N, d, 2, out);
        assert_true(out[0] == plain_dot(w, x, d) && out[1] == plain_dot(w, x + N, d));
        for (uint32_t i = 0; i < d; i++) {
            q[i] = (double)w[i];
            acc[i] = (double)rnd_float(&seed) / 3.0;
            want[i] = acc[i] * 0.7;
            for (uint32_t j = 0; j < KEYS; j++) {
                want[i] += (double)p[j] * (double)rows[j][i];
            }
        }
        kern->scores(q, rows, KEYS, d, s);
        kern->mix(acc, 0.7, p, rows, KEYS, d);
        for (uint32_t j = 0; j < KEYS; j++) {
            assert_true(s[j] == plain_dot(w, rows[j], d));
        }
        assert_memory_equal(acc, want, d * sizeof *acc);
    }
}

static void the_definition(void **state)
{
    (void)state;
    check_definition(&kernels_generic);
    check_definition(kernels_pick());
}

/* ---- one body against the other ---- */

#if defined(__x86_64__)
static void dots(void **state)
{
    (void)state;
    if (!have_avx2()) {
        skip();
    }
    static float w[N], x[5 * (N + 3)];
    fill(w, N, 1);
    fill(x, 5 * (N + 3), 2);
    for (uint32_t n = 1; n <= N; n++) {
        double a[5], b[5];
        kernels_generic.dot_rows(w, x, N + 3, n, 5, a);
        kernels_avx2.dot_rows(w, x, N + 3, n, 5, b);
        assert_memory_equal(a, b, sizeof a);
        for (uint32_t r = 0; r < 5; r++) { /* and a row alone is the same as among others */
            double one;
            kernels_avx2.dot_rows(w, x + r * (N + 3), N + 3, n, 1, &one);
            assert_memory_equal(&one, &a[r], sizeof one);
        }
    }
}

static void attention_parts(void **state)
{
    (void)state;
    if (!have_avx2()) {
        skip();
    }
    static float kv[KEYS * N], p[2][KEYS];
    static double q[N], s[2][KEYS], acc[2][N];
    const float *rows[KEYS];
    uint32_t seed = 3;
    fill(kv, KEYS * N, 4);
    for (uint32_t j = 0; j < KEYS; j++) {
        rows[j] = kv + j * N;
    }
    for (uint32_t d = 1; d <= N; d++) {
        for (uint32_t i = 0; i < d; i++) {
            q[i] = (double)rnd_float(&seed);
            acc[0][i] = acc[1][i] = (double)rnd_float(&seed) / 3.0;
        }
        kernels_generic.scores(q, rows, KEYS, d, s[0]);
        kernels_avx2.scores(q, rows, KEYS, d, s[1]);
        assert_memory_equal(s[0], s[1], sizeof s[0]);
        kernels_generic.exp_row(s[0], 1.0, KEYS, p[0]);
        kernels_avx2.exp_row(s[0], 1.0, KEYS, p[1]);
        assert_memory_equal(p[0], p[1], sizeof p[0]);
        kernels_generic.mix(acc[0], 0.7, p[0], rows, KEYS, d);
        kernels_avx2.mix(acc[1], 0.7, p[0], rows, KEYS, d);
        assert_memory_equal(acc[0], acc[1], sizeof acc[0]);
    }
}

static void activations(void **state)
{
    (void)state;
    if (!have_avx2()) {
        skip();
    }
    enum { M = 40000 };
    float *a = malloc(M * sizeof *a), *x = malloc(M * sizeof *x), *y = malloc(M * sizeof *y);
    assert_true(a && x && y);
    for (uint32_t i = 0; i < M; i++) { /* floats of every exponent and sign, infinities and NaN included */
        uint32_t bits = i * 107370u;
        memcpy(&a[i], &bits, 4);
    }
    for (int with_b = 0; with_b < 2; with_b++) {
        kernels_generic.silu(x, a, with_b ? a : NULL, M);
        kernels_avx2.silu(y, a, with_b ? a : NULL, M);
        for (uint32_t i = 0; i < M; i++) {
            assert_true(memcmp(&x[i], &y[i], 4) == 0 || (isnan(x[i]) && isnan(y[i])));
        }
        kernels_generic.gelu_tanh(x, a, with_b ? a : NULL, M);
        kernels_avx2.gelu_tanh(y, a, with_b ? a : NULL, M);
        for (uint32_t i = 0; i < M; i++) {
            assert_true(memcmp(&x[i], &y[i], 4) == 0 || (isnan(x[i]) && isnan(y[i])));
        }
    }
    free(a);
    free(x);
    free(y);
}

static void half_floats(void **state)
{
    (void)state;
    if (!have_avx2()) {
        skip();
    }
    static uint16_t h[65537];
    static float x[65537], y[65537];
    for (uint32_t i = 0; i < 65537; i++) { /* one more than a multiple of eight */
        h[i] = (uint16_t)i;
    }
    kernels_generic.f16_row(h, x, 65537);
    kernels_avx2.f16_row(h, y, 65537);
    for (uint32_t i = 0; i < 65537; i++) {
        assert_true(memcmp(&x[i], &y[i], 4) == 0 || (isnan(x[i]) && isnan(y[i])));
    }
}

static void dequantised_floats(void **state)
{
    (void)state;
    if (!have_avx2()) {
        skip();
    }
    for (size_t t = 0; t < N_WEIGHT_TYPES; t++) {
        uint32_t block = atn_dtype_block(weight_types[t].type), n = block == 1 ? N : 5 * block;
        unsigned char *rows = weight_rows(&weight_types[t], n, 50, (uint32_t)t + 1);
        float *x = malloc(n * sizeof *x), *y = malloc((n + 1) * sizeof *y);
        size_t row_bytes;
        assert_true(x && y && atn_row_bytes(weight_types[t].type, n, &row_bytes));
        for (uint32_t r = 0; r < 50; r++) {
            y[n] = 42.0f;
            atn_dequantize(weight_types[t].type, rows + r * row_bytes, x, n);
            dequantize_avx2(weight_types[t].type, rows + r * row_bytes, y, n);
            for (uint32_t i = 0; i < n; i++) { /* random f16 rows may hold NaNs, whose payload may differ */
                if (memcmp(&x[i], &y[i], 4) != 0 && !(isnan(x[i]) && isnan(y[i]))) {
                    fail_msg("%s: weight %u is %a, not %a", atn_dtype_name(weight_types[t].type), i, (double)y[i],
                             (double)x[i]);
                }
            }
            assert_true(y[n] == 42.0f);
        }
        free(rows);
        free(x);
        free(y);
    }
}

static void float_dots(void **state)
{
    (void)state;
    if (!have_avx2()) {
        skip();
    }
    static float w[N], x[7 * N];
    fill(w, N, 1);
    fill(x, 7 * N, 2);
    for (uint32_t n = 1; n <= N; n++) {
        float got[8] = {[7] = 42.0f};
        double want[7];
        blas_dot_avx2(w, x, N, n, 7, got);
        kernels_generic.dot_rows(w, x, N, n, 7, want);
        for (uint32_t r = 0; r < 7; r++) {
            assert_true(fabs((double)got[r] - want[r]) <= 2e-7 * n);
        }
        assert_true(got[7] == 42.0f);
    }
}
#endif

/* exp in the kernels is mathfn_exp. */
static void one_exp(void **state)
{
    (void)state;
    for (int i = -2000; i < 2000; i++) {
        double s = (double)i / 16.0;
        float p, want = mathfn_exp((float)s);
        kernels_pick()->exp_row(&s, 0.0, 1, &p);
        assert_memory_equal(&p, &want, sizeof p);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#if defined(__x86_64__)
        cmocka_unit_test(dots),
        cmocka_unit_test(attention_parts),
        cmocka_unit_test(activations),
        cmocka_unit_test(half_floats),
        cmocka_unit_test(dequantised_floats),
        cmocka_unit_test(float_dots),
#endif
        cmocka_unit_test(the_definition),
        cmocka_unit_test(one_exp)
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
