/* Published vectors: SipHash-2-4 (paper, appendix A, and the reference implementation), SHA-256 (FIPS 180-4) and lengths
 * around the padding's borders (values from Python's hashlib). */
#include "core/base/hash.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static void test_siphash(void **state)
{
    (void)state;
    const uint64_t k0 = 0x0706050403020100u, k1 = 0x0f0e0d0c0b0a0908u;
    static const uint64_t wanted[] = {0x726fdb47dd0e0e31u, 0x74f839c593dc67fdu, 0x0d6c8009d9a94f5au,
                                      0x85676696d7fb7e2du, 0xcf2794e0277187b7u, 0x18765564cd99a68du,
                                      0xcbc9466e58fee3ceu, 0xab0200f58b01d137u, 0x93f5f5799a932462u};
    unsigned char in[16];
    for (unsigned i = 0; i < sizeof in; i++) {
        in[i] = (unsigned char)i;
    }
    for (size_t n = 0; n < sizeof wanted / sizeof *wanted; n++) {
        assert_true(hash_bytes(k0, k1, in, n) == wanted[n]);
    }
    assert_true(hash_bytes(k0, k1, in, 15) == 0xa129ca6149be45e5u);
    assert_true(hash_bytes(k0 + 1, k1, in, 15) != 0xa129ca6149be45e5u);
    assert_true(hash_bytes(k0, k1, NULL, 0) == wanted[0]);
}

static void check_sha(const void *bytes, size_t n, const char *wanted)
{
    unsigned char out[32];
    char hex[65];
    hash_sha256(bytes, n, out);
    for (size_t i = 0; i < 32; i++) {
        snprintf(hex + 2 * i, 3, "%02x", out[i]);
    }
    assert_string_equal(hex, wanted);
}

static void test_sha256(void **state)
{
    (void)state;
    check_sha(NULL, 0, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    check_sha("abc", 3, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    check_sha("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq", 56,
              "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
    static const struct {
        size_t n;
        const char *hex;
    } rows[] = {
        {55, "463eb28e72f82e0a96c0a4cc53690c571281131f672aa229e0d45ae59b598b59"},
        {56, "da2ae4d6b36748f2a318f23e7ab1dfdf45acdc9d049bd80e59de82a60895f562"},
        {63, "29af2686fd53374a36b0846694cc342177e428d1647515f078784d69cdb9e488"},
        {64, "fdeab9acf3710362bd2658cdc9a29e8f9c757fcf9811603a8c447cd1d9151108"},
        {65, "4bfd2c8b6f1eec7a2afeb48b934ee4b2694182027e6d0fc075074f2fabb31781"},
        {119, "da18797ed7c3a777f0847f429724a2d8cd5138e6ed2895c3fa1a6d39d18f7ec6"},
        {120, "f52b23db1fbb6ded89ef42a23ce0c8922c45f25c50b568a93bf1c075420bbb7c"},
        {200, "1901da1c9f699b48f6b2636e65cbf73abf99d0441ef67f5c540a42f7051dec6f"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        unsigned char *bytes = malloc(rows[i].n);
        assert_non_null(bytes);
        for (size_t k = 0; k < rows[i].n; k++) {
            bytes[k] = (unsigned char)(k % 251);
        }
        check_sha(bytes, rows[i].n, rows[i].hex);
        free(bytes);
    }
    char *million = malloc(1000000);
    assert_non_null(million);
    memset(million, 'a', 1000000);
    check_sha(million, 1000000, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
    free(million);
}

static void test_equal(void **state)
{
    (void)state;
    unsigned char a[33] = {0}, b[33] = {0};
    assert_true(hash_equal_const_time(a, b, sizeof a));
    for (size_t i = 0; i < sizeof a; i++) {
        for (int bit = 0; bit < 8; bit++) {
            b[i] = (unsigned char)(1 << bit);
            assert_false(hash_equal_const_time(a, b, sizeof a));
            assert_true(hash_equal_const_time(a, b, i));
        }
        b[i] = 0;
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_siphash),
        cmocka_unit_test(test_sha256),
        cmocka_unit_test(test_equal),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
