/* The promise of naive and simd: the bits of a row depend on that row alone. The same rows are computed alone, among others, in chunks and
 * by 1, 2 or 5 threads, and compared byte for byte. A planted backend, whose sum depends on the number of rows, must be
 * caught by the same checker. */
#include "tests/parity/attn_case.h"
#include "tests/parity/weights.h"
#include "tests/parity/tables.h"

enum { ROWS = 70, IN = 96, OUT = 131 };
static const uint32_t threads[] = {1, 2, 5};

static atn_backend *open_table(const backend_ops *ops, uint32_t n_threads)
{
    atn_backend *be = NULL;
    atn_err err = {0};
    if (backend_open_ops(ops, &(atn_backend_params){.n_threads = n_threads}, &be, &err) != ATN_OK) {
        fail_msg("%s", err.msg);
    }
    return be;
}

/* Rows from .. from+n-1 of a matrix. */
static atn_mat rows_of(atn_mat m, uint32_t from)
{
    m.off += (size_t)from * m.stride * sizeof(float);
    return m;
}

static size_t differing(box *a, box *b)
{
    size_t n = 0;
    for (uint32_t r = 0; r < a->rows; r++) {
        n += memcmp(box_row(a, r), box_row(b, r), a->mat.cols * sizeof(float)) != 0;
    }
    return n;
}

/* ---- matmul and norm, in chunks ---- */

typedef struct layer { /* y = norm(x) wᵀ, ROWS rows, by chunks of `chunk` */
    const backend_ops *ops;
    uint32_t n_threads, chunk;
    const weight_type *type;
} layer;

static box run_layer(const layer *l, atn_backend *be)
{
    unsigned char *rows = weight_rows(l->type, l->type->type == ATN_DTYPE_F32 ? IN : 256, OUT, 9);
    uint32_t in = l->type->type == ATN_DTYPE_F32 ? IN : 256;
    atn_weight *w = bind_rows(be, l->type->type, rows, in, OUT);
    box x = box_new(be, ROWS, in, 0, 1), y = box_new(be, ROWS, OUT, 0, 2), gain = box_new(be, 1, in, 0, 3);
    for (uint32_t r = 0; r < ROWS; r += l->chunk) {
        uint32_t n = ROWS - r < l->chunk ? ROWS - r : l->chunk;
        atn_mat part = rows_of(x.mat, r);
        atn_norm(be, &(atn_norm_args){.dst = part, .x = part, .weight = &gain.mat, .eps = 1e-6f, .width = in, .n = n});
        atn_activate(be, ATN_ACT_GELU_TANH, part, part, NULL, n);
        atn_matmul(be, &(atn_matmul_args){.dst = rows_of(y.mat, r), .x = part, .w = w, .n = n});
    }
    wait_ok(be);
    box_free(&x);
    box_free(&gain);
    atn_weight_free(w);
    free(rows);
    return y;
}

/* Rows that differ between whole-batch, one-thread computation and every other way. */
static size_t layer_differences(const backend_ops *ops)
{
    static const uint32_t chunks[] = {1, 7, 64, ROWS};
    size_t n = 0;
    for (size_t t = 0; t < N_WEIGHT_TYPES; t += 7) { /* F32, Q8_0, IQ4_XS */
        layer whole = {ops, 1, ROWS, &weight_types[t]};
        atn_backend *be = open_table(ops, 1);
        box want = run_layer(&whole, be);
        for (size_t i = 0; i < 12; i++) {
            layer l = {ops, threads[i % 3], chunks[i / 3], &weight_types[t]};
            atn_backend *other = open_table(ops, l.n_threads);
            box got = run_layer(&l, other);
            n += differing(&want, &got);
            box_free(&got);
            atn_backend_close(other);
        }
        box_free(&want);
        atn_backend_close(be);
    }
    return n;
}

static void layers(void **state)
{
    (void)state;
    atn_backend *be;
    for (size_t i = 0; tables_open(i, 1, &be); i++) {
        const backend_ops *ops = be->ops;
        atn_backend_caps caps;
        atn_backend_get_caps(be, &caps);
        atn_backend_close(be);
        if (caps.batch_invariant) {
            assert_int_equal(layer_differences(ops), 0);
        }
    }
}

