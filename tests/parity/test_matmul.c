/* matmul and embed of every backend, every weight type, odd shapes: against a plain double sum over atn_dequantize. naive
 * must be that sum rounded once; the others may differ by what float sums of that length do, simd also by what its inputs
 * lose to 16 bits. Outputs have sentinels around them, inputs end at an inaccessible page. */
#include "tests/parity/weights.h"
#include "core/backend/simd.h"

/* How far a product may be off. */
typedef enum precision { EXACT, FLOATS, BITS_16 } precision;

static precision precision_of(const char *backend, atn_dtype t)
{
    if (strcmp(backend, "naive") == 0) {
        return EXACT;
    }
    return strcmp(backend, "simd") == 0 && !simd_is_float(simd_format_of(t)) ? BITS_16 : FLOATS;
}

/* Half a step of the quantised inputs, each times its weight. */
static double quantised_away(const float *w, const float *x, uint32_t n)
{
    double lost = 0.0;
    for (uint32_t i = 0; i < n; i += SIMD_BLOCK) {
        double amax = 0.0, size = 0.0;
        for (uint32_t k = i; k < i + SIMD_BLOCK && k < n; k++) {
            amax = fmax(amax, fabs((double)x[k]));
            size += fabs((double)w[k]);
        }
        lost += 0.5 * amax / SIMD_LIMIT * size;
    }
    return lost;
}

typedef struct product {
    const weight_type *type;
    uint32_t n, n_in, n_out, gap;
    bool bias;
} product;

static void check_product(atn_backend *be, precision how, const product *p)
{
    unsigned char *rows = weight_rows(p->type, p->n_in, p->n_out, p->n_in + p->n_out);
    float *w = malloc(sizeof(float) * p->n_in);
    atn_weight *weight = bind_rows(be, p->type->type, rows, p->n_in, p->n_out);
    box x = box_new(be, p->n, p->n_in, p->gap, 3), y = box_new(be, p->n, p->n_out, 3, 4),
        bias = box_new(be, 1, p->n_out, 0, 5);
    size_t row_bytes;
    assert_true(atn_row_bytes(p->type->type, p->n_in, &row_bytes));
    atn_matmul(
        be, &(atn_matmul_args){.dst = y.mat, .x = x.mat, .w = weight, .bias = p->bias ? &bias.mat : NULL, .n = p->n});
    wait_ok(be);
    assert_non_null(w);
    for (uint32_t o = 0; o < p->n_out; o++) {
        atn_dequantize(p->type->type, rows + o * row_bytes, w, p->n_in);
        for (uint32_t r = 0; r < p->n; r++) {
            double sum = p->bias ? (double)box_row(&bias, 0)[o] : 0.0, size = fabs(sum);
            for (uint32_t i = 0; i < p->n_in; i++) {
                double t = (double)w[i] * (double)box_row(&x, r)[i];
                sum += t;
                size += fabs(t);
            }
            double allowed = how == EXACT ? fabs(sum) * 0x1.0001p-24 + size * 1e-14 + 1e-45 : size * 5e-7 + 1e-30;
            allowed += how == BITS_16 ? quantised_away(w, box_row(&x, r), p->n_in) : 0.0;
            double got = (double)box_row(&y, r)[o];
            if (!(fabs(got - sum) <= allowed)) {
                fail_msg("%s %u x %u x %u: row %u column %u is %.9g, not %.9g", atn_dtype_name(p->type->type), p->n,
                         p->n_out, p->n_in, r, o, got, sum);
            }
        }
    }
    box_check(&y);
    box_check(&x);
    box_free(&x);
    box_free(&y);
    box_free(&bias);
    atn_weight_free(weight);
    free(rows);
    free(w);
}

