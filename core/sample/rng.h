/* Random numbers as a pure function (Philox4x32-10, Salmon et al. 2011): same arguments, same number, on every machine. */
#ifndef ATN_RNG_H
#define ATN_RNG_H

#include <stdint.h>

/* Uniform in [0, 1) with 53 bits, for the token at `position` of answer `choice`. */
double rng_uniform(uint64_t seed, uint32_t choice, uint32_t position);

#endif
