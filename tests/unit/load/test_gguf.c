/* GGUF values: typed getters, arrays, tensor data, files that shrink, split files, the models of the golden tests. */
#include "tests/unit/load/gguf_builder.h"

#include <dirent.h>
#include <fcntl.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

static char folder[] = "/tmp/attnd-test-gguf-XXXXXX";

static atn_err err;

static gguf *open_bytes(const buf *b)
{
    gguf *g = NULL;
    if (gguf_open_memory(b->data, b->len, &g, &err) != ATN_OK) {
        fail_msg("%s", err.msg);
    }
    return g;
}

/* The status is FORMAT and err names key and words. */
static void refused(atn_status s, const char *key, const char *words)
{
    if (s != ATN_FORMAT || strcmp(err.param, key) != 0 || strstr(err.msg, words) == NULL ||
        strstr(err.msg, key) == NULL) {
        fail_msg("wanted '%s' '%s', got %s '%s' '%s'", key, words, atn_status_name(s), err.param, err.msg);
    }
}

/* ---- single values ---- */

static void test_integers(void **state)
{
    (void)state;
    static const struct {
        const char *key;
        gguf_type type;
        size_t bytes;
        uint64_t bits;
        bool fits;
        uint32_t value;
    } rows[] = {
        {"u8", GGUF_U8, 1, 200, true, 200},
        {"i8", GGUF_I8, 1, 100, true, 100},
        {"i8.neg", GGUF_I8, 1, 0xFF, false, 0},
        {"u16", GGUF_U16, 2, 65535, true, 65535},
        {"i16.neg", GGUF_I16, 2, 0xFFFF, false, 0},
        {"u32", GGUF_U32, 4, 0xFFFFFFFF, true, 0xFFFFFFFF},
        {"i32", GGUF_I32, 4, 7, true, 7},
        {"i32.neg", GGUF_I32, 4, 0xFFFFFFFF, false, 0},
        {"u64", GGUF_U64, 8, 0xFFFFFFFE, true, 0xFFFFFFFE},
        {"u64.big", GGUF_U64, 8, 0x100000000u, false, 0},
        {"u64.top", GGUF_U64, 8, UINT64_MAX, false, 0},
        {"i64", GGUF_I64, 8, 12, true, 12},
        {"i64.neg", GGUF_I64, 8, UINT64_MAX, false, 0},
    };
    enum { N = sizeof rows / sizeof *rows };
    buf b = gguf_begin(3, 0, N);
    for (size_t i = 0; i < N; i++) {
        put_kv(&b, rows[i].key, rows[i].type, &rows[i].bits, rows[i].bytes);
    }
    gguf *g = open_bytes(&b);
    for (size_t i = 0; i < N; i++) {
        uint32_t v = 1;
        atn_status s = gguf_u32(g, rows[i].key, 0, UINT32_MAX, &v, &err);
        if (rows[i].fits) {
            assert_int_equal(s, ATN_OK);
            assert_int_equal(v, rows[i].value);
        } else {
            refused(s, rows[i].key, "0 to 4294967295 are allowed");
            assert_int_equal(v, 1);
        }
    }
    uint32_t v = 0;
    refused(gguf_u32(g, "i32.neg", 1, 512, &v, &err), "i32.neg", "is -1: 1 to 512 are allowed");
    refused(gguf_u32(g, "u16", 1, 512, &v, &err), "u16", "is 65535: 1 to 512 are allowed");
    refused(gguf_u32(g, "i32", 8, 512, &v, &err), "i32", "is 7: 8 to 512 are allowed");
    assert_int_equal(gguf_u32(g, "i32", 7, 7, &v, &err), ATN_OK);
    refused(gguf_u32(g, "u64.top", 0, 9, &v, &err), "u64.top", "exceeds 9223372036854775807: 0 to 9 are allowed");
    gguf_close(g);
    buf_free(&b);
}

