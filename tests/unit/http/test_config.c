/* Options from flags, environment and file: precedence, types, ranges, and what --print-config gives back. */
#include "server/config.h"

#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define MAX_ARGS 16

/* args, env: apart by blanks. */
static atn_status load(const char *args, const char *env, config *c, atn_err *err)
{
    char name[] = "attnd", arg_text[4096], env_text[4096];
    char *argv[MAX_ARGS + 1] = {name}, *envv[MAX_ARGS + 1] = {NULL}, *save = NULL;
    int argc = 1;
    (void)snprintf(arg_text, sizeof arg_text, "%s", args);
    (void)snprintf(env_text, sizeof env_text, "%s", env);
    for (char *w = strtok_r(arg_text, " ", &save); w != NULL; w = strtok_r(NULL, " ", &save)) {
        assert_true(argc < MAX_ARGS);
        argv[argc++] = w;
    }
    int n = 0;
    for (char *w = strtok_r(env_text, " ", &save); w != NULL; w = strtok_r(NULL, " ", &save)) {
        assert_true(n < MAX_ARGS);
        envv[n++] = w;
    }
    *err = (atn_err){0};
    return config_load(argc, argv, envv, c, err);
}

static void write_file(char path[32], const char *text)
{
    strcpy(path, "/tmp/attnd-config-XXXXXX");
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    assert_int_equal(close(fd), 0);
}

static atn_status load_file(const char *text, const char *args, const char *env, config *c, atn_err *err)
{
    char path[32], line[4096];
    write_file(path, text);
    (void)snprintf(line, sizeof line, "--config %s %s", path, args);
    atn_status s = load(line, env, c, err);
    assert_int_equal(unlink(path), 0);
    return s;
}

static void defaults(void **state)
{
    config c;
    atn_err err;
    (void)state;
    assert_int_equal(load("", "PATH=/bin ATTND_BIN=/x ATTND_PORTX=1", &c, &err), ATN_OK);
    assert_int_equal(c.action, CONFIG_RUN);
    assert_int_equal(c.options.port, 8080);
    assert_string_equal(c.options.host, "127.0.0.1");
    assert_int_equal(c.options.max_body, 2 << 20);
    assert_null(c.options.model);
    assert_int_equal(c.options.n_allow_host, 0);
    config_free(&c);
}

static void precedence(void **state)
{
    config c;
    atn_err err;
    (void)state;
    const char *file = "{\"port\": 1, \"context\": 11, \"threads\": 21, \"allow-host\": [\"f1\", \"f2\"]}";
    assert_int_equal(load_file(file, "--port 3 --model=m=x", "ATTND_PORT=2 ATTND_CONTEXT=12", &c, &err), ATN_OK);
    assert_int_equal(c.options.port, 3);
    assert_int_equal(c.options.context, 12);
    assert_int_equal(c.options.threads, 21);
    assert_string_equal(c.options.model, "m=x");
    assert_int_equal(c.options.n_allow_host, 2);
    config_free(&c);
    assert_int_equal(load_file(file, "", "ATTND_ALLOW_HOST=e1", &c, &err), ATN_OK);
    assert_int_equal(c.options.n_allow_host, 1);
    assert_string_equal(c.options.allow_host[0], "e1");
    config_free(&c);
    assert_int_equal(load_file(file, "--allow-host a,b --allow-host c", "ATTND_ALLOW_HOST=e1", &c, &err), ATN_OK);
    assert_int_equal(c.options.n_allow_host, 3);
    assert_string_equal(c.options.allow_host[2], "c");
    config_free(&c);
}

static void values(void **state)
{
    config c;
    atn_err err;
    (void)state;
    assert_int_equal(load("--kv-bytes 64m --max-body 1024 --allow-open --strict-model=no --port=0",
                          "ATTND_ALLOW_UNKNOWN_PRE=on", &c, &err),
                     ATN_OK);
    assert_int_equal(c.options.kv_bytes, 64 << 20);
    assert_int_equal(c.options.max_body, 1024);
    assert_true(c.options.allow_open);
    assert_false(c.options.strict_model);
    assert_true(c.options.allow_unknown_pre);
    config_free(&c);
    assert_int_equal(load("--kv-bytes 4096G", "", &c, &err), ATN_OK);
    assert_true(c.options.kv_bytes == UINT64_C(1) << 42);
    config_free(&c);
}

