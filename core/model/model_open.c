/* Opening a model: the file's metadata, its architecture, tokenizer, hyperparameters, tensors; then the file is dropped. */
#include "core/model/arch.h"
#include "core/model/bind.h"
#include "core/model/hparams.h"
#include "core/token/tokenizer.h"

#include <stdlib.h>
#include <string.h>

/* What a context is without a wish: long ones cost rotary tables and KV admission for what few requests use. */
enum { DEFAULT_CONTEXT = 8192 };

static const model_arch *const archs[] = {&arch_llama, &arch_qwen2, &arch_qwen3, &arch_gemma3, &arch_gpt2};

static atn_status find_arch(const gguf *g, const model_arch **out, atn_err *err)
{
    const char *key = "general.architecture";
    gguf_str name = {0};
    atn_status st = gguf_string(g, key, &name, err);
    if (st == ATN_NOT_FOUND) {
        return atn_fail(err, ATN_FORMAT, key, "the key is missing");
    }
    ATN_TRY(st);
    for (size_t i = 0; i < sizeof archs / sizeof *archs; i++) {
        if (strlen(archs[i]->name) == name.n && memcmp(archs[i]->name, name.s, name.n) == 0) {
            *out = archs[i];
            return ATN_OK;
        }
    }
    char word[33];
    return atn_fail(err, ATN_UNSUPPORTED, key, "architecture '%s': llama, qwen2, qwen3, gemma3 and gpt2 are known",
                    gguf_printable(name, word, sizeof word));
}

static atn_status read_name(const gguf *g, char **out, atn_err *err)
{
    gguf_str s = {.s = "", .n = 0};
    atn_status st = gguf_string(g, "general.name", &s, err);
    if (st != ATN_OK && st != ATN_NOT_FOUND) {
        return st;
    }
    *out = strndup(s.s, s.n);
    return *out != NULL ? ATN_OK : atn_fail(err, ATN_NOMEM, NULL, "no memory for the model's name");
}

static atn_status choose_context(atn_model *m, uint32_t wish, atn_err *err)
{
    uint32_t train = m->h.context_train;
    uint32_t most = train < HPARAMS_MAX_CONTEXT ? train : HPARAMS_MAX_CONTEXT;
    if (wish > most) {
        return atn_fail(err, ATN_INVALID, "context", "%u: this model allows 1 to %u", wish, most);
    }
    m->context = wish != 0 ? wish : most < DEFAULT_CONTEXT ? most : DEFAULT_CONTEXT;
    return ATN_OK;
}

static bool layer_is_local(const model_hparams *h, uint32_t l)
{
    return h->window > 0 && (h->global_every == 0 || (l + 1) % h->global_every != 0);
}

static atn_status make_layers(atn_model *m, atn_err *err)
{
    const model_hparams *h = &m->h;
    m->layers = calloc(h->n_layer, sizeof *m->layers);
    m->kv_layers = calloc(h->n_layer, sizeof *m->kv_layers);
    if (m->layers == NULL || m->kv_layers == NULL) {
        return atn_fail(err, ATN_NOMEM, NULL, "no memory for %u layers", h->n_layer);
    }
    for (uint32_t l = 0; l < h->n_layer; l++) {
        bool local = layer_is_local(h, l);
        m->layers[l].window = local ? h->window : 0;
        m->layers[l].rope = local && h->rope_local.base > 0.0 ? &m->rope_local : &m->rope_global;
        m->kv_layers[l] = (kv_layer){
            .n_head_kv = h->n_head_kv,
            .head_dim_k = h->head_dim,
            .head_dim_v = h->head_dim_v,
            .window = m->layers[l].window,
        };
    }
    return ATN_OK;
}

static atn_status bind_all(atn_model *m, const gguf *g, atn_err *err)
{
    model_binder b = {.g = g, .m = m, .err = err};
    b.bound = calloc(gguf_n_tensors(g) + 1, sizeof *b.bound);
    if (b.bound == NULL) {
        return atn_fail(err, ATN_NOMEM, NULL, "no memory for %zu tensor names", gguf_n_tensors(g));
    }
    atn_status st = bind_ends(&b);
    for (uint32_t l = 0; st == ATN_OK && l < m->h.n_layer; l++) {
        st = m->arch->bind(&b, l, &m->layers[l]);
    }
    if (st == ATN_OK) {
        st = bind_check_all_used(&b);
    }
    free(b.bound);
    return st;
}

/* The layer's matrices, for freeing and counting. */
static size_t layer_weights(model_layer *y, atn_weight *out[8])
{
    model_linear *all[] = {&y->q, &y->k, &y->v, &y->qkv, &y->o, &y->gate, &y->up, &y->down};
    size_t n = 0;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        if (all[i]->w != NULL) {
            out[n++] = all[i]->w;
        }
    }
    return n;
}

