/* simd: the backend whose kernels are compiled once per instruction set from one body, with the same bits on each.
 *
 * What an ISA offers is one constant table; simd.c picks the best that this CPU runs. Thread: tables are constant. */
#ifndef ATN_SIMD_H
#define ATN_SIMD_H

#include "core/backend/backend_impl.h"

typedef struct simd_isa {
    const char *name;
} simd_isa;

extern const simd_isa simd_generic; /* plain C: the definition */

/* The backend's own state (be->state). */
typedef struct simd_state {
    const simd_isa *isa;
} simd_state;

/* The best table for this CPU. */
const simd_isa *simd_pick(void);

#endif
