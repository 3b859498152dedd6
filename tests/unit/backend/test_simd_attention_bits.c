/* simd's attention and row ops give the same bits from every instruction set, and however the work is cut: every kernel of the
 * tables against the generic one, whole attention calls against those of the generic table with one thread (and calls beyond the
 * sizes that are planned for against smaller ones), and the half floats against the conversion that defines them. */
#include "tests/parity/attn_case.h"
#include "tests/parity/tables.h"

enum { N = 203 };
static const uint64_t ATTENTION_BITS = 0x69ae44ac3bd8a9b3, ROWS_BITS = 0x97615d5ffbf6816d;

static void fill(float *x, size_t n, uint32_t seed)
{
    for (size_t i = 0; i < n; i++) {
        x[i] = rnd_float(&seed);
    }
}

/* The same bits, or both NaN. */
static void assert_same(const float *got, const float *want, size_t n, const char *what, uint32_t shape)
{
    for (size_t i = 0; i < n; i++) {
        if (memcmp(&got[i], &want[i], 4) != 0 && !(isnan(got[i]) && isnan(want[i]))) {
            fail_msg("%s, %u: value %zu is %a, not %a", what, shape, i, (double)got[i], (double)want[i]);
        }
    }
}

/* ---- the definition, written out ---- */

typedef struct block { /* 32 keys and values, floats and half floats of the same values */
    float rows[ATTN_BLOCK][N];
    uint16_t halves[ATTN_BLOCK][N];
    const void *f32[ATTN_BLOCK], *f16[ATTN_BLOCK];
} block;

static block *block_new(uint32_t seed)
{
    block *b = case_alloc(1, sizeof *b);
    for (uint32_t j = 0; j < ATTN_BLOCK; j++) {
        for (uint32_t i = 0; i < N; i++) {
            b->halves[j][i] = atn_f32_to_f16(rnd_float(&seed));
            b->rows[j][i] = atn_f16_to_f32(b->halves[j][i]);
        }
        b->f32[j] = b->rows[j];
        b->f16[j] = b->halves[j];
    }
    return b;
}

/* Scores are one chain a key; mixing is one chain a component; both types of KV, every d, every number of vectors. */
static void check_definition(const simd_attn_kernels *kern)
{
    block *b = block_new(4);
    static float q[7 * N], keys[ATTN_BLOCK * N], s[7 * ATTN_BLOCK], acc[6 * N], want[6 * N], p[6 * ATTN_BLOCK];
    const float *vectors[7];
    fill(q, 7 * N, 1);
    fill(p, 6 * ATTN_BLOCK, 2);
    for (uint32_t r = 0; r < 7; r++) {
        vectors[r] = q + r * N;
    }
    for (uint32_t d = 1; d <= N; d++) {
        uint32_t n = d % 7 + 1, n_vec = d % 6 + 1, n_keys = d % ATTN_BLOCK + 1;
        atn_dtype type = d / 2 % 2 ? ATN_DTYPE_F16 : ATN_DTYPE_F32;
        const void *const *rows = type == ATN_DTYPE_F16 ? b->f16 : b->f32;
        kern->keys(type, rows, rows, d, keys);
        kern->scores(vectors, n, keys, d, s);
        simd_mix m;
        fill(acc, 6 * N, d);
        memcpy(want, acc, sizeof want);
        for (uint32_t r = 0; r < n; r++) {
            for (uint32_t j = 0; j < ATTN_BLOCK; j++) {
                float dot = 0.0f;
                for (uint32_t i = 0; i < d; i++) {
                    dot = fmaf(q[r * N + i], b->rows[j][i], dot);
                }
                assert_true(s[r * ATTN_BLOCK + j] == dot);
            }
        }
        for (uint32_t r = 0; r < n_vec; r++) {
            m.acc[r] = acc + r * N;
            m.keep[r] = 0.5f + (float)r / 7.0f;
            m.p[r] = p + r * ATTN_BLOCK;
            for (uint32_t i = 0; i < d; i++) {
                float x = want[r * N + i] * m.keep[r];
                for (uint32_t j = 0; j < n_keys; j++) {
                    x = fmaf(m.p[r][j], b->rows[j][i], x);
                }
                want[r * N + i] = x;
            }
        }
        kern->mix(&m, n_vec, type, rows, rows, n_keys, d);
        assert_same(acc, want, 6 * N, "mix", d);
    }
    free(b);
}

