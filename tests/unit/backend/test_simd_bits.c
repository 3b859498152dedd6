/* simd's promise: the bits of docs/numerics.md ("simd-1") on every instruction set, for every number of rows and threads.
 *
 * The rule is written out here once more, from the file's blocks and in no hurry; plain C must equal it, and every other ISA
 * plain C, byte for byte. The rule with two chains of sums instead of one must not. NaNs count as equal to each other. */
#include "tests/parity/weights.h"
#include "core/backend/cpu.h"
#include "core/backend/simd.h"

#define ALIGNED _Alignas(64)

/* ---- backends of one ISA ---- */

static atn_status open_generic(atn_backend *be, atn_err *err)
{
    return simd_open_isa(be, &simd_generic, 16, err);
}

static atn_status open_generic_8(atn_backend *be, atn_err *err)
{
    return simd_open_isa(be, &simd_generic, 8, err);
}

#if defined(__x86_64__)
static atn_status open_avx2(atn_backend *be, atn_err *err)
{
    return simd_open_isa(be, &simd_avx2, 16, err);
}

static atn_status open_avx2_8(atn_backend *be, atn_err *err)
{
    return simd_open_isa(be, &simd_avx2, 8, err);
}
#endif

typedef struct isa_under_test {
    const simd_isa *isa;
    atn_status (*open)(atn_backend *be, atn_err *err), (*open_8)(atn_backend *be, atn_err *err);
    bool here; /* this CPU runs it */
} isa_under_test;

enum { MAX_ISAS = 8 };

static uint32_t list_isas(isa_under_test *out)
{
    uint32_t n = 0;
    out[n++] = (isa_under_test){&simd_generic, open_generic, open_generic_8, true};
#if defined(__x86_64__)
    out[n++] = (isa_under_test){&simd_avx2, open_avx2, open_avx2_8, cpu_detect().avx2};
#endif
    for (uint32_t i = 0; i < n; i++) {
        if (!out[i].here) {
            printf("%s: NOT RUN, this CPU lacks it\n", out[i].isa->name);
        }
    }
    return n;
}

static atn_backend *open_isa(atn_status (*open)(atn_backend *be, atn_err *err), uint32_t n_threads)
{
    backend_ops ops = simd_ops;
    static backend_ops tables[16];
    static uint32_t n_tables;
    atn_backend *be = NULL;
    atn_err err = {0};
    ops.open = open;
    tables[n_tables % 16] = ops; /* outlives the backend: no test holds sixteen at a time */
    if (backend_open_ops(&tables[n_tables++ % 16], &(atn_backend_params){.n_threads = n_threads}, &be, &err) !=
        ATN_OK) {
        fail_msg("%s", err.msg);
    }
    return be;
}

static bool same_floats(const float *a, const float *b, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (memcmp(&a[i], &b[i], sizeof *a) != 0 && !(isnan(a[i]) && isnan(b[i]))) {
            return false;
        }
    }
    return true;
}

/* ---- products ---- */

typedef struct product {
    atn_dtype type;
    const unsigned char *rows; /* n_out rows as in the file */
    const float *x;            /* [n, n_in] */
    const float *bias;         /* [n_out] or NULL */
    uint32_t n, n_in, n_out;
} product;

/* y[n_rows, n_out] of rows from .. from+n_rows-1. */
static void multiply(atn_backend *be, const atn_weight *w, const product *p, uint32_t from, uint32_t n_rows, float *y)
{
    box x = box_new(be, n_rows, p->n_in, 3, 1), out = box_new(be, n_rows, p->n_out, 5, 2),
        bias = box_new(be, 1, p->n_out, 0, 3);
    for (uint32_t r = 0; r < n_rows; r++) {
        memcpy(box_row(&x, r), p->x + (size_t)(from + r) * p->n_in, p->n_in * sizeof(float));
    }
    if (p->bias) {
        memcpy(box_row(&bias, 0), p->bias, p->n_out * sizeof(float));
    }
    atn_matmul(be,
               &(atn_matmul_args){.dst = out.mat, .x = x.mat, .w = w, .bias = p->bias ? &bias.mat : NULL, .n = n_rows});
    wait_ok(be);
    for (uint32_t r = 0; r < n_rows; r++) {
        memcpy(y + (size_t)r * p->n_out, box_row(&out, r), p->n_out * sizeof(float));
    }
    box_check(&out);
    box_free(&x);
    box_free(&out);
    box_free(&bias);
}

