/* The KV pool: what a page is, the memory, the promises, and the check that the books balance.
 *
 * The functions of a configuration find groups by comparing layers, so that they need no memory: a layer leads its group when
 * no earlier layer is like it. */
#include "core/kv/kv_internal.h"

#include <stdlib.h>

enum {
    MAX_LAYERS = 1 << 16,
    MAX_DIM = 1 << 16, /* heads, head size */
    MAX_PAGE_TOKENS = 1 << 12,
};

static bool same_group(const kv_layer *a, const kv_layer *b)
{
    return a->n_head_kv == b->n_head_kv && a->head_dim_k == b->head_dim_k && a->head_dim_v == b->head_dim_v &&
           a->window == b->window;
}

/* Layers in the group that layer l leads; 0 when an earlier layer leads it. */
static uint32_t group_layers(const kv_config *cfg, uint32_t l)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < cfg->n_layers; i++) {
        if (same_group(&cfg->layers[i], &cfg->layers[l])) {
            if (i < l) {
                return 0;
            }
            n++;
        }
    }
    return n;
}

static uint32_t gcd(uint32_t a, uint32_t b)
{
    while (b != 0) {
        uint32_t r = a % b;
        a = b;
        b = r;
    }
    return a;
}

static uint32_t unit_layers(const kv_config *cfg)
{
    uint32_t unit = 0;
    for (uint32_t l = 0; l < cfg->n_layers; l++) {
        unit = gcd(unit, group_layers(cfg, l));
    }
    return unit;
}

static size_t type_bytes(atn_dtype t)
{
    return t == ATN_DTYPE_F32 ? 4 : 2;
}

/* K and V share one row stride, that of the longer. */
static size_t row_bytes(const kv_layer *l, atn_dtype t)
{
    return (size_t)(l->head_dim_k > l->head_dim_v ? l->head_dim_k : l->head_dim_v) * type_bytes(t);
}

/* Bytes of one layer's K (or V) in a page. */
static size_t half_bytes(const kv_layer *l, const kv_config *cfg)
{
    return (size_t)l->n_head_kv * cfg->page_tokens * row_bytes(l, cfg->type);
}

static bool dim_ok(uint32_t n)
{
    return n >= 1 && n <= MAX_DIM;
}

static atn_status config_check(const kv_config *cfg, atn_err *err)
{
    if (cfg->type != ATN_DTYPE_F32 && cfg->type != ATN_DTYPE_F16) {
        return atn_fail(err, ATN_UNSUPPORTED, "kv_type", "KV type %s: f32 and f16 are known",
                        atn_dtype_name(cfg->type));
    }
    if (cfg->page_tokens == 0 || cfg->page_tokens % 32 != 0 || cfg->page_tokens > MAX_PAGE_TOKENS) {
        return atn_fail(err, ATN_INVALID, "page_tokens", "%u: must be a multiple of 32, at most %d", cfg->page_tokens,
                        MAX_PAGE_TOKENS);
    }
    if (cfg->n_layers == 0 || cfg->n_layers > MAX_LAYERS) {
        return atn_fail(err, ATN_INVALID, "n_layers", "%u layers: 1 to %d", cfg->n_layers, MAX_LAYERS);
    }
    if (cfg->max_step == 0) {
        return atn_fail(err, ATN_INVALID, "max_step", "must be at least 1");
    }
    for (uint32_t l = 0; l < cfg->n_layers; l++) {
        const kv_layer *k = &cfg->layers[l];
        if (!dim_ok(k->n_head_kv) || !dim_ok(k->head_dim_k) || !dim_ok(k->head_dim_v)) {
            return atn_fail(err, ATN_INVALID, "layers", "layer %u: KV heads and head sizes must be 1 to %d", l,
                            MAX_DIM);
        }
    }
    return ATN_OK;
}

size_t kv_page_bytes(const kv_config *cfg)
{
    size_t most = 0;
    for (uint32_t l = 0; l < cfg->n_layers; l++) {
        size_t n = 2 * half_bytes(&cfg->layers[l], cfg);
        most = n > most ? n : most;
    }
    return most * unit_layers(cfg);
}

uint32_t kv_column_blocks(uint32_t window, uint32_t page_tokens, uint32_t max_step, uint32_t n_tokens)
{
    uint32_t all = kv_blocks(n_tokens, page_tokens);
    if (window == 0) {
        return all;
    }
    /* During a step, positions len - window + 1 .. len + max_step - 1 are held; n positions touch most pages when the
     * first of them is the last of its page. */
    uint64_t n = (uint64_t)window - 1 + max_step;
    uint64_t touched = (n + page_tokens - 2) / page_tokens + 1;
    return touched < all ? (uint32_t)touched : all;
}

