/* See config.h. Each source turns its values into text and hands them to option_set, so that all of them obey the same
 * types and ranges. A list is replaced, not extended, by a stronger source. */
#include "server/config.h"

#include "core/base/buf.h"
#include "core/base/log.h"
#include "server/api/json_load.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum {
    MAX_FILE = 1 << 20,
    MAX_HELP = 64 << 10,
};

/* Adds where the value came from to an error's words. */
static atn_status from(atn_status s, const char *source, atn_err *err)
{
    if (s == ATN_INVALID) {
        size_t n = strlen(err->msg);
        (void)snprintf(err->msg + n, sizeof err->msg - n, " (from %s)", source);
    }
    return s;
}

/* ---- the file ---- */

static atn_status set_from_json(options *o, const option *opt, const json_t *v, atn_err *err)
{
    char number[32];
    if (opt->type == OPTION_LIST) {
        option_clear(o, opt);
        if (!json_is_array(v)) {
            return atn_fail(err, ATN_INVALID, opt->name, "must be an array of names");
        }
        for (size_t i = 0; i < json_array_size(v); i++) {
            const char *entry = json_string_value(json_array_get(v, i));
            if (entry == NULL) {
                return atn_fail(err, ATN_INVALID, opt->name, "must be an array of names");
            }
            ATN_TRY(option_set(o, opt, entry, err));
        }
        return ATN_OK;
    }
    if (opt->type == OPTION_SWITCH) {
        return json_is_boolean(v) ? option_set(o, opt, json_is_true(v) ? "true" : "false", err)
                                  : option_refuse(opt, err);
    }
    if (json_is_integer(v) && (opt->type == OPTION_COUNT || opt->type == OPTION_SIZE)) {
        (void)snprintf(number, sizeof number, "%lld", (long long)json_integer_value(v));
        return option_set(o, opt, number, err);
    }
    if (json_is_string(v) && opt->type != OPTION_COUNT) {
        return option_set(o, opt, json_string_value(v), err);
    }
    return option_refuse(opt, err);
}

static atn_status read_file(const char *path, char **text, size_t *n, atn_err *err)
{
    struct stat st;
    FILE *f = fopen(path, "re");
    *text = NULL;
    if (f == NULL || fstat(fileno(f), &st) != 0) {
        atn_status s = atn_fail(err, ATN_IO, "config", "cannot open it: %s", strerror(errno));
        if (f != NULL) {
            (void)fclose(f);
        }
        return s;
    }
    atn_status s = ATN_OK;
    if (!S_ISREG(st.st_mode) || st.st_size > MAX_FILE) {
        s = atn_fail(err, ATN_INVALID, "config", "must be a regular file of at most %d bytes", MAX_FILE);
    } else if ((*text = malloc(MAX_FILE)) == NULL) {
        s = atn_fail(err, ATN_NOMEM, "config", "no memory");
    } else {
        *n = fread(*text, 1, MAX_FILE, f);
        s = ferror(f) ? atn_fail(err, ATN_IO, "config", "cannot read it") : ATN_OK;
    }
    (void)fclose(f);
    return s;
}

static atn_status load_file(options *o, const char *path, atn_err *err)
{
    char *text;
    size_t n = 0;
    json_error_t where;
    atn_status s = read_file(path, &text, &n, err);
    bool nomem = false;
    json_t *root = s == ATN_OK ? json_load_bytes(text, n, JSON_REJECT_DUPLICATES, &where, &nomem) : NULL;
    if (nomem) {
        s = atn_fail(err, ATN_NOMEM, "config", "no memory to read it");
    } else if (s == ATN_OK && root == NULL) {
        s = atn_fail(err, ATN_INVALID, "config", "not JSON: line %d, column %d", where.line, where.column);
    } else if (s == ATN_OK && !json_is_object(root)) {
        s = atn_fail(err, ATN_INVALID, "config", "must be a JSON object");
    }
    const char *key;
    json_t *value;
    if (s == ATN_OK) {
        json_object_foreach(root, key, value)
        {
            const option *opt = option_find(key);
            s = opt != NULL
                    ? from(set_from_json(o, opt, value, err), "the configuration file", err)
                    : atn_fail(err, ATN_INVALID, key, "unknown key in the configuration file; attnd --help lists them");
            if (s != ATN_OK) {
                break;
            }
        }
    }
    json_decref(root);
    free(text);
    return s;
}

