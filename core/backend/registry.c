/* The registry: which backends are compiled in, how one is opened, and the public ops, each of which picks the backend's own
 * function or naive's. "auto" tries the backends in order of preference and takes the first that accepts this machine. */
#include "core/backend/backend_impl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Last choice first: "auto" tries them from the end. */
static const backend_ops *const registry[] = {&naive_ops, &simd_ops, &blas_ops};
enum { N_BACKENDS = sizeof registry / sizeof registry[0] };

/* ---- life ---- */

const char *atn_backend_list(size_t i)
{
    return i < N_BACKENDS ? registry[i]->name : NULL;
}

atn_status backend_open_ops(const backend_ops *ops, const atn_backend_params *params, atn_backend **out, atn_err *err)
{
    *out = NULL;
    atn_backend *be = calloc(1, sizeof *be);
    if (!be) {
        return atn_fail(err, ATN_NOMEM, NULL, "no memory for a backend");
    }
    be->ops = ops;
    be->kern = kernels_pick();
    atn_status st = pool_open(params ? params->n_threads : 0, &be->pool, err);
    if (st == ATN_OK) {
        be->caps = (atn_backend_caps){.name = ops->name, .detail = be->detail, .n_threads = pool_threads(be->pool)};
        st = naive_reserve_attention(be, err);
    }
    if (st == ATN_OK) {
        st = ops->open(be, err);
    }
    if (st != ATN_OK) {
        atn_backend_close(be);
        return st;
    }
    *out = be;
    return ATN_OK;
}

atn_status backend_open_best(const backend_ops *const *tables, size_t n, const atn_backend_params *params,
                             atn_backend **out, atn_err *err)
{
    atn_status st = ATN_UNSUPPORTED;
    for (size_t i = n; i-- > 0 && st == ATN_UNSUPPORTED;) {
        st = backend_open_ops(tables[i], params, out, err);
    }
    return st;
}

atn_status atn_backend_open(const char *name, const atn_backend_params *params, atn_backend **out, atn_err *err)
{
    *out = NULL;
    if (strcmp(name, "auto") == 0) {
        return backend_open_best(registry, N_BACKENDS, params, out, err);
    }
    char known[128] = "auto";
    for (size_t i = 0; i < N_BACKENDS; i++) {
        if (strcmp(name, registry[i]->name) == 0) {
            return backend_open_ops(registry[i], params, out, err);
        }
        size_t used = strlen(known);
        snprintf(known + used, sizeof known - used, ", %s", registry[i]->name);
    }
    return atn_fail(err, ATN_INVALID, "backend", "unknown backend; known: %s", known);
}

void atn_backend_close(atn_backend *be)
{
    if (!be) {
        return;
    }
    if (be->ops->close) {
        be->ops->close(be);
    }
    pool_close(be->pool);
    hostmem_free(&be->row_scratch);
    hostmem_free(&be->attn_scratch);
    hostmem_free(&be->probe_scratch);
    free(be);
}

void atn_backend_get_caps(const atn_backend *be, atn_backend_caps *out)
{
    *out = be->caps;
}

bool atn_backend_supports(const atn_backend *be, atn_op op, atn_dtype t)
{
    return be->ops->supports(be, op, t);
}

void backend_set_failed(atn_backend *be, atn_status code, const char *what)
{
    if (be->failed.code == ATN_OK) {
        (void)atn_fail(&be->failed, code, NULL, "%s", what);
    }
}

atn_status atn_backend_wait(atn_backend *be, atn_err *err)
{
    atn_err failed = be->failed;
    be->failed = (atn_err){0};
    if (failed.code != ATN_OK && err) {
        *err = failed;
    }
    return failed.code;
}

/* ---- ops: the backend's own where it has one and takes the type, else naive's ---- */

#define RUN(be, op, code, dtype, ...)                                                                      \
    do {                                                                                                   \
        pool_set_float_env(); /* the calling thread computes too, also in ops that never reach the pool */ \
        bool own_ = (be)->ops->op && (be)->ops->supports((be), (code), (dtype));                           \
        (own_ ? (be)->ops->op : naive_ops.op)(__VA_ARGS__);                                                \
    } while (0)

void atn_embed(atn_backend *be, atn_mat dst, const atn_weight *w, const int32_t *ids, uint32_t n, float scale)
{
    RUN(be, embed, ATN_OP_EMBED, w->dtype, be, dst, w, ids, n, scale);
}

void atn_matmul(atn_backend *be, const atn_matmul_args *a)
{
    RUN(be, matmul, ATN_OP_MATMUL, a->w->dtype, be, a);
}

void atn_norm(atn_backend *be, const atn_norm_args *a)
{
    RUN(be, norm, ATN_OP_NORM, ATN_DTYPE_F32, be, a);
}

void atn_rope(atn_backend *be, const atn_rope_args *a)
{
    RUN(be, rope, ATN_OP_ROPE, ATN_DTYPE_F32, be, a);
}

void atn_activate(atn_backend *be, atn_act_kind kind, atn_mat dst, atn_mat a, const atn_mat *b, uint32_t n)
{
    RUN(be, activate, ATN_OP_ACTIVATE, ATN_DTYPE_F32, be, kind, dst, a, b, n);
}

void atn_add(atn_backend *be, atn_mat dst, atn_mat x, uint32_t n)
{
    RUN(be, add, ATN_OP_ADD, ATN_DTYPE_F32, be, dst, x, n);
}

void atn_softcap(atn_backend *be, atn_mat x, float cap, uint32_t n)
{
    RUN(be, softcap, ATN_OP_SOFTCAP, ATN_DTYPE_F32, be, x, cap, n);
}

void atn_gather(atn_backend *be, atn_mat dst, atn_mat x, const int32_t *rows, uint32_t n)
{
    RUN(be, gather, ATN_OP_GATHER, ATN_DTYPE_F32, be, dst, x, rows, n);
}

void atn_attention(atn_backend *be, const atn_attn_args *a)
{
    RUN(be, attention, ATN_OP_ATTENTION, a->kv.type, be, a);
}

void atn_kv_write(atn_backend *be, const atn_kv_write_args *a)
{
    RUN(be, kv_write, ATN_OP_KV_WRITE, a->kv.type, be, a);
}