static void definition(void **state)
{
    (void)state;
    check_definition(&simd_attn_generic);
    simd_floats f;
    if (simd_floats_pick("avx2", &f)) {
        check_definition(f.attn);
    }
}

/* ---- one instruction set against generic ---- */

/* Floats of every exponent and sign, infinities and NaN included. */
static float *any_floats(uint32_t n)
{
    float *x = case_alloc(n, sizeof *x);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t bits = i * 107371u;
        memcpy(&x[i], &bits, 4);
    }
    return x;
}

static void softmax_parts(const simd_attn_kernels *kern)
{
    static const uint32_t sights[] = {UINT32_MAX, 1, 0x80000000u, 0xffff, 0xa5f0c31e, 0};
    float *odd = any_floats(40000);
    for (uint32_t i = 0; i < 600; i++) {
        float s[2][ATTN_BLOCK], bias[ATTN_BLOCK], keep[2] = {0};
        simd_softmax st[2];
        fill(s[0], ATTN_BLOCK, i);
        fill(bias, ATTN_BLOCK, i + 1);
        st[0] = st[1] = (simd_softmax){.m = i % 3 ? s[0][5] : -INFINITY, .l = i % 3 ? 1.5f : 0.0f, .seen = i % 3};
        if (i % 5 == 0) {
            memcpy(s[0], odd + i * 40, sizeof s[0]);
        }
        s[0][i % ATTN_BLOCK] = i % 4 ? -INFINITY : s[0][i % ATTN_BLOCK];
        memcpy(s[1], s[0], sizeof s[0]);
        const float *b = i % 2 ? bias : NULL, *f = i % 7 ? NULL : bias;
        simd_attn_generic.adjust(s[0], 0.3f, i % 3 == 1 ? 2.5f : 0.0f, b, f);
        kern->adjust(s[1], 0.3f, i % 3 == 1 ? 2.5f : 0.0f, b, f);
        assert_same(s[1], s[0], ATTN_BLOCK, "adjust", i);
        uint32_t sight = sights[i % 6], kept = simd_attn_generic.softmax(s[0], sight, &st[0], &keep[0]);
        assert_int_equal(kern->softmax(s[1], sight, &st[1], &keep[1]), kept);
        assert_int_equal(kept & ~sight, 0);
        if (kept) {
            assert_same(s[1], s[0], ATTN_BLOCK, "softmax", i);
        }
        assert_same(&st[1].m, &st[0].m, 1, "m", i);
        assert_same(&st[1].l, &st[0].l, 1, "l", i);
        assert_same(&keep[1], &keep[0], 1, "keep", i);
        simd_attn_generic.weights(s[0], 0.25f, 3.0f);
        kern->weights(s[1], 0.25f, 3.0f);
        assert_same(s[1], s[0], ATTN_BLOCK, "weights", i);
    }
    free(odd);
}

static void ends_of_rows(const simd_attn_kernels *kern)
{
    for (uint32_t d = 1; d <= N; d++) {
        float acc[2][N], other[N], out[2][N], sink = 0.7f;
        uint16_t half[N];
        simd_softmax t[2] = {{.m = 0.5f, .l = 2.0f, .seen = true}, {.m = 0.5f, .l = 2.0f, .seen = true}};
        simd_softmax s = {.m = d % 2 ? 1.5f : -0.75f, .l = 3.0f, .seen = true};
        fill(acc[0], N, d);
        fill(other, N, d + 1);
        memcpy(acc[1], acc[0], sizeof acc[0]);
        simd_attn_generic.merge(&t[0], acc[0], &s, other, d);
        kern->merge(&t[1], acc[1], &s, other, d);
        assert_same(acc[1], acc[0], N, "merge", d);
        memset(out, 0, sizeof out);
        simd_attn_generic.finish(&t[0], acc[0], d % 3 ? &sink : NULL, 1.25f, out[0], d);
        kern->finish(&t[1], acc[1], d % 3 ? &sink : NULL, 1.25f, out[1], d);
        assert_same(out[1], out[0], N, "finish", d);
        assert_true(t[0].m == t[1].m && t[0].l == t[1].l);
        for (uint32_t i = 0; i < N; i++) {
            half[i] = (uint16_t)(d * 331u + i * 97u);
        }
        kern->widen(half, out[1], d);
        for (uint32_t i = 0; i < d; i++) {
            float want = atn_f16_to_f32(half[i]);
            assert_same(&out[1][i], &want, 1, "widen", d);
        }
    }
}

