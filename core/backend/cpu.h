/* What the CPU and the operating system allow: decides at open which compiled body of a kernel runs. Thread: pure. */
#ifndef ATN_CPU_H
#define ATN_CPU_H

#include <stdbool.h>

typedef struct cpu_features {
    bool avx2; /* AVX2, FMA and F16C together, with the registers' upper halves saved by the system */
} cpu_features;

cpu_features cpu_detect(void);

#endif