static void test_wrong_types_and_absent_keys(void **state)
{
    (void)state;
    buf b = gguf_begin(3, 0, 6);
    put_kv_text(&b, "text", "12");
    put_kv_u32(&b, "int", 1);
    put_kv(&b, "float", GGUF_F32, &(float){1.5f}, 4);
    put_kv(&b, "true", GGUF_BOOL, "\1", 1);
    put_kv(&b, "two", GGUF_BOOL, "\2", 1);
    put_kv_array(&b, "array", GGUF_U32, 1);
    put_u32(&b, 3);
    gguf *g = open_bytes(&b);
    uint32_t u;
    float f;
    bool flag;
    gguf_str s;
    size_t n;
    refused(gguf_u32(g, "text", 0, 9, &u, &err), "text", "has type string: it must be an integer");
    refused(gguf_u32(g, "float", 0, 9, &u, &err), "float", "has type f32: it must be an integer");
    refused(gguf_u32(g, "true", 0, 9, &u, &err), "true", "has type bool: it must be an integer");
    refused(gguf_u32(g, "array", 0, 9, &u, &err), "array", "is an array of u32: it must be an integer");
    refused(gguf_f32(g, "int", 0, 9, &f, &err), "int", "has type u32: it must be f32 or f64");
    refused(gguf_bool(g, "int", &flag, &err), "int", "has type u32: it must be bool");
    refused(gguf_bool(g, "two", &flag, &err), "two", "is 2: a bool is 0 or 1");
    refused(gguf_string(g, "int", &s, &err), "int", "has type u32: it must be a string");
    refused(gguf_array(g, "int", GGUF_U32, &n, &err), "int", "has type u32: it must be an array");
    refused(gguf_array(g, "array", GGUF_I32, &n, &err), "array", "is an array of u32: it must be one of i32");
    assert_int_equal(gguf_array(g, "array", GGUF_U32, &n, &err), ATN_OK);
    assert_int_equal(n, 1);
    assert_int_equal(gguf_bool(g, "true", &flag, &err), ATN_OK);
    assert_true(flag);
    assert_int_equal(gguf_string(g, "text", &s, &err), ATN_OK);
    assert_true(s.n == 2 && memcmp(s.s, "12", 2) == 0);
    assert_true(gguf_has(g, "int"));
    assert_false(gguf_has(g, "in"));
    err.code = ATN_DEADLINE; /* absent: err is left alone */
    gguf_str *strings;
    int32_t *ints;
    float *floats;
    assert_int_equal(gguf_u32(g, "none", 0, 9, &u, &err), ATN_NOT_FOUND);
    assert_int_equal(gguf_f32(g, "none", 0, 9, &f, &err), ATN_NOT_FOUND);
    assert_int_equal(gguf_bool(g, "none", &flag, &err), ATN_NOT_FOUND);
    assert_int_equal(gguf_string(g, "none", &s, &err), ATN_NOT_FOUND);
    assert_int_equal(gguf_array(g, "none", GGUF_U8, &n, &err), ATN_NOT_FOUND);
    assert_int_equal(gguf_array_strings(g, "none", &strings, &n, &err), ATN_NOT_FOUND);
    assert_int_equal(gguf_array_i32(g, "none", &ints, &n, &err), ATN_NOT_FOUND);
    assert_int_equal(gguf_array_f32(g, "none", &floats, &n, &err), ATN_NOT_FOUND);
    assert_int_equal(err.code, ATN_DEADLINE);
    gguf_close(g);
    buf_free(&b);
}

static void test_floats(void **state)
{
    (void)state;
    buf b = gguf_begin(3, 0, 4);
    put_kv(&b, "f32", GGUF_F32, &(float){1e-5f}, 4);
    put_kv(&b, "f64", GGUF_F64, &(double){1e-5}, 8);
    put_kv(&b, "nan", GGUF_F32, &(float){NAN}, 4);
    put_kv(&b, "inf", GGUF_F32, &(float){INFINITY}, 4);
    gguf *g = open_bytes(&b);
    float f = 0;
    assert_int_equal(gguf_f32(g, "f32", 0, 1, &f, &err), ATN_OK);
    assert_true(f == 1e-5f);
    assert_int_equal(gguf_f32(g, "f64", 0, 1, &f, &err), ATN_OK);
    assert_true(f == 1e-5f);
    refused(gguf_f32(g, "f32", 0.5f, 1, &f, &err), "f32", "is 1e-05: 0.5 to 1 are allowed");
    refused(gguf_f32(g, "nan", 0, 1, &f, &err), "nan", "nan: 0 to 1 are allowed");
    refused(gguf_f32(g, "inf", 0, 1e30f, &f, &err), "inf", "is inf: 0 to 1e+30 are allowed");
    gguf_close(g);
    buf_free(&b);
}

/* ---- arrays ---- */

