/* Parsing with jansson when memory may run out. */
#ifndef ATTND_API_JSON_LOAD_H
#define ATTND_API_JSON_LOAD_H

#include <jansson.h>
#include <stdbool.h>

/* json_loadb, but sound when an allocation fails: then NULL and *nomem. The caller json_decref's the value. Thread: any. */
json_t *json_load_bytes(const char *bytes, size_t n, size_t flags, json_error_t *e, bool *nomem);

#endif
