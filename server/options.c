/* See options.h. */
#include "server/options.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MIB       (UINT64_C(1) << 20)
#define AT(field) offsetof(options, field)

static const option TABLE[] = {
    {"model", OPTION_TEXT, AT(model), NULL, .value = "FILE",
     .help = "GGUF file to serve (the first part of a split one)"},
    {"model-id", OPTION_TEXT, AT(model_id), NULL, .value = "NAME",
     .help = "name shown to clients; default: the file's name without .gguf"},
    {"host", OPTION_TEXT, AT(host), "127.0.0.1", .value = "ADDRESS", .help = "address to listen on"},
    {"port", OPTION_COUNT, AT(port), "8080", 0, 65535, .value = "N", .help = "port to listen on; 0: a free one"},
    {"threads", OPTION_COUNT, AT(threads), "0", 0, 256, .value = "N",
     .help = "threads that compute; 0: as many as CPU quota and affinity allow"},
    {"backend", OPTION_CHOICE, AT(backend), "auto", .choices = "auto|naive|openblas|simd", .value = "NAME",
     .help = "what computes; auto: the best that passes its self-check"},
    {"kv-bytes", OPTION_SIZE, AT(kv_bytes), "0", 0, UINT64_C(1) << 42, .value = "SIZE",
     .help = "memory of the KV cache, taken at start; 0: a quarter of what is left, at most 1g"},
    {"kv-type", OPTION_CHOICE, AT(kv_type), "f16", .choices = "f16|f32", .value = "TYPE",
     .help = "number type of the KV cache"},
    {"context", OPTION_COUNT, AT(context), "0", 0, 1 << 20, .value = "N",
     .help = "most tokens of a sequence; 0: the model's own, at most 8192"},
    {"max-sequences", OPTION_COUNT, AT(max_sequences), "16", 1, 1024, .value = "N",
     .help = "sequences computed at once; at most what --step-tokens serves every second step"},
    {"step-tokens", OPTION_COUNT, AT(step_tokens), "256", 1, 65536, .value = "N",
     .help = "tokens computed in one step, decoding and prompts together"},
    {"max-waiting", OPTION_COUNT, AT(max_waiting), "128", 1, 65536, .value = "N",
     .help = "requests that may wait for their turn; above: 429"},
    {"max-connections", OPTION_COUNT, AT(max_connections), "1024", 1, 65536, .value = "N",
     .help = "open connections; above: idle ones are closed, then 429"},
    {"max-body", OPTION_SIZE, AT(max_body), "2m", 1024, 64 * MIB, .value = "SIZE",
     .help = "bytes of a request body; above: 413"},
    {"max-sessions", OPTION_COUNT, AT(max_sessions), "1024", 1, 1000000, .value = "N", .help = "sessions kept"},
    {"session-ttl", OPTION_COUNT, AT(session_ttl), "3600", 0, 31536000, .value = "SECONDS",
     .help = "idle time after which a session expires; 0: never"},
    {"api-key-file", OPTION_TEXT, AT(api_key_file), NULL, .value = "FILE",
     .help = "keys, one a line: KEY NAME RIGHTS (infer, admin, attention or all, apart by commas)"},
    {"allow-host", OPTION_LIST, AT(allow_host), NULL, .value = "NAME,...",
     .help = "Host names answered besides localhost, addresses and --host; *: all; may be repeated"},
    {"allow-open", OPTION_SWITCH, AT(allow_open), "false",
     .help = "serve beyond the loopback although no keys are set"},
    {"allow-unknown-pre", OPTION_SWITCH, AT(allow_unknown_pre), "false",
     .help = "take the default pre-tokenizer when the model names one not known here"},
    {"strict-model", OPTION_SWITCH, AT(strict_model), "false", .help = "404 for requests that name another model"},
    {"drain-timeout", OPTION_COUNT, AT(drain_timeout), "30", 0, 3600, .value = "SECONDS",
     .help = "time for running requests to end after SIGTERM"},
    {"stall-timeout", OPTION_COUNT, AT(stall_timeout), "30", 1, 3600, .value = "SECONDS",
     .help = "a stream whose client reads nothing for so long is cancelled"},
    {"queue-timeout", OPTION_COUNT, AT(queue_timeout), "60", 1, 3600, .value = "SECONDS",
     .help = "a request that waits for its turn so long ends with 504"},
    {"ping-interval", OPTION_COUNT, AT(ping_interval), "10", 0, 3600, .value = "SECONDS",
     .help = "silence of a stream before a comment is sent; 0: never"},
    {"log-level", OPTION_CHOICE, AT(log_level), "info", .choices = "error|warn|info|debug", .value = "LEVEL",
     .help = "how much is logged, to standard error"},
};

const option *option_at(size_t i)
{
    return i < sizeof TABLE / sizeof TABLE[0] ? &TABLE[i] : NULL;
}

const option *option_find(const char *name)
{
    for (size_t i = 0; i < sizeof TABLE / sizeof TABLE[0]; i++) {
        if (strcmp(TABLE[i].name, name) == 0) {
            return &TABLE[i];
        }
    }
    return NULL;
}

void option_env_name(const option *o, char out[64])
{
    int n = snprintf(out, 64, "ATTND_%s", o->name);
    for (int i = 0; i < n; i++) {
        out[i] = out[i] == '-' ? '_' : out[i] >= 'a' && out[i] <= 'z' ? (char)(out[i] - 'a' + 'A') : out[i];
    }
}

static void *field(options *o, const option *opt)
{
    return (char *)o + opt->offset;
}