static float *new_floats(size_t n)
{
    float *x = malloc(n * sizeof *x);
    assert_non_null(x);
    return x;
}

/* Every row of p by plain C, one thread. */
static float *whole(atn_status (*open)(atn_backend *be, atn_err *err), const product *p)
{
    float *y = new_floats((size_t)p->n * p->n_out);
    atn_backend *be = open_isa(open, 1);
    atn_weight *w = bind_rows(be, p->type, p->rows, p->n_in, p->n_out);
    multiply(be, w, p, 0, p->n, y);
    atn_weight_free(w);
    atn_backend_close(be);
    return y;
}

static const uint32_t heights[] = {1, 2, 3, 4, 5, 7, 8, 16, 17, 33, 512};
enum { N_HEIGHTS = sizeof heights / sizeof heights[0], MOST_ROWS = 600 };

/* Rows of an ISA's products, by calls of every height, that differ from plain C's whole product. */
static uint32_t count_differing(const isa_under_test *isa, bool bits_8, uint32_t n_threads, const product *p,
                                const float *want)
{
    uint32_t n_differ = 0;
    atn_backend *be = open_isa(bits_8 ? isa->open_8 : isa->open, n_threads);
    atn_weight *w = bind_rows(be, p->type, p->rows, p->n_in, p->n_out);
    float *y = new_floats((size_t)p->n * p->n_out);
    for (uint32_t i = 0; i < N_HEIGHTS; i++) {
        uint32_t n = heights[i] < p->n ? heights[i] : p->n, from = (i * 37) % (p->n - n + 1);
        multiply(be, w, p, from, n, y);
        for (uint32_t r = 0; r < n; r++) {
            n_differ += !same_floats(y + (size_t)r * p->n_out, want + (size_t)(from + r) * p->n_out, p->n_out);
        }
    }
    free(y);
    atn_weight_free(w);
    atn_backend_close(be);
    return n_differ;
}

static void fill(float *x, size_t n, uint32_t seed)
{
    for (size_t i = 0; i < n; i++) {
        x[i] = rnd_float(&seed);
    }
}

/* Every type, shapes with tails of every kind. */
static void every_isa(bool bits_8)
{
    static const uint32_t n_outs[] = {1, 16, 33, 150}, blocks[] = {1, 2, 5}, widths[] = {1, 31, 47, 130};
    isa_under_test isas[MAX_ISAS];
    uint32_t n_isas = list_isas(isas);
    for (uint32_t i = 0; i < N_WEIGHT_TYPES * 4; i++) {
        const weight_type *type = &weight_types[i / 4];
        uint32_t block = atn_dtype_block(type->type);
        product p = {.type = type->type, .n = i % 4 == 2 ? MOST_ROWS : 40, .n_out = n_outs[i % 4]};
        p.n_in = block == 1 ? widths[i % 4] : block * blocks[i % 3];
        unsigned char *rows = weight_rows(type, p.n_in, p.n_out, i + 1);
        float *x = new_floats((size_t)p.n * p.n_in), *bias = new_floats(p.n_out);
        fill(x, (size_t)p.n * p.n_in, i + 2);
        fill(bias, p.n_out, i + 3);
        p.rows = rows;
        p.x = x;
        p.bias = i % 2 ? bias : NULL;
        float *want = whole(bits_8 ? open_generic_8 : open_generic, &p);
        for (uint32_t k = 0; k < n_isas; k++) {
            static const uint32_t threads[] = {1, 2, 5};
            for (uint32_t t = 0; t < 3 && isas[k].here; t++) {
                if (i % 4 != 2 && t != i % 3) {
                    continue; /* all counts of threads for one shape, one for the others */
                }
                uint32_t n = count_differing(&isas[k], bits_8, threads[t], &p, want);
                if (n) {
                    fail_msg("%s, %u threads, %s %u x %u: %u rows differ", isas[k].isa->name, threads[t],
                             atn_dtype_name(p.type), p.n_out, p.n_in, n);
                }
            }
        }
        free(want);
        free(rows);
        free(x);
        free(bias);
    }
}

