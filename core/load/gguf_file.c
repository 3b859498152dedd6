/* One GGUF file: its header is read with pread into memory of our own, as much as it turns out to need; then keys are
 * indexed, and every tensor's extent is proven against the file's length and against its neighbours'. */
#include "core/load/gguf_file.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { FIRST_READ = 1 << 20 };

static const gguf_str whole_file = {0};

void gguf_file_close(gguf_file *f)
{
    name_table_free(&f->keys);
    free(f->kvs);
    free(f->head);
    if (f->fd >= 0) {
        close(f->fd);
    }
}

atn_status gguf_file_read(const gguf_file *f, uint64_t at, void *dst, size_t n, atn_err *err)
{
    if (at > f->size || n > f->size - at) {
        return gguf_fail(f, err, ATN_IO, "", whole_file, "%zu bytes at %" PRIu64 " are outside the file's %" PRIu64, n,
                         at, f->size);
    }
    if (f->fd < 0) {
        memcpy(dst, f->memory + at, n);
        return ATN_OK;
    }
    for (size_t done = 0; done < n;) {
        ssize_t got = pread(f->fd, (char *)dst + done, n - done, (off_t)(at + done));
        if (got > 0) {
            done += (size_t)got;
        } else if (got == 0) {
            return gguf_fail(f, err, ATN_IO, "", whole_file,
                             "the file has shrunk: it ends before byte %" PRIu64 " of %" PRIu64, at + n, f->size);
        } else if (errno != EINTR) {
            return gguf_fail(f, err, ATN_IO, "", whole_file, "reading %zu bytes at %" PRIu64 " failed (error %d)", n,
                             at, errno);
        }
    }
    return ATN_OK;
}

/* Walks with ever more of the file at hand until the whole header is: then head holds it and *header is its length. */
static atn_status prove_header(gguf_file *f, size_t *header, atn_err *err)
{
    size_t have = 0;
    uint64_t want = f->fd < 0 ? f->size : FIRST_READ;
    for (;;) {
        if (f->fd >= 0) {
            want = want < f->size ? want : f->size;
            unsigned char *head = realloc(f->head, want > 0 ? (size_t)want : 1);
            if (head == NULL) {
                return gguf_fail(f, err, ATN_NOMEM, "", whole_file, "no memory for %" PRIu64 " bytes of header", want);
            }
            f->head = head;
            ATN_TRY(gguf_file_read(f, have, head + have, (size_t)want - have, err));
        }
        have = (size_t)want;
        gguf_walk w = {.f = f, .c = cursor_of(f->fd < 0 ? f->memory : f->head, have), .err = err};
        atn_status s = gguf_walk_header(&w);
        if (w.wanted == 0) {
            *header = w.c.at;
            return s;
        }
        /* Fourfold, so that all walks together cost no more than a third above the last; what is wanted is below the limit. */
        want = w.wanted > (uint64_t)have * 4 ? w.wanted : (uint64_t)have * 4;
        want = want < GGUF_MAX_HEADER ? want : GGUF_MAX_HEADER;
    }
}

/* Fills keys and tensors by a second walk over the proven header. */
static atn_status index_header(gguf_file *f, size_t header, gguf_tensor **tensors, atn_err *err)
{
    if (f->fd >= 0) {
        unsigned char *head = realloc(f->head, header);
        f->head = head != NULL ? head : f->head;
    }
    f->kvs = calloc(f->n_kvs > 0 ? f->n_kvs : 1, sizeof *f->kvs);
    *tensors = calloc(f->n_tensors > 0 ? f->n_tensors : 1, sizeof **tensors);
    if (f->kvs == NULL || *tensors == NULL) {
        return gguf_fail(f, err, ATN_NOMEM, "", whole_file, "no memory for %zu keys and %zu tensors", f->n_kvs,
                         f->n_tensors);
    }
    gguf_walk w = {.f = f,
                   .c = cursor_of(f->fd < 0 ? f->memory : f->head, header),
                   .kvs = f->kvs,
                   .tensors = *tensors,
                   .err = err};
    ATN_TRY(gguf_walk_header(&w));
    int64_t duplicate;
    if (name_table_build(&f->keys, f->kvs, sizeof *f->kvs, f->n_kvs, &duplicate) != ATN_OK) {
        return gguf_fail(f, err, ATN_NOMEM, "", whole_file, "no memory for a table of %zu keys", f->n_kvs);
    }
    if (duplicate != NAME_NONE) {
        return gguf_fail(f, err, ATN_FORMAT, "key", f->kvs[duplicate].key, "is there twice");
    }
    return ATN_OK;
}