static void test_arrays(void **state)
{
    (void)state;
    buf b = gguf_begin(3, 0, 9);
    put_kv_array(&b, "words", GGUF_STRING, 3);
    put_text(&b, "one");
    put_text(&b, "");
    put_text(&b, "three");
    put_kv_array(&b, "i8", GGUF_I8, 3);
    put(&b, "\xFF\x00\x7F", 3);
    put_kv_array(&b, "u16", GGUF_U16, 2);
    put(&b, "\xFF\xFF\x01\x00", 4);
    put_kv_array(&b, "u32", GGUF_U32, 2);
    put_u32(&b, 5);
    put_u32(&b, 0x80000000u);
    put_kv_array(&b, "i64", GGUF_I64, 2);
    put_u64(&b, (uint64_t)-9);
    put_u64(&b, 0x7FFFFFFF);
    put_kv_array(&b, "bools", GGUF_BOOL, 3);
    put(&b, "\1\0\1", 3);
    put_kv_array(&b, "f32", GGUF_F32, 2);
    put(&b, (float[]){-1.5f, 2}, 8);
    put_kv_array(&b, "f64", GGUF_F64, 1);
    put(&b, (double[]){0.25}, 8);
    put_kv_array(&b, "empty", GGUF_I32, 0);
    gguf *g = open_bytes(&b);
    gguf_str *words;
    int32_t *ints;
    float *floats;
    size_t n;
    assert_int_equal(gguf_array_strings(g, "words", &words, &n, &err), ATN_OK);
    assert_int_equal(n, 3);
    assert_true(words[0].n == 3 && memcmp(words[0].s, "one", 3) == 0 && words[1].n == 0 &&
                memcmp(words[2].s, "three", 5) == 0);
    free(words);
    static const struct {
        const char *key;
        size_t n;
        int32_t values[3];
    } good[] = {{"i8", 3, {-1, 0, 127}},
                {"u16", 2, {65535, 1}},
                {"i64", 2, {-9, INT32_MAX}},
                {"bools", 3, {1, 0, 1}},
                {"empty", 0, {0}}};
    for (size_t i = 0; i < 5; i++) {
        assert_int_equal(gguf_array_i32(g, good[i].key, &ints, &n, &err), ATN_OK);
        assert_int_equal(n, good[i].n);
        assert_memory_equal(ints, good[i].values, n * 4);
        free(ints);
    }
    refused(gguf_array_i32(g, "u32", &ints, &n, &err), "u32", "element 1 does not fit 32 bits");
    refused(gguf_array_i32(g, "words", &ints, &n, &err), "words",
            "is an array of string: it must be an array of integers");
    refused(gguf_array_i32(g, "f32", &ints, &n, &err), "f32", "is an array of f32: it must be an array of integers");
    assert_int_equal(gguf_array_f32(g, "f32", &floats, &n, &err), ATN_OK);
    assert_true(n == 2 && floats[0] == -1.5f && floats[1] == 2);
    free(floats);
    assert_int_equal(gguf_array_f32(g, "f64", &floats, &n, &err), ATN_OK);
    assert_true(n == 1 && floats[0] == 0.25f);
    free(floats);
    /* scores of another element type would be read past their end */
    refused(gguf_array_f32(g, "i8", &floats, &n, &err), "i8", "is an array of i8: it must be an array of f32");
    refused(gguf_array_strings(g, "i8", &words, &n, &err), "i8", "is an array of i8: it must be one of string");
    gguf_close(g);
    buf_free(&b);
}

/* ---- tensor data ---- */