/* Adds n slices of so many blocks; what is beyond all pools stays UINT32_MAX. */
static uint32_t add_pages(uint32_t sum, uint32_t n_slices, uint64_t blocks)
{
    const uint64_t n = sum + n_slices * blocks; /* slices are at most MAX_LAYERS, blocks far below 2^40 */
    return n < UINT32_MAX ? (uint32_t)n : UINT32_MAX;
}

uint32_t kv_config_pages_for(const kv_config *cfg, uint32_t n_tokens)
{
    uint32_t unit = unit_layers(cfg);
    uint32_t n = 0;
    for (uint32_t l = 0; l < cfg->n_layers; l++) {
        n = add_pages(n, group_layers(cfg, l) / unit,
                      kv_column_blocks(cfg->layers[l].window, cfg->page_tokens, cfg->max_step, n_tokens));
    }
    return n;
}

uint32_t kv_pages_for(const kv_pool *p, uint32_t n_tokens)
{
    uint32_t n = 0;
    for (uint32_t g = 0; g < p->n_groups; g++) {
        n = add_pages(n, p->groups[g].n_slices,
                      kv_column_blocks(p->groups[g].shape.window, p->page_tokens, p->max_step, n_tokens));
    }
    return n;
}

uint32_t kv_pages_for_choices(const kv_pool *p, uint32_t n_prompt, uint32_t n_tokens, uint32_t n_choices)
{
    if (n_choices <= 1) {
        return kv_pages_for(p, n_tokens);
    }
    uint32_t shared = kv_blocks(n_prompt, p->page_tokens);
    uint32_t grown = kv_blocks(n_tokens, p->page_tokens) - shared + (n_prompt % p->page_tokens != 0);
    uint32_t n = 0;
    for (uint32_t g = 0; g < p->n_groups; g++) {
        uint32_t window = p->groups[g].shape.window;
        uint32_t own = grown;
        if (window != 0) {
            uint32_t most = kv_column_blocks(window, p->page_tokens, p->max_step, n_tokens);
            own = most < own ? most : own;
        }
        n = add_pages(n, p->groups[g].n_slices,
                      kv_column_blocks(window, p->page_tokens, p->max_step, n_prompt) + (uint64_t)n_choices * own);
    }
    return n;
}

static void lay_out(kv_pool *p, const kv_config *cfg)
{
    uint32_t unit = unit_layers(cfg);
    for (uint32_t l = 0; l < cfg->n_layers; l++) {
        uint32_t n = group_layers(cfg, l);
        if (n == 0) {
            continue;
        }
        kv_group *g = &p->groups[p->n_groups];
        *g = (kv_group){.shape = cfg->layers[l], .n_slices = n / unit, .first_col = p->n_cols};
        uint32_t at = 0;
        for (uint32_t i = l; i < cfg->n_layers; i++) {
            if (same_group(&cfg->layers[i], &g->shape)) {
                p->places[i] = (kv_place){.group = p->n_groups, .col = g->first_col + at / unit, .slot = at % unit};
                at++;
            }
        }
        p->n_cols += g->n_slices;
        p->n_groups++;
    }
}

atn_status kv_pool_open(atn_backend *be, const kv_config *cfg, kv_pool **out, atn_err *err)
{
    *out = NULL;
    ATN_TRY(config_check(cfg, err));
    size_t page = kv_page_bytes(cfg);
    size_t n = cfg->budget_bytes / page;
    if (n == 0) {
        return atn_fail(err, ATN_NOMEM, "kv_bytes", "a KV budget of %zu bytes holds no page of %zu bytes",
                        cfg->budget_bytes, page);
    }
    kv_pool *p = calloc(1, sizeof *p);
    if (p == NULL) {
        return atn_fail(err, ATN_NOMEM, NULL, "no memory for the KV pool");
    }
    p->n_layers = cfg->n_layers;
    p->page_tokens = cfg->page_tokens;
    p->max_step = cfg->max_step;
    p->type = cfg->type;
    p->page_bytes = page;
    p->n_pages = n < INT32_MAX ? (uint32_t)n : INT32_MAX;
    atn_status st = atn_buffer_new(be, (size_t)p->n_pages * page, true, &p->mem, err);
    if (st != ATN_OK) {
        goto fail;
    }
    p->groups = calloc(cfg->n_layers, sizeof *p->groups);
    p->places = calloc(cfg->n_layers, sizeof *p->places);
    p->free_pages = calloc(p->n_pages, sizeof *p->free_pages);
    p->refs = calloc(p->n_pages, sizeof *p->refs);
    p->seen = calloc(p->n_pages, sizeof *p->seen);
    if (p->groups == NULL || p->places == NULL || p->free_pages == NULL || p->refs == NULL || p->seen == NULL) {
        st = atn_fail(err, ATN_NOMEM, NULL, "no memory for the books of %u KV pages", p->n_pages);
        goto fail;
    }
    lay_out(p, cfg);
    for (uint32_t i = 0; i < p->n_pages; i++) {
        p->free_pages[i] = (int32_t)(p->n_pages - 1 - i);
    }
    p->n_free = p->n_pages;
    *out = p;
    return ATN_OK;
fail:
    kv_pool_close(p);
    return st;
}