/* Numbers of rows on both sides of every limit in the backends: few rows and many, a pair, a full block of 64. */
static void products_of(const char *name)
{
    static const uint32_t n_rows[] = {1, 2, 3, 8, 9, 65}, n_outs[] = {1, 7, 131}, blocks[] = {1, 3};
    static const uint32_t free_widths[] = {1, 17, 47};
    atn_backend *be = open_backend(name, 2);
    for (size_t t = 0; t < N_WEIGHT_TYPES; t++) {
        uint32_t block = atn_dtype_block(weight_types[t].type);
        for (uint32_t i = 0; i < 6 * 3 * (block == 1 ? 3 : 2); i++) {
            product p = {.type = &weight_types[t], .n = n_rows[i % 6], .n_out = n_outs[i / 6 % 3], .bias = i % 2 == 0};
            p.n_in = block == 1 ? free_widths[i / 18] : block * blocks[i / 18 % 2];
            p.gap = i % 3 * 5;
            check_product(be, precision_of(name, p.type->type), &p);
        }
    }
    /* A tile that is neither the first nor whole, and more columns than one tile holds. */
    product wide = {.type = &weight_types[7], .n = 12, .n_in = 2048, .n_out = 301};
    check_product(be, precision_of(name, wide.type->type), &wide);
    atn_backend_close(be);
}

static void products(void **state)
{
    (void)state;
    for (size_t i = 0; atn_backend_list(i); i++) {
        products_of(atn_backend_list(i));
    }
}

static void embeddings(void **state)
{
    (void)state;
    for (size_t i = 0; atn_backend_list(i); i++) {
        atn_backend *be = open_backend(atn_backend_list(i), 2);
        for (size_t t = 0; t < N_WEIGHT_TYPES; t++) {
            enum { ROWS = 9, N = 4 };
            static const int32_t ids[N] = {8, 0, 3, 3};
            uint32_t n_in = 3 * atn_dtype_block(weight_types[t].type);
            unsigned char *rows = weight_rows(&weight_types[t], n_in, ROWS, 17);
            atn_weight *w = bind_rows(be, weight_types[t].type, rows, n_in, ROWS);
            float *want = malloc(sizeof(float) * n_in);
            size_t row_bytes;
            assert_true(want && atn_row_bytes(weight_types[t].type, n_in, &row_bytes));
            box dst = box_new(be, N, n_in, 2, 6);
            atn_embed(be, dst.mat, w, ids, N, 1.7f);
            wait_ok(be);
            for (uint32_t r = 0; r < N; r++) {
                atn_dequantize(weight_types[t].type, rows + (size_t)ids[r] * row_bytes, want, n_in);
                for (uint32_t c = 0; c < n_in; c++) {
                    assert_true(box_row(&dst, r)[c] == 1.7f * want[c]);
                }
            }
            box_check(&dst);
            box_free(&dst);
            atn_weight_free(w);
            free(rows);
            free(want);
        }
        atn_backend_close(be);
    }
}

/* No rows: nothing is read or written. */
static void no_rows(void **state)
{
    (void)state;
    for (size_t i = 0; atn_backend_list(i); i++) {
        atn_backend *be = open_backend(atn_backend_list(i), 2);
        unsigned char *rows = weight_rows(&weight_types[0], 4, 4, 1);
        atn_weight *w = bind_rows(be, ATN_DTYPE_F32, rows, 4, 4);
        box x = box_new(be, 1, 4, 0, 1), y = box_new(be, 1, 4, 0, 2);
        float before[4];
        memcpy(before, box_row(&y, 0), sizeof before);
        atn_matmul(be, &(atn_matmul_args){.dst = y.mat, .x = x.mat, .w = w, .n = 0});
        atn_embed(be, y.mat, w, NULL, 0, 1.0f);
        atn_add(be, y.mat, x.mat, 0);
        wait_ok(be);
        assert_memory_equal(before, box_row(&y, 0), sizeof before);
        box_free(&x);
        box_free(&y);
        atn_weight_free(w);
        free(rows);
        atn_backend_close(be);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(products), cmocka_unit_test(embeddings),
                                       cmocka_unit_test(no_rows)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
