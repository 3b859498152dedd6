/* Our transcendental functions against libm's long double ones. The measured worst errors stand beside their bounds. */
#include "core/backend/mathfn.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <float.h>
#include <math.h>
#include <string.h>

/* Distance of got from want in units of got's last place; subnormals count in units of the smallest one. */
static double ulps_f(float got, long double want)
{
    int e;
    (void)frexpf(got, &e);
    e = e - 24 < -149 ? -149 : e - 24;
    return (double)(fabsl((long double)got - want) / ldexpl(1.0L, e));
}

static double ulps_d(double got, long double want)
{
    int e;
    (void)frexp(got, &e);
    e = e - 53 < -1074 ? -1074 : e - 53;
    return (double)(fabsl((long double)got - want) / ldexpl(1.0L, e));
}

static float float_of(uint32_t bits)
{
    float f;
    memcpy(&f, &bits, 4);
    return f;
}

static double unit(uint64_t *seed) /* in [0, 1) */
{
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return (double)(*seed >> 11) * 0x1p-53;
}

#define WORST(worst, u) ((worst) = (u) <= (worst) ? (worst) : (u)) /* NaN wins */

static void exp_float(void **state)
{
    (void)state;
    double worst = 0.0;
    for (uint32_t i = 0; i < 0x7f800000u; i += 6007) {
        for (int sign = 0; sign < 2; sign++) {
            float x = float_of(i | (uint32_t)sign << 31);
            long double want = expl((long double)x);
            float got = mathfn_exp(x);
            if (want > (long double)FLT_MAX * (1.0L + 0x1p-25L)) {
                assert_true(isinf(got) && got > 0.0f);
            } else {
                WORST(worst, ulps_f(got, want));
            }
        }
    }
    assert_true(worst <= 0.50001); /* measured 0.49999: correctly rounded */
    assert_true(mathfn_exp(0.0f) == 1.0f && mathfn_exp(-0.0f) == 1.0f);
    assert_true(mathfn_exp(-INFINITY) == 0.0f && mathfn_exp(INFINITY) == INFINITY && isnan(mathfn_exp(NAN)));
}

static void tanh_float(void **state)
{
    (void)state;
    double worst = 0.0;
    for (uint32_t i = 0; i < 0x7f800000u; i += 6007) {
        for (int sign = 0; sign < 2; sign++) {
            float x = float_of(i | (uint32_t)sign << 31);
            WORST(worst, ulps_f(mathfn_tanh(x), tanhl((long double)x)));
        }
    }
    assert_true(worst <= 0.50001); /* measured 0.49997 */
    assert_true(mathfn_tanh(INFINITY) == 1.0f && mathfn_tanh(-INFINITY) == -1.0f && isnan(mathfn_tanh(NAN)));
    assert_true(mathfn_tanh(0.0f) == 0.0f && signbit(mathfn_tanh(-0.0f)));
}

static void exp_double(void **state)
{
    (void)state;
    uint64_t seed = 1;
    double worst = 0.0;
    for (int i = 0; i < 300000; i++) {
        double x = i % 3 == 0   ? unit(&seed) * 2.0 - 1.0
                   : i % 3 == 1 ? unit(&seed) * 40.0 - 20.0
                                : unit(&seed) * 1454.0 - 745.0;
        WORST(worst, ulps_d(mathfn_exp_d(x), expl((long double)x)));
    }
    assert_true(worst <= 0.9); /* measured 0.831 */
    assert_true(mathfn_exp_d(0.0) == 1.0 && mathfn_exp_d(-(double)INFINITY) == 0.0 &&
                mathfn_exp_d(710.0) == (double)INFINITY);
    assert_true(mathfn_exp_d((double)INFINITY) == (double)INFINITY && isnan(mathfn_exp_d((double)NAN)));
    assert_true(mathfn_exp_d(-745.0) == 0x1p-1074 && mathfn_exp_d(-746.5) == 0.0);
}

static void log_double(void **state)
{
    (void)state;
    uint64_t seed = 2;
    double worst = 0.0;
    for (int i = 0; i < 300000; i++) {
        double x = i % 2 ? 0.5 + 1.5 * unit(&seed) : ldexp(0.5 + unit(&seed), (int)(unit(&seed) * 2090.0) - 1070);
        WORST(worst, ulps_d(mathfn_log_d(x), logl((long double)x)));
    }
    assert_true(worst <= 0.51); /* measured 0.500 */
    assert_true(mathfn_log_d(1.0) == 0.0 && mathfn_log_d(0.0) == -(double)INFINITY && isnan(mathfn_log_d(-1.0)));
    assert_true(mathfn_log_d((double)INFINITY) == (double)INFINITY && isnan(mathfn_log_d((double)NAN)));
}

/* The long double reference itself is good to about 2^-64 * 700 here, 0.35 units of a double's last place at the far end. */
static void pow_double(void **state)
{
    (void)state;
    uint64_t seed = 3;
    double worst = 0.0;
    for (int i = 0; i < 200000; i++) {
        double x = i % 2 ? 1.0 + unit(&seed) : ldexp(0.5 + unit(&seed), (int)(unit(&seed) * 60.0) - 30);
        double y = (unit(&seed) * 2.0 - 1.0) * 700.0 / fmax(fabs(log(x)), 0.01);
        WORST(worst, ulps_d(mathfn_pow_d(x, y), powl((long double)x, (long double)y)));
    }
    assert_true(worst <= 0.95); /* measured 0.839 */
    assert_true(mathfn_pow_d(10000.0, -0.5) == 0.01 && mathfn_pow_d(2.0, 10.0) == 1024.0 &&
                mathfn_pow_d(7.0, 0.0) == 1.0);
    assert_true(isnan(mathfn_pow_d(-1.0, 2.0)) && isnan(mathfn_pow_d(2.0, (double)NAN)));
}

static void sincos_double(void **state)
{
    (void)state;
    uint64_t seed = 4;
    double worst = 0.0;
    for (int i = 0; i < 300000; i++) {
        double x = (unit(&seed) * 2.0 - 1.0) * (i % 3 == 0 ? 0x1p20 : i % 3 == 1 ? 10.0 : 1e-3);
        if (i % 5 == 0) { /* the double nearest a multiple of pi/2, where the argument's reduction matters most */
            x = rint(x) * 1.57079632679489661923;
            x = fabs(x) <= 0x1p20 ? x : 0.0;
        }
        double s, c;
        mathfn_sincos_d(x, &s, &c);
        WORST(worst, ulps_d(s, sinl((long double)x)));
        WORST(worst, ulps_d(c, cosl((long double)x)));
    }
    assert_true(worst <= 0.9); /* measured 0.771 */
    double s, c;
    mathfn_sincos_d(0.0, &s, &c);
    assert_true(s == 0.0 && c == 1.0);
    mathfn_sincos_d(0x1.000001p20, &s, &c);
    assert_true(isnan(s) && isnan(c));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(exp_float),  cmocka_unit_test(tanh_float),
                                       cmocka_unit_test(exp_double), cmocka_unit_test(log_double),
                                       cmocka_unit_test(pow_double), cmocka_unit_test(sincos_double)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
