/* exp, tanh, log, pow, sin and cos by argument reduction (Cody & Waite 1980) and series written out below.
 *
 * The float functions are the double ones rounded. pow carries the logarithm in two doubles, so that a large product
 * y * log(x) keeps its last bits. Bits are the same wherever double is IEEE 754 with round to nearest. */
#include "core/backend/mathfn.h"
#include "core/backend/mathfn_inline.h"

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

float mathfn_exp(float x)
{
    return (float)mathfn_exp_core((double)x);
}

float mathfn_tanh(float x)
{
    return (float)mathfn_tanh_core((double)x);
}

/* y * 2^n for n in [-1100, 1100] and y near 1; two steps where the result is subnormal or overflows. */
static double scale_pow2(double y, int n)
{
    if (n > 1000) {
        return y * 0x1p1000 * scale_pow2(1.0, n - 1000);
    }
    if (n < -1000) {
        return y * scale_pow2(1.0, n + 1000 < -1000 ? -1000 : n + 1000) * 0x1p-1000;
    }
    uint64_t bits = (uint64_t)(n + 1023) << 52;
    double scale;
    memcpy(&scale, &bits, 8);
    return y * scale;
}

/* exp(x + lo), |lo| below an ulp of x. */
static double exp_two(double x, double lo)
{
    if (!(x < 710.0)) {
        return x * INFINITY; /* NaN stays NaN */
    }
    if (x < -746.0) {
        return 0.0;
    }
    double n = rint(x * MATHFN_INV_LN2);
    double hi = x - n * MATHFN_LN2_HI;
    double cut = n * MATHFN_LN2_LO;
    double t = hi - cut;
    double rest = ((hi - t) - cut) + lo;
    double r = t + rest;
    return scale_pow2(mathfn_exp_reduced(r, (t - r) + rest), (int)n);
}

double mathfn_exp_d(double x)
{
    return exp_two(x, 0.0);
}

/* x = 2^k * m with m in [sqrt(1/2), sqrt(2)); x is positive and finite. */
static double split_pow2(double x, int *k)
{
    int shift = 0;
    if (x < 0x1p-1022) {
        x *= 0x1p54;
        shift = -54;
    }
    uint64_t bits;
    memcpy(&bits, &x, 8);
    int e = (int)(bits >> 52) - 1023;
    bits = (bits & 0xfffffffffffffu) | ((uint64_t)1023 << 52);
    double m;
    memcpy(&m, &bits, 8);
    if (m > 0x1.6a09e667f3bcdp+0) {
        m *= 0.5;
        e += 1;
    }
    *k = e + shift;
    return m;
}

/* The odd series 2 atanh(s) = 2s (1 + z/3 + z^2/5 + ...) with z = s^2 <= 0.0295, from its z^2 term on: R = z^2/5 + z^3/7 + ... */
static double atanh_tail(double z)
{
    double q = 1.0 / 23.0;
    q = q * z + 1.0 / 21.0;
    q = q * z + 1.0 / 19.0;
    q = q * z + 1.0 / 17.0;
    q = q * z + 1.0 / 15.0;
    q = q * z + 1.0 / 13.0;
    q = q * z + 1.0 / 11.0;
    q = q * z + 1.0 / 9.0;
    q = q * z + 1.0 / 7.0;
    q = q * z + 1.0 / 5.0;
    return q * z * z;
}

typedef struct two {
    double hi, lo; /* an unevaluated sum, |lo| <= ulp(hi)/2 */
} two;

static two two_sum(double a, double b)
{
    double s = a + b;
    double t = s - a;
    return (two){s, (a - (s - t)) + (b - t)};
}

static two two_prod(double a, double b)
{
    double p = a * b;
    return (two){p, fma(a, b, -p)};
}

static two two_add(two a, two b)
{
    two s = two_sum(a.hi, b.hi);
    return two_sum(s.hi, s.lo + (a.lo + b.lo));
}

static two two_mul(two a, two b)
{
    two p = two_prod(a.hi, b.hi);
    return two_sum(p.hi, p.lo + (a.hi * b.lo + a.lo * b.hi));
}

