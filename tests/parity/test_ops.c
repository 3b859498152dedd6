/* The row-wise ops of every backend over odd shapes: against plain double formulas with libm, each result rounded once (simd's:
 * a few times).
 * Outputs have sentinels around them, inputs end at an inaccessible page. (matmul and embed: test_matmul.c.) */
#include "tests/parity/tables.h"

/* |got - want| within a rounding of want, and within slack for what cancels in double; or, where the op computes in floats, within
 * four roundings of the largest of its terms. */
static void assert_close(const atn_backend *be, float got, double want, double slack, double size, const char *what)
{
    double bound = table_in_floats(be) ? 4.0 * 0x1p-24 * fmax(size, fabs(want)) : fabs(want) * 0x1.001p-24 + slack;
    if (!(fabs((double)got - want) <= bound)) {
        fail_msg("%s: %.9g, not %.9g", what, (double)got, want);
    }
}

static const uint32_t widths[] = {1, 3, 16, 33, 70, 256};
enum { N_WIDTHS = sizeof widths / sizeof widths[0] };

/* ---- norm ---- */

static void check_norm(atn_backend *be, atn_norm_kind kind, uint32_t width, uint32_t heads, uint32_t n, bool bias,
                       bool in_place)
{
    box x = box_new(be, n, width * heads, 2, 1), dst = box_new(be, n, width * heads, 5, 2);
    box w = box_new(be, 1, width, 0, 3), b = box_new(be, 1, width, 0, 4);
    float *before = malloc(sizeof(float) * n * width * heads);
    assert_non_null(before);
    for (uint32_t r = 0; r < n; r++) {
        memcpy(before + (size_t)r * width * heads, box_row(&x, r), sizeof(float) * width * heads);
    }
    box *out = in_place ? &x : &dst;
    atn_norm(be, &(atn_norm_args){.dst = out->mat,
                                  .x = x.mat,
                                  .weight = &w.mat,
                                  .bias = bias ? &b.mat : NULL,
                                  .kind = kind,
                                  .eps = 1e-5f,
                                  .width = width,
                                  .n = n});
    wait_ok(be);
    for (uint32_t i = 0; i < n * heads; i++) {
        const float *row = before + (size_t)i * width;
        const float *got = box_row(out, i / heads) + (size_t)(i % heads) * width;
        double mean = 0.0, square = 0.0;
        for (uint32_t c = 0; c < width && kind == ATN_NORM_LAYER; c++) {
            mean += (double)row[c] / width;
        }
        for (uint32_t c = 0; c < width; c++) {
            square += ((double)row[c] - mean) * ((double)row[c] - mean) / width;
        }
        for (uint32_t c = 0; c < width; c++) {
            double factor = (double)box_row(&w, 0)[c] / sqrt(square + (double)1e-5f);
            double y = ((double)row[c] - mean) * factor, plus = bias ? (double)box_row(&b, 0)[c] : 0.0;
            double size = (fabs((double)row[c]) + 4.0 * (double)(kind == ATN_NORM_LAYER)) * fabs(factor) + fabs(plus);
            assert_close(be, got[c], y + plus, 1e-12, size, "norm");
        }
    }
    box_check(&dst);
    box_check(&x);
    box_free(&x);
    box_free(&dst);
    box_free(&w);
    box_free(&b);
    free(before);
}

static void norms(atn_backend *be)
{
    for (uint32_t i = 0; i < N_WIDTHS; i++) {
        for (uint32_t k = 0; k < 8; k++) {
            check_norm(be, k & 1 ? ATN_NORM_LAYER : ATN_NORM_RMS, widths[i], k & 2 ? 3 : 1, k & 4 ? 1 : 7, k & 1,
                       k & 2);
        }
    }
    check_norm(be, ATN_NORM_RMS, 256, 4, 33, false, false); /* enough to be shared out */
}

/* ---- RoPE ---- */

static void check_rope(atn_backend *be, atn_rope_style style, uint32_t head_dim, uint32_t n_rot, uint32_t heads,
                       uint32_t n)
{
    box x = box_new(be, n, head_dim * heads, 1, 1), table = box_new(be, 11, n_rot, 0, 2);
    float *before = malloc(sizeof(float) * n * head_dim * heads);
    int32_t *pos = malloc(sizeof *pos * n);
    assert_non_null(before);
    assert_non_null(pos);
    for (uint32_t r = 0; r < n; r++) {
        pos[r] = (int32_t)(r * 7 % 11);
        memcpy(before + (size_t)r * head_dim * heads, box_row(&x, r), sizeof(float) * head_dim * heads);
    }
    atn_rope(
        be,
        &(atn_rope_args){
            .x = x.mat, .table = &table.mat, .pos = pos, .style = style, .head_dim = head_dim, .n_rot = n_rot, .n = n});
    wait_ok(be);
    for (uint32_t i = 0; i < n * heads; i++) {
        const float *old = before + (size_t)i * head_dim,
                    *got = box_row(&x, i / heads) + (size_t)(i % heads) * head_dim;
        const float *t = box_row(&table, (uint32_t)pos[i / heads]);
        for (uint32_t p = 0; p < n_rot / 2; p++) {
            uint32_t a = style == ATN_ROPE_HALVES ? p : 2 * p, b = style == ATN_ROPE_HALVES ? p + n_rot / 2 : 2 * p + 1;
            double c = (double)t[2 * p], s = (double)t[2 * p + 1];
            double size = hypot((double)old[a], (double)old[b]) * hypot(c, s);
            assert_close(be, got[a], (double)old[a] * c - (double)old[b] * s, 1e-14, size, "rope");
            assert_close(be, got[b], (double)old[a] * s + (double)old[b] * c, 1e-14, size, "rope");
        }
        assert_memory_equal(got + n_rot, old + n_rot, sizeof(float) * (head_dim - n_rot));
    }
    box_check(&x);
    box_free(&x);
    box_free(&table);
    free(before);
    free(pos);
}

