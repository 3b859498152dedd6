/* CPU detection: cpuid says what the processor has, xgetbv what the system saves at a context switch. Both must agree. */
#include "core/backend/cpu.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <stdint.h>

/* XCR0: bits 1 and 2 say that XMM and the upper halves of YMM are saved. */
static uint64_t read_xcr0(void)
{
    uint32_t lo, hi;
    __asm__ volatile("xgetbv" : "=a"(lo), "=d"(hi) : "c"(0));
    return ((uint64_t)hi << 32) | lo;
}

cpu_features cpu_detect(void)
{
    cpu_features f = {0};
    uint32_t a, b, c, d;
    if (!__get_cpuid(1, &a, &b, &c, &d)) {
        return f;
    }
    bool osxsave = (c & bit_OSXSAVE) != 0;
    bool fma_f16c = (c & bit_FMA) && (c & bit_F16C) && (c & bit_AVX);
    if (!osxsave || !fma_f16c || (read_xcr0() & 6u) != 6u) {
        return f;
    }
    if (__get_cpuid_count(7, 0, &a, &b, &c, &d)) {
        f.avx2 = (b & bit_AVX2) != 0;
    }
    return f;
}
#else
cpu_features cpu_detect(void)
{
    return (cpu_features){0};
}
#endif
