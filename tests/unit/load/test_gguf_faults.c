/* Malformed GGUF: each fault is refused with words that name what is wrong, from memory and from a file alike.
 *
 * The faults are those that the field's loaders were hit by (integer wraps in lengths, counts, sizes and paddings; lies about
 * counts; alignments; types; duplicates; truncation), and the cases of ggml's tests/test-gguf.cpp. Bytes are in blocks of their exact
 * size, so that a sanitizer sees a read past them; memory is limited, so that an allocation by a false count shows as NOMEM. */
#include "tests/unit/load/gguf_builder.h"

#include <setjmp.h>
#include <stdarg.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <cmocka.h>

#if defined(__has_feature)
#define SANITIZED (__has_feature(address_sanitizer) || __has_feature(thread_sanitizer))
#elif defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#else
#define SANITIZED 0
#endif

static char folder[] = "/tmp/attnd-test-gguf-XXXXXX";
static char path[128];

static void refused(atn_status s, const atn_err *err, atn_status code, const char *param, const char *words)
{
    if (s != code || err->code != code || strcmp(err->param, param) != 0 || strstr(err->msg, words) == NULL) {
        fail_msg("wanted %s '%s' '%s', got %s '%s' '%s'", atn_status_name(code), param, words, atn_status_name(s),
                 err->param, err->msg);
    }
}

/* Both readers refuse the bytes with the code, the param and the words. Frees b. */
static void refuse(buf *b, atn_status code, const char *param, const char *words)
{
    gguf *g = (gguf *)1;
    atn_err err = {0};
    void *exact = malloc(b->len > 0 ? b->len : 1);
    assert_non_null(exact);
    if (b->len > 0) {
        memcpy(exact, b->data, b->len);
    }
    refused(gguf_open_memory(exact, b->len, &g, &err), &err, code, param, words);
    assert_null(g);
    put_file(path, exact, b->len);
    err = (atn_err){0};
    g = (gguf *)1;
    refused(gguf_open(path, &g, &err), &err, code, param, words);
    assert_null(g);
    assert_int_equal(strncmp(err.msg, "bad.gguf: ", 10), 0);
    free(exact);
    buf_free(b);
}

static void accept(buf *b)
{
    gguf *g;
    atn_err err = {0};
    if (gguf_open_memory(b->data, b->len, &g, &err) != ATN_OK) {
        fail_msg("%s", err.msg);
    }
    gguf_close(g);
    put_file(path, b->data, b->len);
    assert_int_equal(gguf_open(path, &g, &err), ATN_OK);
    gguf_close(g);
    buf_free(b);
}

static const uint64_t ne_64[4] = {64, 1, 1, 1};

/* A file of one f32 tensor "t" of 64 values, whose parts a test may bend. */
static buf one_tensor(const char *name, uint32_t n_dims, const uint64_t *ne, uint32_t type, uint64_t offset)
{
    buf b = gguf_begin(3, 1, 0);
    put_tensor(&b, name, n_dims, ne, type, offset);
    put_data(&b, 32, 256);
    return b;
}

/* ---- header ---- */

static void test_good_ones(void **state)
{
    (void)state;
    for (uint32_t version = 2; version <= 3; version++) {
        buf b = gguf_begin(version, 0, 0);
        accept(&b);
    }
    buf b = one_tensor("t", 1, ne_64, ATN_DTYPE_F32, 0);
    accept(&b);
    b = one_tensor("scalar", 0, ne_64, ATN_DTYPE_F32, 0);
    accept(&b);
    b = gguf_begin(
        3, 2, 1); /* two tensors, in another order than their data, with a gap, own alignment, no padding at the end */
    put_kv_u32(&b, "general.alignment", 64);
    put_tensor(&b, "b", 1, ne_64, ATN_DTYPE_F32, 320);
    put_tensor(&b, "a", 2, ne_64, ATN_DTYPE_F32, 0);
    put_data(&b, 64, 320 + 256);
    accept(&b);
    b = gguf_begin(3, 2, 0); /* a type that we cannot read beside one that we can */
    put_tensor(&b, "t", 1, ne_64, ATN_DTYPE_F32, 0);
    put_tensor(&b, "iq", 1, (uint64_t[]){256}, 16, 256);
    put_data(&b, 32, 256 + 66);
    accept(&b);
    b = gguf_begin(3, 0, 1); /* nested arrays are skipped */
    put_kv_array(&b, "deep", GGUF_ARRAY, 2);
    for (int i = 0; i < 2; i++) {
        put_u32(&b, GGUF_ARRAY);
        put_u64(&b, 1);
        put_u32(&b, GGUF_STRING);
        put_u64(&b, 1);
        put_text(&b, "x");
    }
    accept(&b);
}

