/* Every allocation of the GGUF reader fails once: ATN_NOMEM with words, nothing leaked, nothing left open. */
#include "tests/unit/failing_malloc.h"
#include "tests/unit/load/gguf_builder.h"

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

static char folder[] = "/tmp/attnd-test-gguf-XXXXXX";
static char paths[2][128];

/* Opens the model, reads two arrays, closes. */
static atn_status use(const char *path, atn_err *err)
{
    gguf *g = NULL;
    gguf_str *words = NULL;
    int32_t *ints = NULL;
    size_t n;
    atn_status s = gguf_open(path, &g, err);
    if (s == ATN_OK) {
        s = gguf_array_strings(g, "words", &words, &n, err);
    }
    if (s == ATN_OK) {
        s = gguf_array_i32(g, "ints", &ints, &n, err);
    }
    if (s == ATN_OK && (gguf_n_tensors(g) != 2 || words[1].n != 2 || ints[2] != 9)) {
        s = ATN_INTERNAL;
    }
    free(words);
    free(ints);
    gguf_close(g);
    return s;
}

static void test_every_allocation(void **state)
{
    (void)state;
    char path[128];
    snprintf(path, sizeof path, "%s", paths[0]);
    atn_err err = {0};
    int first = dup(0);
    close(first);
    assert_int_equal(use(path, &err), ATN_OK);
    long before = n_live;
    long failures = 0;
    for (long k = 1; k < 1000; k++) {
        err = (atn_err){0};
        fail_at = k;
        atn_status s = use(path, &err);
        bool reached = fail_at == 0;
        fail_at = 0;
        if (!reached) {
            assert_int_equal(s, ATN_OK);
            break;
        }
        failures++;
        /* giving back unused memory may fail without harm */
        if (s != ATN_OK) {
            assert_int_equal(s, ATN_NOMEM);
            assert_int_equal(err.code, ATN_NOMEM);
            assert_non_null(strstr(err.msg, "no memory"));
        }
        assert_int_equal(n_live, before);
        int fd = dup(0);
        close(fd);
        assert_int_equal(fd, first);
    }
    assert_true(SANITIZED || failures > 12);
    assert_true(failures < 999);
}

static int start(void **state)
{
    (void)state;
    if (mkdtemp(folder) == NULL) {
        return -1;
    }
    for (int i = 0; i < 2; i++) {
        buf b = gguf_begin(3, 1, i == 0 ? 4 : 2);
        put_kv(&b, "split.no", GGUF_U16, &(uint16_t){(uint16_t)i}, 2);
        put_kv(&b, "split.count", GGUF_U16, &(uint16_t){2}, 2);
        if (i == 0) {
            put_kv_array(&b, "words", GGUF_STRING, 2);
            put_text(&b, "a");
            put_text(&b, "bc");
            put_kv_array(&b, "ints", GGUF_U8, 3);
            put(&b, "\7\10\11", 3);
        }
        put_tensor(&b, i == 0 ? "x" : "y", 1, (uint64_t[]){4}, ATN_DTYPE_F32, 0);
        put_data(&b, 32, 16);
        snprintf(paths[i], sizeof paths[i], "%s/m-%05d-of-00002.gguf", folder, i + 1);
        put_file(paths[i], b.data, b.len);
        buf_free(&b);
    }
    return 0;
}

static int end(void **state)
{
    (void)state;
    return unlink(paths[0]) + unlink(paths[1]) + rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_every_allocation)};
    return cmocka_run_group_tests(tests, start, end);
}