static void test_read_and_shrink(void **state)
{
    (void)state;
    char path[128];
    unsigned char bytes[64];
    buf b = gguf_begin(3, 2, 0);
    put_tensor(&b, "a", 1, (uint64_t[]){8}, ATN_DTYPE_F32, 32);
    put_tensor(&b, "b", 2, (uint64_t[]){4, 2}, ATN_DTYPE_F32, 0);
    put_data(&b, 32, 64);
    snprintf(path, sizeof path, "%s/m.gguf", folder);
    put_file(path, b.data, b.len);
    gguf *from_file, *from_memory = open_bytes(&b);
    assert_int_equal(gguf_open(path, &from_file, &err), ATN_OK);
    gguf *const both[] = {from_file, from_memory};
    for (int i = 0; i < 2; i++) {
        const gguf *g = both[i];
        assert_int_equal(gguf_file_bytes(g), b.len);
        assert_int_equal(gguf_n_tensors(g), 2);
        assert_null(gguf_tensor_at(g, 2));
        const gguf_tensor *t = gguf_find_tensor(g, "a");
        assert_ptr_equal(t, gguf_tensor_at(g, 0));
        assert_int_equal(t->bytes, 32);
        assert_int_equal(gguf_read(g, t, 0, bytes, 32, &err), ATN_OK);
        assert_memory_equal(bytes, b.data + b.len - 32, 32);
        assert_int_equal(bytes[0], 32);
        t = gguf_find_tensor(g, "b");
        assert_true(t->n_dims == 2 && t->ne[0] == 4 && t->ne[1] == 2 && t->ne[2] == 1 && t->ne[3] == 1);
        assert_int_equal(gguf_read(g, t, 30, bytes, 2, &err), ATN_OK);
        assert_true(bytes[0] == 30 && bytes[1] == 31);
        assert_int_equal(gguf_read(g, t, 32, bytes, 0, &err), ATN_OK);
        assert_int_equal(gguf_read(g, t, 31, bytes, 2, &err), ATN_INVALID); /* the next tensor's bytes are not b's */
        assert_int_equal(gguf_read(g, t, SIZE_MAX, bytes, 2, &err), ATN_INVALID);
        assert_null(gguf_find_tensor(g, "c"));
        assert_null(gguf_find_tensor(g, ""));
    }
    assert_int_equal(truncate(path, (off_t)b.len - 1),
                     0); /* after it was opened: an error, no signal, for what is gone only */
    assert_int_equal(gguf_read(from_file, gguf_find_tensor(from_file, "b"), 0, bytes, 32, &err), ATN_OK);
    assert_int_equal(gguf_read(from_file, gguf_find_tensor(from_file, "a"), 0, bytes, 32, &err), ATN_IO);
    assert_non_null(strstr(err.msg, "m.gguf: the file has shrunk: it ends before byte"));
    assert_int_equal(truncate(path, 0), 0);
    assert_int_equal(gguf_read(from_file, gguf_find_tensor(from_file, "b"), 0, bytes, 1, &err), ATN_IO);
    assert_null(gguf_find_tensor(from_file, "none")); /* names and keys do not need the file any more */
    gguf_close(from_file);
    gguf_close(from_memory);
    gguf_close(NULL);
    buf_free(&b);
}

/* A header longer than the first read, in one long string and in many keys: found by reading on. */
static void test_long_header(void **state)
{
    (void)state;
    char path[128], key[32];
    buf b = gguf_begin(3, 1, 20001);
    put_kv(&b, "long", GGUF_STRING, NULL, 0);
    put_u64(&b, 3 << 20);
    for (int i = 0; i < 3 << 20; i += 16) {
        put(&b, "0123456789abcdef", 16);
    }
    for (uint32_t i = 0; i < 20000; i++) {
        snprintf(key, sizeof key, "key.%u", (unsigned)i);
        put_kv_u32(&b, key, i);
    }
    put_tensor(&b, "t", 1, (uint64_t[]){8}, ATN_DTYPE_F32, 0);
    put_data(&b, 32, 32);
    snprintf(path, sizeof path, "%s/long.gguf", folder);
    put_file(path, b.data, b.len);
    gguf *g;
    assert_int_equal(gguf_open(path, &g, &err), ATN_OK);
    for (uint32_t i = 0; i < 20000; i++) {
        uint32_t v = 1;
        snprintf(key, sizeof key, "key.%u", (unsigned)i);
        assert_int_equal(gguf_u32(g, key, 0, 20000, &v, &err), ATN_OK);
        assert_int_equal(v, i);
    }
    gguf_str s;
    assert_int_equal(gguf_string(g, "long", &s, &err), ATN_OK);
    assert_true(s.n == 3 << 20 && s.s[s.n - 1] == 'f');
    float data[8];
    assert_int_equal(gguf_read(g, gguf_tensor_at(g, 0), 0, data, 32, &err), ATN_OK);
    assert_memory_equal(data, b.data + b.len - 32, 32);
    gguf_close(g);
    buf_free(&b);
}