static void test_start(void **state)
{
    (void)state;
    buf b = {.max = 100};
    refuse(&b, ATN_FORMAT, "", "the file has 0 bytes: a GGUF header needs 24");
    for (size_t n = 1; n < 24; n++) { /* among them the file of only the magic */
        b = gguf_begin(3, 0, 0);
        b.len = n;
        refuse(&b, ATN_FORMAT, "", "a GGUF header needs 24");
    }
    b = gguf_begin(3, 0, 0);
    b.data[0] = 'F';
    refuse(&b, ATN_FORMAT, "", "no GGUF file: it begins with 0x46554746, not 0x46554747");
    static const uint32_t bad[] = {0, 1, 4, 0xFFFF};
    for (size_t i = 0; i < 4; i++) {
        char words[64];
        snprintf(words, sizeof words, "GGUF version %u: 2 and 3 can be read", (unsigned)bad[i]);
        b = gguf_begin(bad[i], 0, 0);
        refuse(&b, ATN_UNSUPPORTED, "", words);
    }
    for (uint32_t version = 2; version <= 3; version++) {
        b = gguf_begin(version << 24, 0, 0);
        refuse(&b, ATN_UNSUPPORTED, "", "a big-endian GGUF file: only little-endian ones can be read");
    }
}

static void test_counts(void **state)
{
    (void)state;
    /* near 2^64; so that the product with the size of an entry wraps; past the limit; more than the bytes can hold */
    static const uint64_t bad[] = {UINT64_MAX,          UINT64_MAX - 3,    (uint64_t)1 << 63, UINT64_MAX / 80 + 1,
                                   UINT64_MAX / 40 + 1, (uint64_t)1 << 32, (uint64_t)1 << 40, 10};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char words[64];
        buf b = gguf_begin(3, 0, bad[i]);
        put_data(&b, 32, 96);
        snprintf(words, sizeof words, "field n_kv: %llu keys: at most 65536", (unsigned long long)bad[i]);
        refuse(&b, ATN_FORMAT, "n_kv", words);
        b = gguf_begin(3, bad[i], 0);
        put_data(&b, 32, 96);
        snprintf(words, sizeof words, "field n_tensors: %llu tensors: at most 1048576", (unsigned long long)bad[i]);
        refuse(&b, ATN_FORMAT, "n_tensors", words);
    }
    buf b = gguf_begin(3, 0, 3); /* counts that the bytes could hold, but do not */
    put_kv_u32(&b, "a", 1);
    put_data(&b, 1, 40);
    refuse(&b, ATN_FORMAT, "1", "key number 1: length is 506097522914230528: 1 to 65535 are allowed");
    b = gguf_begin(3, 2, 0);
    put_tensor(&b, "t", 1, ne_64, ATN_DTYPE_F32, 0);
    put_data(&b, 32, 256);
    refuse(&b, ATN_FORMAT, "1", "tensor number 1: length is 0: 1 to 63 are allowed");
    b = gguf_begin(3, 0, 2);
    put_kv_u32(&b, "a", 1);
    put_u64(&b, 1);
    put(&b, "bcde", 4);
    refuse(&b, ATN_FORMAT, "b", "key b: needs 4 bytes at 50, but the file has only 3 left");
}

/* ---- keys ---- */

