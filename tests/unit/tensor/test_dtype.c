/* Half floats against their definition, names and sizes of types. */
#include <attnd/tensor.h>

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <cmocka.h>

static uint32_t bits_of(float f)
{
    uint32_t bits;
    memcpy(&bits, &f, 4);
    return bits;
}

static float float_of(uint32_t bits)
{
    float f;
    memcpy(&f, &bits, 4);
    return f;
}

/* The value of a half by its definition. */
static double f16_value(uint16_t h)
{
    int exponent = h >> 10 & 31, fraction = h & 1023;
    double v = exponent == 0    ? ldexp(fraction, -24)
               : exponent == 31 ? (fraction == 0 ? INFINITY : NAN)
                                : ldexp(1024 + fraction, exponent - 25);
    return h & 0x8000 ? -v : v;
}

static void test_every_half_to_float_and_back(void **state)
{
    (void)state;
    for (uint32_t h = 0; h < 65536; h++) {
        float f = atn_f16_to_f32((uint16_t)h);
        double wanted = f16_value((uint16_t)h);
        if (isnan(wanted)) {
            assert_true(isnan(f));
            assert_true(isnan(atn_f16_to_f32(atn_f32_to_f16(f))));
        } else {
            assert_true((double)f == wanted && !signbit(f) == !signbit(wanted));
            assert_int_equal(atn_f32_to_f16(f), h);
        }
        float b = atn_bf16_to_f32((uint16_t)h);
        assert_int_equal(bits_of(b), h << 16);
        if (!isnan(b)) {
            assert_int_equal(atn_f32_to_bf16(b), h);
        } else {
            assert_true(isnan(atn_bf16_to_f32(atn_f32_to_bf16(b))));
        }
    }
}

/* Nearest half, ties to even, by trying both neighbours in double. */
static void check_rounding(float f)
{
    uint16_t h = atn_f32_to_f16(f);
    uint16_t mag = h & 0x7fff;
    double a = fabs((double)f);
    if ((bits_of(f) >> 31) != (uint32_t)(h >> 15)) {
        fail_msg("%a: sign", (double)f);
    }
    /* beyond the greatest half the next step of the same size counts as infinity: from its middle, 65520, on */
    double here = mag == 0x7c00 ? 65536.0 : f16_value(mag);
    double below = mag > 0 ? f16_value((uint16_t)(mag - 1)) : -1;
    double above = mag < 0x7bff ? f16_value((uint16_t)(mag + 1)) : mag == 0x7bff ? 65536.0 : INFINITY;
    double d = mag == 0x7c00 && a > here ? 0 : fabs(a - here);
    bool nearest = d < fabs(a - below) && d < fabs(a - above);
    bool tie = (d == fabs(a - below) || d == fabs(a - above)) && (mag & 1) == 0;
    if (mag > 0x7c00 || !(nearest || tie)) {
        fail_msg("%a became %04x", (double)f, h);
    }
}

static void test_rounding(void **state)
{
    (void)state;
    for (uint32_t h = 0; h < 0x7c00; h++) { /* each half, each middle, and their neighbours */
        double here = f16_value((uint16_t)h), next = h < 0x7bff ? f16_value((uint16_t)(h + 1)) : 65536.0;
        float middle = (float)((here + next) / 2);
        for (int32_t step = -2; step <= 2; step++) {
            for (uint32_t sign = 0; sign <= 1; sign++) {
                check_rounding(float_of((bits_of(middle) + (uint32_t)step) | sign << 31));
            }
        }
    }
    uint64_t random = 88172645463325252u;
    for (int i = 0; i < 200000; i++) {
        random ^= random << 13, random ^= random >> 7, random ^= random << 17;
        float f = float_of((uint32_t)random);
        if (!isnan(f)) {
            check_rounding(f);
            /* bf16: nearest by the bits, ties to even */
            uint32_t low = bits_of(f) & 0xffff, up = bits_of(f) >> 16;
            up += low > 0x8000 || (low == 0x8000 && (up & 1));
            assert_int_equal(atn_f32_to_bf16(f), up);
        }
    }
    assert_int_equal(atn_f32_to_f16(65519.996f), 0x7bff);
    assert_int_equal(atn_f32_to_f16(65520.0f), 0x7c00);
    assert_int_equal(atn_f32_to_f16(-INFINITY), 0xfc00);
    assert_int_equal(atn_f32_to_f16(0x1p-25f), 0);
    assert_int_equal(atn_f32_to_f16(0x1.000002p-25f), 1);
    assert_true(isnan(atn_f16_to_f32(atn_f32_to_f16(float_of(0x7f800001)))));
    assert_true(isnan(atn_bf16_to_f32(atn_f32_to_bf16(float_of(0x7f800001)))));
    assert_true(isnan(atn_bf16_to_f32(atn_f32_to_bf16(float_of(0xffffffff)))));
}

static void test_types(void **state)
{
    (void)state;
    size_t bytes;
#define X(name, id, weights, block_bytes)                                   \
    assert_true(atn_dtype_known(id));                                       \
    assert_string_equal(atn_dtype_name(id), #name);                         \
    assert_int_equal(atn_dtype_block(ATN_DTYPE_##name), weights);           \
    assert_int_equal(atn_dtype_block_bytes(ATN_DTYPE_##name), block_bytes); \
    assert_true(atn_row_bytes(ATN_DTYPE_##name, 1024, &bytes));             \
    assert_int_equal(bytes, 1024 / (weights) * (block_bytes));              \
    assert_true(atn_row_bytes(ATN_DTYPE_##name, 0, &bytes));                \
    assert_int_equal(bytes, 0);                                             \
    assert_true((weights) == 1 || !atn_row_bytes(ATN_DTYPE_##name, 1023, &bytes));
    ATN_DTYPE_LIST(X)
#undef X
    assert_string_equal(atn_dtype_name(16), "IQ2_XXS");
    assert_false(atn_dtype_known(16));
    assert_string_equal(atn_dtype_name(4), "unknown"); /* removed from the format */
    assert_string_equal(atn_dtype_name(UINT32_MAX), "unknown");
    assert_false(atn_dtype_known(UINT32_MAX));
    assert_false(atn_row_bytes(ATN_DTYPE_F32, UINT64_MAX / 2, &bytes));
    assert_true(atn_row_bytes(ATN_DTYPE_F32, UINT64_MAX / 4, &bytes));
    assert_false(atn_row_bytes((atn_dtype)16, 256, &bytes));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_half_to_float_and_back),
        cmocka_unit_test(test_rounding),
        cmocka_unit_test(test_types),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
