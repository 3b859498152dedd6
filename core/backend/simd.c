/* simd: its table of ops and the choice of the instruction set. An op that is not here yet is naive's, which is exact and
 * does not depend on the batch either. */
#include "core/backend/simd.h"

#include <stdio.h>
#include <stdlib.h>

const simd_isa simd_generic = {.name = "generic"};

const simd_isa *simd_pick(void)
{
    return &simd_generic;
}

static atn_status simd_open(atn_backend *be, atn_err *err)
{
    simd_state *st = calloc(1, sizeof *st);
    if (st == NULL) {
        return atn_fail(err, ATN_NOMEM, NULL, "no memory for a backend");
    }
    st->isa = simd_pick();
    be->state = st;
    snprintf(be->detail, sizeof be->detail, "%s kernels, %u threads", st->isa->name, be->caps.n_threads);
    be->caps.numerics = "simd-1-a16";
    be->caps.batch_invariant = true;
    be->caps.attention_probe = true;
    return ATN_OK;
}

static void simd_close(atn_backend *be)
{
    free(be->state);
}

static bool simd_supports(const atn_backend *be, atn_op op, atn_dtype t)
{
    (void)be;
    (void)op;
    (void)t;
    return false;
}

const backend_ops simd_ops = {
    .name = "simd",
    .open = simd_open,
    .close = simd_close,
    .supports = simd_supports,
};