static void test_key_names(void **state)
{
    (void)state;
    static const uint64_t bad[] = {0, 65536, (uint64_t)1 << 32, UINT64_MAX, UINT64_MAX - 7, UINT64_MAX - 40};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char words[64];
        buf b = gguf_begin(3, 0, 1);
        put_u64(&b, bad[i]);
        put_data(&b, 1, 64);
        snprintf(words, sizeof words, "key number 0: length is %llu: 1 to 65535", (unsigned long long)bad[i]);
        refuse(&b, ATN_FORMAT, "0", words);
    }
    buf b = gguf_begin(3, 0, 1);
    put_u64(&b, 1000);
    put_data(&b, 1, 64);
    refuse(&b, ATN_FORMAT, "0", "key number 0: needs 1000 bytes at 32, but the file has only 64 left");
    b = gguf_begin(3, 0, 3);
    put_kv_u32(&b, "a.b", 1);
    put_kv_u32(&b, "a.c", 1);
    put_kv_text(&b, "a.b", "x");
    refuse(&b, ATN_FORMAT, "a.b", "key a.b: is there twice");
    b = gguf_begin(3, 0, 2); /* a name that would paint the terminal is not printed as it is */
    put_kv_u32(&b, "\x1b[31m\n", 1);
    put_kv_u32(&b, "\x1b[31m\n", 1);
    refuse(&b, ATN_FORMAT, "?[31m?", "key ?[31m?: is there twice");
}

static void test_value_types(void **state)
{
    (void)state;
    static const uint32_t bad[] = {13, 14, 1000, UINT32_MAX};
    for (size_t i = 0; i < 4; i++) {
        char words[80];
        buf b = gguf_begin(3, 0, 1);
        put_text(&b, "k");
        put_u32(&b, bad[i]);
        put_data(&b, 1, 64);
        snprintf(words, sizeof words, "key k: value type is %u: 0 to 12 are known", (unsigned)bad[i]);
        refuse(&b, ATN_FORMAT, "k", words);
        b = gguf_begin(3, 0, 1);
        put_kv_array(&b, "k", bad[i], 1);
        put_data(&b, 1, 64);
        snprintf(words, sizeof words, "key k: array element type is %u: 0 to 12 are known", (unsigned)bad[i]);
        refuse(&b, ATN_FORMAT, "k", words);
    }
    for (uint32_t type = 0; type <= GGUF_F64; type++) { /* a value of each type, cut short */
        buf b = gguf_begin(3, 0, 1);
        put_text(&b, "short");
        put_u32(&b, type);
        refuse(&b, ATN_FORMAT, "short", "but the file has only 0 left");
    }
}

static void test_string_lengths(void **state)
{
    (void)state;
    static const uint64_t bad[] = {
        65, (uint64_t)1 << 30, (uint64_t)1 << 32, UINT64_MAX, UINT64_MAX - 1, UINT64_MAX - 52, INT64_MAX};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char words[80];
        snprintf(words, sizeof words, "key s: needs %llu bytes at ", (unsigned long long)bad[i]);
        buf b = gguf_begin(3, 0, 1);
        put_kv(&b, "s", GGUF_STRING, NULL, 0);
        put_u64(&b, bad[i]);
        put_data(&b, 1, 64);
        refuse(&b, ATN_FORMAT, "s", words);
        b = gguf_begin(3, 0, 1); /* the second string of an array */
        put_kv_array(&b, "s", GGUF_STRING, 2);
        put_text(&b, "one");
        put_u64(&b, bad[i]);
        put_data(&b, 1, 64);
        refuse(&b, ATN_FORMAT, "s", words);
    }
}

static void test_array_counts(void **state)
{
    (void)state;
    static const uint64_t bad[] = {200,
                                   (uint64_t)1 << 30,
                                   (uint64_t)1 << 40,
                                   UINT64_MAX,
                                   UINT64_MAX / 4 + 1,
                                   UINT64_MAX / 8 + 1,
                                   UINT64_MAX / 16 + 1};
    for (uint32_t type = 0; type <= GGUF_F64; type++) {
        for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
            char words[80];
            snprintf(words, sizeof words, "key k: array has %llu elements of type ", (unsigned long long)bad[i]);
            buf b = gguf_begin(3, 0, 1);
            put_kv_array(&b, "k", type, bad[i]);
            put_data(&b, 1, 64);
            refuse(&b, ATN_FORMAT, "k", words);
        }
    }
    for (int depth = 1; depth <= 10000;
         depth = depth < 6 ? depth + 1 : 10000 + (depth == 10000)) { /* no recursion follows */
        buf b = gguf_begin(3, 0, 1);
        put_kv_array(&b, "deep", depth > 1 ? GGUF_ARRAY : GGUF_U8, 1);
        for (int i = 1; i < depth; i++) {
            put_u32(&b, i < depth - 1 ? GGUF_ARRAY : GGUF_U8);
            put_u64(&b, 1);
        }
        put(&b, "", 1);
        if (depth <= 4) {
            accept(&b);
        } else {
            refuse(&b, ATN_FORMAT, "deep", "arrays are nested more than 4 deep");
        }
    }
}