/* ---- the environment ---- */

static const char *env_value(char **env, const char *name)
{
    size_t n = strlen(name);
    for (char **e = env; *e != NULL; e++) {
        if (strncmp(*e, name, n) == 0 && (*e)[n] == '=') {
            return *e + n + 1;
        }
    }
    return NULL;
}

static atn_status load_env(options *o, char **env, atn_err *err)
{
    for (size_t i = 0; option_at(i) != NULL; i++) {
        char name[64];
        const option *opt = option_at(i);
        option_env_name(opt, name);
        const char *value = env_value(env, name);
        if (value != NULL) {
            option_clear(o, opt);
            ATN_TRY(from(option_set(o, opt, value, err), name, err));
        }
    }
    return ATN_OK;
}

/* ---- flags ---- */

typedef struct flag {
    const char *name; /* without -- */
    size_t name_len;
    const char *value; /* behind '=', NULL: none */
} flag;

static bool split_flag(const char *arg, flag *out)
{
    if (strncmp(arg, "--", 2) != 0 || arg[2] == '\0') {
        return false;
    }
    out->name = arg + 2;
    out->name_len = strcspn(arg + 2, "=");
    out->value = out->name[out->name_len] == '=' ? out->name + out->name_len + 1 : NULL;
    return true;
}

static bool is_flag(const flag *f, const char *name)
{
    return strlen(name) == f->name_len && strncmp(f->name, name, f->name_len) == 0;
}

static bool find_action(const flag *f, config_action *out)
{
    static const struct {
        const char *name;
        config_action action;
    } ACTIONS[] = {{"help", CONFIG_HELP},
                   {"version", CONFIG_VERSION},
                   {"print-config", CONFIG_PRINT},
                   {"check-config", CONFIG_CHECK}};
    for (size_t i = 0; i < sizeof ACTIONS / sizeof ACTIONS[0]; i++) {
        if (is_flag(f, ACTIONS[i].name) && f->value == NULL) {
            *out = ACTIONS[i].action;
            return true;
        }
    }
    return false;
}

static const option *find_option(const flag *f)
{
    for (size_t i = 0; option_at(i) != NULL; i++) {
        if (is_flag(f, option_at(i)->name)) {
            return option_at(i);
        }
    }
    return NULL;
}

/* file NULL: sets everything but --config; else finds --config alone. */
static atn_status load_flags(config *c, int argc, char **argv, const char **file, atn_err *err)
{
    bool listed = false;
    for (int i = 1; i < argc; i++) {
        flag f;
        if (!split_flag(argv[i], &f)) {
            return atn_fail(err, ATN_INVALID, argv[i], "options begin with --; attnd --help lists them");
        }
        if (find_action(&f, &c->action)) {
            continue;
        }
        char name[64];
        (void)snprintf(name, sizeof name, "%.*s", (int)f.name_len, f.name);
        const option *opt = find_option(&f);
        bool is_config = is_flag(&f, "config");
        if (opt == NULL && !is_config) {
            return atn_fail(err, ATN_INVALID, name, "unknown option; attnd --help lists them");
        }
        const char *value = f.value;
        if (value == NULL && opt != NULL && opt->type == OPTION_SWITCH) {
            value = "true";
        } else if (value == NULL && ++i == argc) {
            return atn_fail(err, ATN_INVALID, name, "needs a value");
        }
        value = value != NULL ? value : argv[i];
        if (is_config && file != NULL) {
            *file = value;
        } else if (!is_config && file == NULL) {
            if (opt->type == OPTION_LIST && !listed) {
                option_clear(&c->options, opt);
                listed = true;
            }
            ATN_TRY(from(option_set(&c->options, opt, value, err), "the command line", err));
        }
    }
    return ATN_OK;
}

