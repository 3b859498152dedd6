/* The KV pool under thousands of random operations, beside a shadow that keeps every sequence's contents as a plain array.
 *
 * Each written position holds a number of its own in every layer, K and V; after every operation the books must balance and
 * what each sequence sees must be what the shadow says. Promises are kept track of: an extend within one never fails. */
#include "core/kv/kv.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum {
    N_SEQS = 6,
    MAX_TOKENS = 300,
    MAX_STEP = 40,
    N_LAYERS = 8,
    PAGE = 32,
    HEADS = 2,
    DIM_K = 3,
    DIM_V = 5,
};

static const uint32_t windows[N_LAYERS] = {50, 50, 0, 1, 50, 50, 0, 1}; /* groups of 4, 2 and 2 layers: pages of 2 */

typedef struct shadow {
    kv_seq *seq;
    uint32_t len;
    uint32_t target; /* with a promise: extends up to here must not fail; 0: none */
    float code[MAX_TOKENS];
} shadow;

typedef struct world {
    atn_backend *be;
    kv_pool *pool;
    kv_layer layers[N_LAYERS];
    shadow s[N_SEQS];
    float next_code;
    uint64_t rng;
    unsigned n_refused, n_copied, n_promised;
} world;

static uint32_t below(world *w, uint32_t n)
{
    w->rng = w->rng * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)((w->rng >> 33) % n);
}

static size_t address(const world *w, const shadow *s, uint32_t layer, uint32_t pos, uint32_t head, bool v)
{
    atn_kv_layout lay;
    kv_layer_layout(w->pool, layer, &lay);
    int32_t page = kv_seq_pages(s->seq, layer)[pos / PAGE];
    assert_true(page >= 0);
    return (size_t)page * lay.page_stride + (v ? lay.v_off : lay.k_off) + head * lay.head_stride +
           pos % PAGE * lay.row_stride;
}

/* The number that element 0 and the last element of a row hold. */
static float value(float code, uint32_t layer, uint32_t head, bool v)
{
    return code * 64 + (float)(layer * 4 + head * 2 + v);
}

static void write_pos(world *w, shadow *s, uint32_t pos, float code)
{
    atn_kv_layout lay;
    kv_layer_layout(w->pool, 0, &lay);
    for (uint32_t l = 0; l < N_LAYERS; l++) {
        for (uint32_t h = 0; h < HEADS; h++) {
            for (int v = 0; v < 2; v++) {
                float row[DIM_V];
                for (uint32_t i = 0; i < DIM_V; i++) {
                    row[i] = value(code, l, h, v);
                }
                atn_buffer_write(lay.k_buf, address(w, s, l, pos, h, v), row, (v ? DIM_V : DIM_K) * sizeof(float));
            }
        }
    }
    s->code[pos] = code;
}

static void verify(world *w, const shadow *s)
{
    assert_int_equal(kv_seq_len(s->seq), s->len);
    atn_kv_layout lay;
    kv_layer_layout(w->pool, 0, &lay);
    for (uint32_t l = 0; l < N_LAYERS; l++) {
        /* What the next position sees beside itself. */
        uint32_t from = windows[l] > 0 && s->len + 1 > windows[l] ? s->len + 1 - windows[l] : 0;
        for (uint32_t pos = from; pos < s->len; pos++) {
            for (uint32_t h = 0; h < HEADS; h++) {
                for (int v = 0; v < 2; v++) {
                    float row[DIM_V];
                    size_t n = v ? DIM_V : DIM_K;
                    atn_buffer_read(lay.k_buf, address(w, s, l, pos, h, v), row, n * sizeof(float));
                    assert_true(row[0] == value(s->code[pos], l, h, v) && row[n - 1] == row[0]);
                }
            }
        }
    }
}

static void check_books(world *w)
{
    const char *why = kv_pool_check(w->pool);
    if (why != NULL) {
        fail_msg("%s", why);
    }
    kv_stats st;
    kv_pool_get_stats(w->pool, &st);
    assert_true(st.n_reserved <= st.n_free && st.n_free <= st.n_pages);
    for (int i = 0; i < N_SEQS; i++) {
        if (w->s[i].seq != NULL) {
            assert_true(kv_seq_pages_held(w->s[i].seq) <= kv_pages_for(w->pool, MAX_TOKENS));
            assert_true(kv_seq_pages_alone(w->s[i].seq) <= kv_seq_pages_held(w->s[i].seq));
        }
    }
}

static void drop_promise(shadow *s)
{
    kv_seq_unreserve(s->seq);
    s->target = 0;
}

static void op_new(world *w, shadow *s)
{
    atn_err err;
    assert_int_equal(kv_seq_new(w->pool, MAX_TOKENS, &s->seq, &err), ATN_OK);
    s->len = s->target = 0;
}

static void op_free(shadow *s)
{
    kv_seq_free(s->seq);
    s->seq = NULL;
}