static void sixteen_bits(void **state)
{
    (void)state;
    every_isa(false);
}

static void eight_bits(void **state)
{
    (void)state;
    every_isa(true);
}

/* ---- extremes ---- */

enum { XN_IN = 512, XN_OUT = 35, XROWS = 12 };

/* Weights whose integers are at their ends, some blocks zero, scales from f16's least subnormal to its most. */
static unsigned char *extreme_rows(const weight_type *type, size_t *row_bytes)
{
    assert_true(atn_row_bytes(type->type, XN_IN, row_bytes));
    size_t block = atn_dtype_block_bytes(type->type);
    unsigned char *rows = weight_rows(type, XN_IN, XN_OUT, 5);
    static const uint16_t scales[] = {0x0001, 0x8001, 0x03ff, 0x0400, 0x7bff, 0xfbff, 0x0000, 0x3c00};
    for (size_t i = 0; i < *row_bytes * XN_OUT / block; i++) {
        unsigned char *b = rows + i * block;
        if (i % 5 < 3) {
            memset(b, i % 5 == 0 ? 0x80 : i % 5 == 1 ? 0x7f : 0, block);
        }
        for (int k = 0; k < 2; k++) {
            if (type->half_at[k] >= 0) {
                memcpy(b + type->half_at[k], &scales[(i + (size_t)k * 3) % 8], 2);
            }
        }
    }
    return rows;
}

static void extreme_inputs(float *x)
{
    fill(x, XROWS * XN_IN, 77);
    for (uint32_t i = 0; i < XN_IN; i++) {
        x[1 * XN_IN + i] = i % 2 ? 1.0f : -1.0f;
        x[2 * XN_IN + i] = 1.0f;
        x[3 * XN_IN + i] *= i == 40 ? 1e5f : 1.0f;      /* an outlier */
        x[4 * XN_IN + i] *= i / 32 % 2 ? 0.0f : 1e-20f; /* blocks of zeros */
        x[5 * XN_IN + i] *= i / 32 % 2 ? 0x1p-101f : 0x1p-140f;
        x[6 * XN_IN + i] = ((float)(i % 65) - 32.5f) / 65024.0f + (i % 32 == 0); /* ties of the quantiser */
    }
    x[7 * XN_IN + 33] = NAN;
    x[8 * XN_IN + 5] = INFINITY;
    x[9 * XN_IN + 511] = -INFINITY;
    x[10 * XN_IN + 3] = 3.0e38f;
    x[11 * XN_IN] = -0.0f;
}

static void extremes(void **state)
{
    (void)state;
    isa_under_test isas[MAX_ISAS];
    uint32_t n_isas = list_isas(isas);
    float *x = new_floats(XROWS * XN_IN);
    extreme_inputs(x);
    for (uint32_t t = 0; t < N_WEIGHT_TYPES; t++) {
        size_t row_bytes;
        unsigned char *rows = extreme_rows(&weight_types[t], &row_bytes);
        product p = {.type = weight_types[t].type, .rows = rows, .x = x, .n = XROWS, .n_in = XN_IN, .n_out = XN_OUT};
        float *want = whole(open_generic, &p);
        for (uint32_t k = 0; k < n_isas; k++) {
            if (isas[k].here && count_differing(&isas[k], false, 2, &p, want)) {
                fail_msg("%s, %s: extremes differ", isas[k].isa->name, atn_dtype_name(p.type));
            }
        }
        free(want);
        free(rows);
    }
    free(x);
}

