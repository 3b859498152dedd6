/* Weights by name: shapes and types are checked before anything is read; what is bound is what the file holds. */
#include "core/load/weights.h"
#include "tests/unit/load/gguf_builder.h"

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

static atn_err err;

/* "m" [32, 3] q8_0, "v" [4] f16, "row" [4, 1] f32, "iq" [256] of a type that we cannot read */
static buf model(void)
{
    buf b = gguf_begin(3, 4, 0);
    put_tensor(&b, "m", 2, (uint64_t[]){32, 3}, ATN_DTYPE_Q8_0, 0);
    put_tensor(&b, "v", 1, (uint64_t[]){4}, ATN_DTYPE_F16, 128);
    put_tensor(&b, "row", 2, (uint64_t[]){4, 1}, ATN_DTYPE_F32, 160);
    put_tensor(&b, "iq", 1, (uint64_t[]){256}, 16, 192);
    put_data(&b, 32, 0);
    for (int row = 0; row < 3; row++) {
        put(&b, &(uint16_t){0x3800}, 2); /* 0.5 */
        for (int i = 0; i < 32; i++) {
            put(&b, &(int8_t){(int8_t)(i - 10 * row)}, 1);
        }
    }
    put_data(&b, 32, 0);
    put(&b, (uint16_t[]){0x3C00, 0xC000, 0x0001, 0x7BFF}, 8);
    put_data(&b, 32, 0);
    put(&b, (float[]){1, -2, 3, -4}, 16);
    put_data(&b, 32, 66);
    return b;
}

static void refused(atn_status s, atn_status code, const char *name, const char *words)
{
    if (s != code || strcmp(err.param, name) != 0 || strcmp(err.msg, words) != 0) {
        fail_msg("wanted %s '%s' '%s', got %s '%s' '%s'", atn_status_name(code), name, words, atn_status_name(s),
                 err.param, err.msg);
    }
}

static void test_vectors(void **state)
{
    (void)state;
    buf b = model();
    gguf *g;
    float v[32];
    assert_int_equal(gguf_open_memory(b.data, b.len, &g, &err), ATN_OK);
    assert_int_equal(weights_vector(g, "v", 4, v, &err), ATN_OK);
    assert_true(v[0] == 1 && v[1] == -2 && v[2] == 0x1p-24f && v[3] == 65504);
    assert_int_equal(weights_vector(g, "row", 4, v, &err), ATN_OK);
    assert_true(v[0] == 1 && v[1] == -2 && v[2] == 3 && v[3] == -4);
    refused(weights_vector(g, "v", 5, v, &err), ATN_FORMAT, "v",
            "tensor v has shape [4] in the file: the model needs [5]");
    refused(weights_vector(g, "m", 32, v, &err), ATN_FORMAT, "m",
            "tensor m has shape [32, 3] in the file: the model needs [32]");
    refused(weights_vector(g, "none", 4, v, &err), ATN_FORMAT, "none", "tensor none is missing from the file");
    refused(weights_vector(g, "iq", 256, v, &err), ATN_UNSUPPORTED, "iq",
            "tensor iq has type IQ2_XXS, which cannot be read");
    gguf_close(g);
    buf_free(&b);
}

static void test_matrices(void **state)
{
    (void)state;
    buf b = model();
    gguf *g;
    atn_backend *be;
    atn_weight *w = (atn_weight *)1;
    atn_buffer *rows;
    assert_int_equal(gguf_open_memory(b.data, b.len, &g, &err), ATN_OK);
    assert_int_equal(atn_backend_open("naive", &(atn_backend_params){.n_threads = 1}, &be, &err), ATN_OK);
    refused(weights_matrix(g, be, "m", 3, 32, &w, &err), ATN_FORMAT, "m",
            "tensor m has shape [32, 3] in the file: the model needs [3, 32]");
    assert_null(w);
    refused(weights_matrix(g, be, "iq", 256, 1, &w, &err), ATN_UNSUPPORTED, "iq",
            "tensor iq has type IQ2_XXS, which cannot be read");
    refused(weights_matrix(g, be, "gone", 256, 1, &w, &err), ATN_FORMAT, "gone",
            "tensor gone is missing from the file");
    assert_int_equal(weights_matrix(g, be, "m", 32, 3, &w, &err), ATN_OK);
    memset(b.data, 0xEE, b.len); /* the file's bytes are not needed any more */
    assert_int_equal(atn_buffer_new(be, 3 * 32 * 4, false, &rows, &err), ATN_OK);
    atn_embed(be, (atn_mat){rows, 0, 32, 32}, w, (const int32_t[]){2, 0, 1}, 3, 1);
    assert_int_equal(atn_backend_wait(be, &err), ATN_OK);
    float v[3][32];
    atn_buffer_read(rows, 0, v, sizeof v);
    static const int order[] = {2, 0, 1};
    for (int i = 0; i < 3; i++) {
        for (int k = 0; k < 32; k++) {
            assert_true(v[i][k] == 0.5f * (float)(k - 10 * order[i]));
        }
    }
    atn_buffer_free(rows);
    atn_weight_free(w);
    atn_backend_close(be);
    gguf_close(g);
    buf_free(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_vectors), cmocka_unit_test(test_matrices)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
