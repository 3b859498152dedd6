/* Masks do not leak: whatever a masked key and value hold (NaN, infinities, +-1e30), no bit of any output or probed weight
 * changes, and pages that nobody sees may not even exist. And a bad key in sight spoils its rows and heads only. */
#include "tests/parity/attn_case.h"
#include "tests/parity/tables.h"

typedef struct weights_log {
    float *all; /* every call's weights, one after the other */
    size_t n;
} weights_log;

static void keep_weights(void *arg, uint32_t row, uint32_t head, const float *weights, uint32_t n_keys)
{
    weights_log *log = arg;
    (void)row;
    (void)head;
    if (log->all) {
        memcpy(log->all + log->n, weights, n_keys * sizeof *weights);
    }
    log->n += n_keys;
}

static void put(const attn_case *c, void *at, uint32_t n, float x)
{
    uint16_t half = atn_f32_to_f16(x);
    size_t size = c->shape.type == ATN_DTYPE_F32 ? 4 : 2;
    for (uint32_t i = 0; i < n; i++) {
        memcpy((char *)at + i * size, size == 4 ? (const void *)&x : (const void *)&half, size);
    }
}

static bool hidden_from_all(const attn_case *c, uint32_t part, uint32_t key, uint32_t kv_head)
{
    uint32_t group = c->shape.n_head / c->shape.n_head_kv;
    for (uint32_t r = 0; r < c->seqs[part].n_q; r++) {
        for (uint32_t h = kv_head * group; h < (kv_head + 1) * group; h++) {
            if (reference_sees(&c->args, &c->seqs[part], c->rows, c->seqs[part].q_row + r, h, key)) {
                return false;
            }
        }
    }
    return true;
}

/* Poisons K and V of every key that no row sees; takes away the pages of which no key is seen. Returns how many keys. */
static uint32_t poison_hidden(attn_case *c, float x)
{
    uint32_t poisoned = 0;
    for (uint32_t p = 0; p < c->shape.n_parts; p++) {
        for (uint32_t from = 0; from < c->seqs[p].n_keys; from += c->shape.page_tokens) {
            uint32_t seen = 0;
            for (uint32_t k = from; k < from + c->shape.page_tokens && k < c->seqs[p].n_keys; k++) {
                for (uint32_t h = 0; h < c->shape.n_head_kv; h++) {
                    if (hidden_from_all(c, p, k, h)) {
                        put(c, case_kv_at(c, p, k, h, false), c->shape.d, x);
                        put(c, case_kv_at(c, p, k, h, true), c->shape.dv, x);
                        poisoned++;
                    } else {
                        seen++;
                    }
                }
            }
            if (seen == 0) {
                c->pages[p][from / c->shape.page_tokens] = -1;
            }
        }
    }
    return poisoned;
}

/* Whole-key masks: what is hidden from everybody. */
static void hidden_keys(void **state)
{
    (void)state;
    static const float poisons[] = {NAN, 1e30f, -1e30f, INFINITY};
    /* clang-format off */
    static const attn_shape shapes[] = {
        {.type = ATN_DTYPE_F32, .n_head = 4, .n_head_kv = 2, .d = 16, .dv = 16, .page_tokens = 32, .causal = true, /* future */
         .n_parts = 2, .parts = {{1, 3, 100, 400}, {2, 1, 0, 64}}},
        {.type = ATN_DTYPE_F16, .n_head = 2, .n_head_kv = 1, .d = 32, .dv = 16, .page_tokens = 32, .causal = true,
         .window = 50, .n_parts = 2, .parts = {{3, 5, 900, 905}, {4, 2, 511, 513}}},
        {.type = ATN_DTYPE_F16, .n_head = 2, .n_head_kv = 2, .d = 17, .dv = 5, .page_tokens = 1, .mask = true,
         .n_parts = 1, .parts = {{5, 20, 0, 700}}},
        {.type = ATN_DTYPE_F16, .n_head = 2, .n_head_kv = 2, .d = 16, .dv = 16, .page_tokens = 1, .factor = true,
         .n_parts = 1, .parts = {{6, 4, 0, 130}}},
        {.type = ATN_DTYPE_F32, .n_head = 1, .n_head_kv = 1, .d = 16, .dv = 16, .page_tokens = 1, .bias = true,
         .n_parts = 1, .parts = {{7, 1, 0, 90}}},
    };
    /* clang-format on */
    atn_backend *be;
    for (size_t b = 0; tables_open(b, 2, &be); b++) {
        for (size_t i = 0; i < sizeof shapes / sizeof shapes[0] * 4; i++) {
            attn_case *clean = case_new(be, &shapes[i / 4]), *bad = case_new(be, &shapes[i / 4]);
            weights_log log[2] = {0};
            clean->args.probe = bad->args.probe = keep_weights;
            clean->args.probe_arg = &log[0];
            bad->args.probe_arg = &log[1];
            case_run(be, clean); /* counts */
            for (int k = 0; k < 2; k++) {
                log[k].all = case_alloc(log[0].n, sizeof(float));
            }
            log[0].n = 0;
            assert_true(poison_hidden(bad, poisons[i % 4]) > 0);
            case_run(be, clean);
            case_run(be, bad);
            assert_int_equal(log[0].n, log[1].n);
            assert_memory_equal(log[0].all, log[1].all, log[0].n * sizeof(float));
            for (uint32_t r = 0; r < clean->rows; r++) {
                assert_memory_equal(box_row(&clean->out, r), box_row(&bad->out, r),
                                    clean->out.mat.cols * sizeof(float));
            }
            free(log[0].all);
            free(log[1].all);
            case_free(clean);
            case_free(bad);
        }
        atn_backend_close(be);
    }
}