static void row_kernels(const simd_row_kernels *kern)
{
    static float x[N], w[N], b[N], table[N + 1], got[N], want[N];
    fill(w, N, 2);
    fill(b, N, 3);
    fill(table, N + 1, 4);
    for (uint32_t d = 1; d <= N; d++) {
        fill(x, N, d);
        for (int k = 0; k < 4; k++) {
            memset(got, 0, sizeof got);
            memset(want, 0, sizeof want);
            simd_rows_generic.norm(want, x, w, k & 1 ? b : NULL, k & 2, 1e-6f, d);
            kern->norm(got, x, w, k & 1 ? b : NULL, k & 2, 1e-6f, d);
            assert_same(got, want, N, "norm", d);
        }
        for (int style = 0; style < 2; style++) {
            memcpy(got, x, sizeof x);
            memcpy(want, x, sizeof x);
            simd_rows_generic.rope(want, table, style ? ATN_ROPE_HALVES : ATN_ROPE_ADJACENT, d & ~1u);
            kern->rope(got, table, style ? ATN_ROPE_HALVES : ATN_ROPE_ADJACENT, d & ~1u);
            assert_same(got, want, N, "rope", d);
        }
    }
    enum { M = 40003 };
    float *a = any_floats(M), *y = case_alloc(M, sizeof *y), *z = case_alloc(M, sizeof *z);
    for (int k = 0; k < 4; k++) {
        atn_act_kind kind = k & 1 ? ATN_ACT_GELU_TANH : ATN_ACT_SILU;
        simd_rows_generic.activate(kind, y, a, k & 2 ? a : NULL, M);
        kern->activate(kind, z, a, k & 2 ? a : NULL, M);
        assert_same(z, y, M, "activate", (uint32_t)k);
    }
    free(a);
    free(y);
    free(z);
}

static void kernels_agree(void **state)
{
    (void)state;
    simd_floats f;
    if (!simd_floats_pick("avx2", &f)) {
        print_message("not run: simd's avx2 (this CPU has it not)\n");
        skip();
    }
    softmax_parts(f.attn);
    ends_of_rows(f.attn);
    row_kernels(f.rows);
}

/* narrow() is atn_f32_to_f16, bit for bit: every half float, its neighbours, both sides of every tie, and NaNs. */
static void half_floats(void **state)
{
    (void)state;
    static const char *const isas[] = {"generic", "avx2"};
    for (int k = 0; k < 2; k++) {
        simd_floats f;
        if (!simd_floats_pick(isas[k], &f)) {
            continue;
        }
        for (uint32_t top = 0; top < 1u << 19; top += 61) { /* sign, exponent and ten bits: the half's own */
            float x[13];
            uint16_t got[13];
            static const uint32_t low[13] = {0,      1,      2,     0xffe,  0xfff, 0x1000, 0x1001,
                                             0x1ffe, 0x1fff, 0x800, 0x1800, 7,     0x400};
            for (int i = 0; i < 13; i++) {
                uint32_t bits = top << 13 | low[i];
                memcpy(&x[i], &bits, 4);
            }
            f.rows->narrow(got, x, 13);
            for (int i = 0; i < 13; i++) {
                if (got[i] != atn_f32_to_f16(x[i])) {
                    fail_msg("%s: %a becomes %04x, not %04x", isas[k], (double)x[i], got[i], atn_f32_to_f16(x[i]));
                }
            }
        }
    }
}

/* ---- whole calls ---- */

