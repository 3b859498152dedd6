/* exp and tanh of the simd backend: their errors in units in the last place, measured against double, and their ends. */
#include "tests/parity/tables.h"
#include "core/backend/mathfn.h"

enum { RUN = 4096 };

/* The worst error over every `step`-th float from `from` up to `to` (both of one sign, |from| < |to|). */
static double worst_ulp(const simd_row_kernels *kern, bool tanh, float from, float to, uint32_t step)
{
    uint32_t at, end;
    double worst = 0.0;
    memcpy(&at, &from, 4);
    memcpy(&end, &to, 4);
    while (at <= end) {
        float x[RUN], y[RUN];
        uint32_t n = 0;
        for (; n < RUN && at <= end; at += step) {
            memcpy(&x[n++], &at, 4);
        }
        (tanh ? kern->tanh : kern->exp)(y, x, n);
        for (uint32_t i = 0; i < n; i++) {
            double e = mathfn_exp_d(tanh ? 2.0 * (double)x[i] : (double)x[i]);
            double want = !tanh ? e : fabs((double)x[i]) < 0.01 ? (double)x[i] : (e - 1.0) / (e + 1.0);
            if (tanh && fabs((double)x[i]) < 0.01) {
                double z = want * want;
                want -= want * z / 3.0 * (1.0 - z * 0.4);
            }
            int exponent;
            (void)frexp(want, &exponent);
            double error = fabs((double)y[i] - want) / ldexp(1.0, exponent - 24);
            worst = error > worst ? error : worst;
        }
    }
    return worst;
}

static void errors(void **state)
{
    (void)state;
    static const char *const isas[] = {"generic", "avx2"};
    for (int k = 0; k < 2; k++) {
        simd_floats f;
        if (!simd_floats_pick(isas[k], &f)) {
            print_message("not run: simd's %s (this CPU has it not)\n", isas[k]);
            continue;
        }
        double down = worst_ulp(f.rows, false, -0x1p-30f, -87.32f, 2003);
        double up = worst_ulp(f.rows, false, 0x1p-30f, 88.72283f, 2003);
        double tanh = worst_ulp(f.rows, true, 0x1p-40f, 20.0f, 2003);
        print_message("%s: exp %.3f and %.3f ulp, tanh %.3f\n", isas[k], down, up, tanh);
        assert_true(down <= 1.0 && up <= 1.0 && tanh <= 2.0);
    }
}

static void ends(void **state)
{
    (void)state;
    static const char *const isas[] = {"generic", "avx2"};
    static const float x[] = {0.0f, -0.0f, -INFINITY, INFINITY, -87.34f, -1e30f, 88.73f, 3e38f};
    static const float want[] = {1.0f, 1.0f, 0.0f, INFINITY, 0.0f, 0.0f, INFINITY, INFINITY};
    static const float tanhs[] = {0.0f, -0.0f, -1.0f, 1.0f, -1.0f, -1.0f, 1.0f, 1.0f};
    for (int k = 0; k < 2; k++) {
        simd_floats f;
        if (!simd_floats_pick(isas[k], &f)) {
            continue;
        }
        float y[8], nan[2] = {NAN, -NAN};
        uint32_t payload = 0x7fc12345;
        f.rows->exp(y, x, 8);
        assert_memory_equal(y, want, sizeof want);
        f.rows->tanh(y, x, 8);
        assert_memory_equal(y, tanhs, sizeof tanhs);
        memcpy(&nan[1], &payload, 4);
        f.rows->exp(y, nan, 2);
        assert_true(isnan(y[0]) && isnan(y[1]));
        f.rows->tanh(y, nan, 2);
        assert_true(isnan(y[0]) && isnan(y[1]));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(errors), cmocka_unit_test(ends)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