/* An infinity or a NaN in a row makes all its outputs NaN (quantised weights), and none of another row's. */
static void poisoned_rows(void **state)
{
    (void)state;
    float *x = new_floats(XROWS * XN_IN);
    extreme_inputs(x);
    for (uint32_t t = 0; t < N_WEIGHT_TYPES; t++) {
        bool is_float = simd_is_float(simd_format_of(weight_types[t].type));
        unsigned char *rows = weight_rows(&weight_types[t], XN_IN, XN_OUT, 5);
        size_t row_bytes;
        assert_true(atn_row_bytes(weight_types[t].type, XN_IN, &row_bytes));
        for (size_t i = 0; is_float && weight_types[t].half_at[0] < 0 && i + 1 < row_bytes * XN_OUT; i += 2) {
            rows[i + 1] = (unsigned char)(rows[i + 1] & 0xbf); /* random float weights may be NaN themselves */
        }
        product p = {.type = weight_types[t].type, .rows = rows, .x = x, .n = XROWS, .n_in = XN_IN, .n_out = XN_OUT};
        float *y = whole(open_generic, &p);
        for (uint32_t r = 0; r < XROWS; r++) {
            for (uint32_t o = 0; o < XN_OUT; o++) {
                float v = y[r * XN_OUT + o];
                if (r >= 7 && r <= 9) {
                    assert_true(is_float ? !isfinite(v) : isnan(v));
                } else if (r != 10) {
                    assert_true(isfinite(v));
                }
            }
        }
        free(y);
        free(rows);
    }
    free(x);
}

/* ---- the quantiser ---- */

enum { QBLOCKS = 4, QROWS = 3, QBYTES = QBLOCKS * QROWS * (SIMD_BLOCK * 2 + 8) };

static int16_t value_at(const unsigned char *tile, uint32_t block, uint32_t i)
{
    int16_t v;
    memcpy(&v, tile + ((size_t)block * SIMD_BLOCK + i) * 2, sizeof v);
    return v;
}

/* Floats of every exponent: values (in whatever order the ISA stores them), scales and sums equal plain C's. */
static void quantisers(void **state)
{
    (void)state;
    isa_under_test isas[MAX_ISAS];
    uint32_t n_isas = list_isas(isas), seed = 9;
    static ALIGNED unsigned char want[QBYTES], got[QBYTES];
    for (uint32_t k = 0; k < n_isas; k++) {
        if (!isas[k].here) {
            continue;
        }
        float ramp[SIMD_BLOCK];
        uint32_t order[SIMD_BLOCK];
        for (uint32_t i = 0; i < SIMD_BLOCK; i++) {
            ramp[i] = (float)(i + 1);
        }
        isas[k].isa->quantise(ramp, SIMD_BLOCK, 1, SIMD_BLOCK, 32.0f, got);
        for (uint32_t i = 0; i < SIMD_BLOCK; i++) {
            order[i] = (uint32_t)value_at(got, 0, i) - 1; /* where the ISA's i-th value belongs */
            assert_in_range(order[i], 0, SIMD_BLOCK - 1);
        }
        for (uint32_t round = 0; round < 2000; round++) {
            float x[QROWS * (QBLOCKS * SIMD_BLOCK + 1)];
            for (uint32_t i = 0; i < sizeof x / sizeof *x; i++) {
                int e = (int)((round * 7 + i / 32) % 277) - 149 - (int)(rnd(&seed) % 20);
                x[i] = ldexpf(rnd_float(&seed), e < 125 ? e : 125);
            }
            x[round % 64] = round % 50 == 7 ? NAN : round % 50 == 8 ? -INFINITY : x[round % 64];
            float limit = round % 2 ? (float)SIMD_LIMIT : 127.0f;
            size_t stride = QBLOCKS * SIMD_BLOCK + 1, scales = (size_t)QBLOCKS * QROWS * SIMD_BLOCK * 2;
            simd_generic.quantise(x, stride, QROWS, QBLOCKS * SIMD_BLOCK, limit, want);
            isas[k].isa->quantise(x, stride, QROWS, QBLOCKS * SIMD_BLOCK, limit, got);
            assert_memory_equal(got + scales, want + scales, QBYTES - scales);
            for (uint32_t b = 0; b < QBLOCKS * QROWS; b++) {
                for (uint32_t i = 0; i < SIMD_BLOCK; i++) {
                    int16_t v = value_at(got, b, i);
                    assert_int_equal(v, value_at(want, b, order[i]));
                    assert_in_range(v + (int)limit, 0, 2 * (int)limit);
                }
            }
        }
    }
}

