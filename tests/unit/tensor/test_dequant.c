/* Every element type against gguf-py, bit for bit, on random blocks (tests/tools/make_dequant_fixture.py). */
#include <attnd/tensor.h>
#include "core/base/cursor.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static const char fixture[] = "tests/unit/tensor/dequant_fixture.bin";

static unsigned char *read_fixture(size_t *n)
{
    FILE *f = fopen(fixture, "rb");
    assert_non_null(f);
    unsigned char *bytes = malloc(1 << 20);
    assert_non_null(bytes);
    *n = fread(bytes, 1, 1 << 20, f);
    fclose(f);
    assert_in_range(*n, 1000, (1 << 20) - 1);
    return bytes;
}

/* Compares n floats at an unaligned copy of the bytes, with sentinels around the output. */
static void check(uint32_t type, const unsigned char *bytes, size_t n_bytes, const unsigned char *wanted, size_t n)
{
    unsigned char *src = malloc(n_bytes + 1);
    float *dst = malloc((n + 2) * sizeof *dst);
    assert_non_null(src);
    assert_non_null(dst);
    memcpy(src + 1, bytes, n_bytes);
    dst[0] = dst[n + 1] = 1234.5f;
    atn_dequantize((atn_dtype)type, src + 1, dst + 1, n);
    for (size_t i = 0; i < n; i++) {
        if (memcmp(&dst[i + 1], wanted + 4 * i, 4) != 0) {
            float w;
            memcpy(&w, wanted + 4 * i, 4);
            fail_msg("%s weight %zu: %a, gguf-py has %a", atn_dtype_name(type), i, (double)dst[i + 1], (double)w);
        }
    }
    assert_true(dst[0] == 1234.5f && dst[n + 1] == 1234.5f);
    free(src);
    free(dst);
}

static void test_equals_gguf_py(void **state)
{
    (void)state;
    size_t n;
    unsigned char *file = read_fixture(&n);
    cursor c = cursor_of(file, n);
    uint64_t seen = 0;
    while (cursor_left(&c) > 0) {
        uint32_t type = cursor_u32(&c), n_bytes = cursor_u32(&c), n_weights = cursor_u32(&c);
        const unsigned char *bytes = cursor_bytes(&c, n_bytes);
        const unsigned char *wanted = cursor_bytes(&c, (uint64_t)n_weights * 4);
        assert_false(c.failed);
        size_t row;
        assert_true(atn_row_bytes((atn_dtype)type, n_weights, &row));
        assert_int_equal(row, n_bytes);
        check(type, bytes, n_bytes, wanted, n_weights);
        seen |= (uint64_t)1 << type;
    }
    assert_false(c.failed);
    uint64_t all = 0;
#define X(name, id, weights, bytes) all |= (uint64_t)1 << (id);
    ATN_DTYPE_LIST(X)
#undef X
    assert_true(seen == all);
    free(file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_equals_gguf_py)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
