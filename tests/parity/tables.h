/* What the parity tests run over: every compiled-in backend, and beside them naive's table with the float ops of simd from each
 * instruction set that this CPU runs. An instruction set that it does not run is named in the test's output. */
#ifndef PARITY_TABLES_H
#define PARITY_TABLES_H

#include "tests/parity/parity.h"
#include "core/backend/cpu.h"
#include "core/backend/simd_attention.h"
#include "core/backend/simd_rows.h"

static inline atn_status table_open(const char *isa, atn_backend *be, atn_err *err)
{
    simd_floats *f = calloc(1, sizeof *f);
    assert_non_null(f);
    be->state = f;
    assert_true(simd_floats_pick(isa, f));
    be->caps.numerics = "simd-floats";
    be->caps.batch_invariant = true;
    be->caps.attention_probe = true;
    return simd_floats_reserve(f, be->caps.n_threads, err);
}

static inline atn_status table_open_generic(atn_backend *be, atn_err *err)
{
    return table_open("generic", be, err);
}

static inline atn_status table_open_avx2(atn_backend *be, atn_err *err)
{
    return table_open("avx2", be, err);
}

static inline void table_close(atn_backend *be)
{
    simd_floats_free(be->state);
    free(be->state);
}

static inline bool table_supports(const atn_backend *be, atn_op op, atn_dtype t)
{
    return naive_ops.supports(be, op, t);
}

static inline const backend_ops *table_ops(const char *isa)
{
    static backend_ops tables[2];
    bool generic = strcmp(isa, "generic") == 0;
    backend_ops *t = &tables[generic];
    *t = naive_ops;
    t->name = generic ? "simd floats, generic" : "simd floats, avx2";
    t->open = generic ? table_open_generic : table_open_avx2;
    t->close = table_close;
    t->supports = table_supports;
    t->attention = simd_attention;
    t->norm = simd_norm;
    t->rope = simd_rope;
    t->activate = simd_activate;
    t->kv_write = simd_kv_write;
    return t;
}

/* Table i: the registry's backends, then simd's float ops; false past the end. */
static inline bool tables_open(size_t i, uint32_t threads, atn_backend **out)
{
    static const char *const isas[] = {"generic", "avx2"};
    size_t n = 0;
    *out = NULL;
    while (atn_backend_list(n)) {
        n++;
    }
    if (i < n) {
        *out = open_backend(atn_backend_list(i), threads);
        return true;
    }
    if (i - n >= sizeof isas / sizeof isas[0]) {
        return false;
    }
    if (i - n == 1 && !cpu_detect().avx2) {
        print_message("not run: simd's avx2 (this CPU has it not)\n");
        return false;
    }
    atn_err err = {0};
    if (backend_open_ops(table_ops(isas[i - n]), &(atn_backend_params){.n_threads = threads}, out, &err) != ATN_OK) {
        fail_msg("%s", err.msg);
    }
    return true;
}

static inline const char *table_name(const atn_backend *be)
{
    return be->ops->name;
}

/* Whether an op computes in float rather than in double rounded once: then a result may be off by more than that rounding. */
static inline bool table_in_floats(const atn_backend *be)
{
    return be->ops->attention == simd_attention;
}

#endif