/* ---- the rule, written out ---- */

/* A row of weights as the file means them: every 16 columns d * (integers) + m. */
typedef struct plain_row {
    int q[XN_IN];
    float scale[XN_IN / 16], min[XN_IN / 16];
} plain_row;

/* Integers and scales come from atn_dequantize over blocks that were changed so that everything else is 1 or 0. */
static void read_plain(atn_dtype t, const unsigned char *row, plain_row *out)
{
    uint32_t n = atn_dtype_block(t), bytes = atn_dtype_block_bytes(t);
    const uint16_t one = 0x3c00;
    memset(out, 0, sizeof *out);
    for (uint32_t at = 0; at < XN_IN; at += n, row += bytes) {
        unsigned char b[256];
        float q[256], scale[256], min[256] = {0};
        uint16_t d, dmin;
        memcpy(b, row, bytes);
        if (t == ATN_DTYPE_Q8_0) {
            memcpy(&d, b, 2);
            memcpy(b, &one, 2);
            atn_dequantize(t, b, q, n);
            for (uint32_t i = 0; i < n; i++) {
                scale[i] = atn_f16_to_f32(d);
            }
        } else if (t == ATN_DTYPE_Q6_K) {
            memcpy(&d, b + 208, 2);
            memcpy(b + 208, &one, 2);
            memset(b + 192, 1, 16);
            atn_dequantize(t, b, q, n);
            memcpy(b + 192, row + 192, 16);
            memset(b, 0x11, 128);      /* 1 ... */
            memset(b + 128, 0xaa, 64); /* ... + 32, less the offset of 32 */
            atn_dequantize(t, b, scale, n);
            for (uint32_t i = 0; i < n; i++) {
                scale[i] *= atn_f16_to_f32(d);
            }
        } else { /* Q4_K */
            assert_int_equal(t, ATN_DTYPE_Q4_K);
            memcpy(&d, b, 2);
            memcpy(&dmin, b + 2, 2);
            memcpy(b, &one, 2);
            memset(b + 2, 0, 2);
            memset(b + 16, 0x11, 128);
            atn_dequantize(t, b, scale, n);
            memcpy(b + 16, row + 16, 128);
            memset(b + 4, 0x01, 4); /* every scale 1 */
            memset(b + 8, 0, 4);
            memset(b + 12, 0x01, 4);
            atn_dequantize(t, b, q, n);
            memcpy(b, row, bytes);
            memset(b, 0, 2);
            memcpy(b + 2, &one, 2);
            atn_dequantize(t, b, min, n);
            for (uint32_t i = 0; i < n; i++) {
                scale[i] *= atn_f16_to_f32(d);
                min[i] *= atn_f16_to_f32(dmin);
            }
        }
        for (uint32_t i = 0; i < n; i++) {
            out->q[at + i] = (int)q[i];
            out->scale[(at + i) / 16] = scale[i];
            out->min[(at + i) / 16] = min[i];
        }
    }
}

/* One output by the rule, in n_chains chains. */
static float plain_output(const plain_row *w, uint32_t width, bool has_min, const float *x, float limit,
                          uint32_t n_chains)
{
    float acc[2] = {0};
    for (uint32_t b = 0; b < XN_IN / 32; b++) {
        float amax = 0.0f;
        int v[32], sum = 0;
        for (uint32_t i = 0; i < 32; i++) {
            amax = fmaxf(amax, fabsf(x[32 * b + i]));
        }
        float d = amax / limit, inv = limit / amax, *a = &acc[b % n_chains];
        for (uint32_t i = 0; i < 32; i++) {
            v[i] = (int)rintf(x[32 * b + i] * inv);
            sum += v[i];
        }
        for (uint32_t i = 0; i < 32; i += width) {
            int isum = 0;
            for (uint32_t k = i; k < i + width; k++) {
                isum += w->q[32 * b + k] * v[k];
            }
            *a = fmaf(w->scale[(32 * b + i) / 16] * d, (float)isum, *a);
        }
        if (has_min) {
            *a = fmaf(w->min[2 * b], d * (float)sum, *a);
        }
    }
    return n_chains == 2 ? acc[0] + acc[1] : acc[0];
}

