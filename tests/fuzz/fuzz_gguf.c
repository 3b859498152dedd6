/* libFuzzer target for the GGUF reader: cmake -DATTND_FUZZ=ON with clang, then build/fuzz/tests/fuzz/fuzz_gguf CORPUS. */
#include "tests/fuzz/gguf_exercise.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    if (exercise_gguf(bytes, n) == ATN_INTERNAL) {
        abort();
    }
    return 0;
}
