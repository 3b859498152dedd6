/* The registry, memory, the right to decline, and that ops do not allocate. */
#include "tests/parity/weights.h"
#include "tests/parity/attn_case.h"
#include "core/backend/backend_impl.h"
#include "core/backend/blas.h"

/* ---- a malloc that counts, where no sanitizer brings its own ---- */

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define COUNTS_ALLOCATIONS 0
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define COUNTS_ALLOCATIONS 0
#endif
#endif
#ifndef COUNTS_ALLOCATIONS
#define COUNTS_ALLOCATIONS 1
#endif

#if COUNTS_ALLOCATIONS
#include <stdatomic.h>
static atomic_size_t allocations;
extern void *__libc_malloc(size_t n);
extern void *__libc_calloc(size_t n, size_t size);
extern void *__libc_realloc(void *p, size_t n);
extern void *__libc_memalign(size_t align, size_t n);

void *malloc(size_t n)
{
    atomic_fetch_add(&allocations, 1);
    return __libc_malloc(n);
}

void *calloc(size_t n, size_t size)
{
    atomic_fetch_add(&allocations, 1);
    return __libc_calloc(n, size);
}

void *realloc(void *p, size_t n)
{
    atomic_fetch_add(&allocations, 1);
    return __libc_realloc(p, n);
}

void *aligned_alloc(size_t align, size_t n)
{
    atomic_fetch_add(&allocations, 1);
    return __libc_memalign(align, n);
}

/* Every op, few rows and many; the first round is not counted, as BLAS may set itself up then. */
static void ops_do_not_allocate(void **state)
{
    (void)state;
    for (size_t b = 0; atn_backend_list(b); b++) {
        atn_backend *be = open_backend(atn_backend_list(b), 2);
        unsigned char *rows = weight_rows(&weight_types[7], 96, 200, 1);
        atn_weight *w = bind_rows(be, ATN_DTYPE_Q8_0, rows, 96, 200);
        box x = box_new(be, 40, 96, 0, 1), y = box_new(be, 40, 200, 0, 2), gain = box_new(be, 1, 96, 0, 3);
        static const int32_t ids[40] = {1, 2, 3};
        attn_case *c = case_new(be, &attn_shapes[1]);
        size_t before = 0;
        for (int round = 0; round < 20; round++) {
            uint32_t n = round % 2 ? 1 : 40;
            if (round == 2) {
                before = atomic_load(&allocations);
            }
            atn_embed(be, x.mat, w, ids, n, 1.0f);
            atn_norm(
                be, &(atn_norm_args){.dst = x.mat, .x = x.mat, .weight = &gain.mat, .eps = 1e-6f, .width = 96, .n = n});
            atn_matmul(be, &(atn_matmul_args){.dst = y.mat, .x = x.mat, .w = w, .n = n});
            atn_activate(be, ATN_ACT_SILU, y.mat, y.mat, NULL, n);
            atn_softcap(be, y.mat, 3.0f, n);
            atn_add(be, x.mat, x.mat, n);
            atn_gather(be, x.mat, x.mat, ids, n);
            case_run(be, c);
        }
        assert_int_equal(atomic_load(&allocations) - before, 0);
        case_free(c);
        box_free(&x);
        box_free(&y);
        box_free(&gain);
        atn_weight_free(w);
        free(rows);
        atn_backend_close(be);
    }
}
#endif

/* ---- registry ---- */

static void names(void **state)
{
    (void)state;
    atn_backend *be = NULL;
    atn_err err = {0};
    assert_string_equal(atn_backend_list(0), "naive");
    assert_string_equal(atn_backend_list(1), "simd");
    assert_string_equal(atn_backend_list(2), "openblas");
    assert_null(atn_backend_list(3));
    assert_int_equal(atn_backend_open("cuda", NULL, &be, &err), ATN_INVALID);
    assert_null(be);
    assert_non_null(strstr(err.msg, "auto, naive, simd, openblas"));
    atn_backend_close(NULL);
    atn_buffer_free(NULL);
    atn_weight_free(NULL);
}

