/* The attention example of tests/golden/data/attention_reference.json (NumPy, float64), through the public header alone. */
#include "tests/parity/tables.h"

#include <jansson.h>

/* Inputs and outputs are floats of size 1. */
static double tolerance(const atn_backend *be)
{
    return table_in_floats(be) ? 1e-6 : 2e-7;
}

static json_t *load(void)
{
    json_error_t e;
    json_t *root = json_load_file("tests/golden/data/attention_reference.json", 0, &e);
    if (!root) {
        fail_msg("attention_reference.json: %s", e.text);
    }
    return root;
}

static double at(const json_t *m, size_t r, size_t c)
{
    return json_number_value(json_array_get(json_array_get(m, r), c));
}

static box box_of(atn_backend *be, const json_t *m)
{
    uint32_t rows = (uint32_t)json_array_size(m), cols = (uint32_t)json_array_size(json_array_get(m, 0));
    box b = box_new(be, rows, cols, 0, 1);
    for (uint32_t r = 0; r < rows; r++) {
        for (uint32_t c = 0; c < cols; c++) {
            box_row(&b, r)[c] = (float)at(m, r, c);
        }
    }
    return b;
}

typedef struct seen {
    const json_t *weights;
    double tolerance;
    uint32_t calls;
} seen;

static void probe(void *arg, uint32_t row, uint32_t head, const float *weights, uint32_t n_keys)
{
    seen *s = arg;
    assert_int_equal(head, 0);
    assert_int_equal(row, s->calls++);
    for (uint32_t k = 0; k < n_keys; k++) {
        assert_true(fabs((double)weights[k] - at(s->weights, row, k)) <= s->tolerance);
    }
}

static void example(atn_backend *be, const char *name, bool causal, uint32_t window, const uint8_t *mask)
{
    json_t *root = load();
    const json_t *want = json_object_get(root, name);
    assert_non_null(want);
    box q = box_of(be, json_object_get(root, "Q")), k = box_of(be, json_object_get(root, "K"));
    box v = box_of(be, json_object_get(root, "V")), out = box_new(be, q.rows, v.mat.cols, 3, 2);
    const json_t *scale = json_object_get(want, "scale");
    seen s = {.weights = json_object_get(want, "weights"), .tolerance = tolerance(be)};
    int32_t page = 0;
    atn_attn_seq seq = {.pages = &page, .n_q = q.rows, .n_keys = k.rows, .key_mask = mask};
    atn_attn_args a = {.q = q.mat,
                       .out = out.mat,
                       .seqs = &seq,
                       .n_seqs = 1,
                       .n_head = 1,
                       .n_head_kv = 1,
                       .head_dim = q.mat.cols,
                       .head_dim_v = v.mat.cols,
                       .causal = causal,
                       .window = window,
                       .scale = scale ? (float)json_number_value(scale) : 1.0f / sqrtf((float)q.mat.cols),
                       .kv = {.k_buf = k.buf,
                              .v_buf = v.buf,
                              .k_off = k.mat.off,
                              .v_off = v.mat.off,
                              .page_tokens = k.rows,
                              .row_stride = k.mat.stride * sizeof(float),
                              .type = ATN_DTYPE_F32},
                       .probe = probe,
                       .probe_arg = &s};
    atn_attention(be, &a);
    wait_ok(be);
    assert_int_equal(s.calls, q.rows);
    const json_t *values = json_object_get(want, "out");
    for (uint32_t r = 0; r < out.rows; r++) {
        for (uint32_t c = 0; c < out.mat.cols; c++) {
            assert_true(fabs((double)box_row(&out, r)[c] - at(values, r, c)) <= tolerance(be));
        }
    }
    box_check(&out);
    box_free(&q);
    box_free(&k);
    box_free(&v);
    box_free(&out);
    json_decref(root);
}

static void every_example(void **state)
{
    static const uint8_t last_hidden[] = {1, 1, 1, 0};
    (void)state;
    atn_backend *be;
    for (size_t i = 0; tables_open(i, 2, &be); i++) {
        example(be, "full", false, 0, NULL);
        example(be, "causal", true, 0, NULL);
        example(be, "padding_last_key_masked", false, 0, last_hidden);
        example(be, "causal_window_2", true, 2, NULL);
        example(be, "scale_one_over_d", false, 0, NULL);
        atn_backend_close(be);
    }
}

static void sinusoidal_table(void **state)
{
    (void)state;
    json_t *root = load();
    const json_t *pe = json_object_get(root, "sinusoidal_pe");
    const json_t *want = json_object_get(pe, "table");
    uint32_t len = (uint32_t)json_integer_value(json_object_get(pe, "max_len"));
    uint32_t d = (uint32_t)json_integer_value(json_object_get(pe, "d_model"));
    float table[16 * 8];
    assert_true(len * d == 16 * 8);
    atn_sinusoidal_table(table, len, d);
    for (uint32_t r = 0; r < len; r++) {
        for (uint32_t c = 0; c < d; c++) {
            assert_true(fabs((double)table[r * d + c] - at(want, r, c)) <= 6e-8);
        }
    }
    json_decref(root);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_example), cmocka_unit_test(sinusoidal_table)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
