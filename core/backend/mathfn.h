/* Transcendental functions of our own, so that the same arguments give the same bits on every machine and libm.
 *
 * The double ones are correct to within 1 ulp; mathfn_exp and mathfn_tanh to within 1 ulp of float (measured errors stand in
 * the tests). exp(0) = 1, exp(-inf) = 0, exp(+inf) = inf, NaN stays NaN. FMA only by explicit call.
 * Thread: pure. */
#ifndef ATN_MATHFN_H
#define ATN_MATHFN_H

float mathfn_exp(float x);
float mathfn_tanh(float x);
double mathfn_exp_d(double x);
double mathfn_log_d(double x);                                /* log(0) = -inf, log(negative) = NaN */
double mathfn_pow_d(double x, double y);                      /* x > 0 */
void mathfn_sincos_d(double x, double *sin_x, double *cos_x); /* |x| <= 2^20 */

#endif
