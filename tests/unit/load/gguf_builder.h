/* Writes GGUF bytes, right or wrong, for tests of the reader. A failed write ends the test. */
#ifndef ATN_GGUF_BUILDER_H
#define ATN_GGUF_BUILDER_H

#include "core/base/buf.h"
#include "core/load/gguf.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static inline void put(buf *b, const void *bytes, size_t n)
{
    if (!buf_add(b, bytes, n)) {
        abort();
    }
}

static inline void put_u32(buf *b, uint32_t v)
{
    put(b, &v, 4);
}

static inline void put_u64(buf *b, uint64_t v)
{
    put(b, &v, 8);
}

static inline void put_text(buf *b, const char *s)
{
    put_u64(b, strlen(s));
    put(b, s, strlen(s));
}

/* An empty buffer with a header. */
static inline buf gguf_begin(uint32_t version, uint64_t n_tensors, uint64_t n_kvs)
{
    buf b;
    buf_init(&b, 1 << 26);
    put(&b, "GGUF", 4);
    put_u32(&b, version);
    put_u64(&b, n_tensors);
    put_u64(&b, n_kvs);
    return b;
}

static inline void put_kv(buf *b, const char *key, gguf_type type, const void *value, size_t n)
{
    put_text(b, key);
    put_u32(b, type);
    put(b, value, n);
}

static inline void put_kv_u32(buf *b, const char *key, uint32_t v)
{
    put_kv(b, key, GGUF_U32, &v, 4);
}

static inline void put_kv_text(buf *b, const char *key, const char *v)
{
    put_kv(b, key, GGUF_STRING, NULL, 0);
    put_text(b, v);
}

/* The elements follow. */
static inline void put_kv_array(buf *b, const char *key, uint32_t element, uint64_t n)
{
    put_kv(b, key, GGUF_ARRAY, NULL, 0);
    put_u32(b, element);
    put_u64(b, n);
}

static inline void put_tensor(buf *b, const char *name, uint32_t n_dims, const uint64_t *ne, uint32_t type,
                              uint64_t offset)
{
    put_text(b, name);
    put_u32(b, n_dims);
    for (uint32_t i = 0; i < n_dims && i < 8; i++) {
        put_u64(b, ne[i]);
    }
    put_u32(b, type);
    put_u64(b, offset);
}

/* Zeros up to a multiple of align, then n bytes that count up from 0. */
static inline void put_data(buf *b, size_t align, size_t n)
{
    while (b->len % align != 0) {
        put(b, "", 1);
    }
    for (size_t i = 0; i < n; i++) {
        put(b, &(unsigned char){(unsigned char)i}, 1);
    }
}

/* Writes the bytes to a file. */
static inline void put_file(const char *path, const void *bytes, size_t n)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0 || write(fd, bytes, n) != (ssize_t)n || close(fd) != 0) {
        abort();
    }
}

#endif