static void capabilities(void **state)
{
    (void)state;
    atn_backend_caps caps;
    atn_backend *be = open_backend("naive", 3);
    atn_backend_get_caps(be, &caps);
    assert_string_equal(caps.name, "naive");
    assert_string_equal(caps.numerics, "naive-1");
    assert_true(caps.batch_invariant && caps.attention_probe && caps.n_threads == 3 && caps.detail[0]);
    assert_true(atn_backend_supports(be, ATN_OP_MATMUL, ATN_DTYPE_Q6_K));
    assert_true(atn_backend_supports(be, ATN_OP_ATTENTION, ATN_DTYPE_F16));
    assert_false(atn_backend_supports(be, ATN_OP_ATTENTION, ATN_DTYPE_Q8_0));
    atn_backend_close(be);
    be = open_backend("auto", 1);
    atn_backend_get_caps(be, &caps);
    assert_string_equal(caps.name, "openblas");
    assert_string_equal(caps.numerics, "openblas-1");
    assert_true(!caps.batch_invariant && caps.attention_probe);
    assert_false(atn_backend_supports(be, ATN_OP_NORM, ATN_DTYPE_F32)); /* naive's */
    atn_backend_close(be);
}

/* ---- declining ---- */

/* Right but for one output of a large product: what a miscompiled edge kernel looks like. */
static void wrong_gemm(uint32_t n, uint32_t n_out, uint32_t n_in, const float *x, size_t ldx, const float *w,
                       size_t ldw, float *y, size_t ldy)
{
    for (uint32_t r = 0; r < n; r++) {
        for (uint32_t o = 0; o < n_out; o++) {
            double sum = 0.0;
            for (uint32_t i = 0; i < n_in; i++) {
                sum += (double)x[r * ldx + i] * (double)w[o * ldw + i];
            }
            y[r * ldy + o] = (float)(n >= 64 && r == n - 1 && o == n_out - 1 ? sum * 1.001 + 0.01 : sum);
        }
    }
}

static void nan_gemm(uint32_t n, uint32_t n_out, uint32_t n_in, const float *x, size_t ldx, const float *w, size_t ldw,
                     float *y, size_t ldy)
{
    wrong_gemm(n, n_out, n_in, x, ldx, w, ldw, y, ldy);
    y[0] = NAN;
}

static atn_status wrong_open(atn_backend *be, atn_err *err)
{
    return blas_open_gemm(be, wrong_gemm, err);
}

static atn_status nan_open(atn_backend *be, atn_err *err)
{
    return blas_open_gemm(be, nan_gemm, err);
}

static void a_wrong_blas_declines_itself(void **state)
{
    (void)state;
    backend_ops wrong = blas_ops;
    atn_backend *be = NULL;
    atn_err err = {0};
    wrong.open = wrong_open;
    assert_int_equal(backend_open_ops(&wrong, NULL, &be, &err), ATN_UNSUPPORTED);
    assert_null(be);
    assert_non_null(strstr(err.msg, "relative error"));
    wrong.open = nan_open;
    assert_int_equal(backend_open_ops(&wrong, NULL, &be, &err), ATN_UNSUPPORTED);
    assert_non_null(strstr(err.msg, "relative error nan"));

    wrong.open = wrong_open;
    const backend_ops *const tables[] = {&naive_ops, &wrong};
    atn_backend_caps caps;
    assert_int_equal(backend_open_best(tables, 2, NULL, &be, &err), ATN_OK);
    atn_backend_get_caps(be, &caps);
    assert_string_equal(caps.name, "naive");
    atn_backend_close(be);
}

/* An op that a table lacks, or whose type it declines, is naive's. */
static void called(atn_backend *be, const atn_matmul_args *a)
{
    (void)be;
    mat_row(a->dst, 0)[0] = 42.0f;
}

static bool only_f32(const atn_backend *be, atn_op op, atn_dtype t)
{
    (void)be;
    return op == ATN_OP_MATMUL && t == ATN_DTYPE_F32;
}

static void declined_ops_are_naives(void **state)
{
    (void)state;
    backend_ops few = {.name = "few", .open = naive_ops.open, .supports = only_f32, .matmul = called};
    atn_backend *be = NULL;
    atn_err err = {0};
    assert_int_equal(backend_open_ops(&few, NULL, &be, &err), ATN_OK);
    static const float ones[32] = {1.0f, 1.0f};
    unsigned char *rows = weight_rows(&weight_types[7], 32, 1, 1);
    atn_weight *f32 = bind_rows(be, ATN_DTYPE_F32, ones, 32, 1), *q8 = bind_rows(be, ATN_DTYPE_Q8_0, rows, 32, 1);
    box x = box_new(be, 1, 32, 0, 1), y = box_new(be, 1, 1, 0, 2);
    atn_matmul(be, &(atn_matmul_args){.dst = y.mat, .x = x.mat, .w = f32, .n = 1});
    assert_true(box_row(&y, 0)[0] == 42.0f);
    atn_matmul(be, &(atn_matmul_args){.dst = y.mat, .x = x.mat, .w = q8, .n = 1});
    assert_true(box_row(&y, 0)[0] != 42.0f);
    atn_add(be, x.mat, x.mat, 1);
    box_free(&x);
    box_free(&y);
    atn_weight_free(f32);
    atn_weight_free(q8);
    free(rows);
    atn_backend_close(be);
}

