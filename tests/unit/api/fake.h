/* A model, an engine and an exchange in memory, so that the API layer can be driven event by event.
 *
 * The tokenizer knows one token a byte (ids 0-255), BOS 256, EOS 257 and WORD 258 ("stop"). The engine keeps every
 * submitted request; a test feeds events with fake_emit and calls api_on_engine_wake. Include it from one file of a
 * program: it defines the public functions itself. */
#ifndef TEST_API_FAKE_H
#define TEST_API_FAKE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "server/api/state.h"

enum { FAKE_BOS = 256, FAKE_EOS = 257, FAKE_WORD = 258, FAKE_VOCAB = 259, FAKE_CONTEXT = 64, FAKE_STREAMS = 32 };

/* ---- tokenizer and model ---- */

struct atn_tokenizer {
    char bytes[256];
};
static atomic_uint fake_tokenized; /* calls */
struct atn_model {
    atn_tokenizer tok;
};

const atn_tokenizer *atn_model_tokenizer(const atn_model *m)
{
    return &m->tok;
}
atn_backend *atn_model_backend(const atn_model *m)
{
    (void)m;
    return NULL;
}
void atn_model_get_info(const atn_model *m, atn_model_info *out)
{
    (void)m;
    *out = (atn_model_info){.name = "fake",
                            .architecture = "fake",
                            .n_vocab = FAKE_VOCAB,
                            .context = FAKE_CONTEXT,
                            .context_train = FAKE_CONTEXT};
}
void atn_backend_get_caps(const atn_backend *be, atn_backend_caps *out)
{
    (void)be;
    *out = (atn_backend_caps){.name = "fake", .numerics = "fake-1", .detail = "none", .n_threads = 1};
}
atn_status atn_backend_open(const char *name, const atn_backend_params *params, atn_backend **out, atn_err *err)
{
    (void)name;
    (void)params;
    *out = NULL;
    return atn_fail(err, ATN_UNSUPPORTED, NULL, "the fake has one backend");
}

void atn_backend_close(atn_backend *be)
{
    (void)be;
}