/* Sets alignment and data_start. */
static atn_status find_data(gguf_file *f, size_t header, atn_err *err)
{
    static const char key[] = "general.alignment";
    const gguf_kv *kv = gguf_file_find(f, key);
    f->alignment = 32;
    if (kv != NULL) {
        if (kv->type != GGUF_U32) {
            return gguf_fail(f, err, ATN_FORMAT, "key", kv->key, "has type %s: it must be u32",
                             gguf_type_name(kv->type));
        }
        memcpy(&f->alignment, kv->data, 4);
        if (f->alignment < GGUF_MIN_ALIGNMENT || f->alignment > GGUF_MAX_ALIGNMENT ||
            (f->alignment & (f->alignment - 1)) != 0) {
            return gguf_fail(f, err, ATN_FORMAT, "key", kv->key,
                             "is %" PRIu32 ": it must be a power of two from %d to %d", f->alignment,
                             GGUF_MIN_ALIGNMENT, GGUF_MAX_ALIGNMENT);
        }
    }
    size_t start;
    if (!size_align(header, f->alignment, &start)) {
        return gguf_fail(f, err, ATN_FORMAT, "key", gguf_str_of(key), "the data would start past 2^64");
    }
    f->data_start = start;
    return ATN_OK;
}

static int by_offset(const void *a, const void *b)
{
    const gguf_tensor *const *x = a, *const *y = b;
    if ((*x)->offset != (*y)->offset) {
        return (*x)->offset < (*y)->offset ? -1 : 1;
    }
    return (*x)->bytes < (*y)->bytes ? -1 : (*x)->bytes > (*y)->bytes;
}

static atn_status check_overlap(const gguf_file *f, const gguf_tensor *tensors, atn_err *err)
{
    const gguf_tensor **order = malloc((f->n_tensors + 1) * sizeof *order);
    if (order == NULL) {
        return gguf_fail(f, err, ATN_NOMEM, "", whole_file, "no memory to sort %zu tensors", f->n_tensors);
    }
    for (size_t i = 0; i < f->n_tensors; i++) {
        order[i] = &tensors[i];
    }
    qsort(order, f->n_tensors, sizeof *order, by_offset);
    atn_status s = ATN_OK;
    for (size_t i = 1; i < f->n_tensors && s == ATN_OK; i++) {
        const gguf_tensor *a = order[i - 1], *b = order[i];
        if (b->offset - a->offset < a->bytes) {
            s = gguf_fail(f, err, ATN_FORMAT, "tensor", b->name,
                          "starts at %" PRIu64 " inside tensor %.*s, which ends at %" PRIu64, b->offset,
                          (int)strnlen(a->name.s, a->name.n), a->name.s, a->offset + a->bytes);
        }
    }
    free(order);
    return s;
}

/* Makes offsets absolute, each extent inside the file and outside every other. */
static atn_status check_extents(const gguf_file *f, gguf_tensor *tensors, atn_err *err)
{
    for (size_t i = 0; i < f->n_tensors; i++) {
        gguf_tensor *t = &tensors[i];
        if (t->offset % f->alignment != 0) {
            return gguf_fail(f, err, ATN_FORMAT, "tensor", t->name,
                             "offset %" PRIu64 " is no multiple of the alignment %" PRIu32, t->offset, f->alignment);
        }
        uint64_t room = f->size > f->data_start ? f->size - f->data_start : 0;
        size_t least = t->bytes > 0 ? t->bytes : 1; /* of a type that we cannot read the size is not known */
        if (t->offset > room || least > room - t->offset) {
            return gguf_fail(f, err, ATN_FORMAT, "tensor", t->name,
                             "%zu bytes at offset %" PRIu64 " do not fit the file's %" PRIu64 " bytes of data", least,
                             t->offset, room);
        }
        t->offset += f->data_start;
    }
    return check_overlap(f, tensors, err);
}

atn_status gguf_file_load(gguf_file *f, gguf_tensor **tensors, atn_err *err)
{
    size_t header = 0;
    *tensors = NULL;
    atn_status s = prove_header(f, &header, err);
    if (s == ATN_OK) {
        s = index_header(f, header, tensors, err);
    }
    if (s == ATN_OK) {
        s = find_data(f, header, err);
    }
    if (s == ATN_OK) {
        s = check_extents(f, *tensors, err);
    }
    if (s != ATN_OK) {
        free(*tensors);
        *tensors = NULL;
    }
    return s;
}

const gguf_kv *gguf_file_find(const gguf_file *f, const char *key)
{
    int64_t i = name_table_find(&f->keys, key, strlen(key));
    return i != NAME_NONE ? &f->kvs[i] : NULL;
}
