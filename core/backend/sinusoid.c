/* The sinusoidal position table (Vaswani et al. 2017, arXiv:1706.03762, 3.5), made once at load. */
#include <attnd/backend.h>
#include "core/backend/mathfn.h"

void atn_sinusoidal_table(float *table, uint32_t max_len, uint32_t d_model)
{
    for (uint32_t i = 0; i < d_model; i += 2) {
        double rate = mathfn_pow_d(10000.0, -(double)i / (double)d_model);
        for (uint32_t pos = 0; pos < max_len; pos++) {
            double s, c;
            mathfn_sincos_d((double)pos * rate, &s, &c);
            float *row = table + (size_t)pos * d_model;
            row[i] = (float)s;
            if (i + 1 < d_model) {
                row[i + 1] = (float)c;
            }
        }
    }
}
