/* Random weight rows of every type, with scales of a sane size. */
#ifndef PARITY_WEIGHTS_H
#define PARITY_WEIGHTS_H

#include "tests/parity/parity.h"

typedef struct weight_type {
    atn_dtype type;
    int16_t half_at[2]; /* byte offsets of the f16 scales in a block, -1: none */
} weight_type;

static const weight_type weight_types[] = {
    {ATN_DTYPE_F32, {-1, -1}},   {ATN_DTYPE_F16, {-1, -1}},   {ATN_DTYPE_BF16, {-1, -1}},  {ATN_DTYPE_Q4_0, {0, -1}},
    {ATN_DTYPE_Q4_1, {0, 2}},    {ATN_DTYPE_Q5_0, {0, -1}},   {ATN_DTYPE_Q5_1, {0, 2}},    {ATN_DTYPE_Q8_0, {0, -1}},
    {ATN_DTYPE_Q2_K, {80, 82}},  {ATN_DTYPE_Q3_K, {108, -1}}, {ATN_DTYPE_Q4_K, {0, 2}},    {ATN_DTYPE_Q5_K, {0, 2}},
    {ATN_DTYPE_Q6_K, {208, -1}}, {ATN_DTYPE_IQ4_NL, {0, -1}}, {ATN_DTYPE_IQ4_XS, {0, -1}}, {ATN_DTYPE_MXFP4, {-1, -1}},
};
enum { N_WEIGHT_TYPES = sizeof weight_types / sizeof weight_types[0] };

/* rows of n_in weights; free() it. */
static inline unsigned char *weight_rows(const weight_type *w, uint32_t n_in, uint32_t rows, uint32_t seed)
{
    size_t row_bytes;
    assert_true(atn_row_bytes(w->type, n_in, &row_bytes));
    size_t block = atn_dtype_block_bytes(w->type);
    unsigned char *bytes = malloc(row_bytes * rows);
    assert_non_null(bytes);
    for (size_t i = 0; i < row_bytes * rows; i++) {
        bytes[i] = (unsigned char)rnd(&seed);
    }
    for (size_t at = 0; at < row_bytes * rows; at += block) {
        float value = rnd_float(&seed);
        uint16_t half = atn_f32_to_f16(value), brain = atn_f32_to_bf16(value);
        uint16_t scale = atn_f32_to_f16(value * 0.01f);
        switch (w->type) {
        case ATN_DTYPE_F32:
            memcpy(bytes + at, &value, 4);
            break;
        case ATN_DTYPE_F16:
            memcpy(bytes + at, &half, 2);
            break;
        case ATN_DTYPE_BF16:
            memcpy(bytes + at, &brain, 2);
            break;
        case ATN_DTYPE_MXFP4:
            bytes[at] = (unsigned char)(120 + rnd(&seed) % 8);
            break;
        default:
            break;
        }
        for (int i = 0; i < 2; i++) {
            if (w->half_at[i] >= 0) {
                memcpy(bytes + at + w->half_at[i], &scale, 2);
            }
        }
    }
    return bytes;
}

static inline atn_weight *bind_rows(atn_backend *be, atn_dtype t, const void *rows, uint32_t n_in, uint32_t n_out)
{
    atn_weight *w = NULL;
    atn_err err = {0};
    if (atn_weight_bind(be, t, rows, n_in, n_out, &w, &err) != ATN_OK) {
        fail_msg("bind: %s", err.msg);
    }
    return w;
}

#endif
