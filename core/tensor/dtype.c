/* The table of element types, and sizes of rows. */
#include <attnd/tensor.h>
#include "core/tensor/half.h"

typedef struct dtype_row {
    const char *name;
    uint8_t weights, bytes; /* a block of 256 weights is written as 0 */
    bool known;
} dtype_row;

/* By GGUF id; ids that are not here never named a type that a file of today may hold. */
static const dtype_row table[] = {
#define X(name, id, weights, bytes) [id] = {#name, (uint8_t)((weights)&255), bytes, true},
    ATN_DTYPE_LIST(X)
#undef X
        [9] = {.name = "Q8_1"},
    [15] = {.name = "Q8_K"},
    [16] = {.name = "IQ2_XXS"},
    [17] = {.name = "IQ2_XS"},
    [18] = {.name = "IQ3_XXS"},
    [19] = {.name = "IQ1_S"},
    [21] = {.name = "IQ3_S"},
    [22] = {.name = "IQ2_S"},
    [24] = {.name = "I8"},
    [25] = {.name = "I16"},
    [26] = {.name = "I32"},
    [27] = {.name = "I64"},
    [28] = {.name = "F64"},
    [29] = {.name = "IQ1_M"},
    [34] = {.name = "TQ1_0"},
    [35] = {.name = "TQ2_0"},
    [40] = {.name = "NVFP4"},
    [41] = {.name = "Q1_0"},
};

enum { N_IDS = sizeof table / sizeof *table };

bool atn_dtype_known(uint32_t id)
{
    return id < N_IDS && table[id].known;
}

const char *atn_dtype_name(uint32_t id)
{
    return id < N_IDS && table[id].name != NULL ? table[id].name : "unknown";
}

uint32_t atn_dtype_block(atn_dtype t)
{
    if (!atn_dtype_known(t)) {
        return 0;
    }
    return table[t].weights != 0 ? table[t].weights : 256;
}

uint32_t atn_dtype_block_bytes(atn_dtype t)
{
    return atn_dtype_known(t) ? table[t].bytes : 0;
}

bool atn_row_bytes(atn_dtype t, uint64_t n, size_t *bytes)
{
    uint32_t block = atn_dtype_block(t);
    return block != 0 && n % block == 0 && !__builtin_mul_overflow(n / block, table[t].bytes, bytes);
}

float atn_f16_to_f32(uint16_t h)
{
    return half_f16_to_f32(h);
}

uint16_t atn_f32_to_f16(float f)
{
    return half_f32_to_f16(f);
}

float atn_bf16_to_f32(uint16_t h)
{
    return half_bf16_to_f32(h);
}

uint16_t atn_f32_to_bf16(float f)
{
    return half_f32_to_bf16(f);
}