static void op_extend(world *w, shadow *s)
{
    uint32_t n = below(w, 4) == 0 ? 1 + below(w, MAX_STEP) : 1 + below(w, 4);
    n = n < MAX_TOKENS - s->len ? n : MAX_TOKENS - s->len;
    if (s->target != 0) {
        n = n < s->target - s->len ? n : s->target - s->len;
    }
    kv_stats before, after;
    kv_pool_get_stats(w->pool, &before);
    uint32_t alone = kv_seq_pages_alone(s->seq), held = kv_seq_pages_held(s->seq);
    atn_err err;
    atn_status st = kv_seq_extend(s->seq, n, &err);
    kv_pool_get_stats(w->pool, &after);
    if (st != ATN_OK) {
        assert_int_equal(st, ATN_NOMEM);
        assert_int_equal(s->target, 0); /* a promise is never broken */
        assert_int_equal(after.n_free, before.n_free);
        assert_int_equal(after.n_reserved, before.n_reserved);
        assert_int_equal(kv_seq_pages_held(s->seq), held);
        w->n_refused++;
        return;
    }
    w->n_copied += kv_seq_pages_alone(s->seq) - alone > kv_seq_pages_held(s->seq) - held;
    w->n_promised += s->target != 0;
    /* Sometimes less is written than there was made room for. */
    uint32_t done = below(w, 8) == 0 ? below(w, n + 1) : n;
    for (uint32_t i = 0; i < done; i++) {
        write_pos(w, s, s->len + i, w->next_code++);
    }
    kv_seq_commit(s->seq, done);
    s->len += done;
    if (s->len == s->target) {
        drop_promise(s);
    }
}

static void op_promise(world *w, shadow *s)
{
    if (s->target != 0) {
        drop_promise(s);
        return;
    }
    if (s->len == MAX_TOKENS) {
        return;
    }
    uint32_t target = s->len + 1 + below(w, MAX_TOKENS - s->len);
    uint32_t need = kv_seq_pages_to(s->seq, target);
    if (kv_reserve(w->pool, need)) {
        kv_seq_give_reserve(s->seq, need);
        s->target = target;
    } else {
        w->n_refused++;
    }
}

static void op_truncate(world *w, shadow *s)
{
    uint32_t n = below(w, s->len + 1);
    uint32_t can = kv_seq_reusable(s->seq, n);
    assert_true(can == n || can == 0);
    kv_seq_truncate(s->seq, can);
    s->len = can;
    if (s->target != 0 && can == 0) {
        drop_promise(s); /* it was made from another length: only going on from a kept prefix is covered */
    }
}

static void op_fork(world *w, shadow *s)
{
    for (int i = 0; i < N_SEQS; i++) {
        if (w->s[i].seq == NULL) {
            shadow *child = &w->s[i];
            op_new(w, child);
            kv_seq_fork(s->seq, child->seq);
            child->len = s->len;
            memcpy(child->code, s->code, sizeof s->code);
            if (s->target != 0) { /* its pages are shared now: what it needs must be promised anew */
                drop_promise(s);
            }
            return;
        }
    }
}

static void run(uint64_t seed, uint32_t n_pages, int n_ops)
{
    world w = {.rng = seed};
    atn_err err;
    assert_int_equal(atn_backend_open("naive", &(atn_backend_params){.n_threads = 1}, &w.be, &err), ATN_OK);
    for (int l = 0; l < N_LAYERS; l++) {
        w.layers[l] = (kv_layer){.n_head_kv = HEADS, .head_dim_k = DIM_K, .head_dim_v = DIM_V, .window = windows[l]};
    }
    kv_config cfg = {
        .layers = w.layers, .n_layers = N_LAYERS, .type = ATN_DTYPE_F32, .page_tokens = PAGE, .max_step = MAX_STEP};
    cfg.budget_bytes = n_pages * kv_page_bytes(&cfg);
    assert_int_equal(kv_pool_open(w.be, &cfg, &w.pool, &err), ATN_OK);
    for (int i = 0; i < n_ops; i++) {
        shadow *s = &w.s[below(&w, N_SEQS)];
        if (s->seq == NULL) {
            op_new(&w, s);
        }
        uint32_t what = below(&w, 100);
        if (what < 70) {
            op_extend(&w, s);
        } else if (what < 80) {
            op_promise(&w, s);
        } else if (what < 88) {
            op_truncate(&w, s);
        } else if (what < 95) {
            op_fork(&w, s);
        } else {
            op_free(s);
        }
        check_books(&w);
        if (s->seq != NULL) {
            verify(&w, s);
        }
        if (i % 16 == 0) {
            for (int k = 0; k < N_SEQS; k++) {
                if (w.s[k].seq != NULL) {
                    verify(&w, &w.s[k]);
                }
            }
        }
    }
    /* The run must have met what it is about. */
    assert_true(w.n_copied > 0 && w.n_promised > 0);
    if (n_pages < 100) {
        assert_true(w.n_refused > 0);
    }
    for (int k = 0; k < N_SEQS; k++) {
        kv_seq_free(w.s[k].seq);
    }
    kv_stats st;
    kv_pool_get_stats(w.pool, &st);
    assert_int_equal(st.n_free, st.n_pages);
    assert_int_equal(st.n_reserved, 0);
    kv_pool_close(w.pool);
    atn_backend_close(w.be);
}

static void plenty(void **state)
{
    (void)state;
    run(1, 600, 3000);
}

static void scarce(void **state)
{
    (void)state;
    for (uint64_t seed = 10; seed < 16; seed++) {
        run(seed, 40, 1500);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(plenty), cmocka_unit_test(scarce)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
