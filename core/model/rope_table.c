/* Rotary tables. An angle is position times frequency, so that scaling is done on frequencies. */
#include "core/model/rope_table.h"

#include "core/backend/mathfn.h"

#include <math.h>
#include <stdlib.h>

static const double two_pi = 6.283185307179586;

/* The pair whose wave fits `turns` times into the original context (YaRN, 3.2). */
static double pair_of_turns(const rope_params *p, uint32_t n_rot, double turns)
{
    return n_rot * mathfn_log_d(p->n_ctx_orig / (turns * two_pi)) / (2.0 * mathfn_log_d(p->base));
}

/* How far pair i keeps its own frequency: 1 for fast pairs, 0 for those that are wholly interpolated. */
static double keeps(const rope_params *p, uint32_t n_rot, uint32_t i)
{
    double low = fmax(0.0, floor(pair_of_turns(p, n_rot, p->beta_fast)));
    double high = fmin(n_rot - 1.0, ceil(pair_of_turns(p, n_rot, p->beta_slow)));
    double ramp = (i - low) / fmax(0.001, high - low);
    return (1.0 - fmin(1.0, fmax(0.0, ramp))) * p->ext_factor;
}

static double frequency(const rope_params *p, uint32_t n_rot, uint32_t i)
{
    double f = 1.0 / mathfn_pow_d(p->base, 2.0 * i / n_rot);
    if (p->scaling == ROPE_SCALING_NONE) {
        return f;
    }
    double keep = p->scaling == ROPE_SCALING_YARN ? keeps(p, n_rot, i) : 0.0;
    return f / p->factor * (1.0 - keep) + f * keep;
}

atn_status rope_table_fill(const rope_params *p, const float *divisors, uint32_t n_positions, uint32_t n_rot,
                           const atn_mat *table, atn_err *err)
{
    uint32_t n_pairs = n_rot / 2;
    double *freq = calloc(n_pairs, sizeof *freq);
    float *row = calloc(n_rot, sizeof *row);
    if (freq == NULL || row == NULL) {
        free(freq);
        free(row);
        return atn_fail(err, ATN_NOMEM, NULL, "no memory for a rotary table");
    }
    double size = 1.0;
    if (p->scaling == ROPE_SCALING_YARN) {
        size = p->attn_factor * (p->ext_factor > 0.0 ? 1.0 + 0.1 * mathfn_log_d(p->factor) : 1.0);
    }
    for (uint32_t i = 0; i < n_pairs; i++) {
        freq[i] = frequency(p, n_rot, i) / (divisors != NULL ? (double)divisors[i] : 1.0);
    }
    for (uint32_t pos = 0; pos < n_positions; pos++) {
        for (uint32_t i = 0; i < n_pairs; i++) {
            double s, c;
            mathfn_sincos_d(pos * freq[i], &s, &c);
            row[2 * i] = (float)(c * size);
            row[2 * i + 1] = (float)(s * size);
        }
        atn_buffer_write(table->buf, table->off + (size_t)pos * table->stride * 4, row, (size_t)n_rot * 4);
    }
    free(freq);
    free(row);
    return ATN_OK;
}
