/* The list of kept sequences: names, order of use, and which of its pages would be free without it. */
#include "core/sched/kept.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <cmocka.h>

enum { PAGE = 32 };

static kv_seq *sequence(kv_pool *p, uint32_t n_pages)
{
    atn_err err;
    kv_seq *s;
    assert_int_equal(kv_seq_new(p, 8 * PAGE, &s, &err), ATN_OK);
    for (uint32_t i = 0; i < n_pages; i++) {
        assert_int_equal(kv_seq_extend(s, PAGE, &err), ATN_OK);
        kv_seq_commit(s, PAGE);
    }
    return s;
}

static void keep(kept_list *l, uint64_t name, kv_seq *s)
{
    kept *k = calloc(1, sizeof *k);
    assert_non_null(k);
    *k = (kept){.domain = 1, .sequence = name, .kv = s};
    kept_put(l, k);
}

static void test_shared_pages_are_not_free(void **state)
{
    (void)state;
    const kv_layer layer = {.n_head_kv = 1, .head_dim_k = 4, .head_dim_v = 4};
    kv_config cfg = {.layers = &layer, .n_layers = 1, .type = ATN_DTYPE_F32, .page_tokens = PAGE, .max_step = PAGE};
    kept_list l = {0};
    atn_backend *be;
    kv_pool *p;
    kv_stats st;
    atn_err err;

    cfg.budget_bytes = 16 * kv_page_bytes(&cfg);
    assert_int_equal(atn_backend_open("naive", &(atn_backend_params){.n_threads = 1}, &be, &err), ATN_OK);
    assert_int_equal(kv_pool_open(be, &cfg, &p, &err), ATN_OK);

    kv_seq *first = sequence(p, 3), *sibling = sequence(p, 0);
    kv_seq_fork(first, sibling); /* a choice that still runs has the prompt's pages too */
    assert_int_equal(kv_seq_extend(first, PAGE, &err), ATN_OK);
    kv_seq_commit(first, PAGE);
    keep(&l, 7, first);
    keep(&l, 8, sequence(p, 2));
    assert_int_equal(l.n_pages, 6);
    assert_int_equal(kept_pages_alone(&l), 3);
    kv_pool_get_stats(p, &st);
    const uint32_t before = st.n_free;

    kept_evict_all(&l);
    kv_pool_get_stats(p, &st);
    assert_int_equal(st.n_free, before + 3);
    assert_int_equal(l.n, 0);
    assert_int_equal(l.n_pages, 0);
    assert_int_equal(kept_pages_alone(&l), 0);
    keep(&l, 9, sibling);
    assert_int_equal(kept_pages_alone(&l), 3); /* the last one has them alone */
    kept_evict_all(&l);
    assert_null(kv_pool_check(p));
    kv_pool_close(p);
    atn_backend_close(be);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shared_pages_are_not_free),
    };
    return cmocka_run_group_tests_name("kept", tests, NULL, NULL);
}
