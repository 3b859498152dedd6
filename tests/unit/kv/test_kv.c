/* The KV pool's rules one by one: groups and pages, layout, windows, promises, forks, refusals. */
#include "core/kv/kv.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { PAGE = 32, STEP = 64, MAX_LAYERS = 18 };

typedef struct fixture {
    atn_backend *be;
    kv_pool *pool;
    kv_layer layers[MAX_LAYERS];
    kv_config cfg;
} fixture;

/* n layers of 1 KV head of 4 floats; window[l % n_windows]. */
static void setup(fixture *f, uint32_t n, const uint32_t *window, uint32_t n_windows, uint32_t n_pages)
{
    atn_err err;
    memset(f, 0, sizeof *f);
    assert_int_equal(atn_backend_open("naive", &(atn_backend_params){.n_threads = 1}, &f->be, &err), ATN_OK);
    for (uint32_t l = 0; l < n; l++) {
        f->layers[l] = (kv_layer){.n_head_kv = 1, .head_dim_k = 4, .head_dim_v = 4, .window = window[l % n_windows]};
    }
    f->cfg =
        (kv_config){.layers = f->layers, .n_layers = n, .type = ATN_DTYPE_F32, .page_tokens = PAGE, .max_step = STEP};
    f->cfg.budget_bytes = n_pages * kv_page_bytes(&f->cfg);
    assert_int_equal(kv_pool_open(f->be, &f->cfg, &f->pool, &err), ATN_OK);
}

static void teardown(fixture *f)
{
    assert_null(kv_pool_check(f->pool));
    kv_pool_close(f->pool);
    atn_backend_close(f->be);
}

static kv_seq *new_seq(fixture *f, uint32_t max_tokens)
{
    atn_err err;
    kv_seq *s;
    assert_int_equal(kv_seq_new(f->pool, max_tokens, &s, &err), ATN_OK);
    return s;
}

static void advance(kv_seq *s, uint32_t n)
{
    atn_err err;
    while (n > 0) {
        uint32_t k = n < STEP ? n : STEP;
        assert_int_equal(kv_seq_extend(s, k, &err), ATN_OK);
        kv_seq_commit(s, k);
        n -= k;
    }
}

static uint32_t n_free(const fixture *f)
{
    kv_stats st;
    kv_pool_get_stats(f->pool, &st);
    return st.n_free;
}

static const uint32_t gemma[6] = {512, 512, 512, 512, 512, 0};
static const uint32_t global[1] = {0};
static const uint32_t small_window[2] = {40, 0};

static void pages_and_groups(void **state)
{
    (void)state;
    fixture f;
    setup(&f, 18, gemma, 6, 100);
    /* 15 local and 3 global layers: pages of 3 layers, K and V, 32 positions of 4 floats. */
    assert_int_equal(kv_page_bytes(&f.cfg), 3 * 2 * 32 * 16);
    /* 5 columns of at most (511 + 64 + 30) / 32 + 1 = 19 local pages, 1 column of global ones. */
    assert_int_equal(kv_pages_for(f.pool, 1), 6);
    assert_int_equal(kv_pages_for(f.pool, 100), 6 * 4);
    assert_int_equal(kv_pages_for(f.pool, 8192), 5 * 19 + 256);
    assert_int_equal(kv_config_pages_for(&f.cfg, 8192), kv_pages_for(f.pool, 8192));
    /* Every layer has a place of its own: column and offset differ. */
    kv_seq *s = new_seq(&f, 64);
    advance(s, 1);
    size_t at[18];
    for (uint32_t l = 0; l < 18; l++) {
        atn_kv_layout lay;
        kv_layer_layout(f.pool, l, &lay);
        assert_int_equal(lay.v_off - lay.k_off, 32 * 16);
        assert_int_equal(lay.page_tokens, PAGE);
        at[l] = (size_t)kv_seq_pages(s, l)[0] * lay.page_stride + lay.k_off;
        assert_true(at[l] + 2 * 32 * 16 <= f.cfg.budget_bytes);
        for (uint32_t i = 0; i < l; i++) {
            size_t gap = at[l] > at[i] ? at[l] - at[i] : at[i] - at[l];
            assert_true(gap >= 2 * 32 * 16);
        }
    }
    kv_seq_free(s);
    teardown(&f);
}

