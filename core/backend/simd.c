/* simd: its table of ops, the choice of the instruction set, weights bound into panels, and the embedding. Attention and the ops
 * of rows are in simd_attention.c and simd_rows.c; what is nowhere costs little, and is naive's, whose bits do not depend on the
 * batch either. */
#include "core/backend/simd.h"
#include "core/backend/cpu.h"
#include "core/backend/simd_rows.h"

#include <stdio.h>
#include <stdlib.h>

const simd_isa *simd_pick(void)
{
#if defined(__x86_64__)
    if (cpu_detect().avx2) {
        return &simd_avx2;
    }
#endif
    return &simd_generic;
}

/* ---- life ---- */

atn_status simd_open_isa(atn_backend *be, const simd_isa *isa, unsigned bits, atn_err *err)
{
    simd_state *st = calloc(1, sizeof *st);
    if (st == NULL) {
        return atn_fail(err, ATN_NOMEM, NULL, "no memory for a backend");
    }
    st->isa = isa;
    st->limit = bits == 8 ? 127.0f : (float)SIMD_LIMIT;
    be->state = st;
    snprintf(be->detail, sizeof be->detail, "%s kernels, %u-bit activations, %u threads", isa->name, bits == 8 ? 8 : 16,
             be->caps.n_threads);
    be->caps.numerics = bits == 8 ? "simd-1-a8" : "simd-1-a16";
    be->caps.batch_invariant = true;
    be->caps.attention_probe = true;
    if (!simd_floats_pick(isa->name, &st->floats)) {
        return atn_fail(err, ATN_UNSUPPORTED, "isa", "this CPU has no %s", isa->name);
    }
    return simd_floats_reserve(&st->floats, be->caps.n_threads, err);
}

static atn_status simd_open(atn_backend *be, atn_err *err)
{
    return simd_open_isa(be, simd_pick(), 16, err);
}

static void simd_close(atn_backend *be)
{
    simd_state *st = be->state;
    if (st != NULL) {
        simd_floats_free(&st->floats);
        hostmem_free(&st->acts);
        free(st);
    }
}

static bool simd_supports(const atn_backend *be, atn_op op, atn_dtype t)
{
    (void)be;
    switch (op) {
    case ATN_OP_EMBED:
    case ATN_OP_MATMUL:
        return atn_dtype_known((uint32_t)t);
    case ATN_OP_KV_WRITE:
    case ATN_OP_ATTENTION:
        return t == ATN_DTYPE_F32 || t == ATN_DTYPE_F16;
    case ATN_OP_NORM:
    case ATN_OP_ROPE:
    case ATN_OP_ACTIVATE:
        return t == ATN_DTYPE_F32;
    default:
        return false;
    }
}

/* ---- weights ---- */

typedef struct pack_call {
    atn_weight *w;
    const unsigned char *rows;
    size_t row_bytes, panel_bytes;
} pack_call;

enum { PACK_PANELS = 8 }; /* of a chunk */

static void pack_chunk(void *arg, uint32_t chunk, uint32_t worker)
{
    const pack_call *c = arg;
    (void)worker;
    for (uint32_t i = 0; i < PACK_PANELS; i++) {
        size_t panel = (size_t)chunk * PACK_PANELS + i, row = panel * SIMD_LANES;
        if (row < c->w->n_out) {
            uint32_t n = c->w->n_out - row < SIMD_LANES ? (uint32_t)(c->w->n_out - row) : SIMD_LANES;
            simd_pack_panel(c->w->dtype, c->rows + row * c->row_bytes, c->row_bytes, n, c->w->n_in,
                            (unsigned char *)c->w->mem.base + panel * c->panel_bytes);
        }
    }
}

static atn_status simd_bind(atn_backend *be, atn_weight *w, const void *rows, size_t row_bytes, atn_err *err)
{
    simd_state *st = be->state;
    simd_format f = simd_format_of(w->dtype);
    pack_call c = {.w = w, .rows = rows, .row_bytes = row_bytes, .panel_bytes = simd_panel_bytes(f, w->n_in)};
    size_t n_panels = w->n_out / SIMD_LANES + (w->n_out % SIMD_LANES != 0), bytes;
    size_t slab = SIMD_SLAB * simd_act_row_bytes(f, w->n_in);
    if (slab > st->acts.bytes) {
        hostmem grown;
        if (!hostmem_new(slab, true, &grown)) {
            return atn_fail(err, ATN_NOMEM, NULL, "no memory for activations of %u columns", w->n_in);
        }
        hostmem_free(&st->acts);
        st->acts = grown;
    }
    if (__builtin_mul_overflow(n_panels, c.panel_bytes, &bytes) || !hostmem_new(bytes, false, &w->mem)) {
        return atn_fail(err, ATN_NOMEM, NULL, "no memory for a weight of %u x %u", w->n_out, w->n_in);
    }
    w->layout = f;
    pool_run(be->pool, pack_chunk, &c, (uint32_t)((n_panels + PACK_PANELS - 1) / PACK_PANELS));
    return ATN_OK;
}

static void simd_embed(atn_backend *be, atn_mat dst, const atn_weight *w, const int32_t *ids, uint32_t n, float scale)
{
    (void)be;
    simd_format f = (simd_format)w->layout;
    size_t panel_bytes = simd_panel_bytes(f, w->n_in);
    for (uint32_t r = 0; r < n; r++) {
        uint32_t id = (uint32_t)ids[r];
        float *row = mat_row(dst, r);
        simd_unpack_row(f, (const unsigned char *)w->mem.base + id / SIMD_LANES * panel_bytes, id % SIMD_LANES, w->n_in,
                        row);
        for (uint32_t i = 0; i < w->n_in; i++) {
            row[i] *= scale;
        }
    }
}

const backend_ops simd_ops = {
    .name = "simd",
    .open = simd_open,
    .close = simd_close,
    .supports = simd_supports,
    .bind = simd_bind,
    .embed = simd_embed,
    .matmul = simd_matmul,
    .norm = simd_norm,
    .rope = simd_rope,
    .activate = simd_activate,
    .attention = simd_attention,
    .kv_write = simd_kv_write,
};
