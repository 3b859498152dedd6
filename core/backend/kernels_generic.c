/* The kernels for any CPU that the build targets, and the choice between the compiled bodies. */
#define KERNELS_TABLE      kernels_generic
#define KERNELS_ISA        "generic"
#define KERNELS_DEQUANTIZE atn_dequantize
#include "core/backend/kernels_body.h"
#include "core/backend/cpu.h"

const kernels *kernels_pick(void)
{
#if defined(__x86_64__)
    if (cpu_detect().avx2) {
        return &kernels_avx2;
    }
#endif
    return &kernels_generic;
}