static void windows_give_back(void **state)
{
    (void)state;
    fixture f;
    setup(&f, 2, small_window, 2, 100);
    kv_seq *s = new_seq(&f, 1000);
    advance(s, 71); /* position 71 sees 32 .. 71: page 0 is out of sight from here on */
    assert_int_equal(kv_seq_pages(s, 0)[0], -1);
    assert_true(kv_seq_pages(s, 0)[1] >= 0);
    assert_true(kv_seq_pages(s, 1)[0] >= 0);
    assert_int_equal(kv_seq_pages_held(s), 2 + 3);
    assert_int_equal(n_free(&f), 100 - 5);
    /* Position n can go on only if n - 39 .. n - 1 are all there. */
    assert_int_equal(kv_seq_reusable(s, 500), 71);
    assert_int_equal(kv_seq_reusable(s, 71), 71);
    assert_int_equal(kv_seq_reusable(s, 70), 0);
    kv_seq_free(s);

    s = new_seq(&f, 1000);
    advance(s, 70); /* position 70 still sees 31 */
    assert_true(kv_seq_pages(s, 0)[0] >= 0);
    assert_int_equal(kv_seq_reusable(s, 3), 3);
    kv_seq_truncate(s, 3);
    assert_int_equal(kv_seq_len(s), 3);
    assert_int_equal(kv_seq_pages_held(s), 2);
    advance(s, 997);
    assert_int_equal(kv_seq_pages_held(s), 2 + 32); /* position 1000 sees 961: page 30 on */
    kv_seq_truncate(s, 0);
    assert_int_equal(n_free(&f), 100);
    kv_seq_free(s);
    teardown(&f);
}

static void most_pages_is_exact(void **state)
{
    (void)state;
    fixture f;
    setup(&f, 1, (uint32_t[]){40}, 1, 100);
    /* 39 + 64 positions touch at most 5 pages, and some alignment does touch them. */
    assert_int_equal(kv_pages_for(f.pool, 1000), 5);
    uint32_t most = 0;
    for (uint32_t start = 40; start < 40 + PAGE; start++) {
        kv_seq *s = new_seq(&f, 1000);
        advance(s, start);
        atn_err err;
        assert_int_equal(kv_seq_extend(s, STEP, &err), ATN_OK);
        most = kv_seq_pages_held(s) > most ? kv_seq_pages_held(s) : most;
        kv_seq_free(s);
    }
    assert_int_equal(most, 5);
    teardown(&f);
}

static void forks_share_and_copy(void **state)
{
    (void)state;
    fixture f;
    setup(&f, 1, global, 1, 10);
    atn_err err;
    kv_seq *a = new_seq(&f, 100), *b = new_seq(&f, 100);
    advance(a, 40);
    kv_seq_fork(a, b);
    assert_int_equal(n_free(&f), 8);
    assert_int_equal(kv_seq_pages_alone(a), 0);
    assert_int_equal(kv_seq_pages_held(b), 2);
    int32_t shared = kv_seq_pages(a, 0)[1];
    assert_int_equal(kv_seq_pages_to(b, 64), 1); /* the copy of its last page */
    assert_int_equal(kv_seq_extend(b, 1, &err), ATN_OK);
    kv_seq_commit(b, 1);
    assert_int_equal(kv_seq_pages(b, 0)[0], kv_seq_pages(a, 0)[0]);
    assert_int_not_equal(kv_seq_pages(b, 0)[1], shared);
    assert_int_equal(kv_seq_pages(a, 0)[1], shared);
    assert_int_equal(kv_seq_pages_to(a, 64), 0); /* alone with its last page again */
    advance(a, 1);
    assert_int_equal(kv_seq_pages(a, 0)[1], shared);
    kv_seq_free(a);
    assert_int_equal(n_free(&f), 8);
    kv_seq_free(b);
    assert_int_equal(n_free(&f), 10);
    teardown(&f);
}

static void promises_hold(void **state)
{
    (void)state;
    fixture f;
    setup(&f, 2, small_window, 2, 12);
    atn_err err;
    kv_seq *s = new_seq(&f, 320), *other = new_seq(&f, 1000);
    uint32_t need = kv_seq_pages_to(s, 192); /* 5 local, 6 global */
    assert_int_equal(need, 11);
    assert_false(kv_reserve(f.pool, 13));
    assert_true(kv_reserve(f.pool, need));
    kv_seq_give_reserve(s, need);
    assert_false(kv_reserve(f.pool, 2));
    /* One page is left to others, who need two. */
    assert_int_equal(kv_seq_extend(other, 1, &err), ATN_NOMEM);
    assert_int_equal(kv_seq_pages_held(other), 0);
    for (uint32_t i = 0; i < 192; i++) {
        advance(s, 1);
        assert_null(kv_pool_check(f.pool));
    }
    kv_seq_unreserve(s);
    kv_stats st;
    kv_pool_get_stats(f.pool, &st);
    assert_int_equal(st.n_reserved, 0);
    assert_int_equal(kv_seq_extend(other, 1, &err), ATN_OK);
    kv_seq_free(s);
    kv_seq_free(other);
    assert_int_equal(n_free(&f), 12);
    teardown(&f);
}

