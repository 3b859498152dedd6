/* Element types of weights and KV caches, and their exact meaning as float32.
 *
 * Numbers are those of GGUF (ggml-org/ggml docs/gguf.md), so that a file's type id is the enum value.
 * A quantised row is a whole number of blocks; atn_dequantize gives the same floats as gguf-py, bit for bit.
 * Thread: pure functions.
 */
#ifndef ATTND_TENSOR_H
#define ATTND_TENSOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* X(name, GGUF id, weights a block, bytes a block) */
#define ATN_DTYPE_LIST(X)   \
    X(F32, 0, 1, 4)         \
    X(F16, 1, 1, 2)         \
    X(Q4_0, 2, 32, 18)      \
    X(Q4_1, 3, 32, 20)      \
    X(Q5_0, 6, 32, 22)      \
    X(Q5_1, 7, 32, 24)      \
    X(Q8_0, 8, 32, 34)      \
    X(Q2_K, 10, 256, 84)    \
    X(Q3_K, 11, 256, 110)   \
    X(Q4_K, 12, 256, 144)   \
    X(Q5_K, 13, 256, 176)   \
    X(Q6_K, 14, 256, 210)   \
    X(IQ4_NL, 20, 32, 18)   \
    X(IQ4_XS, 23, 256, 136) \
    X(BF16, 30, 1, 2)       \
    X(MXFP4, 39, 32, 17)

typedef enum atn_dtype {
#define X(name, id, weights, bytes) ATN_DTYPE_##name = id,
    ATN_DTYPE_LIST(X)
#undef X
} atn_dtype;

bool atn_dtype_known(uint32_t id);           /* is id one of the list? */
const char *atn_dtype_name(uint32_t id);     /* "Q4_K"; names of GGUF types we cannot read too ("IQ2_XXS"); "unknown" */
uint32_t atn_dtype_block(atn_dtype t);       /* weights a block */
uint32_t atn_dtype_block_bytes(atn_dtype t); /* bytes a block */

/* Bytes of a row of n weights. False when n is no whole number of blocks or the size overflows. */
bool atn_row_bytes(atn_dtype t, uint64_t n, size_t *bytes);

/* dst[n] = the exact values of the blocks at src; n is a whole number of blocks; src needs no alignment. */
void atn_dequantize(atn_dtype t, const void *src, float *dst, size_t n);

float atn_f16_to_f32(uint16_t h);
uint16_t atn_f32_to_f16(float f); /* round to nearest even; overflow gives infinity; NaN stays NaN */
float atn_bf16_to_f32(uint16_t h);
uint16_t atn_f32_to_bf16(float f);

#endif