const char *atn_backend_list(size_t i)
{
    return i == 0 ? "fake" : NULL;
}
uint32_t atn_vocab_size(const atn_tokenizer *t)
{
    (void)t;
    return FAKE_VOCAB;
}
int32_t atn_token_bos(const atn_tokenizer *t)
{
    (void)t;
    return FAKE_BOS;
}
int32_t atn_token_eos(const atn_tokenizer *t)
{
    (void)t;
    return FAKE_EOS;
}
bool atn_token_adds_bos(const atn_tokenizer *t)
{
    (void)t;
    return true;
}
bool atn_token_ends(const atn_tokenizer *t, int32_t id)
{
    (void)t;
    return id == FAKE_EOS;
}
atn_token_kind atn_token_get_kind(const atn_tokenizer *t, int32_t id)
{
    (void)t;
    return id == FAKE_BOS || id == FAKE_EOS ? ATN_TOKEN_CONTROL : id == FAKE_WORD ? ATN_TOKEN_NORMAL : ATN_TOKEN_BYTE;
}
const char *atn_token_bytes(const atn_tokenizer *t, int32_t id, bool with_control, size_t *n)
{
    const char *text = id == FAKE_BOS ? "<s>" : id == FAKE_EOS ? "</s>" : "stop";
    if (id < 256) {
        *n = 1;
        return &t->bytes[id];
    }
    *n = id == FAKE_WORD || with_control ? strlen(text) : 0;
    return text;
}
const char *atn_token_piece(const atn_tokenizer *t, int32_t id, size_t *n)
{
    return atn_token_bytes(t, id, true, n);
}
const char *atn_tokenizer_kind(const atn_tokenizer *t)
{
    (void)t;
    return "gpt2";
}
const char *atn_tokenizer_pre(const atn_tokenizer *t)
{
    (void)t;
    return "default";
}
const char *atn_chat_family(const atn_tokenizer *t)
{
    (void)t;
    return "plain";
}
const char *const *atn_chat_stops(const atn_tokenizer *t, size_t *n)
{
    static const char *const stops[ATN_CHAT_MAX_STOPS] = {"\nsystem:", "\nuser:", "\nassistant:", "\ntool:"};
    (void)t;
    *n = ATN_CHAT_MAX_STOPS;
    return stops;
}
/* Every message is its role and its content, no more. */
atn_status atn_chat_render(const atn_tokenizer *t, const atn_chat_message *msgs, size_t n_msgs,
                           bool add_generation_prompt, atn_segment **segs, size_t *n_segs, atn_err *err)
{
    (void)t, (void)add_generation_prompt;
    *segs = calloc(2 * n_msgs, sizeof **segs);
    if (*segs == NULL) {
        return atn_fail(err, ATN_NOMEM, NULL, "no memory");
    }
    for (size_t i = 0; i < n_msgs; i++) {
        (*segs)[2 * i] = (atn_segment){msgs[i].role, strlen(msgs[i].role), true};
        (*segs)[2 * i + 1] = (atn_segment){msgs[i].content, msgs[i].n, false};
    }
    *n_segs = 2 * n_msgs;
    return ATN_OK;
}
atn_status atn_tokenize_offsets(const atn_tokenizer *t, const atn_segment *segs, size_t n_segs, unsigned flags,
                                int32_t **ids, size_t (**offsets)[2], size_t *n_ids, atn_err *err)
{
    (void)t;
    size_t n = 0, at = 0;
    atomic_fetch_add(&fake_tokenized, 1);
    for (size_t i = 0; i < n_segs; i++) {
        n += segs[i].n;
    }
    *ids = malloc((n + 1) * sizeof **ids);
    *offsets = malloc((n + 1) * sizeof **offsets);
    if (*ids == NULL || *offsets == NULL) {
        return atn_fail(err, ATN_NOMEM, NULL, "no memory");
    }
    if (flags & ATN_TOKENIZE_BOS) {
        (*ids)[at] = FAKE_BOS;
        (*offsets)[at][0] = (*offsets)[at][1] = 0;
        at++;
    }
    size_t where = 0;
    for (size_t i = 0; i < n_segs; i++) {
        for (size_t k = 0; k < segs[i].n; k++, where++, at++) {
            (*ids)[at] = (unsigned char)segs[i].text[k];
            (*offsets)[at][0] = where;
            (*offsets)[at][1] = where + 1;
        }
    }
    *n_ids = at;
    return ATN_OK;
}
atn_status atn_tokenize(const atn_tokenizer *t, const atn_segment *segs, size_t n_segs, unsigned flags, int32_t **ids,
                        size_t *n_ids, atn_err *err)
{
    size_t(*offsets)[2] = NULL;
    ATN_TRY(atn_tokenize_offsets(t, segs, n_segs, flags, ids, &offsets, n_ids, err));
    free(offsets);
    return ATN_OK;
}
atn_status atn_detokenize(const atn_tokenizer *t, const int32_t *ids, size_t n_ids, bool with_control, char **text,
                          size_t *n, atn_err *err)
{
    buf b;
    buf_init(&b, 1 << 20);
    for (size_t i = 0; i < n_ids; i++) {
        size_t m = 0;
        const char *bytes = atn_token_bytes(t, ids[i], with_control, &m);
        buf_add(&b, bytes, m);
    }
    *text = buf_take(&b, n);
    return *text != NULL ? ATN_OK : atn_fail(err, ATN_NOMEM, NULL, "no memory");
}

/* ---- engine ---- */

struct atn_stream {
    int32_t tokens[FAKE_CONTEXT * 2];
    uint32_t n_tokens;
    atn_request request; /* pointers are stale */
    char stops[ATN_MAX_STOPS][ATN_MAX_STOP_BYTES + 1];
    atn_event events[64];
    uint32_t n_events, taken;
    bool released;
    atn_sampled *prompt_logprobs;
};
struct atn_engine {
    atn_stream streams[FAKE_STREAMS];
    uint32_t n_streams;
    uint64_t dropped[64];
    uint32_t n_dropped;
    atn_status refuse; /* what submit says from stream number refuse_from on */
    uint64_t steps;
    bool busy;
    uint32_t refuse_from;
};

