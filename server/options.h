/* The options of attnd: one table, from which flags, keys of the configuration file, environment variables, --help and
 * --print-config are all made. config.c reads the sources; this file knows names, types, ranges and defaults.
 * Thread: start-up; immutable after. */
#ifndef ATTND_OPTIONS_H
#define ATTND_OPTIONS_H

#include <attnd/status.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct options {
    char *model, *model_id, *backend, *kv_type, *host, *api_key_file, *log_level; /* owned; NULL: not set */
    char **allow_host;                                                            /* [n_allow_host], owned */
    size_t n_allow_host;
    uint64_t kv_bytes, max_body;
    uint64_t port, threads, context, max_sequences, step_tokens, max_waiting, max_connections;
    uint64_t max_sessions, session_ttl, drain_timeout, stall_timeout, queue_timeout, ping_interval;
    bool strict_model, allow_open, allow_unknown_pre;
} options;

typedef enum option_type {
    OPTION_TEXT,   /* char * */
    OPTION_CHOICE, /* char *, one of `choices` */
    OPTION_COUNT,  /* uint64_t in min .. max */
    OPTION_SIZE,   /* uint64_t bytes in min .. max; suffix k, m or g: times 1024, 1024^2, 1024^3 */
    OPTION_SWITCH, /* bool */
    OPTION_LIST,   /* char **, and its size_t right behind it */
} option_type;

typedef struct option {
    const char *name; /* "kv-bytes": --kv-bytes, key "kv-bytes", ATTND_KV_BYTES */
    option_type type;
    size_t offset;        /* in options */
    const char *fallback; /* the default as text; NULL: not set */
    uint64_t min, max;
    const char *choices; /* "a|b|c" */
    const char *value;   /* its name in --help */
    const char *help;
} option;

/* The i-th option, NULL past the end. */
const option *option_at(size_t i);
const option *option_find(const char *name); /* NULL: unknown */
void option_env_name(const option *o, char out[64]);

/* All defaults. */
atn_status options_init(options *out, atn_err *err) ATN_MUST_CHECK;
void options_free(options *o);
/* Sets from text. A list grows by the entries of a comma list; option_clear empties it.
 * ATN_INVALID: param is the option's name, the text says what is allowed. */
atn_status option_set(options *o, const option *opt, const char *text, atn_err *err) ATN_MUST_CHECK;
void option_clear(options *o, const option *opt);
/* Fails with the words of option_set for a value of the wrong type. */
atn_status option_refuse(const option *opt, atn_err *err);
/* "a whole number from 0 to 65535" */
void option_range(const option *opt, char *out, size_t cap);
/* A number of bytes with the largest exact suffix: "64m". */
void option_size_text(uint64_t bytes, char out[32]);

#endif