/* The limit on a header holds however its reads fall: three keys in a sparse file, the last of which crosses it. */
static void test_header_limit(void **state)
{
    (void)state;
    const uint64_t lengths[] = {100 << 20, 20 << 20, 200 << 20};
    char path[128];
    snprintf(path, sizeof path, "%s/limit.gguf", folder);
    buf b = gguf_begin(3, 0, 3);
    put_file(path, b.data, b.len);
    off_t at = (off_t)b.len;
    int fd = open(path, O_WRONLY);
    assert_true(fd >= 0);
    for (int i = 0; i < 3; i++) {
        buf_clear(&b);
        put_kv(&b, (const char *const[]){"a", "b", "c"}[i], GGUF_STRING, NULL, 0);
        put_u64(&b, lengths[i]);
        assert_int_equal(pwrite(fd, b.data, b.len, at), (ssize_t)b.len);
        at += (off_t)(b.len + lengths[i]);
    }
    assert_int_equal(ftruncate(fd, at), 0);
    close(fd);
    gguf *g;
    assert_int_equal(gguf_open(path, &g, &err), ATN_FORMAT);
    assert_string_equal(err.param, "c");
    assert_non_null(strstr(err.msg, "the header grows past 268435456 bytes"));
    unlink(path);
    buf_free(&b);
}

/* ---- split files ---- */

typedef struct part {
    int no, count, total; /* -1: no such key */
    const char *tensor;
} part;

static void put_part(const char *name, part p)
{
    char path[160];
    buf b = gguf_begin(3, 1, (p.no >= 0) + (p.count >= 0) + (p.total >= 0));
    if (p.no >= 0) {
        put_kv(&b, "split.no", GGUF_U16, &(uint16_t){(uint16_t)p.no}, 2);
    }
    if (p.count >= 0) {
        put_kv(&b, "split.count", GGUF_U16, &(uint16_t){(uint16_t)p.count}, 2);
    }
    if (p.total >= 0) {
        put_kv(&b, "split.tensors.count", GGUF_I32, &p.total, 4);
    }
    put_tensor(&b, p.tensor, 1, (uint64_t[]){4}, ATN_DTYPE_F32, 0);
    put_data(&b, 32, 0);
    float values[4] = {(float)p.no, 1, 2, 3};
    put(&b, values, sizeof values);
    snprintf(path, sizeof path, "%s/%s", folder, name);
    put_file(path, b.data, b.len);
    buf_free(&b);
}

static size_t open_files(void)
{
    size_t n = 0;
    DIR *d = opendir("/proc/self/fd");
    assert_non_null(d);
    while (readdir(d) != NULL) {
        n++;
    }
    closedir(d);
    return n;
}

static const char *const part_names[] = {"s-00001-of-00003.gguf", "s-00002-of-00003.gguf", "s-00003-of-00003.gguf"};

static void put_good_parts(void)
{
    for (int i = 0; i < 3; i++) {
        put_part(part_names[i], (part){i, 3, 3, (const char *const[]){"a", "b", "c"}[i]});
    }
}

static void refuse_split(const char *name, atn_status code, const char *words)
{
    char path[160];
    gguf *g = (gguf *)1;
    size_t before = open_files();
    snprintf(path, sizeof path, "%s/%s", folder, name);
    atn_status s = gguf_open(path, &g, &err);
    if (s != code || strstr(err.msg, words) == NULL) {
        fail_msg("wanted '%s', got %s '%s'", words, atn_status_name(s), err.msg);
    }
    assert_null(g);
    assert_int_equal(open_files(), before);
    put_good_parts();
}

static void test_split(void **state)
{
    (void)state;
    char path[160];
    gguf *g;
    size_t before = open_files();
    put_good_parts();
    snprintf(path, sizeof path, "%s/%s", folder, part_names[0]);
    assert_int_equal(gguf_open(path, &g, &err), ATN_OK);
    assert_int_equal(gguf_n_tensors(g), 3);
    for (int i = 0; i < 3; i++) {
        const gguf_tensor *t = gguf_find_tensor(g, (const char *const[]){"a", "b", "c"}[i]);
        float values[4];
        assert_non_null(t);
        assert_int_equal(t->file, i);
        assert_int_equal(gguf_read(g, t, 0, values, sizeof values, &err), ATN_OK);
        assert_true(values[0] == (float)i && values[3] == 3);
    }
    gguf_close(g);
    assert_int_equal(open_files(), before);
}