static void actions(void **state)
{
    config c;
    atn_err err;
    (void)state;
    assert_int_equal(load("--model m --check-config", "", &c, &err), ATN_OK);
    assert_int_equal(c.action, CONFIG_CHECK);
    config_free(&c);
    assert_int_equal(load("--print-config", "", &c, &err), ATN_OK);
    assert_int_equal(c.action, CONFIG_PRINT);
    config_free(&c);
    assert_int_equal(load("--help", "ATTND_PORT=nonsense", &c, &err), ATN_OK); /* help helps also then */
    assert_int_equal(c.action, CONFIG_HELP);
    config_free(&c);
}

static void refuse(const char *args, const char *env, const char *param, const char *says)
{
    config c;
    atn_err err;
    print_message("%s %s\n", args, env);
    assert_int_equal(load(args, env, &c, &err), ATN_INVALID);
    assert_string_equal(err.param, param);
    if (strstr(err.msg, says) == NULL) {
        fail_msg("'%s' does not say '%s'", err.msg, says);
    }
}

/* Every numeric option, at both ends of its range and one beyond, from every source. */
static void ranges(void **state)
{
    (void)state;
    for (size_t i = 0; option_at(i) != NULL; i++) {
        const option *o = option_at(i);
        if (o->type != OPTION_COUNT && o->type != OPTION_SIZE) {
            continue;
        }
        const unsigned long long good[] = {o->min, o->max}, bad[] = {o->max + 1, o->min - 1};
        char args[128], env[160], name[64], file[128], range[160];
        config c;
        atn_err err;
        option_env_name(o, name);
        option_range(o, range, sizeof range);
        for (size_t k = 0; k < 2; k++) {
            (void)snprintf(args, sizeof args, "--%s %llu", o->name, good[k]);
            assert_int_equal(load(args, "", &c, &err), ATN_OK);
            assert_true(*(uint64_t *)(void *)((char *)&c.options + o->offset) == good[k]);
            config_free(&c);
            if (k == 1 && o->min == 0) {
                continue;
            }
            (void)snprintf(args, sizeof args, "--%s %llu", o->name, bad[k]);
            (void)snprintf(env, sizeof env, "%s=%llu", name, bad[k]);
            refuse(args, "", o->name, range);
            refuse(args, "", o->name, "command line");
            refuse("", env, o->name, range);
            refuse("", env, o->name, name);
            (void)snprintf(file, sizeof file, "{\"%s\": %llu}", o->name, bad[k]);
            assert_int_equal(load_file(file, "", "", &c, &err), ATN_INVALID);
            assert_string_equal(err.param, o->name);
            assert_non_null(strstr(err.msg, range));
        }
    }
}

static void malformed(void **state)
{
    (void)state;
    refuse("--frobnicate 1", "", "frobnicate", "unknown option");
    refuse("--por 1", "", "por", "unknown option");
    refuse("--portx=1", "", "portx", "unknown option");
    refuse("-p 1", "", "-p", "options begin with --");
    refuse("model.gguf", "", "model.gguf", "options begin with --");
    refuse("--", "", "--", "options begin with --");
    refuse("--port", "", "port", "needs a value");
    refuse("--help=1", "", "help", "unknown option");
    refuse("--port x", "", "port", "a whole number from 0 to 65535");
    refuse("--port=", "", "port", "a whole number");
    refuse("--port 1x", "", "port", "a whole number");
    refuse("--port -1", "", "port", "a whole number");
    refuse("--port +1", "", "port", "a whole number");
    refuse("--port 1k", "", "port", "a whole number");
    refuse("--port 99999999999999999999999", "", "port", "a whole number");
    refuse("--max-body 2mb", "", "max-body", "suffix");
    refuse("--max-body m", "", "max-body", "suffix");
    refuse("--kv-bytes 99999999999999g", "", "kv-bytes", "4096g");
    refuse("--backend cuda", "", "backend", "auto|naive|openblas|simd");
    refuse("--backend naive|openblas", "", "backend", "one of");
    refuse("--backend auto|", "", "backend", "one of");
    refuse("--kv-type q8", "", "kv-type", "f16|f32");
    refuse("", "ATTND_LOG_LEVEL=loud", "log-level", "error|warn|info|debug");
    refuse("--allow-open=maybe", "", "allow-open", "true or false");
    refuse("--model=", "", "model", "not empty");
}

