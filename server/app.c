/* See app.h. The socket listens before the model is loaded, so that probes can tell loading from dead; loading runs on
 * another thread. The first signal drains: readiness goes away, running requests end or are cut at the drain timeout; a model
 * that still loads is not waited for. The second one ends the process at once. Everything is taken down in the reverse order of its making. */
#include "server/app.h"

#include "core/base/log.h"
#include "server/config.h"
#include "server/loop/loop.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    EXIT_LISTEN = 1,
    EXIT_CONFIG = 2,
    MAX_SESSION_TOKENS = 1 << 20,
    MAX_TURNS_WAITING = 16,
    MAX_BATCH_PROMPTS = 256,
    FAREWELL_US = 2000000, /* for the last bytes after the drain timeout */
};

typedef struct app {
    options *opt;
    char model_id[256];
    auth *keys;
    api *api;
    http *http;
    loop *loop;
    /* Written by the loading thread, read once it is done. */
    atn_backend *backend;
    atn_model *model;
    atn_engine *engine;
    atn_status load_status;
    atn_err load_err;
    const char **hosts; /* [opt->n_allow_host + 1] */
    bool loading, draining, cut;
    mono_time drain_end;
    int exit_code;
} app;

/* One line for a person, whatever the log level. */
static int complain(const atn_err *err, int code)
{
    (void)dprintf(STDERR_FILENO, "attnd: %s%s%s\n", err->param, err->param[0] != '\0' ? ": " : "", err->msg);
    return code;
}

/* ---- the model ---- */

static void on_engine_wake(void *arg)
{
    app *a = arg;
    loop_wake(a->loop);
}

static atn_engine_params engine_params(app *a)
{
    const options *o = a->opt;
    return (atn_engine_params){
        .kv_bytes = (size_t)o->kv_bytes,
        .kv_type = strcmp(o->kv_type, "f32") == 0 ? ATN_DTYPE_F32 : ATN_DTYPE_F16,
        .max_sequences = (uint32_t)o->max_sequences,
        .step_tokens = (uint32_t)o->step_tokens,
        .max_waiting = (uint32_t)o->max_waiting,
        .stall_ms = (uint32_t)o->stall_timeout * 1000,
        .queue_ms = (uint32_t)o->queue_timeout * 1000,
        .wake = on_engine_wake,
        .wake_arg = a,
    };
}

static atn_status load(app *a, atn_err *err)
{
    const options *o = a->opt;
    ATN_TRY(atn_backend_open(o->backend, &(atn_backend_params){.n_threads = (uint32_t)o->threads}, &a->backend, err));
    ATN_TRY(atn_model_open(
        o->model, &(atn_model_params){.context = (uint32_t)o->context, .allow_unknown_pre = o->allow_unknown_pre},
        a->backend, &a->model, err));
    const atn_engine_params p = engine_params(a);
    return atn_engine_start(a->model, &p, &a->engine, err);
}

static void run_load(void *arg)
{
    app *a = arg;
    a->load_status = load(a, &a->load_err);
}

static void log_budget(const app *a)
{
    atn_model_info m;
    atn_engine_info e;
    atn_backend_caps c;
    atn_model_get_info(a->model, &m);
    atn_engine_get_info(a->engine, &e);
    atn_backend_get_caps(a->backend, &c);
    const double mib = 1 << 20;
    log_info("model %s (%s), context %u, backend %s with %u threads", a->model_id, m.architecture, m.context, c.name,
             c.n_threads);
    log_info("memory: weights %.1f MiB, KV %.1f MiB (%u pages of %u tokens), scratch %.1f MiB, total %.1f MiB; %u "
             "sequences of the "
             "full context fit",
             (double)e.weights_bytes / mib, (double)e.kv_bytes / mib, e.n_pages, e.page_tokens,
             (double)e.scratch_bytes / mib, (double)(e.weights_bytes + e.kv_bytes + e.scratch_bytes) / mib,
             e.full_contexts);
}

static void on_loaded(void *arg)
{
    app *a = arg;
    a->loading = false;
    if (a->load_status != ATN_OK) {
        a->exit_code = complain(&a->load_err, EXIT_CONFIG);
        loop_stop(a->loop);
    } else if (a->draining) {
        loop_stop(a->loop);
    } else {
        api_set_engine(a->api, a->model, a->engine);
        log_budget(a);
        log_info("ready");
    }
}

/* ---- the loop's calls ---- */

