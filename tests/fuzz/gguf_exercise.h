/* Opens bytes as a GGUF model and touches everything that a loader would: for the fuzzer and for the mutations of the unit
 * tests. Whatever the bytes hold, this must return: with a status and words, or after reading every key and tensor. */
#ifndef ATN_GGUF_EXERCISE_H
#define ATN_GGUF_EXERCISE_H

#include "core/load/gguf_file.h"

#include <stdlib.h>
#include <string.h>

static inline void exercise_key(const gguf *g, const gguf_kv *kv)
{
    atn_err err;
    char key[256];
    uint32_t u;
    float f;
    bool flag;
    gguf_str s, *strings = NULL;
    int32_t *ints = NULL;
    float *floats = NULL;
    size_t n;
    if (kv->key.n >= sizeof key) {
        return;
    }
    memcpy(key, kv->key.s, kv->key.n);
    key[kv->key.n] = '\0';
    (void)!gguf_u32(g, key, 0, 1000, &u, &err);
    (void)!gguf_f32(g, key, 0, 1, &f, &err);
    (void)!gguf_bool(g, key, &flag, &err);
    (void)!gguf_string(g, key, &s, &err);
    if (gguf_array_strings(g, key, &strings, &n, &err) == ATN_OK) {
        volatile char last = 0;
        for (size_t i = 0; i < n; i++) {
            last = strings[i].n > 0 ? strings[i].s[strings[i].n - 1] : last;
        }
        free(strings);
    }
    if (gguf_array_i32(g, key, &ints, &n, &err) == ATN_OK) {
        free(ints);
    }
    if (gguf_array_f32(g, key, &floats, &n, &err) == ATN_OK) {
        free(floats);
    }
}

/* Returns the status; ATN_INTERNAL when the reader broke a promise. */
static inline atn_status exercise_gguf(const void *bytes, size_t n)
{
    atn_err err = {0};
    gguf *g = NULL;
    atn_status s = gguf_open_memory(bytes, n, &g, &err);
    if (s != ATN_OK) {
        bool right = g == NULL && err.code == s && err.msg[0] != '\0' && s != ATN_NOMEM;
        return right ? s : ATN_INTERNAL;
    }
    for (size_t i = 0; i < g->files[0].n_kvs; i++) {
        exercise_key(g, &g->files[0].kvs[i]);
    }
    for (size_t i = 0; i < gguf_n_tensors(g) && s == ATN_OK; i++) {
        const gguf_tensor *t = gguf_tensor_at(g, i);
        char ends[16];
        size_t some = t->bytes < sizeof ends ? t->bytes : sizeof ends;
        if (gguf_read(g, t, 0, ends, some, &err) != ATN_OK ||
            gguf_read(g, t, t->bytes - some, ends, some, &err) != ATN_OK) {
            s = ATN_INTERNAL;
        }
    }
    gguf_close(g);
    return s;
}

#endif