/* log(x) to about 2^-65 relative to its parts: k ln2 + 2s (1 + z/3 + R), s = (m - 1) / (m + 1). */
static two log_two(double x)
{
    int k;
    double m = split_pow2(x, &k);
    double f = m - 1.0; /* exact */
    two den = two_sum(m, 1.0);
    double s = f / den.hi;
    double rest = fma(-s, den.hi, f) - s * den.lo;
    two sd = two_sum(s, rest / den.hi);
    two z = two_mul(sd, sd);
    two third = {0x1.5555555555555p-2, 0x1.5555555555555p-56};
    two sum = two_add(two_mul(z, third), (two){atanh_tail(z.hi), 0.0});
    sum = two_add((two){1.0, 0.0}, sum);
    two log_m = two_mul((two){2.0 * sd.hi, 2.0 * sd.lo}, sum);
    two log_k = two_sum((double)k * MATHFN_LN2_HI, (double)k * MATHFN_LN2_LO); /* the first product is exact */
    return two_add(log_k, log_m);
}

double mathfn_log_d(double x)
{
    if (!(x > 0.0) || x == INFINITY) {
        return x == 0.0 ? -INFINITY : x < 0.0 ? NAN : x;
    }
    two l = log_two(x);
    return l.hi + l.lo;
}

double mathfn_pow_d(double x, double y)
{
    if (!(x > 0.0) || x == INFINITY || !isfinite(y)) {
        return NAN;
    }
    two l = log_two(x);
    two p = two_prod(y, l.hi);
    return exp_two(p.hi, p.lo + y * l.lo);
}

/* sin and cos of r + lo, |r| <= pi/4: Taylor sums to r^17 and r^18. */
static double sin_reduced(double r, double lo)
{
    double z = r * r;
    double q = 1.0 / 355687428096000.0;
    q = q * z - 1.0 / 1307674368000.0;
    q = q * z + 1.0 / 6227020800.0;
    q = q * z - 1.0 / 39916800.0;
    q = q * z + 1.0 / 362880.0;
    q = q * z - 1.0 / 5040.0;
    q = q * z + 1.0 / 120.0;
    q = q * z - 1.0 / 6.0;
    return r + (r * z * q + lo * (1.0 - 0.5 * z));
}

static double cos_reduced(double r, double lo)
{
    double z = r * r;
    double q = -1.0 / 6402373705728000.0;
    q = q * z + 1.0 / 20922789888000.0;
    q = q * z - 1.0 / 87178291200.0;
    q = q * z + 1.0 / 479001600.0;
    q = q * z - 1.0 / 3628800.0;
    q = q * z + 1.0 / 40320.0;
    q = q * z - 1.0 / 720.0;
    q = q * z + 1.0 / 24.0;
    double half = 0.5 * z;
    double w = 1.0 - half;
    return w + (((1.0 - w) - half) + (z * z * q - r * lo));
}

void mathfn_sincos_d(double x, double *sin_x, double *cos_x)
{
    if (!(x >= -0x1p20 && x <= 0x1p20)) {
        *sin_x = NAN;
        *cos_x = NAN;
        return;
    }
    /* pi/2 in three parts of 33 bits, so that their products with n < 2^20 are exact, and a rest. */
    double n = rint(x * 0x1.45f306dc9c883p-1);
    two r = two_sum(x, -n * 0x1.921fb544p+0);
    r = two_add(r, (two){-n * 0x1.0b4611a6p-34, 0.0});
    r = two_add(r, (two){-n * 0x1.3198a2ep-69, 0.0});
    r = two_add(r, (two){-n * 0x1.b839a252049c1p-104, 0.0});
    double s = sin_reduced(r.hi, r.lo);
    double c = cos_reduced(r.hi, r.lo);
    int quadrant = (int)((int64_t)n & 3);
    bool swap = (quadrant & 1) != 0;
    *sin_x = swap ? c : s;
    *cos_x = swap ? s : c;
    if (quadrant & 2) {
        *sin_x = -*sin_x;
    }
    if (quadrant == 1 || quadrant == 2) {
        *cos_x = -*cos_x;
    }
}