static void on_wake(void *arg)
{
    app *a = arg;
    api_on_engine_wake(a->api);
}

static void stop_if_drained(app *a, mono_time now)
{
    bool idle = api_active(a->api) == 0 && !http_busy(a->http);
    if (!a->draining || (!idle && now.us < a->drain_end.us)) {
        return;
    }
    if (a->loading) { /* nothing can stop the loading thread, and nothing of it is worth keeping */
        log_info("stopped while the model was loading");
        _exit(EXIT_SUCCESS);
    }
    if (!idle && !a->cut) { /* its clients are told, and get a moment to hear it */
        log_info("drain timeout: cutting what still runs");
        a->cut = true;
        a->drain_end.us = now.us + FAREWELL_US;
        api_cut(a->api);
        return;
    }
    log_info(a->cut ? "stopped after the drain timeout" : "drained");
    loop_stop(a->loop);
}

static void on_tick(void *arg, mono_time now)
{
    app *a = arg;
    api_on_tick(a->api, now);
    stop_if_drained(a, now);
}

static bool is_busy(void *arg)
{
    const app *a = arg;
    return a->draining || api_active(a->api) > 0;
}

static void on_signal(void *arg, int number)
{
    app *a = arg;
    if (a->draining) {
        log_warn("signal %d again: stopping at once", number);
        _exit(EXIT_SUCCESS);
    }
    a->draining = true;
    a->drain_end = mono_now();
    a->drain_end.us += a->opt->drain_timeout * 1000000;
    log_info("signal %d: draining, %zu requests run", number, api_active(a->api));
    api_set_draining(a->api);
    http_set_draining(a->http);
    stop_if_drained(a, mono_now());
}

static atn_status run_aside(void *arg, void (*work)(void *job), void (*done)(void *job), void *job, atn_err *err)
{
    app *a = arg;
    return loop_work(a->loop, work, done, job, err);
}

/* A signal while everything is taken down. */
static void leave_at_once(int number)
{
    (void)number;
    _exit(EXIT_SUCCESS);
}

/* ---- start and stop ---- */

static void name_model(app *a)
{
    const char *slash = strrchr(a->opt->model, '/');
    (void)snprintf(a->model_id, sizeof a->model_id, "%s",
                   a->opt->model_id != NULL ? a->opt->model_id
                   : slash != NULL          ? slash + 1
                                            : a->opt->model);
    char *suffix = strrchr(a->model_id, '.');
    if (a->opt->model_id == NULL && suffix != NULL && suffix != a->model_id && strcmp(suffix, ".gguf") == 0) {
        *suffix = '\0';
    }
}

/* What no single option can know. Also opens the keys. */
static atn_status check(app *a, atn_err *err)
{
    const options *o = a->opt;
    if (o->model == NULL) {
        return atn_fail(err, ATN_INVALID, "model", "needed: the GGUF file to serve");
    }
    if (access(o->model, R_OK) != 0) {
        return atn_fail(err, ATN_INVALID, "model", "there is no readable file of that name");
    }
    bool loopback;
    ATN_TRY(http_check_host(o->host, &loopback, err));
    const atn_engine_params p = engine_params(a);
    ATN_TRY(atn_engine_check(&p, err));
    if (!loopback && o->api_key_file == NULL && !o->allow_open) {
        return atn_fail(err, ATN_INVALID, "host",
                        "serving beyond the loopback needs --api-key-file, or --allow-open to serve anybody");
    }
    return auth_open(o->api_key_file, &a->keys, err);
}