static void test_alignment(void **state)
{
    (void)state;
    static const uint32_t bad[] = {0, 1, 4, 7, 13, 33, 131072, 0x80000000u, UINT32_MAX};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char words[100];
        buf b = gguf_begin(3, 1, 1);
        put_kv_u32(&b, "general.alignment", bad[i]);
        put_tensor(&b, "t", 1, ne_64, ATN_DTYPE_F32, 0);
        put_data(&b, 32, 256);
        snprintf(words, sizeof words, "key general.alignment: is %u: it must be a power of two from 8 to 65536",
                 (unsigned)bad[i]);
        refuse(&b, ATN_FORMAT, "general.alignment", words);
    }
    static const struct {
        gguf_type type;
        size_t bytes;
        const char *words;
    } types[] = {{GGUF_I32, 4, "has type i32: it must be u32"},
                 {GGUF_U64, 8, "has type u64: it must be u32"},
                 {GGUF_U8, 1, "has type u8: it must be u32"},
                 {GGUF_F32, 4, "has type f32: it must be u32"}};
    for (size_t i = 0; i < 4; i++) {
        buf b = gguf_begin(3, 0, 1);
        put_kv(&b, "general.alignment", types[i].type, &(uint64_t){32}, types[i].bytes);
        refuse(&b, ATN_FORMAT, "general.alignment", types[i].words);
    }
    buf b = gguf_begin(3, 2, 1); /* the key says 64, the offsets were laid out for 32 */
    put_kv_u32(&b, "general.alignment", 64);
    put_tensor(&b, "a", 1, (uint64_t[]){8}, ATN_DTYPE_F32, 0);
    put_tensor(&b, "b", 1, (uint64_t[]){8}, ATN_DTYPE_F32, 32);
    put_data(&b, 64, 64);
    refuse(&b, ATN_FORMAT, "b", "tensor b: offset 32 is no multiple of the alignment 64");
}

/* ---- tensors ---- */

static void test_tensor_names_and_dims(void **state)
{
    (void)state;
    char name[65];
    memset(name, 'n', 64);
    name[64] = '\0';
    buf b = one_tensor(name, 1, ne_64, ATN_DTYPE_F32, 0);
    refuse(&b, ATN_FORMAT, "0", "tensor number 0: length is 64: 1 to 63 are allowed");
    b = one_tensor("", 1, ne_64, ATN_DTYPE_F32, 0);
    refuse(&b, ATN_FORMAT, "0", "tensor number 0: length is 0: 1 to 63 are allowed");
    b = gguf_begin(3, 1, 0);
    put_u64(&b, UINT64_MAX);
    put_data(&b, 32, 64);
    refuse(&b, ATN_FORMAT, "0", "length is 18446744073709551615");
    const uint64_t ne[8] = {8, 8, 1, 1, 1, 1, 1, 1};
    b = one_tensor("t", 5, ne, ATN_DTYPE_F32, 0);
    refuse(&b, ATN_FORMAT, "t", "tensor t: has 5 dimensions: 0 to 4 are allowed");
    b = one_tensor("t", UINT32_MAX, ne, ATN_DTYPE_F32, 0);
    refuse(&b, ATN_FORMAT, "t", "has 4294967295 dimensions");
    b = gguf_begin(3, 3, 0);
    put_tensor(&b, "same", 1, ne_64, ATN_DTYPE_F32, 0);
    put_tensor(&b, "other", 1, ne_64, ATN_DTYPE_F32, 256);
    put_tensor(&b, "same", 1, ne_64, ATN_DTYPE_F32, 512);
    put_data(&b, 32, 768);
    refuse(&b, ATN_FORMAT, "same", "tensor same: is there twice");
}