atn_status atn_engine_submit(atn_engine *e, const atn_request *r, atn_stream **out, atn_err *err)
{
    *out = NULL;
    if (e->refuse != ATN_OK && e->n_streams >= e->refuse_from) {
        return atn_fail(err, e->refuse, NULL, "refused by the test");
    }
    assert_true(e->n_streams < FAKE_STREAMS);
    assert_true(r->n_tokens <= FAKE_CONTEXT);
    atn_stream *s = &e->streams[e->n_streams++];
    *s = (atn_stream){.request = *r, .n_tokens = r->n_tokens};
    memcpy(s->tokens, r->tokens, r->n_tokens * sizeof *r->tokens);
    assert_true(r->n_stops <= ATN_MAX_STOPS);
    for (uint32_t i = 0; i < r->n_stops; i++) {
        memcpy(s->stops[i], r->stops[i].bytes, r->stops[i].n);
    }
    *out = s;
    return ATN_OK;
}
void atn_stream_cancel(atn_stream *s)
{
    (void)s;
}
bool atn_stream_next(atn_stream *s, atn_event *ev)
{
    assert_false(s->released);
    if (s->taken == s->n_events) {
        return false;
    }
    *ev = s->events[s->taken++];
    return true;
}
const atn_sampled *atn_stream_prompt_logprobs(const atn_stream *s)
{
    return s->prompt_logprobs;
}
void atn_stream_release(atn_stream *s)
{
    if (s != NULL) {
        assert_false(s->released);
        s->released = true;
    }
}
void atn_engine_drop(atn_engine *e, atn_domain domain, uint64_t sequence)
{
    (void)domain;
    e->dropped[e->n_dropped++ % 64] = sequence;
}
void atn_engine_get_metrics(atn_engine *e, atn_metrics *out)
{
    (void)e;
    *out = (atn_metrics){0};
}
uint64_t atn_engine_steps(const atn_engine *e, bool *busy)
{
    *busy = e->busy;
    return e->steps;
}
void atn_engine_get_info(const atn_engine *e, atn_engine_info *out)
{
    (void)e;
    *out = (atn_engine_info){.max_sequences = ATN_MAX_CHOICES};
}

/* ---- exchange ---- */

typedef struct fake_exchange {
    exchange x;
    const char *header_names[4], *header_values[4];
    size_t queued;
    bool refuse_writes;
    /* what came back */
    int status; /* 0: nothing yet */
    char type[64], headers[2048];
    buf body;
    bool begun, ended, clean, closed;
    int answers;
} fake_exchange;

static const char *fake_header(exchange *x, const char *name)
{
    fake_exchange *f = (fake_exchange *)x;
    for (size_t i = 0; i < 4 && f->header_names[i] != NULL; i++) {
        if (strcasecmp(f->header_names[i], name) == 0) {
            return f->header_values[i];
        }
    }
    return NULL;
}
static void fake_keep_headers(fake_exchange *f, const char *type, const reply_header *h, size_t n)
{
    snprintf(f->type, sizeof f->type, "%s", type != NULL ? type : "");
    size_t at = 0;
    for (size_t i = 0; i < n; i++) {
        at += (size_t)snprintf(f->headers + at, sizeof f->headers - at, "%s: %s\n", h[i].name, h[i].value);
    }
}
static void fake_reply(exchange *x, int status, const char *type, const reply_header *h, size_t n_h, buf *body)
{
    fake_exchange *f = (fake_exchange *)x;
    assert_false(f->closed || f->begun);
    assert_int_equal(f->answers++, 0);
    f->status = status;
    fake_keep_headers(f, type, h, n_h);
    size_t n = 0;
    char *bytes = buf_take(body, &n);
    buf_add(&f->body, bytes, n);
    free(bytes);
}
static void fake_begin(exchange *x, const char *type, const reply_header *h, size_t n_h)
{
    fake_exchange *f = (fake_exchange *)x;
    assert_false(f->closed || f->begun);
    assert_int_equal(f->answers++, 0);
    f->status = 200;
    f->begun = true;
    fake_keep_headers(f, type, h, n_h);
}
static bool fake_write(exchange *x, const void *bytes, size_t n)
{
    fake_exchange *f = (fake_exchange *)x;
    assert_true(f->begun && !f->ended && !f->closed);
    buf_add(&f->body, bytes, n);
    return !f->refuse_writes;
}
static size_t fake_queued(exchange *x)
{
    return ((fake_exchange *)x)->queued;
}
static void fake_end(exchange *x, bool clean)
{
    fake_exchange *f = (fake_exchange *)x;
    assert_true(f->begun && !f->ended && !f->closed);
    f->ended = true;
    f->clean = clean;
}