/* One key poisoned: rows and heads that do not see it keep every bit, the others become NaN. Keys hidden from some rows only
 * (the causal triangle, a window's edge, a bias) are loaded for their neighbours, which is where a leak would be. */
static void one_bad_key(void **state)
{
    (void)state;
    static const attn_shape shape = {.type = ATN_DTYPE_F32,
                                     .n_head = 4,
                                     .n_head_kv = 2,
                                     .d = 16,
                                     .dv = 16,
                                     .page_tokens = 32,
                                     .causal = true,
                                     .window = 30,
                                     .bias = true,
                                     .n_parts = 1,
                                     .parts = {{1, 70, 500, 570}}};
    static const uint32_t keys[] = {471, 500, 511, 512, 530, 568};
    atn_backend *be;
    for (size_t b = 0; tables_open(b, 2, &be); b++) {
        attn_case *clean = case_new(be, &shape);
        case_run(be, clean);
        for (size_t i = 0; i < 2 * sizeof keys / sizeof keys[0]; i++) {
            uint32_t key = keys[i / 2];
            attn_case *bad = case_new(be, &shape);
            put(bad, case_kv_at(bad, 0, key, 1, i % 2), 16, NAN); /* K or V of KV head 1: query heads 2 and 3 */
            case_run(be, bad);
            uint32_t spoiled = 0;
            for (uint32_t r = 0; r < bad->rows; r++) {
                for (uint32_t h = 0; h < 4; h++) {
                    const float *got = box_row(&bad->out, r) + h * 16, *want = box_row(&clean->out, r) + h * 16;
                    if (h >= 2 && reference_sees(&bad->args, bad->seqs, bad->rows, r, h, key)) {
                        assert_true(isnan(got[0]) && isnan(got[15]));
                        spoiled++;
                    } else {
                        assert_memory_equal(got, want, 16 * sizeof(float));
                    }
                }
            }
            assert_true(spoiled > 0);
            case_free(bad);
        }
        case_free(clean);
        atn_backend_close(be);
    }
}

/* Rows that see nothing give zeros, with a sink too; so does a gate of 0, whatever the head computed. */
static void blind_rows(void **state)
{
    (void)state;
    atn_backend *be;
    for (size_t b = 0; tables_open(b, 2, &be); b++) {
        attn_shape shape = {.type = ATN_DTYPE_F32,
                            .n_head = 2,
                            .n_head_kv = 1,
                            .d = 16,
                            .dv = 16,
                            .page_tokens = 32,
                            .mask = true,
                            .sink = true,
                            .causal = true,
                            .n_parts = 1,
                            .parts = {{1, 40, 0, 40}}};
        attn_case *c = case_new(be, &shape);
        memset(c->mask[0], 0, 5); /* rows 0..4 see nothing */
        memset(c->mask[0] + 5, 1, 35);
        put(c, case_kv_at(c, 0, 0, 0, false), 16, NAN);
        float gate[2] = {0.0f, 1.0f};
        c->args.head_gate = gate;
        put(c, case_kv_at(c, 0, 39, 0, true), 16, NAN);
        case_run(be, c);
        for (uint32_t r = 0; r < 40; r++) {
            for (uint32_t i = 0; i < 32; i++) {
                float x = box_row(&c->out, r)[i];
                bool zero = r < 5 || i < 16;
                assert_true(zero ? x == 0.0f : r == 39 ? (bool)isnan(x) : x != 0.0f);
            }
        }
        case_free(c);
        atn_backend_close(be);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(hidden_keys), cmocka_unit_test(one_bad_key),
                                       cmocka_unit_test(blind_rows)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