static atn_status start(app *a, atn_err *err)
{
    const options *o = a->opt;
    api_settings s = {
        .model_id = a->model_id,
        .version = ATTND_VERSION,
        .strict_model = o->strict_model,
        .max_body = (size_t)o->max_body,
        .max_sessions = (uint32_t)o->max_sessions,
        .session_ttl_s = (uint32_t)o->session_ttl,
        .max_session_tokens = MAX_SESSION_TOKENS,
        .max_turns_waiting = MAX_TURNS_WAITING,
        .max_batch_prompts = MAX_BATCH_PROMPTS,
        .queue_s = (uint32_t)o->queue_timeout,
        .ping_s = (uint32_t)o->ping_interval,
        .run_aside = run_aside,
        .run_arg = a,
    };
    loop_callbacks cb = {.arg = a, .on_wake = on_wake, .on_tick = on_tick, .busy = is_busy, .on_signal = on_signal};
    a->hosts = calloc(o->n_allow_host + 1, sizeof *a->hosts);
    if (a->hosts == NULL) {
        return atn_fail(err, ATN_NOMEM, NULL, "no memory");
    }
    for (size_t i = 0; i < o->n_allow_host; i++) {
        a->hosts[i] = o->allow_host[i];
    }
    a->hosts[o->n_allow_host] = o->host;
    http_settings hs = {
        .host = o->host,
        .port = (uint16_t)o->port,
        .max_connections = (uint32_t)o->max_connections,
        .max_body = (size_t)o->max_body,
        .stall_s = (uint32_t)o->stall_timeout,
        .hosts = {a->hosts, o->n_allow_host + 1},
    };
    ATN_TRY(api_open(&s, &a->api, err));
    ATN_TRY(http_open(&hs, a->api, a->keys, &a->http, err));
    ATN_TRY(loop_open(&cb, &a->loop, err));
    ATN_TRY(loop_serve(a->loop, a->http, err));
    a->loading = true;
    return loop_work(a->loop, run_load, on_loaded, a, err);
}

static void stop(app *a)
{
    if (a->http != NULL) {
        if (a->loop != NULL) {
            loop_unserve(a->loop);
        }
        http_cut(a->http);
        http_close(a->http);
    }
    if (a->loop != NULL) {
        loop_finish_work(a->loop);
    }
    api_close(a->api);
    atn_engine_stop(a->engine);
    atn_model_close(a->model);
    atn_backend_close(a->backend);
    loop_close(a->loop);
    auth_close(a->keys);
    free(a->hosts);
}

static int serve(app *a)
{
    atn_err err = {0};
    name_model(a);
    atn_status s = start(a, &err);
    if (s != ATN_OK) {
        stop(a);
        return complain(&err, s == ATN_INVALID ? EXIT_CONFIG : EXIT_LISTEN);
    }
    bool v6 = strchr(a->opt->host, ':') != NULL;
    (void)dprintf(STDERR_FILENO, "listening on http://%s%s%s:%u\n", v6 ? "[" : "", a->opt->host, v6 ? "]" : "",
                  http_port(a->http));
    loop_run(a->loop);
    (void)signal(SIGTERM, leave_at_once);
    (void)signal(SIGINT, leave_at_once);
    stop(a);
    log_info("stopped");
    return a->exit_code;
}

/* Descriptors 0 to 2 stay what they are called, also when they were closed: a socket with the number of stderr would be sent
 * the log. Writing to a socket or a log whose reader left is an error like others, not a reason to die. */
static void hold_standard_streams(void)
{
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++) {
        if (fcntl(fd, F_GETFD) < 0) {
            (void)open("/dev/null", O_RDWR);
        }
    }
    (void)signal(SIGPIPE, SIG_IGN);
}

static log_level level_of(const char *name)
{
    return strcmp(name, "error") == 0  ? LOG_LEVEL_ERROR
           : strcmp(name, "warn") == 0 ? LOG_LEVEL_WARN
           : strcmp(name, "info") == 0 ? LOG_LEVEL_INFO
                                       : LOG_LEVEL_DEBUG;
}

/* 0: printed. */
static int print_owned(char *text)
{
    bool ok = text != NULL && fputs(text, stdout) >= 0 && putchar('\n') >= 0 && fflush(stdout) == 0;
    free(text);
    return ok ? EXIT_SUCCESS : EXIT_LISTEN;
}

int app_main(int argc, char **argv, char **env)
{
    config c;
    atn_err err = {0};
    hold_standard_streams();
    if (config_load(argc, argv, env, &c, &err) != ATN_OK) {
        return complain(&err, EXIT_CONFIG);
    }
    app a = {.opt = &c.options};
    int code;
    if (c.action == CONFIG_HELP) {
        code = print_owned(config_help());
    } else if (c.action == CONFIG_VERSION) {
        code = print_owned(strdup("attnd " ATTND_VERSION));
    } else if (c.action == CONFIG_PRINT) {
        code = print_owned(config_json(&c.options));
    } else if (check(&a, &err) != ATN_OK) {
        code = complain(&err, EXIT_CONFIG);
    } else if (c.action == CONFIG_CHECK) {
        auth_close(a.keys);
        code = print_owned(strdup("the configuration is sound"));
    } else {
        log_set_level(level_of(c.options.log_level));
        code = serve(&a);
    }
    config_free(&c);
    return code;
}
