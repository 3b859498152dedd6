/* What every backend is made of: the table of its ops, the handles' contents, and the helpers that ops share.
 *
 * An op that is NULL in a backend's table, or whose dtype supports() declines, runs naive's function instead: all compiled-in
 * backends keep buffers in host memory, so their handles are the same. Ops never allocate: what they need is reserved when
 * the backend opens and when weights are bound. An op that cannot be done (ops return nothing) leaves the reason in `failed`,
 * which atn_backend_wait hands out.
 * Thread: as the public header says; worker scratch is indexed by the pool's worker number. */
#ifndef ATN_BACKEND_IMPL_H
#define ATN_BACKEND_IMPL_H

#include <attnd/backend.h>
#include "core/backend/kernels.h"
#include "core/base/pool.h"

#include <assert.h>

typedef struct backend_ops {
    const char *name;
    atn_status (*open)(atn_backend *be, atn_err *err); /* fills be->caps; may decline; NULL is not allowed */
    void (*close)(atn_backend *be); /* NULL: nothing of its own to free; called after a failed open too */
    bool (*supports)(const atn_backend *be, atn_op op, atn_dtype t);
    atn_status (*reserve)(atn_backend *be, uint32_t n_in,
                          atn_err *err); /* scratch for weights of n_in columns, or NULL */
    /* Fills w->mem (and what else it needs) from rows as in the file, row_bytes apart; w's shape and type are set. NULL: they
     * are copied. Only a backend that does matmul and embed of every type itself may store them otherwise. */
    atn_status (*bind)(atn_backend *be, atn_weight *w, const void *rows, size_t row_bytes, atn_err *err);
    void (*embed)(atn_backend *be, atn_mat dst, const atn_weight *w, const int32_t *ids, uint32_t n, float scale);
    void (*matmul)(atn_backend *be, const atn_matmul_args *a);
    void (*norm)(atn_backend *be, const atn_norm_args *a);
    void (*rope)(atn_backend *be, const atn_rope_args *a);
    void (*activate)(atn_backend *be, atn_act_kind kind, atn_mat dst, atn_mat a, const atn_mat *b, uint32_t n);
    void (*add)(atn_backend *be, atn_mat dst, atn_mat x, uint32_t n);
    void (*softcap)(atn_backend *be, atn_mat x, float cap, uint32_t n);
    void (*gather)(atn_backend *be, atn_mat dst, atn_mat x, const int32_t *rows, uint32_t n);
    void (*attention)(atn_backend *be, const atn_attn_args *a);
    void (*kv_write)(atn_backend *be, const atn_kv_write_args *a);
} backend_ops;

/* One 64-byte aligned block; large ones are mapped and advised to huge pages. */
typedef struct hostmem {
    void *base;
    size_t bytes;
    void *map; /* what was mapped, or NULL when it came from the heap */
    size_t map_bytes;
} hostmem;

/* bytes zeroed. false: no memory, or the size overflows. */
bool hostmem_new(size_t bytes, bool prefault, hostmem *out) ATN_MUST_CHECK;
void hostmem_free(hostmem *m); /* zeroes the handle */

struct atn_backend {
    const backend_ops *ops;
    pool *pool;
    const kernels *kern; /* the compiled body that this CPU runs */
    atn_backend_caps caps;
    char detail[160];
    uint32_t max_n_in;     /* widest row that the row scratch holds */
    hostmem row_scratch;   /* [n_threads][max_n_in] float: one dequantised weight row a worker */
    hostmem attn_scratch;  /* [n_threads] naive attention's state */
    hostmem probe_scratch; /* grows only in calls with a probe */
    void *state;           /* the backend's own */
    atn_err failed;        /* code ATN_OK: none */
};

struct atn_buffer {
    atn_backend *owner;
    hostmem mem;
};

struct atn_weight {
    atn_backend *owner;
    hostmem mem;      /* [n_out] rows of row_bytes, as in the file, or what the backend's bind made of them */
    size_t row_bytes; /* 0: not as in the file */
    uint32_t n_in, n_out;
    atn_dtype dtype;
    uint32_t layout; /* the backend's own */
};

extern const backend_ops naive_ops;
extern const backend_ops blas_ops;
extern const backend_ops simd_ops;

/* Opens a given table instead of a named one; atn_backend_open is this behind a look-up. */
atn_status backend_open_ops(const backend_ops *ops, const atn_backend_params *params, atn_backend **out,
                            atn_err *err) ATN_MUST_CHECK;
/* The last of n tables that does not decline itself: "auto". */
atn_status backend_open_best(const backend_ops *const *tables, size_t n, const atn_backend_params *params,
                             atn_backend **out, atn_err *err) ATN_MUST_CHECK;
/* Keeps the first failure of an op for atn_backend_wait. */
void backend_set_failed(atn_backend *be, atn_status code, const char *what);

/* row(args, r) for n rows of cols values, shared out to the workers when that is worth waking them. */
void backend_rows_run(atn_backend *be, void (*row)(const void *args, uint32_t r), const void *args, uint32_t n,
                      uint32_t cols);

/* Row r of a matrix. */
static inline float *mat_row(atn_mat m, size_t r)
{
    assert(m.cols <= m.stride && m.off % 4 == 0);
    assert(m.off + (r * m.stride + m.cols) * 4 <= m.buf->mem.bytes);
    return (float *)((char *)m.buf->mem.base + m.off) + r * m.stride;
}

static inline const unsigned char *weight_row(const atn_weight *w, size_t r)
{
    assert(w->row_bytes);
    return (const unsigned char *)w->mem.base + r * w->row_bytes;
}

/* The worker's buffer for one dequantised row. */
static inline float *row_scratch(const atn_backend *be, uint32_t worker)
{
    return (float *)be->row_scratch.base + (size_t)worker * be->max_n_in;
}

/* Naive's functions, which other tables may call for single cases. */
atn_status naive_reserve_attention(atn_backend *be, atn_err *err) ATN_MUST_CHECK;
void naive_embed(atn_backend *be, atn_mat dst, const atn_weight *w, const int32_t *ids, uint32_t n, float scale);
void naive_matmul(atn_backend *be, const atn_matmul_args *a);
void naive_norm(atn_backend *be, const atn_norm_args *a);
void naive_rope(atn_backend *be, const atn_rope_args *a);
void naive_activate(atn_backend *be, atn_act_kind kind, atn_mat dst, atn_mat a, const atn_mat *b, uint32_t n);
void naive_add(atn_backend *be, atn_mat dst, atn_mat x, uint32_t n);
void naive_softcap(atn_backend *be, atn_mat x, float cap, uint32_t n);
void naive_gather(atn_backend *be, atn_mat dst, atn_mat x, const int32_t *rows, uint32_t n);
void naive_attention(atn_backend *be, const atn_attn_args *a);
void naive_kv_write(atn_backend *be, const atn_kv_write_args *a);

#endif