static void the_rule(void **state)
{
    (void)state;
    static const struct {
        uint32_t index, width;
    } types[] = {{7, 32}, {10, 32}, {12, 16}}; /* Q8_0, Q4_K, Q6_K */
    static plain_row w;
    isa_under_test isas[MAX_ISAS];
    uint32_t n_isas = list_isas(isas);
    float *x = new_floats(XROWS * XN_IN), *y = new_floats(XROWS * XN_OUT);
    fill(x, XROWS * XN_IN, 4);
    for (uint32_t t = 0; t < 3; t++) {
        const weight_type *type = &weight_types[types[t].index];
        unsigned char *rows = weight_rows(type, XN_IN, XN_OUT, t + 8);
        size_t row_bytes;
        assert_true(atn_row_bytes(type->type, XN_IN, &row_bytes));
        product p = {.type = type->type, .rows = rows, .x = x, .n = XROWS, .n_in = XN_IN, .n_out = XN_OUT};
        for (uint32_t k = 0; k < n_isas; k++) {
            if (!isas[k].here) {
                continue;
            }
            float *got = whole(isas[k].open, &p);
            uint32_t n_differ[3] = {0};
            for (uint32_t o = 0; o < XN_OUT; o++) {
                read_plain(type->type, rows + o * row_bytes, &w);
                for (uint32_t r = 0; r < XROWS; r++) {
                    for (uint32_t chains = 1; chains <= 2; chains++) {
                        float want = plain_output(&w, types[t].width, type->type == ATN_DTYPE_Q4_K, x + r * XN_IN,
                                                  (float)SIMD_LIMIT, chains);
                        n_differ[chains] += memcmp(&want, &got[r * XN_OUT + o], sizeof want) != 0;
                    }
                }
            }
            if (n_differ[1]) {
                fail_msg("%s, %s: %u outputs differ", isas[k].isa->name, atn_dtype_name(type->type), n_differ[1]);
            }
            assert_true(n_differ[2] > XROWS * XN_OUT / 4); /* two chains would be seen */
            free(got);
        }
        free(rows);
    }
    free(x);
    free(y);
}

/* Floats: a block's products in one chain from zero, then the blocks. */
static void the_rule_of_floats(void **state)
{
    (void)state;
    enum { N = 75 };
    isa_under_test isas[MAX_ISAS];
    uint32_t n_isas = list_isas(isas);
    unsigned char *rows = weight_rows(&weight_types[0], N, XN_OUT, 3);
    float *x = new_floats(XROWS * N), *w = new_floats(XN_OUT * N);
    fill(x, XROWS * N, 4);
    memcpy(w, rows, XN_OUT * N * sizeof *w);
    product p = {.type = ATN_DTYPE_F32, .rows = rows, .x = x, .n = XROWS, .n_in = N, .n_out = XN_OUT};
    for (uint32_t k = 0; k < n_isas; k++) {
        float *got = isas[k].here ? whole(isas[k].open, &p) : NULL;
        for (uint32_t i = 0; got && i < XROWS * XN_OUT; i++) {
            float acc = 0.0f;
            for (uint32_t b = 0; b < N; b += 32) {
                float s = 0.0f;
                for (uint32_t c = b; c < b + 32 && c < N; c++) {
                    s = fmaf(w[i % XN_OUT * N + c], x[i / XN_OUT * N + c], s);
                }
                acc += s;
            }
            assert_memory_equal(&acc, &got[i], sizeof acc);
        }
        free(got);
    }
    free(rows);
    free(x);
    free(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(sixteen_bits),      cmocka_unit_test(eight_bits),
                                       cmocka_unit_test(extremes),          cmocka_unit_test(poisoned_rows),
                                       cmocka_unit_test(quantisers),        cmocka_unit_test(the_rule),
                                       cmocka_unit_test(the_rule_of_floats)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