static void test_split_faults(void **state)
{
    (void)state;
    char path[160];
    put_good_parts();
    snprintf(path, sizeof path, "%s/%s", folder, part_names[1]);
    unlink(path);
    refuse_split(part_names[0], ATN_IO, "s-00002-of-00003.gguf: cannot be opened: No such file or directory");
    refuse_split(part_names[1], ATN_FORMAT, "key split.no: is 1: this must be part number 0");
    put_part(part_names[2], (part){1, 3, 3, "c"});
    refuse_split(part_names[0], ATN_FORMAT, "s-00003-of-00003.gguf: key split.no: is 1: this must be part number 2");
    put_part(part_names[2], (part){-1, 3, 3, "c"});
    refuse_split(part_names[0], ATN_FORMAT, "s-00003-of-00003.gguf: key split.no: is -1: this must be part number 2");
    put_part(part_names[2], (part){2, 4, 3, "c"});
    refuse_split(part_names[0], ATN_FORMAT, "s-00003-of-00003.gguf: key split.count: is 4: the first part has 3");
    put_part(part_names[1], (part){1, 3, 3, "a"});
    refuse_split(part_names[0], ATN_FORMAT, "s-00002-of-00003.gguf: tensor a: is there twice");
    put_part(part_names[0], (part){0, 3, 4, "a"});
    refuse_split(part_names[0], ATN_FORMAT, "key split.tensors.count: is 4, but the 3 parts have 3");
    put_part("renamed.gguf", (part){0, 3, 3, "a"});
    refuse_split("renamed.gguf", ATN_FORMAT,
                 "key split.count: is 3, so the file's name must end in -00001-of-00003.gguf");
    put_part(part_names[0], (part){0, 5000, 3, "a"});
    refuse_split(part_names[0], ATN_FORMAT, "key split.count: is 5000: 0 to 1024 are allowed");
    snprintf(path, sizeof path, "%s/%s", folder, part_names[2]);
    put_file(path, "GGUF", 4);
    refuse_split(part_names[0], ATN_FORMAT, "s-00003-of-00003.gguf: the file has 4 bytes: a GGUF header needs 24");
    buf b = gguf_begin(3, 0, 1);
    put_kv_u32(&b, "split.count", 2);
    gguf *g;
    assert_int_equal(gguf_open_memory(b.data, b.len, &g, &err), ATN_FORMAT);
    assert_non_null(strstr(err.msg, "key split.count: is 2: a model in memory is one part"));
    buf_free(&b);
}

/* ---- real files ---- */

static void test_golden_models(void **state)
{
    (void)state;
    static const struct {
        const char *path, *arch, *tensor;
        uint32_t type;
        size_t n_tensors;
    } rows[] = {
        {"tests/golden/data/tiny-llama-q8_0.gguf", "llama", "blk.0.attn_q.weight", ATN_DTYPE_Q8_0, 21},
        {"tests/golden/data/tiny-gpt2-f16.gguf", "gpt2", "blk.0.attn_qkv.weight", ATN_DTYPE_F16, 40},
    };
    for (size_t i = 0; i < 2; i++) {
        gguf *g;
        gguf_str s, *tokens;
        size_t n;
        assert_int_equal(gguf_open(rows[i].path, &g, &err), ATN_OK);
        assert_int_equal(gguf_n_tensors(g), rows[i].n_tensors);
        assert_int_equal(gguf_string(g, "general.architecture", &s, &err), ATN_OK);
        assert_true(s.n == strlen(rows[i].arch) && memcmp(s.s, rows[i].arch, s.n) == 0);
        assert_int_equal(gguf_array_strings(g, "tokenizer.ggml.tokens", &tokens, &n, &err), ATN_OK);
        assert_int_equal(n, 512);
        free(tokens);
        assert_non_null(gguf_find_tensor(g, rows[i].tensor));
        assert_int_equal(gguf_find_tensor(g, rows[i].tensor)->type, rows[i].type);
        gguf_close(g);
    }
}

static int start(void **state)
{
    (void)state;
    return mkdtemp(folder) != NULL ? 0 : -1;
}

static int end(void **state)
{
    (void)state;
    DIR *d = opendir(folder);
    if (d == NULL) {
        return -1;
    }
    for (struct dirent *e; (e = readdir(d)) != NULL;) {
        unlinkat(dirfd(d), e->d_name, 0);
    }
    closedir(d);
    return rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_integers),        cmocka_unit_test(test_wrong_types_and_absent_keys),
        cmocka_unit_test(test_floats),          cmocka_unit_test(test_arrays),
        cmocka_unit_test(test_read_and_shrink), cmocka_unit_test(test_long_header),
        cmocka_unit_test(test_header_limit),    cmocka_unit_test(test_split),
        cmocka_unit_test(test_split_faults),    cmocka_unit_test(test_golden_models),
    };
    return cmocka_run_group_tests(tests, start, end);
}
