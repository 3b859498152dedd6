/* A fixed table from names to indices of an array whose items begin with a gguf_str. Keyed by random bits, so that a file
 * cannot choose names that all collide. Thread: any, once built. */
#ifndef ATN_NAME_TABLE_H
#define ATN_NAME_TABLE_H

#include "core/load/gguf.h"

typedef struct name_table {
    const unsigned char *items; /* [n] of stride bytes; the caller's, must outlive the table */
    size_t stride;
    uint32_t *slots; /* [mask + 1], index + 1; 0: free */
    size_t mask;
    uint64_t key[2];
} name_table;

enum { NAME_NONE = -1 };

/* *duplicate: the index of the first item whose name an earlier one has, or NAME_NONE. n <= 2^30. ATN_NOMEM. */
atn_status name_table_build(name_table *t, const void *items, size_t stride, size_t n, int64_t *duplicate);
void name_table_free(name_table *t);
int64_t name_table_find(const name_table *t, const char *name, size_t n); /* index or NAME_NONE */

#endif
