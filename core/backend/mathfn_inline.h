/* The bodies of exp and tanh in double, for loops that a compiler can vectorise.
 *
 * Only +, -, * and / of IEEE doubles in a fixed order, no branch and no fused operation, so that every instruction set
 * gives the same bits. Comparisons are made on the bits: gcc does not vectorise a loop that compares floats, which may trap.
 * A float made from a result is correctly rounded but for about one case in 10^8. Thread: pure. */
#ifndef ATN_MATHFN_INLINE_H
#define ATN_MATHFN_INLINE_H

#include <stdint.h>
#include <string.h>

/* ln 2 in two parts: the first has 32 trailing zero bits, so that n * MATHFN_LN2_HI is exact for |n| <= 1100. */
#define MATHFN_LN2_HI  0x1.62e42feep-1
#define MATHFN_LN2_LO  0x1.a39ef35793c76p-33
#define MATHFN_INV_LN2 0x1.71547652b82fep+0

/* exp(r + lo) for |r| <= ln2/2 and |lo| far below an ulp of r: the Taylor sum to r^13 (remainder 4e-18), small terms first. */
static inline double mathfn_exp_reduced(double r, double lo)
{
    double q = 1.0 / 6227020800.0;
    q = q * r + 1.0 / 479001600.0;
    q = q * r + 1.0 / 39916800.0;
    q = q * r + 1.0 / 3628800.0;
    q = q * r + 1.0 / 362880.0;
    q = q * r + 1.0 / 40320.0;
    q = q * r + 1.0 / 5040.0;
    q = q * r + 1.0 / 720.0;
    q = q * r + 1.0 / 120.0;
    q = q * r + 1.0 / 24.0;
    q = q * r + 1.0 / 6.0;
    q = q * r + 0.5;
    return 1.0 + (r + (lo + (r * r) * q));
}

static inline int64_t mathfn_bits(double x)
{
    int64_t bits;
    memcpy(&bits, &x, 8);
    return bits;
}

static inline double mathfn_from_bits(int64_t bits)
{
    double x;
    memcpy(&x, &bits, 8);
    return x;
}

#define MATHFN_BITS_SIGN INT64_MIN
#define MATHFN_BITS_INF  0x7ff0000000000000
#define MATHFN_BITS_700  0x4085e00000000000
#define MATHFN_BITS_1_16 0x3fb0000000000000

/* x held to [-700, 700]; NaN stays NaN. */
static inline double mathfn_hold(double x)
{
    int64_t bits = mathfn_bits(x), mag = bits & INT64_MAX;
    int64_t held = (bits & MATHFN_BITS_SIGN) | MATHFN_BITS_700;
    bits = mag > MATHFN_BITS_700 && mag <= MATHFN_BITS_INF ? held : bits;
    return mathfn_from_bits(bits);
}

/* exp(x) for x in [-700, 700], or NaN; exp(0) = 1. */
static inline double mathfn_exp_held(double x)
{
    double shifted = x * MATHFN_INV_LN2 + 0x1.8p52; /* the sum's low bits are the nearest integer */
    double n = shifted - 0x1.8p52;
    double hi = x - n * MATHFN_LN2_HI;
    double lo = n * MATHFN_LN2_LO;
    double r = hi - lo;
    double y = mathfn_exp_reduced(r, (hi - r) - lo);
    uint64_t exponent = ((uint64_t)mathfn_bits(shifted) + 1023u) << 52;
    return y * mathfn_from_bits((int64_t)exponent); /* y * 2^n */
}

/* exp of x held to [-700, 700]. As a float, the held ends are 0 and infinity. */
static inline double mathfn_exp_core(double x)
{
    return mathfn_exp_held(mathfn_hold(x));
}

/* 1 / (1 + exp(-x)) */
static inline double mathfn_sigmoid_core(double x)
{
    return 1.0 / (1.0 + mathfn_exp_core(-x));
}

/* tanh(x): 1 - 2/(exp(2|x|) + 1), and the odd series below 1/16, where that difference would cancel. Relative error below
 * 2e-14. */
static inline double mathfn_tanh_core(double x)
{
    int64_t mag = mathfn_bits(x) & INT64_MAX;
    double a = mathfn_from_bits(mag);
    double far = 1.0 - 2.0 / (mathfn_exp_core(2.0 * a) + 1.0);
    double z = a * a;
    double near = a + a * z * (-1.0 / 3.0 + z * (2.0 / 15.0 + z * (-17.0 / 315.0 + z * (62.0 / 2835.0))));
    int64_t is_near = -(int64_t)(mag < MATHFN_BITS_1_16); /* all bits or none */
    int64_t t = (mathfn_bits(near) & is_near) | (mathfn_bits(far) & ~is_near);
    return mathfn_from_bits(t | (mathfn_bits(x) & MATHFN_BITS_SIGN));
}

#endif