static void ropes(atn_backend *be)
{
    for (int style = 0; style < 2; style++) {
        atn_rope_style s = style ? ATN_ROPE_HALVES : ATN_ROPE_ADJACENT;
        check_rope(be, s, 2, 2, 1, 1);
        check_rope(be, s, 16, 16, 3, 5);
        check_rope(be, s, 33, 10, 2, 4);
        check_rope(be, s, 256, 256, 4, 37);
    }
}

/* ---- element by element ---- */

static double act_reference(atn_act_kind kind, double x)
{
    if (kind == ATN_ACT_SILU) {
        return x / (1.0 + exp(-x));
    }
    double u = sqrt(2.0 / acos(-1.0)) * (x + 0.044715 * x * x * x);
    return x / (1.0 + exp(-2.0 * u)); /* = x/2 (1 + tanh(u)) */
}

static void check_activate(atn_backend *be, atn_act_kind kind, uint32_t cols, uint32_t n, int alias)
{
    box a = box_new(be, n, cols, 1, 1), b = box_new(be, n, cols, 4, 2), dst = box_new(be, n, cols, 0, 3);
    static const float special[] = {0.0f, -0.0f, 1e-30f, 88.0f, -88.0f, -1e4f, 1e4f, INFINITY};
    float *old_a = malloc(sizeof(float) * n * cols), *old_b = malloc(sizeof(float) * n * cols);
    assert_non_null(old_a);
    assert_non_null(old_b);
    for (uint32_t r = 0; r < n; r++) {
        for (uint32_t c = 0; c < cols; c++) {
            float *x = &box_row(&a, r)[c];
            *x = r == 1 && c < 8 ? special[c] : *x * 5.0f;
            old_a[(size_t)r * cols + c] = *x;
            old_b[(size_t)r * cols + c] = box_row(&b, r)[c];
        }
    }
    box *out = alias == 1 ? &a : alias == 2 ? &b : &dst;
    atn_activate(be, kind, out->mat, a.mat, alias == 3 ? NULL : &b.mat, n);
    wait_ok(be);
    for (uint32_t i = 0; i < n * cols; i++) {
        double want = act_reference(kind, (double)old_a[i]) * (alias == 3 ? 1.0 : (double)old_b[i]);
        float got = box_row(out, i / cols)[i % cols];
        if (isinf(want)) {
            assert_true((double)got == want);
        } else {
            double size = fabs((double)old_a[i] * (alias == 3 ? 1.0 : (double)old_b[i])) + 1e-37;
            assert_close(be, got, want, 1e-37 + fabs(want) * 1e-9, size, "activate");
        }
    }
    box_check(out);
    box_free(&a);
    box_free(&b);
    box_free(&dst);
    free(old_a);
    free(old_b);
}

static void activations(atn_backend *be)
{
    for (uint32_t i = 0; i < N_WIDTHS; i++) {
        for (int k = 0; k < 8; k++) {
            check_activate(be, k & 1 ? ATN_ACT_GELU_TANH : ATN_ACT_SILU, widths[i], i + 1, k / 2);
        }
    }
    check_activate(be, ATN_ACT_GELU_TANH, 1000, 21, 1);
}

static void check_sums(atn_backend *be, uint32_t cols, uint32_t n)
{
    box x = box_new(be, n, cols, 2, 1), y = box_new(be, n, cols, 1, 2), old = box_new(be, n, cols, 1, 2);
    atn_add(be, y.mat, x.mat, n);
    wait_ok(be);
    for (uint32_t i = 0; i < n * cols; i++) {
        assert_true(box_row(&y, i / cols)[i % cols] ==
                    box_row(&old, i / cols)[i % cols] + box_row(&x, i / cols)[i % cols]);
    }
    atn_softcap(be, y.mat, 2.5f, n);
    wait_ok(be);
    for (uint32_t i = 0; i < n * cols; i++) {
        float sum = box_row(&old, i / cols)[i % cols] + box_row(&x, i / cols)[i % cols];
        assert_close(be, box_row(&y, i / cols)[i % cols], 2.5 * tanh((double)sum / 2.5), 1e-13, 0.0, "softcap");
    }
    box_check(&y);
    box_free(&x);
    box_free(&y);
    box_free(&old);
}

