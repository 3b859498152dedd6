/* The attention kernels of the simd backend for any CPU that the build targets. */
#define SIMD_ATTN_TABLE simd_attn_generic
#define SIMD_ATTN_ISA   "generic"
#include "core/backend/simd_attention_body.h"