/* A caller that flushes denormals gets the same bits: every op sets the float environment first. */
static void callers_float_environment(void **state)
{
    (void)state;
#if defined(__x86_64__)
    atn_backend *be = open_backend("naive", 1);
    box x = box_new(be, 1, 1, 0, 1);
    unsigned before = __builtin_ia32_stmxcsr();
    box_row(&x, 0)[0] = 0x1p-130f;
    __builtin_ia32_ldmxcsr(before | 0x8040); /* flush to zero, denormals are zero */
    atn_add(be, x.mat, x.mat, 1);
    __builtin_ia32_ldmxcsr(before);
    assert_true(box_row(&x, 0)[0] == 0x1p-129f);
    box_free(&x);
    atn_backend_close(be);
#endif
}

/* ---- memory ---- */

static void buffers(void **state)
{
    (void)state;
    atn_backend *be = open_backend("naive", 1);
    static const size_t sizes[] = {0, 1, 4096, 3 << 20};
    for (size_t i = 0; i < 4; i++) {
        atn_buffer *a = NULL, *b = NULL;
        atn_err err;
        assert_int_equal(atn_buffer_new(be, sizes[i], true, &a, &err), ATN_OK);
        assert_int_equal(atn_buffer_new(be, sizes[i], false, &b, &err), ATN_OK);
        unsigned char *host = atn_buffer_host(a);
        assert_int_equal((uintptr_t)host % 64, 0);
        for (size_t j = 0; j < sizes[i]; j += sizes[i] / 7 + 1) {
            assert_int_equal(host[j], 0);
        }
        if (sizes[i] >= 16) {
            char word[5] = "";
            atn_buffer_write(a, sizes[i] - 5, "moved", 5);
            atn_buffer_copy(b, 3, a, sizes[i] - 5, 5);
            atn_buffer_copy(b, 5, b, 3, 5); /* within one buffer, overlapping */
            atn_buffer_read(b, 5, word, 5);
            assert_memory_equal(word, "moved", 5);
        }
        atn_buffer_free(a);
        atn_buffer_free(b);
    }
    atn_buffer *huge = NULL;
    atn_err err;
    assert_int_equal(atn_buffer_new(be, SIZE_MAX - 10, false, &huge, &err), ATN_NOMEM);
    assert_int_equal(atn_buffer_new(be, SIZE_MAX / 2, false, &huge, &err), ATN_NOMEM);
    assert_null(huge);
    atn_backend_close(be);
}

static void weights_that_cannot_be_bound(void **state)
{
    (void)state;
    atn_backend *be = open_backend("naive", 1);
    static const unsigned char rows[1024];
    atn_weight *w = NULL;
    atn_err err = {0};
    assert_int_equal(atn_weight_bind(be, (atn_dtype)16, rows, 256, 1, &w, &err), ATN_UNSUPPORTED); /* IQ2_XXS */
    assert_non_null(strstr(err.msg, "IQ2_XXS"));
    assert_int_equal(atn_weight_bind(be, ATN_DTYPE_Q8_0, rows, 33, 1, &w, &err),
                     ATN_UNSUPPORTED); /* not whole blocks */
    assert_int_equal(atn_weight_bind(be, ATN_DTYPE_F32, rows, 0, 1, &w, &err), ATN_UNSUPPORTED);
    assert_int_equal(atn_weight_bind(be, ATN_DTYPE_F32, rows, 1, 0, &w, &err), ATN_UNSUPPORTED);
    assert_null(w);
    w = bind_rows(be, ATN_DTYPE_Q8_0, rows, 64, 2);
    assert_int_equal(atn_weight_bytes(w), 2 * 2 * 34);
    atn_weight_free(w);
    atn_backend_close(be);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#if COUNTS_ALLOCATIONS
        cmocka_unit_test(ops_do_not_allocate),
#endif
        cmocka_unit_test(names),
        cmocka_unit_test(capabilities),
        cmocka_unit_test(a_wrong_blas_declines_itself),
        cmocka_unit_test(declined_ops_are_naives),
        cmocka_unit_test(callers_float_environment),
        cmocka_unit_test(buffers),
        cmocka_unit_test(weights_that_cannot_be_bound)
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