static atn_backend *open_isa(const char *isa, uint32_t threads)
{
    atn_backend *be = NULL;
    atn_err err = {0};
    if (backend_open_ops(table_ops(isa), &(atn_backend_params){.n_threads = threads}, &be, &err) != ATN_OK) {
        fail_msg("%s", err.msg);
    }
    return be;
}

static void check_calls(const char *isa, uint32_t threads, box *want, attn_case *const *cases)
{
    atn_backend *be = open_isa(isa, threads);
    for (size_t i = 0; i < N_ATTN_SHAPES; i++) {
        attn_case *c = case_new(be, &cases[i]->shape);
        case_run(be, c);
        for (uint32_t r = 0; r < c->rows; r++) {
            assert_same(box_row(&c->out, r), box_row(&want[i], r), c->out.mat.cols, isa, (uint32_t)i);
        }
        case_free(c);
    }
    atn_backend_close(be);
}

/* FNV-1a of a row's bits. */
static uint64_t hash_row(uint64_t h, const float *x, size_t n)
{
    const unsigned char *p = (const unsigned char *)x;
    for (size_t i = 0; i < n * sizeof *x; i++) {
        h = (h ^ p[i]) * 0x100000001b3u;
    }
    return h;
}

/* The bits of simd-1 themselves, so that its arithmetic does not change without its name. */
static void the_bits_of_simd_1(void **state)
{
    (void)state;
    uint64_t attention = 0xcbf29ce484222325u, rows = attention;
    atn_backend *be = open_isa("generic", 1);
    for (size_t i = 0; i < N_ATTN_SHAPES; i++) {
        attn_case *c = case_new(be, &attn_shapes[i]);
        case_run(be, c);
        for (uint32_t r = 0; r < c->rows; r++) {
            attention = hash_row(attention, box_row(&c->out, r), c->out.mat.cols);
        }
        case_free(c);
    }
    atn_backend_close(be);
    static float x[N], w[N], table[N + 1], y[N];
    fill(x, N, 1);
    fill(w, N, 2);
    fill(table, N + 1, 3);
    for (int k = 0; k < 2; k++) {
        simd_rows_generic.norm(y, x, w, k ? table : NULL, k, 1e-6f, N);
        rows = hash_row(rows, y, N);
        simd_rows_generic.activate(k ? ATN_ACT_SILU : ATN_ACT_GELU_TANH, y, x, w, N);
        rows = hash_row(rows, y, N);
        simd_rows_generic.rope(y, table, k ? ATN_ROPE_HALVES : ATN_ROPE_ADJACENT, N - 1);
        rows = hash_row(rows, y, N);
    }
    if (attention != ATTENTION_BITS || rows != ROWS_BITS) {
        fail_msg("0x%016llx, 0x%016llx", (unsigned long long)attention, (unsigned long long)rows);
    }
}

static void calls_agree(void **state)
{
    (void)state;
    attn_case *cases[N_ATTN_SHAPES];
    box want[N_ATTN_SHAPES];
    atn_backend *be = open_isa("generic", 1);
    for (size_t i = 0; i < N_ATTN_SHAPES; i++) {
        cases[i] = case_new(be, &attn_shapes[i]);
        case_run(be, cases[i]);
        want[i] = cases[i]->out;
    }
    check_calls("generic", 5, want, cases);
    simd_floats f;
    if (simd_floats_pick("avx2", &f)) {
        check_calls("avx2", 1, want, cases);
        check_calls("avx2", 2, want, cases);
        check_calls("avx2", 5, want, cases);
    }
    for (size_t i = 0; i < N_ATTN_SHAPES; i++) {
        case_free(cases[i]);
    }
    atn_backend_close(be);
}

/* ---- calls beyond the plan's sizes ---- */

enum { WIDE = 1024, LONG = 65 * 512 + 7, MANY = 300, SLOTS = 32 };

/* One KV head of d and dv whose every page is page 0: as many keys as one likes, in little memory. */
static atn_attn_args one_page(box *q, box *out, atn_buffer *kv, uint32_t n_head, uint32_t d, uint32_t dv)
{
    atn_attn_args a = {.q = q->mat,
                       .out = out->mat,
                       .kv = {.k_buf = kv,
                              .v_buf = kv,
                              .v_off = SLOTS * d * sizeof(float),
                              .row_stride = d * sizeof(float),
                              .page_tokens = SLOTS,
                              .type = ATN_DTYPE_F32},
                       .n_head = n_head,
                       .n_head_kv = 1,
                       .head_dim = d,
                       .head_dim_v = dv,
                       .scale = 0.5f,
                       .causal = true};
    return a;
}

