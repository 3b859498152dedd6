/* A GGUF model: one file or all parts of a split one, with one table of tensors. */
#include "core/load/gguf_file.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const gguf_str whole_file = {0};

/* f->name for error texts: the last part of the path, its middle left out when it is long. */
static void set_name(gguf_file *f, const char *path)
{
    const char *slash = strrchr(path, '/');
    const char *name = slash != NULL && slash[1] != '\0' ? slash + 1 : path;
    size_t n = strlen(name);
    if (n < sizeof f->name) {
        memcpy(f->name, name, n + 1);
    } else {
        snprintf(f->name, sizeof f->name, "%.30s...%s", name, name + n - 30);
    }
    gguf_printable(gguf_str_of(f->name), f->name, sizeof f->name);
}

static atn_status open_file(gguf_file *f, const char *path, atn_err *err)
{
    struct stat st;
    *f = (gguf_file){0};
    set_name(f, path);
    f->fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY); /* a FIFO without a writer must not hold us */
    if (f->fd < 0) {
        return gguf_fail(f, err, ATN_IO, "", whole_file, "cannot be opened: %s", strerrordesc_np(errno));
    }
    if (fstat(f->fd, &st) != 0) {
        return gguf_fail(f, err, ATN_IO, "", whole_file, "its size cannot be read: %s", strerrordesc_np(errno));
    }
    if (!S_ISREG(st.st_mode)) {
        return gguf_fail(f, err, ATN_IO, "", whole_file, "is %s, not a regular file",
                         S_ISDIR(st.st_mode) ? "a directory" : "a device or pipe");
    }
    f->size = (uint64_t)st.st_size;
    return ATN_OK;
}

/* Adds an opened file and its tensors to g. f is g's from here on, whatever happens. */
static atn_status add_file(gguf *g, const gguf_file *f, atn_err *err)
{
    gguf_file *own = &g->files[g->n_files++];
    gguf_tensor *tensors;
    *own = *f;
    ATN_TRY(gguf_file_load(own, &tensors, err));
    size_t total = g->n_tensors + own->n_tensors;
    gguf_tensor *all = NULL;
    atn_status s = ATN_OK;
    if (total > GGUF_MAX_TENSORS) {
        s = gguf_fail(own, err, ATN_FORMAT, "", whole_file, "the parts have more than %d tensors", GGUF_MAX_TENSORS);
    } else if ((all = realloc(g->tensors, (total > 0 ? total : 1) * sizeof *all)) == NULL) {
        s = gguf_fail(own, err, ATN_NOMEM, "", whole_file, "no memory for %zu tensors", total);
    }
    if (s != ATN_OK) {
        free(tensors);
        return s;
    }
    for (size_t i = 0; i < own->n_tensors; i++) {
        all[g->n_tensors + i] = tensors[i];
        all[g->n_tensors + i].file = (uint32_t)(g->n_files - 1);
    }
    free(tensors);
    g->tensors = all;
    g->n_tensors = total;
    return ATN_OK;
}

/* ---- split files ---- */

/* Number of files that the first one says there are. */
static atn_status split_count(gguf *g, int64_t *count, atn_err *err)
{
    *count = 1;
    atn_status s = gguf_file_integer(&g->files[0], "split.count", 0, GGUF_MAX_SPLITS, count, err);
    *count = *count > 1 ? *count : 1;
    return s == ATN_NOT_FOUND ? ATN_OK : s;
}

/* Is f part `no` of `count`? */
static atn_status check_part(const gguf_file *f, int64_t no, int64_t count, atn_err *err)
{
    int64_t have = -1;
    atn_status s = gguf_file_integer(f, "split.no", 0, GGUF_MAX_SPLITS - 1, &have, err);
    if (s == ATN_NOT_FOUND || (s == ATN_OK && have != no)) {
        return gguf_fail(f, err, ATN_FORMAT, "key", gguf_str_of("split.no"),
                         "is %" PRId64 ": this must be part number %" PRId64, have, no);
    }
    ATN_TRY(s);
    have = -1;
    s = gguf_file_integer(f, "split.count", 0, GGUF_MAX_SPLITS, &have, err);
    if (s == ATN_NOT_FOUND || (s == ATN_OK && have != count)) {
        return gguf_fail(f, err, ATN_FORMAT, "key", gguf_str_of("split.count"),
                         "is %" PRId64 ": the first part has %" PRId64, have, count);
    }
    return s;
}

