/* The kernels compiled for AVX2, FMA and F16C: entered only where cpu_detect() found all three. */
#if defined(__x86_64__)
#define KERNELS_TABLE      kernels_avx2
#define KERNELS_ISA        "avx2"
#define KERNELS_DEQUANTIZE dequantize_avx2
#include "core/backend/kernels_body.h"
#else
typedef int kernels_avx2_has_nothing_here;
#endif