void option_size_text(uint64_t bytes, char out[32])
{
    static const char SUFFIX[] = "\0kmg";
    unsigned i = 0;
    for (; i < 3 && bytes != 0 && bytes % 1024 == 0; i++) {
        bytes /= 1024;
    }
    (void)snprintf(out, 32, "%llu%.1s", (unsigned long long)bytes, &SUFFIX[i]);
}

void option_range(const option *opt, char *out, size_t cap)
{
    char min[32], max[32];
    switch (opt->type) {
    case OPTION_TEXT:
        (void)snprintf(out, cap, "text that is not empty");
        break;
    case OPTION_CHOICE:
        (void)snprintf(out, cap, "one of %s", opt->choices);
        break;
    case OPTION_COUNT:
        (void)snprintf(out, cap, "a whole number from %llu to %llu", (unsigned long long)opt->min,
                       (unsigned long long)opt->max);
        break;
    case OPTION_SIZE:
        option_size_text(opt->min, min);
        option_size_text(opt->max, max);
        (void)snprintf(out, cap, "bytes, with suffix k, m or g if wanted, from %s to %s", min, max);
        break;
    case OPTION_SWITCH:
        (void)snprintf(out, cap, "true or false");
        break;
    case OPTION_LIST:
        (void)snprintf(out, cap, "names apart by commas");
        break;
    }
}

atn_status option_refuse(const option *opt, atn_err *err)
{
    char range[160];
    option_range(opt, range, sizeof range);
    return atn_fail(err, ATN_INVALID, opt->name, "must be %s", range);
}

static bool parse_number(const option *opt, const char *text, uint64_t *out)
{
    char *end;
    if (text[0] < '0' || text[0] > '9') {
        return false;
    }
    errno = 0;
    unsigned long long v = strtoull(text, &end, 10);
    if (errno != 0) {
        return false;
    }
    if (opt->type == OPTION_SIZE && *end != '\0') {
        static const char UNITS[] = "kmgKMG";
        const char *unit = strchr(UNITS, *end);
        if (unit == NULL) {
            return false;
        }
        unsigned shift = 10 * (unsigned)((unit - UNITS) % 3 + 1);
        if (v > UINT64_MAX >> shift) {
            return false;
        }
        v <<= shift;
        end++;
    }
    *out = v;
    return *end == '\0' && v >= opt->min && v <= opt->max;
}

static bool parse_switch(const char *text, bool *out)
{
    static const char *const words[] = {"false", "true", "0", "1", "off", "on", "no", "yes"};
    for (unsigned i = 0; i < sizeof words / sizeof words[0]; i++) {
        if (strcmp(text, words[i]) == 0) {
            *out = i % 2 == 1;
            return true;
        }
    }
    return false;
}

static bool is_choice(const char *choices, const char *text)
{
    size_t n = strlen(text);
    for (const char *p = choices;; p++) {
        size_t len = strcspn(p, "|");
        if (len == n && memcmp(p, text, n) == 0) {
            return true;
        }
        p += len;
        if (*p == '\0') {
            return false;
        }
    }
}

static atn_status add_entries(char ***list, size_t *n, const option *opt, const char *text, atn_err *err)
{
    for (const char *p = text; *p != '\0';) {
        size_t len = strcspn(p, ",");
        if (len > 0) {
            char **grown = realloc(*list, (*n + 1) * sizeof **list);
            char *entry = grown != NULL ? strndup(p, len) : NULL;
            *list = grown != NULL ? grown : *list;
            if (entry == NULL) {
                return atn_fail(err, ATN_NOMEM, opt->name, "no memory");
            }
            (*list)[(*n)++] = entry;
        }
        p += len + (p[len] == ',');
    }
    return ATN_OK;
}

atn_status option_set(options *o, const option *opt, const char *text, atn_err *err)
{
    void *at = field(o, opt);
    char *copy;
    switch (opt->type) {
    case OPTION_TEXT:
    case OPTION_CHOICE:
        if (text[0] == '\0' || (opt->choices != NULL && !is_choice(opt->choices, text))) {
            return option_refuse(opt, err);
        }
        copy = strdup(text);
        if (copy == NULL) {
            return atn_fail(err, ATN_NOMEM, opt->name, "no memory");
        }
        free(*(char **)at);
        *(char **)at = copy;
        return ATN_OK;
    case OPTION_COUNT:
    case OPTION_SIZE:
        return parse_number(opt, text, at) ? ATN_OK : option_refuse(opt, err);
    case OPTION_SWITCH:
        return parse_switch(text, at) ? ATN_OK : option_refuse(opt, err);
    case OPTION_LIST:
        return add_entries(&o->allow_host, &o->n_allow_host, opt, text, err);
    }
    return option_refuse(opt, err);
}

void option_clear(options *o, const option *opt)
{
    if (opt->type == OPTION_LIST) {
        for (size_t i = 0; i < o->n_allow_host; i++) {
            free(o->allow_host[i]);
        }
        free(o->allow_host);
        o->allow_host = NULL;
        o->n_allow_host = 0;
    }
}

atn_status options_init(options *out, atn_err *err)
{
    *out = (options){0};
    for (size_t i = 0; i < sizeof TABLE / sizeof TABLE[0]; i++) {
        if (TABLE[i].fallback != NULL) {
            atn_status s = option_set(out, &TABLE[i], TABLE[i].fallback, err);
            if (s != ATN_OK) {
                options_free(out);
                return s;
            }
        }
    }
    return ATN_OK;
}

void options_free(options *o)
{
    for (size_t i = 0; i < sizeof TABLE / sizeof TABLE[0]; i++) {
        if (TABLE[i].type == OPTION_TEXT || TABLE[i].type == OPTION_CHOICE) {
            free(*(char **)field(o, &TABLE[i]));
        }
        option_clear(o, &TABLE[i]);
    }
    *o = (options){0};
}