static atn_buffer *random_buffer(atn_backend *be, size_t floats)
{
    atn_buffer *buf = NULL;
    atn_err err;
    assert_int_equal(atn_buffer_new(be, floats * sizeof(float), true, &buf, &err), ATN_OK);
    fill(atn_buffer_host(buf), floats, 5);
    return buf;
}

/* 32 wide heads over 66 spans have more span states than there is room for; 4 of them alone have not, and their spans are shared
 * out. */
static void more_spans_than_room(void **state)
{
    (void)state;
    simd_floats f;
    atn_backend *be = open_isa(simd_floats_pick("avx2", &f) ? "avx2" : "generic", 2);
    static const int32_t pages[LONG / SLOTS + 1];
    box q = box_new(be, 1, 32 * 8, 0, 1), all = box_new(be, 1, 32 * WIDE, 0, 2), some = box_new(be, 1, 4 * WIDE, 0, 3);
    atn_buffer *kv = random_buffer(be, SLOTS * 2 * WIDE);
    atn_attn_seq seq = {.pages = pages, .n_q = 1, .q_pos = LONG - 1, .n_keys = LONG};
    atn_attn_args a = one_page(&q, &all, kv, 32, WIDE, WIDE);
    a.head_dim = 8;
    a.seqs = &seq;
    a.n_seqs = 1;
    atn_attention(be, &a);
    wait_ok(be);
    a.out = some.mat;
    a.q.cols = 4 * 8;
    a.n_head = 4;
    atn_attention(be, &a);
    wait_ok(be);
    assert_memory_equal(box_row(&some, 0), box_row(&all, 0), 4 * WIDE * sizeof(float));
    atn_buffer_free(kv);
    box_free(&q);
    box_free(&all);
    box_free(&some);
    atn_backend_close(be);
}

/* More sequences than are shared out at a time, some without rows, one long: each as alone. */
static void many_sequences(void **state)
{
    (void)state;
    simd_floats f;
    atn_backend *be = open_isa(simd_floats_pick("avx2", &f) ? "avx2" : "generic", 2);
    static const int32_t pages[64];
    static atn_attn_seq seqs[MANY];
    box q = box_new(be, MANY, 2 * 16, 0, 1), out = box_new(be, MANY, 2 * 16, 0, 2),
        one = box_new(be, MANY, 2 * 16, 0, 3);
    atn_buffer *kv = random_buffer(be, SLOTS * 2 * 16);
    atn_attn_args a = one_page(&q, &out, kv, 2, 16, 16);
    uint32_t row = 0;
    for (uint32_t i = 0; i < MANY; i++) {
        uint32_t n_keys = i == 258 ? 2000 : i % 70 + 1, n_q = i % 7 != 3;
        seqs[i] = (atn_attn_seq){.pages = pages, .q_row = row, .n_q = n_q, .q_pos = n_keys - 1, .n_keys = n_keys};
        row += n_q;
    }
    a.seqs = seqs;
    a.n_seqs = MANY;
    atn_attention(be, &a);
    a.out = one.mat;
    a.n_seqs = 1;
    for (uint32_t i = 0; i < MANY; i++) {
        a.seqs = &seqs[i];
        atn_attention(be, &a);
    }
    wait_ok(be);
    for (uint32_t r = 0; r < row; r++) {
        assert_memory_equal(box_row(&out, r), box_row(&one, r), 2 * 16 * sizeof(float));
    }
    atn_buffer_free(kv);
    box_free(&q);
    box_free(&out);
    box_free(&one);
    atn_backend_close(be);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(definition),         cmocka_unit_test(kernels_agree),
                                       cmocka_unit_test(half_floats),        cmocka_unit_test(calls_agree),
                                       cmocka_unit_test(the_bits_of_simd_1), cmocka_unit_test(more_spans_than_room),
                                       cmocka_unit_test(many_sequences)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