static void test_tensor_sizes(void **state)
{
    (void)state;
    const uint64_t top = INT64_MAX;
    static const uint32_t all_types[] = {ATN_DTYPE_F32, ATN_DTYPE_F16, ATN_DTYPE_Q4_K, 16};
    for (size_t i = 0; i < 4; i++) { /* also of a type that we cannot read */
        for (uint32_t d = 0; d < 4; d++) {
            uint64_t ne[4] = {256, 1, 1, 1};
            char words[80];
            ne[d] = 0;
            snprintf(words, sizeof words, "dimension %u is 0: 1 to 9223372036854775807 are allowed", (unsigned)d);
            buf b = one_tensor("t", 4, ne, all_types[i], 0);
            refuse(&b, ATN_FORMAT, "t", words);
            ne[d] = top + 1; /* -2^63 */
            snprintf(words, sizeof words, "dimension %u is 9223372036854775808: 1 to", (unsigned)d);
            b = one_tensor("t", 4, ne, all_types[i], 0);
            refuse(&b, ATN_FORMAT, "t", words);
        }
        buf b = one_tensor("t", 2, (uint64_t[]){(uint64_t)1 << 32, (uint64_t)1 << 32}, all_types[i], 0); /* product 0 */
        refuse(&b, ATN_FORMAT, "t", "the product of its dimensions exceeds 9223372036854775807");
        b = one_tensor("t", 3, (uint64_t[]){(uint64_t)1 << 31, (uint64_t)1 << 31, 2}, all_types[i], 0); /* 2^63 */
        refuse(&b, ATN_FORMAT, "t", "the product of its dimensions exceeds 9223372036854775807");
    }
    /* bytes wrap: 2^62 x 4 = 2^64, and a little more than that */
    buf b = one_tensor("t", 2, (uint64_t[]){(uint64_t)1 << 31, (uint64_t)1 << 31}, ATN_DTYPE_F32, 0);
    refuse(&b, ATN_FORMAT, "t", "its size in bytes does not fit 64 bits");
    b = one_tensor("t", 1, (uint64_t[]){((uint64_t)1 << 62) + 8}, ATN_DTYPE_F32, 0);
    refuse(&b, ATN_FORMAT, "t", "its size in bytes does not fit 64 bits");
    /* SIZE_MAX - 3 bytes: padding them wraps to 0 */
    b = one_tensor("t", 1, (uint64_t[]){top - 1}, ATN_DTYPE_F16, 0);
    refuse(&b, ATN_FORMAT, "t", "18446744073709551612 bytes at offset 0 do not fit the file's 256 bytes of data");
    /* two whose sum wraps */
    b = gguf_begin(3, 2, 0);
    put_tensor(&b, "a", 1, (uint64_t[]){(uint64_t)1 << 61}, ATN_DTYPE_F32, 0);
    put_tensor(&b, "b", 1, (uint64_t[]){(uint64_t)1 << 61}, ATN_DTYPE_F32, (uint64_t)1 << 63);
    put_data(&b, 32, 256);
    refuse(&b, ATN_FORMAT, "a", "9223372036854775808 bytes at offset 0 do not fit");
}

static void test_tensor_types(void **state)
{
    (void)state;
    static const uint32_t bad[] = {4, 5, 31, 38, 42, 1000, UINT32_MAX};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char words[64];
        snprintf(words, sizeof words, "tensor t: type %u is not known", (unsigned)bad[i]);
        buf b = one_tensor("t", 1, ne_64, bad[i], 0);
        refuse(&b, ATN_FORMAT, "t", words);
    }
    buf b = one_tensor("t", 1, (uint64_t[]){33}, ATN_DTYPE_Q8_0, 0);
    refuse(&b, ATN_FORMAT, "t", "row length 33 is no multiple of 32, the block of Q8_0");
    b = one_tensor("t", 2, (uint64_t[]){128, 2}, ATN_DTYPE_Q4_K, 0);
    refuse(&b, ATN_FORMAT, "t", "row length 128 is no multiple of 256, the block of Q4_K");
}

