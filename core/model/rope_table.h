/* Rotary tables: cos and sin of every position and pair, computed in double once at load. Thread: the loading thread. */
#ifndef ATN_ROPE_TABLE_H
#define ATN_ROPE_TABLE_H

#include "core/model/arch.h"

/* table [n_positions, n_rot]: cos and sin of pair i at columns 2i and 2i + 1 (as atn_rope reads it), written into its buffer.
 * divisors[n_rot / 2] divide the frequencies (Llama 3's rope factors), or NULL. ATN_NOMEM. */
atn_status rope_table_fill(const rope_params *p, const float *divisors, uint32_t n_positions, uint32_t n_rot,
                           const atn_mat *table, atn_err *err) ATN_MUST_CHECK;

#endif
