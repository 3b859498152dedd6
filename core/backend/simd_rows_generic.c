/* The row kernels of the simd backend for any CPU that the build targets. */
#define SIMD_ROWS_TABLE simd_rows_generic
#define SIMD_ROWS_ISA   "generic"
#include "core/backend/simd_rows_body.h"