void kv_pool_close(kv_pool *p)
{
    if (p == NULL) {
        return;
    }
    atn_buffer_free(p->mem);
    free(p->groups);
    free(p->places);
    free(p->free_pages);
    free(p->refs);
    free(p->seen);
    free(p);
}

void kv_pool_get_stats(const kv_pool *p, kv_stats *out)
{
    *out = (kv_stats){
        .n_pages = p->n_pages, .n_free = p->n_free, .n_reserved = p->n_reserved, .page_bytes = p->page_bytes};
}

void kv_layer_layout(const kv_pool *p, uint32_t layer, atn_kv_layout *out)
{
    const kv_place *at = &p->places[layer];
    const kv_layer *shape = &p->groups[at->group].shape;
    size_t row = row_bytes(shape, p->type);
    size_t half = (size_t)shape->n_head_kv * p->page_tokens * row;
    *out = (atn_kv_layout){
        .k_buf = p->mem,
        .v_buf = p->mem,
        .page_stride = p->page_bytes,
        .k_off = at->slot * 2 * half,
        .v_off = at->slot * 2 * half + half,
        .head_stride = p->page_tokens * row,
        .row_stride = row,
        .page_tokens = p->page_tokens,
        .type = p->type,
    };
}

bool kv_reserve(kv_pool *p, uint32_t n)
{
    if (n > p->n_free - p->n_reserved) {
        return false;
    }
    p->n_loose += n;
    p->n_reserved += n;
    return true;
}

void kv_unreserve(kv_pool *p, uint32_t n)
{
    p->n_loose -= n;
    p->n_reserved -= n;
}

/* Counts every table entry into p->seen. */
static const char *check_seq(kv_pool *p, const kv_seq *s)
{
    uint32_t held = 0;
    if (s->len > s->max_tokens || s->n_blocks > s->max_blocks || s->n_blocks < kv_blocks(s->len, p->page_tokens)) {
        return "a sequence is longer than the room it has";
    }
    if (s->promised > 0 && !s->draws) {
        return "a sequence has a promise it does not draw from";
    }
    for (uint32_t g = 0; g < p->n_groups; g++) {
        uint32_t window = p->groups[g].shape.window;
        uint64_t oldest = (uint64_t)s->first[g] * p->page_tokens;
        if (s->first[g] > 0 && (window == 0 || s->first[g] > s->n_blocks || oldest + window > (uint64_t)s->len + 1)) {
            return "a group gave back a page still in sight";
        }
        for (uint32_t c = 0; c < p->groups[g].n_slices; c++) {
            const int32_t *col = s->table + (size_t)(p->groups[g].first_col + c) * s->max_blocks;
            for (uint32_t b = 0; b < s->max_blocks; b++) {
                bool should = b >= s->first[g] && b < s->n_blocks;
                if (should != (col[b] >= 0) || col[b] >= (int32_t)p->n_pages) {
                    return "a block table names a page it should not hold, or holds none where it should";
                }
                if (should) {
                    p->seen[col[b]]++;
                    held++;
                }
            }
        }
    }
    return held == s->n_held ? NULL : "a sequence miscounts its pages";
}

const char *kv_pool_check(kv_pool *p)
{
    for (uint32_t i = 0; i < p->n_pages; i++) {
        p->seen[i] = 0;
    }
    uint64_t promised = p->n_loose;
    for (const kv_seq *s = p->seqs; s != NULL; s = s->next) {
        const char *why = check_seq(p, s);
        if (why != NULL) {
            return why;
        }
        promised += s->promised;
    }
    if (promised != p->n_reserved) {
        return "promises do not add up";
    }
    if (p->n_reserved > p->n_free) {
        return "more pages are promised than free";
    }
    uint32_t held = 0;
    for (uint32_t i = 0; i < p->n_pages; i++) {
        if (p->seen[i] != p->refs[i]) {
            return "a page's reference count differs from the tables that name it";
        }
        held += p->refs[i] > 0;
    }
    if (held + p->n_free != p->n_pages) {
        return "free and held pages do not add up";
    }
    for (uint32_t i = 0; i < p->n_free; i++) {
        int32_t page = p->free_pages[i];
        if (page < 0 || page >= (int32_t)p->n_pages || p->seen[page] != 0) {
            return "the free list holds a page twice or one in use";
        }
        p->seen[page] = 1;
    }
    return NULL;
}