static void check_gather(atn_backend *be, uint32_t cols)
{
    static const int32_t rows[] = {4, 0, 4, 2};
    box x = box_new(be, 5, cols, 2, 1), y = box_new(be, 4, cols, 1, 2);
    atn_gather(be, y.mat, x.mat, rows, 4);
    wait_ok(be);
    for (uint32_t r = 0; r < 4; r++) {
        assert_memory_equal(box_row(&y, r), box_row(&x, (uint32_t)rows[r]), sizeof(float) * cols);
    }
    box_check(&y);
    box_free(&x);
    box_free(&y);
}

static void sums(atn_backend *be)
{
    for (uint32_t i = 0; i < N_WIDTHS; i++) {
        check_sums(be, widths[i], 2 * i + 1);
        check_gather(be, widths[i]);
    }
    check_sums(be, 1000, 21);
}

/* ---- KV write ---- */

/* Two heads, K wider than V, three pages of four positions; everything that is not written keeps its bytes. */
static void check_kv_write(atn_backend *be, atn_dtype type)
{
    enum { HEADS = 2, D = 5, DV = 3, N = 4, SLOTS = 4, PAGES = 3 };
    static const int32_t page[N] = {2, 0, 0, 1}, slot[N] = {3, 0, 2, 1};
    size_t size = type == ATN_DTYPE_F32 ? 4 : 2, head = SLOTS * D * size, v_off = HEADS * head;
    size_t page_bytes = 2 * HEADS * head;
    atn_buffer *buf = NULL;
    atn_err err;
    assert_int_equal(atn_buffer_new(be, PAGES * page_bytes, true, &buf, &err), ATN_OK);
    unsigned char *got = atn_buffer_host(buf);
    memset(got, SENTINEL, PAGES * page_bytes);
    unsigned char want[PAGES * 2 * HEADS * SLOTS * D * 4];
    memset(want, SENTINEL, sizeof want);
    box k = box_new(be, N, HEADS * D, 2, 1), v = box_new(be, N, HEADS * DV, 0, 2);
    box_row(&k, 0)[0] = 65520.0f; /* rounds to infinity in f16 */
    box_row(&k, 0)[1] = 2049.0f;  /* a tie, to even */
    box_row(&k, 0)[2] = NAN;
    atn_kv_layout kv = {.k_buf = buf,
                        .v_buf = buf,
                        .page_stride = page_bytes,
                        .v_off = v_off,
                        .head_stride = head,
                        .row_stride = D * size,
                        .page_tokens = SLOTS,
                        .type = type};
    atn_kv_write(be, &(atn_kv_write_args){.k = k.mat,
                                          .v = v.mat,
                                          .kv = kv,
                                          .page = page,
                                          .slot = slot,
                                          .n_head_kv = HEADS,
                                          .head_dim = D,
                                          .head_dim_v = DV,
                                          .n = N});
    wait_ok(be);
    for (uint32_t i = 0; i < N * HEADS * (D + DV); i++) {
        uint32_t r = i / (HEADS * (D + DV)), h = i / (D + DV) % HEADS, c = i % (D + DV);
        bool is_v = c >= D;
        float x = is_v ? box_row(&v, r)[h * DV + c - D] : box_row(&k, r)[h * D + c];
        uint16_t half = atn_f32_to_f16(x);
        size_t at = (size_t)page[r] * page_bytes + (is_v ? v_off : 0) + h * head + (size_t)slot[r] * D * size;
        memcpy(want + at + (is_v ? c - D : c) * size, size == 4 ? (const void *)&x : (const void *)&half, size);
    }
    assert_memory_equal(got, want, PAGES * page_bytes);
    box_free(&k);
    box_free(&v);
    atn_buffer_free(buf);
}

static void kv_writes(atn_backend *be)
{
    check_kv_write(be, ATN_DTYPE_F32);
    check_kv_write(be, ATN_DTYPE_F16);
}

static void every_backend(void (*check)(atn_backend *))
{
    atn_backend *be;
    for (size_t i = 0; tables_open(i, 2, &be); i++) {
        check(be);
        atn_backend_close(be);
    }
}

#define CASE(name)                        \
    static void test_##name(void **state) \
    {                                     \
        (void)state;                      \
        every_backend(name);              \
    }
CASE(norms)
CASE(ropes)
CASE(activations)
CASE(sums)
CASE(kv_writes)

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_norms), cmocka_unit_test(test_ropes),
                                       cmocka_unit_test(test_activations), cmocka_unit_test(test_sums),
                                       cmocka_unit_test(test_kv_writes)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