static void test_tensor_extents(void **state)
{
    (void)state;
    static const struct {
        uint64_t offset;
        const char *words;
    } rows[] = {
        {16, "offset 16 is no multiple of the alignment 32"},
        {1, "offset 1 is no multiple of the alignment 32"},
        {32, "256 bytes at offset 32 do not fit the file's 256 bytes of data"},
        {0xFFFFFFFF, "offset 4294967295 is no multiple"},
        {0xFFFFFFE0, "256 bytes at offset 4294967264 do not fit"},
        {(uint64_t)1 << 63, "256 bytes at offset 9223372036854775808 do not fit"},
        {UINT64_MAX - 31, "256 bytes at offset 18446744073709551584 do not fit"},
        {UINT64_MAX - 255, "256 bytes at offset 18446744073709551360 do not fit"}, /* offset + size is 0 */
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        buf b = one_tensor("t", 1, ne_64, ATN_DTYPE_F32, rows[i].offset);
        refuse(&b, ATN_FORMAT, "t", rows[i].words);
    }
    buf b = one_tensor("iq", 1, (uint64_t[]){256}, 16,
                       (uint64_t)1 << 40); /* a type of unknown size must start in the file */
    refuse(&b, ATN_FORMAT, "iq", "1 bytes at offset 1099511627776 do not fit");
    b = gguf_begin(3, 1, 0); /* nor may it start where the file ends */
    put_tensor(&b, "iq", 1, (uint64_t[]){256}, 16, 0);
    refuse(&b, ATN_FORMAT, "iq", "1 bytes at offset 0 do not fit the file's 0 bytes of data");
    b = one_tensor("t", 1, ne_64, ATN_DTYPE_F32, 0); /* the last byte is missing */
    b.len--;
    refuse(&b, ATN_FORMAT, "t", "256 bytes at offset 0 do not fit the file's 255 bytes of data");
    b = gguf_begin(3, 1, 0); /* the file ends with its header */
    put_tensor(&b, "t", 1, ne_64, ATN_DTYPE_F32, 0);
    refuse(&b, ATN_FORMAT, "t", "256 bytes at offset 0 do not fit the file's 0 bytes of data");
}

static void test_overlap(void **state)
{
    (void)state;
    static const uint64_t starts[] = {0, 32, 224}; /* the same place, the middle, the last bytes */
    for (size_t i = 0; i < 3; i++) {
        for (int swapped = 0; swapped < 2; swapped++) {
            buf b = gguf_begin(3, 3, 0);
            put_tensor(&b, "far", 1, ne_64, ATN_DTYPE_F32, 1024);
            put_tensor(&b, swapped ? "b" : "a", 1, ne_64, ATN_DTYPE_F32, swapped ? starts[i] : 0);
            put_tensor(&b, swapped ? "a" : "b", 1, ne_64, ATN_DTYPE_F32, swapped ? 0 : starts[i]);
            put_data(&b, 32, 1280);
            gguf *g;
            atn_err err;
            assert_int_equal(gguf_open_memory(b.data, b.len, &g, &err), ATN_FORMAT);
            assert_true(strcmp(err.param, "a") == 0 || strcmp(err.param, "b") == 0);
            assert_non_null(strstr(err.msg, strcmp(err.param, "a") == 0 ? "inside tensor b, which ends at"
                                                                        : "inside tensor a, which ends at"));
            buf_free(&b);
        }
    }
}

/* ---- every cut of a good file, and what is no file ---- */

static void test_every_truncation(void **state)
{
    (void)state;
    buf b = gguf_begin(3, 2, 3);
    put_kv_text(&b, "general.architecture", "llama");
    put_kv_u32(&b, "general.alignment", 32);
    put_kv_array(&b, "tokens", GGUF_STRING, 3);
    put_text(&b, "a");
    put_text(&b, "");
    put_text(&b, "ccc");
    put_tensor(&b, "first", 2, (uint64_t[]){32, 2}, ATN_DTYPE_Q8_0, 0);
    put_tensor(&b, "second", 1, ne_64, ATN_DTYPE_F32, 96);
    put_data(&b, 32, 96 + 256);
    for (size_t n = 0; n < b.len; n++) {
        gguf *g = NULL;
        atn_err err = {0};
        void *exact = malloc(n > 0 ? n : 1);
        assert_non_null(exact);
        memcpy(exact, b.data, n);
        assert_int_equal(gguf_open_memory(exact, n, &g, &err), ATN_FORMAT);
        assert_null(g);
        assert_true(strlen(err.msg) > 20);
        free(exact);
    }
    accept(&b);
}