/* Opens parts 2 to count beside the first, whose name ends in -00001-of-NNNNN.gguf. */
static atn_status add_parts(gguf *g, const char *path, int64_t count, atn_err *err)
{
    gguf_file *first = &g->files[0];
    char suffix[40], part[PATH_MAX];
    ATN_TRY(check_part(first, 0, count, err));
    snprintf(suffix, sizeof suffix, "-00001-of-%05d.gguf", (int)count);
    size_t n = strlen(path), stem = strlen(suffix);
    if (n < stem || strcmp(path + n - stem, suffix) != 0) {
        return gguf_fail(first, err, ATN_FORMAT, "key", gguf_str_of("split.count"),
                         "is %" PRId64 ", so the file's name must end in %s", count, suffix);
    }
    gguf_file *files = realloc(g->files, (size_t)count * sizeof *files);
    if (files == NULL) {
        return gguf_fail(first, err, ATN_NOMEM, "", whole_file, "no memory for %" PRId64 " parts", count);
    }
    g->files = files;
    for (int64_t i = 1; i < count; i++) {
        gguf_file f;
        int len = snprintf(part, sizeof part, "%.*s-%05d-of-%05d.gguf", (int)(n - stem), path, (int)i + 1, (int)count);
        if (len < 0 || (size_t)len >= sizeof part) {
            return gguf_fail(first, err, ATN_IO, "", whole_file, "the path is longer than %d bytes", PATH_MAX);
        }
        atn_status s = open_file(&f, part, err);
        if (s != ATN_OK) {
            gguf_file_close(&f);
            return s;
        }
        ATN_TRY(add_file(g, &f, err));
        ATN_TRY(check_part(&g->files[i], i, count, err));
    }
    int64_t total;
    atn_status s = gguf_file_integer(&g->files[0], "split.tensors.count", 0, GGUF_MAX_TENSORS, &total, err);
    if (s == ATN_OK && (uint64_t)total != g->n_tensors) {
        return gguf_fail(&g->files[0], err, ATN_FORMAT, "key", gguf_str_of("split.tensors.count"),
                         "is %" PRId64 ", but the %" PRId64 " parts have %zu", total, count, g->n_tensors);
    }
    return s == ATN_NOT_FOUND ? ATN_OK : s;
}

/* ---- opening ---- */

static atn_status index_tensors(gguf *g, atn_err *err)
{
    int64_t duplicate;
    if (name_table_build(&g->names, g->tensors, sizeof *g->tensors, g->n_tensors, &duplicate) != ATN_OK) {
        return gguf_fail(&g->files[0], err, ATN_NOMEM, "", whole_file, "no memory for a table of %zu tensors",
                         g->n_tensors);
    }
    if (duplicate != NAME_NONE) {
        const gguf_tensor *t = &g->tensors[duplicate];
        return gguf_fail(&g->files[t->file], err, ATN_FORMAT, "tensor", t->name, "is there twice");
    }
    return ATN_OK;
}

/* path is NULL for a model in memory. f is closed whatever happens. */
static atn_status open_model(gguf_file *f, const char *path, gguf **out, atn_err *err)
{
    int64_t count = 1;
    atn_status s;
    gguf *g = calloc(1, sizeof *g);
    gguf_file *files = malloc(sizeof *files);
    if (g == NULL || files == NULL) {
        s = gguf_fail(f, err, ATN_NOMEM, "", whole_file, "no memory");
        gguf_file_close(f);
        free(files);
        free(g);
        return s;
    }
    g->files = files;
    s = add_file(g, f, err);
    if (s == ATN_OK) {
        s = split_count(g, &count, err);
    }
    if (s == ATN_OK && count > 1) {
        s = path != NULL ? add_parts(g, path, count, err)
                         : gguf_fail(&g->files[0], err, ATN_FORMAT, "key", gguf_str_of("split.count"),
                                     "is %" PRId64 ": a model in memory is one part", count);
    }
    if (s == ATN_OK) {
        s = index_tensors(g, err);
    }
    if (s != ATN_OK) {
        gguf_close(g);
        return s;
    }
    *out = g;
    return ATN_OK;
}

atn_status gguf_open(const char *path, gguf **out, atn_err *err)
{
    gguf_file f;
    *out = NULL;
    atn_status s = open_file(&f, path, err);
    if (s != ATN_OK) {
        gguf_file_close(&f);
        return s;
    }
    return open_model(&f, path, out, err);
}

atn_status gguf_open_memory(const void *bytes, size_t n, gguf **out, atn_err *err)
{
    gguf_file f = {.name = "model in memory", .fd = -1, .memory = bytes, .size = n};
    *out = NULL;
    return open_model(&f, NULL, out, err);
}

void gguf_close(gguf *g)
{
    if (g == NULL) {
        return;
    }
    for (size_t i = 0; i < g->n_files; i++) {
        gguf_file_close(&g->files[i]);
    }
    name_table_free(&g->names);
    free(g->tensors);
    free(g->files);
    free(g);
}

/* ---- tensors ---- */

size_t gguf_file_bytes(const gguf *g)
{
    uint64_t total = 0;
    for (size_t i = 0; i < g->n_files; i++) {
        total += g->files[i].size;
    }
    return (size_t)total;
}

size_t gguf_n_tensors(const gguf *g)
{
    return g->n_tensors;
}

const gguf_tensor *gguf_tensor_at(const gguf *g, size_t i)
{
    return i < g->n_tensors ? &g->tensors[i] : NULL;
}

const gguf_tensor *gguf_find_tensor(const gguf *g, const char *name)
{
    int64_t i = name_table_find(&g->names, name, strlen(name));
    return i != NAME_NONE ? &g->tensors[i] : NULL;
}

atn_status gguf_read(const gguf *g, const gguf_tensor *t, size_t from, void *dst, size_t n, atn_err *err)
{
    const gguf_file *f = &g->files[t->file];
    if (from > t->bytes || n > t->bytes - from) {
        return gguf_fail(f, err, ATN_INVALID, "tensor", t->name, "bytes %zu to %zu were asked for: it has %zu", from,
                         from + n, t->bytes);
    }
    return gguf_file_read(f, t->offset + from, dst, n, err);
}
