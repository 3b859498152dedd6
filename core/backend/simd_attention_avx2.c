/* The attention kernels of the simd backend for AVX2, FMA and F16C: entered only where cpu_detect() found all three. */
#if defined(__x86_64__)
#define SIMD_ATTN_TABLE simd_attn_avx2
#define SIMD_ATTN_ISA   "avx2"
#include "core/backend/simd_attention_body.h"
#else
typedef int simd_attention_avx2_has_nothing_here;
#endif