static void bad_files(void **state)
{
    static const struct {
        const char *text, *param, *says;
    } CASES[] = {
        {"", "config", "not JSON"},
        {"[]", "config", "must be a JSON object"},
        {"{\"port\": 1,}", "config", "not JSON: line 1, column 12"},
        {"{\"port\": 1, \"port\": 2}", "config", "not JSON"},
        {"{\"prot\": 1}", "prot", "unknown key"},
        {"{\"kv_bytes\": 1}", "kv_bytes", "unknown key"},
        {"{\"config\": \"x\"}", "config", "unknown key"},
        {"{\"port\": \"1\"}", "port", "a whole number"},
        {"{\"port\": 1.0}", "port", "a whole number"},
        {"{\"port\": true}", "port", "a whole number"},
        {"{\"port\": null}", "port", "a whole number"},
        {"{\"port\": -1}", "port", "a whole number"},
        {"{\"max-body\": []}", "max-body", "bytes"},
        {"{\"model\": 1}", "model", "text"},
        {"{\"allow-open\": \"true\"}", "allow-open", "true or false"},
        {"{\"allow-host\": \"a\"}", "allow-host", "array of names"},
        {"{\"allow-host\": [1]}", "allow-host", "array of names"},
    };
    config c;
    atn_err err;
    (void)state;
    for (size_t i = 0; i < sizeof CASES / sizeof CASES[0]; i++) {
        print_message("%s\n", CASES[i].text);
        assert_int_equal(load_file(CASES[i].text, "", "", &c, &err), ATN_INVALID);
        assert_string_equal(err.param, CASES[i].param);
        assert_non_null(strstr(err.msg, CASES[i].says));
    }
    assert_int_equal(load("--config /nonexistent", "", &c, &err), ATN_IO);
    assert_int_equal(load("--config /dev/zero", "", &c, &err), ATN_INVALID);
    assert_int_equal(load("", "ATTND_CONFIG=/nonexistent", &c, &err), ATN_IO);
    assert_string_equal(err.param, "config");
}

/* What is printed is a file that gives the same options. */
static void print_round_trip(void **state)
{
    config c, again;
    atn_err err;
    (void)state;
    assert_int_equal(load("--model m --kv-bytes 3000 --max-body 3k --port 7 --allow-host a,b --strict-model "
                          "--api-key-file f --kv-type f32",
                          "", &c, &err),
                     ATN_OK);
    char *text = config_json(&c.options);
    assert_non_null(text);
    assert_int_equal(load_file(text, "", "", &again, &err), ATN_OK);
    char *text2 = config_json(&again.options);
    assert_string_equal(text, text2);
    json_t *root = json_loads(text, 0, NULL);
    assert_string_equal(json_string_value(json_object_get(root, "kv-bytes")), "3000");
    assert_string_equal(json_string_value(json_object_get(root, "max-body")), "3k");
    assert_int_equal(json_integer_value(json_object_get(root, "port")), 7);
    assert_true(json_is_true(json_object_get(root, "strict-model")));
    for (size_t i = 0; option_at(i) != NULL; i++) {
        assert_true(json_object_get(root, option_at(i)->name) != NULL || strcmp(option_at(i)->name, "model-id") == 0);
    }
    json_decref(root);
    free(text);
    free(text2);
    config_free(&c);
    config_free(&again);
}

static void help(void **state)
{
    char *text = config_help(), name[80];
    (void)state;
    assert_non_null(text);
    for (size_t i = 0; option_at(i) != NULL; i++) {
        (void)snprintf(name, sizeof name, "  --%s ", option_at(i)->name);
        assert_non_null(strstr(text, name));
        assert_non_null(strstr(text, option_at(i)->help));
    }
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(defaults),  cmocka_unit_test(precedence),       cmocka_unit_test(values),
        cmocka_unit_test(actions),   cmocka_unit_test(ranges),           cmocka_unit_test(malformed),
        cmocka_unit_test(bad_files), cmocka_unit_test(print_round_trip), cmocka_unit_test(help),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