static void test_no_files(void **state)
{
    (void)state;
    gguf *g = (gguf *)1;
    atn_err err = {0};
    refused(gguf_open(folder, &g, &err), &err, ATN_IO, "", "is a directory, not a regular file");
    assert_null(g);
    refused(gguf_open("/dev/zero", &g, &err), &err, ATN_IO, "", "zero: is a device or pipe, not a regular file");
    char other[160];
    snprintf(other, sizeof other, "%s/pipe", folder);
    assert_int_equal(mkfifo(other, 0600), 0);
    refused(gguf_open(other, &g, &err), &err, ATN_IO, "", "pipe: is a device or pipe, not a regular file");
    unlink(other);
    refused(gguf_open(other, &g, &err), &err, ATN_IO, "", "pipe: cannot be opened: No such file or directory");
    assert_int_equal(symlink(other, other), 0);
    refused(gguf_open(other, &g, &err), &err, ATN_IO, "", "pipe: cannot be opened: Too many levels of symbolic links");
    unlink(other);
    refused(gguf_open("", &g, &err), &err, ATN_IO, "", "cannot be opened");
    char longest[600];
    memset(longest, 'x', sizeof longest - 1);
    longest[sizeof longest - 1] = '\0';
    refused(gguf_open(longest, &g, &err), &err, ATN_IO, "", "xxx...xxx");
    assert_null(g);
}

/* A sparse file that claims a header of many gigabytes: refused without reading them. */
static void test_header_limit(void **state)
{
    (void)state;
    buf b = gguf_begin(3, 0, 1);
    put_kv(&b, "s", GGUF_STRING, NULL, 0);
    put_u64(&b, (uint64_t)3 << 30);
    put_file(path, b.data, b.len);
    assert_int_equal(truncate(path, (off_t)8 << 30), 0);
    gguf *g;
    atn_err err = {0};
    refused(gguf_open(path, &g, &err), &err, ATN_FORMAT, "s", "key s: the header grows past 268435456 bytes");
    buf_free(&b);
    for (int i = 0; i < 2; i++) { /* counts that so long a file could hold, one past the limit */
        b = gguf_begin(3, i == 0 ? (1 << 20) + 1 : 0, i == 0 ? 0 : 65537);
        put_file(path, b.data, b.len);
        assert_int_equal(truncate(path, (off_t)8 << 30), 0);
        refused(gguf_open(path, &g, &err), &err, ATN_FORMAT, i == 0 ? "n_tensors" : "n_kv",
                i == 0 ? "at most 1048576" : "at most 65536");
        buf_free(&b);
    }
}

static int start(void **state)
{
    (void)state;
    if (mkdtemp(folder) == NULL) {
        return -1;
    }
    snprintf(path, sizeof path, "%s/bad.gguf", folder);
#if !SANITIZED /* their shadow memory is address space too */
    struct rlimit limit = {(rlim_t)256 << 20, (rlim_t)256 << 20};
    return setrlimit(RLIMIT_AS, &limit);
#else
    return 0;
#endif
}

static int end(void **state)
{
    (void)state;
    unlink(path);
    return rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_good_ones),
        cmocka_unit_test(test_start),
        cmocka_unit_test(test_counts),
        cmocka_unit_test(test_key_names),
        cmocka_unit_test(test_value_types),
        cmocka_unit_test(test_string_lengths),
        cmocka_unit_test(test_array_counts),
        cmocka_unit_test(test_alignment),
        cmocka_unit_test(test_tensor_names_and_dims),
        cmocka_unit_test(test_tensor_sizes),
        cmocka_unit_test(test_tensor_types),
        cmocka_unit_test(test_tensor_extents),
        cmocka_unit_test(test_overlap),
        cmocka_unit_test(test_every_truncation),
        cmocka_unit_test(test_no_files),
        cmocka_unit_test(test_header_limit),
    };
    return cmocka_run_group_tests(tests, start, end);
}