static size_t weight_bytes(const atn_model *m)
{
    size_t n = m->vector_bytes + atn_weight_bytes(m->embd);
    if (m->pos_embd != NULL) {
        n += atn_weight_bytes(m->pos_embd);
    }
    if (m->output.w != m->embd) {
        n += atn_weight_bytes(m->output.w);
    }
    for (uint32_t l = 0; l < m->h.n_layer; l++) {
        atn_weight *w[8];
        size_t n_w = layer_weights(&m->layers[l], w);
        for (size_t i = 0; i < n_w; i++) {
            n += atn_weight_bytes(w[i]);
        }
    }
    return n;
}

static void fill_info(atn_model *m, const gguf *g)
{
    const model_hparams *h = &m->h;
    uint64_t n_params = 0;
    for (size_t i = 0; i < gguf_n_tensors(g); i++) {
        const gguf_tensor *t = gguf_tensor_at(g, i);
        n_params += t->ne[0] * t->ne[1] * t->ne[2] * t->ne[3];
    }
    m->info = (atn_model_info){
        .name = m->name,
        .architecture = m->arch->name,
        .n_layer = h->n_layer,
        .n_embd = h->n_embd,
        .n_head = h->n_head,
        .n_head_kv = h->n_head_kv,
        .head_dim = h->head_dim,
        .n_ff = h->n_ff,
        .n_vocab = h->n_vocab,
        .context = m->context,
        .context_train = h->context_train,
        .window = h->window,
        .tied_output = m->output.w == m->embd,
        .n_params = n_params,
        .file_bytes = gguf_file_bytes(g),
        .weight_bytes = weight_bytes(m),
    };
}

static atn_status open_parts(atn_model *m, const gguf *g, const atn_model_params *p, atn_err *err)
{
    ATN_TRY(find_arch(g, &m->arch, err));
    ATN_TRY(read_name(g, &m->name, err));
    ATN_TRY(tokenizer_open(g, p->allow_unknown_pre, &m->tok, err));
    m->h.n_vocab = atn_vocab_size(m->tok);
    ATN_TRY(hparams_common(g, m->arch->name, &m->h, err));
    ATN_TRY(m->arch->hparams(g, &m->h, err));
    ATN_TRY(choose_context(m, p->context, err));
    ATN_TRY(make_layers(m, err));
    ATN_TRY(bind_all(m, g, err));
    fill_info(m, g);
    return ATN_OK;
}

atn_status model_open_gguf(const gguf *g, const atn_model_params *params, atn_backend *be, atn_model **out,
                           atn_err *err)
{
    *out = NULL;
    atn_model *m = calloc(1, sizeof *m);
    if (m == NULL) {
        return atn_fail(err, ATN_NOMEM, NULL, "no memory for a model");
    }
    m->be = be;
    atn_status st = open_parts(m, g, params, err);
    if (st != ATN_OK) {
        atn_model_close(m);
        return st;
    }
    *out = m;
    return ATN_OK;
}

atn_status atn_model_open(const char *path, const atn_model_params *params, atn_backend *be, atn_model **out,
                          atn_err *err)
{
    *out = NULL;
    gguf *g;
    ATN_TRY(gguf_open(path, &g, err));
    atn_status st = model_open_gguf(g, params, be, out, err);
    gguf_close(g);
    return st;
}

void atn_model_close(atn_model *m)
{
    if (m == NULL) {
        return;
    }
    for (uint32_t l = 0; m->layers != NULL && l < m->h.n_layer; l++) {
        atn_weight *w[8];
        size_t n = layer_weights(&m->layers[l], w);
        for (size_t i = 0; i < n; i++) {
            atn_weight_free(w[i]);
        }
    }
    if (m->output.w != m->embd) {
        atn_weight_free(m->output.w);
    }
    atn_weight_free(m->embd);
    atn_weight_free(m->pos_embd);
    bind_free_room(m);
    tokenizer_close(m->tok);
    free(m->layers);
    free(m->kv_layers);
    free(m->name);
    free(m);
}

void atn_model_get_info(const atn_model *m, atn_model_info *out)
{
    *out = m->info;
}

const atn_tokenizer *atn_model_tokenizer(const atn_model *m)
{
    return m->tok;
}

atn_backend *atn_model_backend(const atn_model *m)
{
    return m->be;
}

void model_kv_layers(const atn_model *m, const kv_layer **layers, uint32_t *n_layers)
{
    *layers = m->kv_layers;
    *n_layers = m->h.n_layer;
}