/* A request of several choices: what kv_pages_for_choices says suffices for prefill, forks and all choices to the end. */
static void choices_fit_their_promise(void **state)
{
    (void)state;
    for (uint32_t prompt = 1; prompt < 180; prompt += 7) {
        fixture f;
        enum { N = 3, NEW = 150 };
        setup(&f, 2, small_window, 2, 64);
        uint32_t all = kv_pages_for_choices(f.pool, prompt, prompt + NEW, N);
        assert_true(kv_reserve(f.pool, all));
        kv_seq *s[N];
        for (int i = 0; i < N; i++) {
            s[i] = new_seq(&f, prompt + NEW);
        }
        kv_seq_give_reserve(s[0], all);
        advance(s[0], prompt);
        for (int i = 1; i < N; i++) {
            kv_seq_fork(s[0], s[i]);
        }
        kv_stats st;
        kv_pool_get_stats(f.pool, &st);
        uint32_t left = st.n_reserved;
        assert_int_equal(left + kv_seq_pages_held(s[0]), all);
        kv_seq_unreserve(s[0]);
        uint32_t sum = 0;
        for (int i = 0; i < N; i++) {
            uint32_t need = kv_seq_pages_to(s[i], prompt + NEW);
            sum += need;
            assert_true(kv_reserve(f.pool, need));
            kv_seq_give_reserve(s[i], need);
        }
        assert_true(sum <= left);
        /* Somebody else takes all that was not promised. */
        kv_pool_get_stats(f.pool, &st);
        assert_true(kv_reserve(f.pool, st.n_free - st.n_reserved));
        for (uint32_t k = 0; k < NEW; k++) {
            for (int i = 0; i < N; i++) {
                advance(s[i], 1);
            }
            assert_null(kv_pool_check(f.pool));
        }
        for (int i = 0; i < N; i++) {
            kv_seq_free(s[i]);
        }
        teardown(&f);
    }
}

static void refusals(void **state)
{
    (void)state;
    fixture f;
    setup(&f, 1, global, 1, 2);
    atn_err err;
    kv_seq *s = new_seq(&f, 50);
    assert_int_equal(kv_seq_extend(s, STEP + 1, &err), ATN_INVALID);
    advance(s, 40);
    assert_int_equal(kv_seq_extend(s, 11, &err), ATN_INVALID);
    kv_seq_free(s);
    kv_pool *p;
    kv_config bad = f.cfg;
    bad.page_tokens = 48;
    assert_int_equal(kv_pool_open(f.be, &bad, &p, &err), ATN_INVALID);
    bad = f.cfg;
    bad.type = ATN_DTYPE_Q8_0;
    assert_int_equal(kv_pool_open(f.be, &bad, &p, &err), ATN_UNSUPPORTED);
    bad = f.cfg;
    bad.budget_bytes = kv_page_bytes(&f.cfg) - 1;
    assert_int_equal(kv_pool_open(f.be, &bad, &p, &err), ATN_NOMEM);
    /* 2^24 pages of 2^40 bytes: more than an address space. */
    kv_layer huge = {.n_head_kv = 65536, .head_dim_k = 65536, .head_dim_v = 65536};
    bad = f.cfg;
    bad.layers = &huge;
    bad.budget_bytes = SIZE_MAX;
    assert_int_equal(kv_pool_open(f.be, &bad, &p, &err), ATN_NOMEM);
    /* 2^27 blocks of 300 slices, and choices of them: what no pool holds is not counted round to little. */
    kv_layer *many = calloc(300, sizeof *many);
    for (uint32_t l = 0; l < 300; l++) {
        many[l] = (kv_layer){.n_head_kv = 1, .head_dim_k = 1, .head_dim_v = 1, .window = l == 0 ? 32 : 0};
    }
    bad = f.cfg;
    bad.layers = many;
    bad.n_layers = 300;
    assert_int_equal(kv_config_pages_for(&bad, UINT32_MAX), UINT32_MAX);
    bad.budget_bytes = kv_page_bytes(&bad);
    assert_int_equal(kv_pool_open(f.be, &bad, &p, &err), ATN_OK);
    assert_int_equal(kv_pages_for(p, UINT32_MAX), UINT32_MAX);
    assert_int_equal(kv_pages_for(p, 1 << 20), 299 * 32768 + 4);
    assert_int_equal(kv_pages_for_choices(p, 1, 1 << 29, 16), UINT32_MAX);
    kv_pool_close(p);
    free(many);
    teardown(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pages_and_groups),
        cmocka_unit_test(windows_give_back),
        cmocka_unit_test(most_pages_is_exact),
        cmocka_unit_test(forks_share_and_copy),
        cmocka_unit_test(promises_hold),
        cmocka_unit_test(choices_fit_their_promise),
        cmocka_unit_test(refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