atn_status config_load(int argc, char **argv, char **env, config *out, atn_err *err)
{
    *out = (config){.action = CONFIG_RUN};
    const char *file = env_value(env, "ATTND_CONFIG");
    atn_status s = options_init(&out->options, err);
    s = s == ATN_OK ? load_flags(out, argc, argv, &file, err) : s;
    if (s == ATN_OK && out->action != CONFIG_HELP && out->action != CONFIG_VERSION) {
        s = file != NULL ? load_file(&out->options, file, err) : ATN_OK;
        s = s == ATN_OK ? load_env(&out->options, env, err) : s;
        s = s == ATN_OK ? load_flags(out, argc, argv, NULL, err) : s;
    }
    if (s != ATN_OK) {
        config_free(out);
    }
    return s;
}

void config_free(config *c)
{
    options_free(&c->options);
}

/* ---- what it says ---- */

char *config_help(void)
{
    buf b;
    buf_init(&b, MAX_HELP);
    buf_puts(&b, "attnd " ATTND_VERSION ": serves an attention model over HTTP\n\n"
                 "usage: attnd --model FILE [options]\n\n"
                 "Each option is also a key of the configuration file and an environment variable: --kv-bytes 64m,\n"
                 "\"kv-bytes\": \"64m\", ATTND_KV_BYTES=64m. Flags win over the environment, that over the file.\n\n");
    for (size_t i = 0; option_at(i) != NULL; i++) {
        const option *o = option_at(i);
        char range[160] = "", left[64];
        (void)snprintf(left, sizeof left, "--%s %s", o->name, o->value != NULL ? o->value : "");
        buf_printf(&b, "  %-26s %s\n", left, o->help);
        if (o->type != OPTION_TEXT && o->type != OPTION_LIST && o->type != OPTION_SWITCH) {
            option_range(o, range, sizeof range);
        }
        if (range[0] != '\0' || (o->fallback != NULL && o->type != OPTION_SWITCH)) {
            buf_printf(&b, "  %-26s   %s%s%s%s\n", "", range, range[0] != '\0' && o->fallback != NULL ? "; " : "",
                       o->fallback != NULL ? "default " : "", o->fallback != NULL ? o->fallback : "");
        }
    }
    buf_puts(&b, "  --config FILE              JSON object with options as keys; also ATTND_CONFIG\n"
                 "  --check-config             read everything, say what is wrong, exit\n"
                 "  --print-config             print what is in force as JSON, exit\n"
                 "  --version, --help\n");
    return buf_take(&b, NULL);
}

static json_t *to_json(const options *o, const option *opt)
{
    const void *at = (const char *)o + opt->offset;
    char size[32];
    json_t *list;
    switch (opt->type) {
    case OPTION_TEXT:
    case OPTION_CHOICE:
        return *(char *const *)at != NULL ? json_string(*(char *const *)at) : NULL;
    case OPTION_COUNT:
        return json_integer((json_int_t) * (const uint64_t *)at);
    case OPTION_SIZE:
        option_size_text(*(const uint64_t *)at, size);
        return json_string(size);
    case OPTION_SWITCH:
        return json_boolean(*(const bool *)at);
    case OPTION_LIST:
        list = json_array();
        for (size_t i = 0; i < o->n_allow_host; i++) {
            json_array_append_new(list, json_string(o->allow_host[i]));
        }
        return list;
    }
    return NULL;
}

char *config_json(const options *o)
{
    json_t *root = json_object();
    for (size_t i = 0; option_at(i) != NULL; i++) {
        json_t *v = to_json(o, option_at(i));
        if (v != NULL) {
            json_object_set_new(root, option_at(i)->name, v);
        }
    }
    size_t n = root != NULL ? json_dumpb(root, NULL, 0, JSON_INDENT(2)) : 0;
    char *text = n > 0 ? malloc(n + 1) : NULL;
    if (text != NULL && json_dumpb(root, text, n, JSON_INDENT(2)) == n) {
        text[n] = '\0';
    } else {
        free(text);
        text = NULL;
    }
    json_decref(root);
    return text;
}