static const exchange_ops fake_ops = {fake_header, fake_reply, fake_begin, fake_write, fake_queued, fake_end};

/* Sends a request; body NULL: none. Close it with fake_close. */
static fake_exchange *fake_send(api *a, const char *method, const char *path, const char *body, uint64_t key_hash,
                                const char *header, const char *value)
{
    fake_exchange *f = calloc(1, sizeof *f);
    buf_init(&f->body, 1 << 24);
    f->header_names[0] = header;
    f->header_values[0] = value;
    f->x.ops = &fake_ops;
    f->x.method = method;
    f->x.path = path;
    f->x.query = "";
    f->x.body = body != NULL ? strdup(body) : NULL;
    f->x.body_len = body != NULL ? strlen(body) : 0;
    f->x.who = (identity){"test", RIGHT_INFER, key_hash};
    f->x.request_id = "r";
    const char *allow;
    const api_route *r = api_find_route(method, path, &allow);
    assert_non_null(r);
    api_handle(a, r, &f->x);
    return f;
}
static inline fake_exchange *fake_post(api *a, const char *path, const char *body)
{
    return fake_send(a, "POST", path, body, 1, NULL, NULL);
}
static void fake_close(fake_exchange *f)
{
    assert_false(f->closed);
    f->closed = true;
    if (f->x.on_close != NULL) {
        f->x.on_close(&f->x);
    }
    buf_free(&f->body);
    free(f->x.body);
    free(f);
}

/* ---- events ---- */

static inline void fake_event(atn_stream *s, atn_event ev)
{
    assert_true(s->n_events < 64);
    ev.token.logprob = ev.token.logprob != 0 ? ev.token.logprob : -0.5f;
    s->events[s->n_events++] = ev;
}
static inline void fake_token(atn_stream *s, int32_t id, uint32_t hold)
{
    fake_event(s, (atn_event){.has_token = true, .token = {.id = id}, .hold = hold});
}
/* Ends the only choice with a token. */
static inline void fake_last(atn_stream *s, int32_t id, atn_finish finish)
{
    fake_event(
        s,
        (atn_event){.has_token = true,
                    .token = {.id = id},
                    .finish = finish,
                    .last = true,
                    .usage = {.prompt_tokens = s->n_tokens, .cached_tokens = 3, .generated_tokens = s->n_events + 1}});
}
static inline void fake_text(atn_stream *s, const char *text)
{
    for (; *text != '\0'; text++) {
        fake_token(s, (unsigned char)*text, 0);
    }
}

typedef struct world {
    atn_model model;
    atn_engine engine;
    api *a;
} world;

static inline world *world_new(void)
{
    world *w = calloc(1, sizeof *w);
    for (int i = 0; i < 256; i++) {
        w->model.tok.bytes[i] = (char)i;
    }
    api_settings s = {
        .model_id = "fake",
        .version = "0",
        .max_body = 1 << 20,
        .max_sessions = 3,
        .session_ttl_s = 60,
        .max_session_tokens = 40,
        .max_turns_waiting = 2,
        .max_batch_prompts = 4,
        .ping_s = 10,
        .queue_s = 30,
    };
    atn_err err;
    assert_int_equal(api_open(&s, &w->a, &err), ATN_OK);
    api_set_engine(w->a, &w->model, &w->engine);
    return w;
}
static inline void world_free(world *w)
{
    assert_int_equal(api_active(w->a), 0);
    assert_null(w->a->turns);
    api_close(w->a);
    for (uint32_t i = 0; i < w->engine.n_streams; i++) {
        assert_true(w->engine.streams[i].released);
        free(w->engine.streams[i].prompt_logprobs);
    }
    free(w);
}

#endif
