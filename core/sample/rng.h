/* Random numbers as a pure function (Philox4x32-10, Salmon et al. 2011): same arguments, same number, on every machine. */
#ifndef ATN_RNG_H
#define ATN_RNG_H

#include <stdint.h>

/* The block function itself: out[4] from counter[4] and key[2]. */
void rng_philox(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4]);

/* Uniform in [0, 1) with 53 bits, for the token at `position` of answer `choice`. */
double rng_uniform(uint64_t seed, uint32_t choice, uint32_t position);

#endif
