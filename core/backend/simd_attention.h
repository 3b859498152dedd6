/* simd attention: the inner kernels, compiled from one body (simd_attention_body.h) by one thin file per instruction set, and
 * what the driver (simd_attention.c) keeps for them.
 *
 * All floats, every multiply-add fused and in a written order (docs/numerics.md), so that all tables give the same bits. A
 * block is 32 keys; "dense" rows of 32 floats have one float a key. Thread: pure. */
#ifndef ATN_SIMD_ATTENTION_H
#define ATN_SIMD_ATTENTION_H

#include "core/backend/backend_impl.h"

enum {
    ATTN_BLOCK = 32, /* keys a block */
    ATTN_TILE = 6,   /* query vectors that share the registers' load of a key or value */
};

/* The online softmax of some keys: their largest score, the sum of exp(score - m); beside it acc = sum of exp(score - m) v. */
typedef struct simd_softmax {
    float m, l; /* -infinity and 0 from the start */
    bool seen;  /* false: no key yet */
} simd_softmax;

/* Up to ATTN_TILE accumulators that take the same values with weights of their own. */
typedef struct simd_mix {
    float *acc[ATTN_TILE];     /* [d] each */
    float keep[ATTN_TILE];     /* multiplies acc first */
    const float *p[ATTN_TILE]; /* weights, one for each of the values */
} simd_mix;

/* keys and mix fetch the rows `ahead` (as many and of the same type and length) into the cache on the way: a decode step is as
 * fast as its keys and values come, and their pages lie anywhere. Their content is not looked at. */
typedef struct simd_attn_kernels {
    const char *isa;
    /* keys[i * 32 + j] = component i < d of rows[j], as float; type is F32 or F16. */
    void (*keys)(atn_dtype type, const void *const *rows, const void *const *ahead, uint32_t d, float *keys);
    /* s[r * 32 + j] = dot(q[r], key j), n vectors, keys as above: one chain of d fused multiply-adds. */
    void (*scores)(const float *const *q, uint32_t n, const float *keys, uint32_t d, float *s);
    /* s = softcap(s * scale) + bias + factor; cap 0, bias NULL, factor NULL: without; each [32]. */
    void (*adjust)(float *s, float scale, float cap, const float *bias, const float *factor);
    /* Takes the keys of `sight` into the state: s[32] becomes their weights exp(s - m'), others' are 0, and keep is what multiplies
     * acc. Returns sight without the keys whose score is -infinity; when that is 0 nothing changes. */
    uint32_t (*softmax)(float *s, uint32_t sight, simd_softmax *state, float *keep);
    /* acc[i] = acc[i] * keep + sum over j < n ascending of p[j] * v[j][i], i < d, for n_vec accumulators. */
    void (*mix)(const simd_mix *m, uint32_t n_vec, atn_dtype type, const void *const *v, const void *const *ahead,
                uint32_t n, uint32_t d);
    /* The floats of d half floats. */
    void (*widen)(const uint16_t *src, float *dst, uint32_t d);
    /* total = total joined with a later span that has seen a key; both with their accumulators of d floats. */
    void (*merge)(simd_softmax *total, float *total_acc, const simd_softmax *span, const float *span_acc, uint32_t d);
    /* out = the result of a total that has seen a key; sink may be NULL; total becomes the final m and l. */
    void (*finish)(simd_softmax *total, const float *acc, const float *sink, float gate, float *out, uint32_t d);
    /* s[32] = exp(s - m) / l, and 0 where s is -infinity. */
    void (*weights)(float *s, float m, float l);
} simd_attn_kernels;

extern const simd_attn_kernels simd_attn_generic;
extern const simd_attn_kernels simd_attn_avx2; /* only where cpu_detect says avx2 */

/* The drivers' kernels and memory. A backend whose table has simd_attention or an op of simd_rows.h in it keeps one of these
 * at the start of its own state (be->state). */
typedef struct simd_floats {
    const simd_attn_kernels *attn;
    const struct simd_row_kernels *rows;
    hostmem workers; /* one scratch a thread */
    hostmem spans;   /* states of spans that different workers computed */
} simd_floats;

/* isa: "generic" or "avx2"; false: unknown here, or the CPU has it not. */
bool simd_floats_pick(const char *isa, simd_floats *out) ATN_MUST_CHECK;
/* Reserves the scratch of n_threads workers; free it also after a failure. */
atn_status simd_floats_reserve(simd_floats *f, uint32_t n_threads, atn_err *err) ATN_MUST_CHECK;
void simd_floats_free(simd_floats *f);

void simd_attention(atn_backend *be, const atn_attn_args *a);

#endif