/* Sums from the other end when there are many rows: right within a rounding, and wrong by the promise. */
static void planted_matmul(atn_backend *be, const atn_matmul_args *a)
{
    float *row = row_scratch(be, 0);
    for (uint32_t o = 0; o < a->w->n_out; o++) {
        atn_dequantize(a->w->dtype, weight_row(a->w, o), row, a->w->n_in);
        for (uint32_t r = 0; r < a->n; r++) {
            float sum = 0.0f;
            for (uint32_t i = 0; i < a->w->n_in; i++) {
                uint32_t at = a->n > 16 ? a->w->n_in - 1 - i : i;
                sum += row[at] * mat_row(a->x, r)[at];
            }
            mat_row(a->dst, r)[o] = sum;
        }
    }
}

static void planted_is_caught(void **state)
{
    (void)state;
    backend_ops planted = naive_ops;
    planted.name = "planted";
    planted.matmul = planted_matmul;
    assert_true(layer_differences(&planted) > ROWS);
}

/* ---- attention ---- */

/* One sequence's last 40 queries, alone and whole by one thread, against: in chunks, in other company, by more threads, through
 * pages of another size. */
static void check_attention(const backend_ops *ops, const attn_shape *alone)
{
    static const uint32_t chunks[] = {1, 7, 32, 40};
    atn_backend *be = open_table(ops, 1);
    attn_case *want = case_new(be, alone);
    case_run(be, want);
    uint32_t seed = alone->parts[0].seed, begin = alone->parts[0].q_pos, end = begin + alone->parts[0].n_q;
    for (size_t i = 0; i < 12; i++) {
        atn_backend *other = open_table(ops, threads[i % 3]);
        attn_shape shape = *alone;
        bool company = i % 2;
        uint32_t chunk = chunks[i / 3], first = company ? 2 : 0;
        shape.page_tokens = company ? 64 : 32;
        for (uint32_t at = begin; at < end; at += chunk) {
            uint32_t n = end - at < chunk ? end - at : chunk;
            shape.n_parts = company ? 4 : 1;
            shape.parts[first] = (attn_part){seed, n, at, at + n};
            if (company) {
                shape.parts[0] = (attn_part){8, 5, 10, 15};
                shape.parts[1] = (attn_part){9, 1, 700, 701};
                shape.parts[3] = (attn_part){10, 17, 0, 17};
            }
            attn_case *got = case_new(other, &shape);
            case_run(other, got);
            for (uint32_t r = 0; r < n; r++) {
                assert_memory_equal(box_row(&got->out, got->seqs[first].q_row + r), box_row(&want->out, at - begin + r),
                                    want->out.mat.cols * sizeof(float));
            }
            case_free(got);
        }
        atn_backend_close(other);
    }
    case_free(want);
    atn_backend_close(be);
}

static void attention(void **state)
{
    (void)state;
    static const attn_shape windowed = {.type = ATN_DTYPE_F16,
                                        .n_head = 6,
                                        .n_head_kv = 2,
                                        .d = 48,
                                        .dv = 32,
                                        .page_tokens = 32,
                                        .causal = true,
                                        .window = 550,
                                        .factor = true,
                                        .sink = true,
                                        .n_parts = 1,
                                        .parts = {{3, 40, 560, 600}}};
    static const attn_shape shared = {
        .type = ATN_DTYPE_F32, /* one KV head; spans are shared out, and end inside the rows */
        .n_head = 4,
        .n_head_kv = 1,
        .d = 20,
        .dv = 36,
        .page_tokens = 32,
        .causal = true,
        .n_parts = 1,
        .parts = {{4, 40, 1010, 1050}}};
    atn_backend *be;
    for (size_t i = 0; tables_open(i, 1, &be); i++) {
        const backend_ops *ops = be->ops;
        atn_backend_close(be);
        if (ops->attention) { /* else it is naive's */
            check_attention(ops, &windowed);
            check_attention(ops, &shared);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(layers), cmocka_unit_test(planted_is_caught),
                                       cmocka_unit_test(attention)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
