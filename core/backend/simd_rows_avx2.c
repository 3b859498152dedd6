/* The row kernels of the simd backend for AVX2, FMA and F16C: entered only where cpu_detect() found all three. */
#if defined(__x86_64__)
#define SIMD_ROWS_TABLE simd_rows_avx2
#define SIMD_ROWS_ISA   "avx2"
#include "core/backend/simd_rows_body.h"
#else
typedef int simd_rows_avx2_has_nothing_here;
#endif
