/* One file of a GGUF model: the part that gguf.c, gguf_parse.c and gguf_keys.c share. Not for others. */
#ifndef ATN_GGUF_FILE_H
#define ATN_GGUF_FILE_H

#include "core/base/cursor.h"
#include "core/load/gguf.h"
#include "core/load/name_table.h"

enum {
    GGUF_MAX_KEYS = 65536,
    GGUF_MAX_TENSORS = 1 << 20,
    GGUF_MAX_HEADER = 256 << 20, /* bytes before the tensor data; large vocabularies take 10 to 20 million */
    GGUF_MAX_SPLITS = 1024,
    GGUF_MAX_NESTING = 4, /* arrays of arrays: skipped, never read */
    GGUF_MIN_ALIGNMENT = 8,
    GGUF_MAX_ALIGNMENT = 65536,
};

typedef struct gguf_kv {
    gguf_str key; /* first: name_table */
    gguf_type type;
    gguf_type element;         /* of an array */
    uint64_t n;                /* elements of an array, bytes of a string, else 1 */
    const unsigned char *data; /* first byte of the value, of the string's text or of the first element */
    size_t bytes;              /* of data */
} gguf_kv;

typedef struct gguf_file {
    char name[64]; /* last part of the path, printable, for error texts */
    int fd;        /* -1: in memory */
    const unsigned char *memory;
    uint64_t size;       /* of the file when it was opened */
    unsigned char *head; /* the header, read into memory of our own; NULL when in memory */
    uint64_t data_start; /* of the tensor data */
    uint32_t alignment;
    gguf_kv *kvs; /* [n_kvs] */
    size_t n_kvs, n_tensors;
    name_table keys;
} gguf_file;

struct gguf {
    gguf_file *files; /* [n_files]; metadata is that of the first */
    size_t n_files;
    gguf_tensor *tensors; /* [n_tensors], of all files */
    size_t n_tensors;
    name_table names;
};

/* Reads and checks the header of f (fd or memory, size and name are set); *tensors: malloc'ed [f->n_tensors], names point
 * into f; their `file` is not set. */
atn_status gguf_file_load(gguf_file *f, gguf_tensor **tensors, atn_err *err) ATN_MUST_CHECK;
void gguf_file_close(gguf_file *f);
/* n bytes at `at` of the file into dst: ATN_IO when they are not there. Thread: any. */
atn_status gguf_file_read(const gguf_file *f, uint64_t at, void *dst, size_t n, atn_err *err) ATN_MUST_CHECK;
const gguf_kv *gguf_file_find(const gguf_file *f, const char *key); /* NULL: absent */
/* An integer key of f. Absent: ATN_NOT_FOUND, err untouched. */
atn_status gguf_file_integer(const gguf_file *f, const char *key, int64_t lo, int64_t hi, int64_t *out,
                             atn_err *err) ATN_MUST_CHECK;

/* One walk over the header's bytes. f->n_kvs and n_tensors are set; kvs and tensors are filled unless NULL. */
typedef struct gguf_walk {
    gguf_file *f;
    cursor c;        /* over the bytes at hand: the start of the file, maybe not all of the header */
    uint64_t wanted; /* not 0: the walk failed only because it needs the file's first `wanted` bytes */
    gguf_kv *kvs;
    gguf_tensor *tensors; /* offset is relative to the data until gguf_file_load has checked it */
    atn_err *err;
} gguf_walk;
atn_status gguf_walk_header(gguf_walk *w) ATN_MUST_CHECK;

/* "FILE: kind what: text"; param is `what`. What came from the file is made printable. */
atn_status gguf_fail(const gguf_file *f, atn_err *err, atn_status code, const char *kind, gguf_str what,
                     const char *fmt, ...) ATN_PRINTF(6, 7);
const char *gguf_type_name(uint32_t type);

static inline gguf_str gguf_str_of(const char *s)
{
    return (gguf_str){s, __builtin_strlen(s)};
}

#endif
