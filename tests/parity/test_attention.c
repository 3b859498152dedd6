/* Attention of every backend against the plain double softmax of parity.h, over everything the descriptor has; and the
 * probe: exact weights, in order, without changing a bit of the output. */
#include "tests/parity/attn_case.h"
#include "tests/parity/tables.h"

typedef struct probe_log {
    const attn_case *c;
    uint64_t calls, last; /* row * n_head + head of the last call, plus one */
    double worst;
} probe_log;

static uint32_t part_of(const attn_case *c, uint32_t row)
{
    uint32_t p = 0;
    while (row >= c->seqs[p].q_row + c->seqs[p].n_q) {
        p++;
    }
    return p;
}

static void probe(void *arg, uint32_t row, uint32_t head, const float *weights, uint32_t n_keys)
{
    probe_log *log = arg;
    const attn_case *c = log->c;
    const atn_attn_seq *seq = &c->seqs[part_of(c, row)];
    uint64_t id = (uint64_t)row * c->shape.n_head + head + 1;
    double *want = case_alloc(seq->n_keys, sizeof *want), *out = case_alloc(c->shape.dv, sizeof *out);
    assert_true(id > log->last);
    assert_int_equal(n_keys, seq->n_keys);
    box q = c->q;
    reference_attention(&c->args, seq, c->rows, row, head, box_row(&q, row) + (size_t)head * c->shape.d, out, want);
    for (uint32_t k = 0; k < n_keys; k++) {
        bool blind = !reference_sees(&c->args, seq, c->rows, row, head, k);
        assert_true(!blind || weights[k] == 0.0f);
        log->worst = fmax(log->worst, blind ? 0.0 : fabs((double)weights[k] - want[k]));
    }
    log->last = id;
    log->calls++;
    free(want);
    free(out);
}

static double worst_output(attn_case *c)
{
    double worst = 0.0;
    double *out = case_alloc(c->shape.dv, sizeof *out), *weights = case_alloc(4096, sizeof *weights);
    for (uint32_t row = 0; row < c->rows; row++) {
        const atn_attn_seq *seq = &c->seqs[part_of(c, row)];
        for (uint32_t h = 0; h < c->shape.n_head; h++) {
            const float *got = box_row(&c->out, row) + (size_t)h * c->shape.dv;
            reference_attention(&c->args, seq, c->rows, row, h, box_row(&c->q, row) + (size_t)h * c->shape.d, out,
                                weights);
            for (uint32_t i = 0; i < c->shape.dv; i++) {
                double error = fabs((double)got[i] - out[i]);
                worst = error <= worst ? worst : error;
            }
        }
    }
    free(out);
    free(weights);
    return worst;
}

static void against_reference(void **state)
{
    (void)state;
    atn_backend *be;
    for (size_t b = 0; tables_open(b, 2, &be); b++) {
        for (size_t i = 0; i < N_ATTN_SHAPES; i++) {
            attn_case *c = case_new(be, &attn_shapes[i]);
            case_run(be, c);
            double worst = worst_output(c);
            double bound = table_in_floats(be) ? 5e-7 : 3e-7;
            if (!(worst <= bound)) {
                fail_msg("%s, shape %zu: an output is off by %g", table_name(be), i, worst);
            }
            box_check(&c->out);
            case_free(c);
        }
        atn_backend_close(be);
    }
}

static void probed(void **state)
{
    (void)state;
    atn_backend *be;
    for (size_t b = 0; tables_open(b, 2, &be); b++) {
        for (size_t i = 0; i < N_ATTN_SHAPES; i++) {
            attn_case *c = case_new(be, &attn_shapes[i]), *plain = case_new(be, &attn_shapes[i]);
            probe_log log = {.c = c};
            c->args.probe = probe;
            c->args.probe_arg = &log;
            case_run(be, c);
            case_run(be, plain);
            assert_int_equal(log.calls, (uint64_t)c->rows * c->shape.n_head);
            if (!(log.worst <= (table_in_floats(be) ? 2.5e-7 : 1.2e-7))) {
                fail_msg("%s, shape %zu: a weight is off by %g", table_name(be), i, log.worst);
            }
            for (uint32_t r = 0; r < c->rows; r++) {
                assert_memory_equal(box_row(&c->out, r), box_row(&plain->out, r), c->out.mat.cols * sizeof(float));
            }
            case_free(c);
            case_free(plain);
        }
        atn_backend_close(be);
    }
}

/* Neutral settings are the same arithmetic as absent ones. */
static void neutral_is_absent(void **state)
{
    (void)state;
    static const float ones[40] = {[0 ... 39] = 1.0f}, zeros[2000];
    atn_backend *be = open_backend("naive", 1);
    for (size_t i = 0; i < 2; i++) {
        attn_case *c = case_new(be, &attn_shapes[i]), *plain = case_new(be, &attn_shapes[i]);
        c->args.head_scale = c->args.head_gate = ones;
        for (uint32_t p = 0; p < c->shape.n_parts; p++) {
            c->seqs[p].key_log_factor = zeros;
        }
        case_run(be, c);
        case_run(be, plain);
        for (uint32_t r = 0; r < c->rows; r++) {
            assert_memory_equal(box_row(&c->out, r), box_row(&plain->out, r), c->out.mat.cols * sizeof(float));
        }
        case_free(c);
        case_free(plain);
    }
    atn_backend_close(be);
}

/* Heads wider than the limit are refused through wait, once. */
static void too_wide(void **state)
{
    (void)state;
    atn_backend *be = open_backend("naive", 1);
    attn_shape shape = attn_shapes[0];
    shape.d = ATN_HEAD_DIM_MAX + 1;
    attn_case *c = case_new(be, &shape);
    atn_err err = {0};
    atn_attention(be, &c->args);
    assert_int_equal(atn_backend_wait(be, &err), ATN_UNSUPPORTED);
    assert_non_null(strstr(err.msg, "1024"));
    assert_int_equal(atn_backend_wait(be, &err), ATN_OK);
    case_free(c);
    atn_backend_close(be);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(against_reference), cmocka_unit_test(probed),
                                       cmocka_unit_test(neutral_is_absent), cmocka_unit_test(too_wide)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
