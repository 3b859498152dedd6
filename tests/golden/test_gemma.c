/* Gemma 3 270M (Q4_K_M) against its float64 reference: all prompts and the long one past the sliding window on openblas and on
 * simd, one short prompt on naive. The file is found through ATTND_MODELS or the cache directory. */
#include "tests/golden/gemma_file.h"
#include "tests/golden/reference.h"

static const tolerance f32_path = {
    .logit = 1e-3, .logprob = 5e-4, .attention = 1e-4, .intervention = 1e-3, .sure_gap = 5e-3};

/* simd rounds the inputs of every product to 16 bits, a block of 32 at a time. The errors are that rounding's: with 14 bits
 * they are three to four times as large. */
static const tolerance bits_16 = {
    .logit = 1e-2, .logprob = 5e-3, .attention = 3e-4, .intervention = 5e-3, .sure_gap = 5e-3};

static char model_path[4096];

enum { CHUNK = 192, LONG_ROWS = 64 };

static const runner_params params = {
    .context = 1024, .max_rows = CHUNK, .max_out = LONG_ROWS, .n_seqs = 10, .kv_type = ATN_DTYPE_F32};

static runner fast; /* one load for all tests of a backend */
static const char *fast_name;
static const tolerance *fast_path;
static json_t *doc;

static int open_fast(const char *backend, const tolerance *path)
{
    fast_name = backend;
    fast_path = path;
    doc = reference_load("tests/golden/data/gemma3_270m.json");
    runner_open(&fast, backend, 2, model_path, &params);
    return 0;
}

static int open_blas(void **state)
{
    (void)state;
    return open_fast("openblas", &f32_path);
}

static int open_simd(void **state)
{
    (void)state;
    return open_fast("simd", &bits_16);
}

static int close_fast(void **state)
{
    (void)state;
    runner_close(&fast);
    json_decref(doc);
    return 0;
}

static void print_fast(const char *what, const measured *got)
{
    char line[128];
    snprintf(line, sizeof line, "gemma3, %s, %s", fast_name, what);
    print_measured(line, got);
}

static void file_is_understood(void **state)
{
    (void)state;
    assert_string_equal(fast.info.architecture, "gemma3");
    assert_int_equal(fast.info.n_layer, 18);
    assert_int_equal(fast.info.head_dim, 256);
    assert_int_equal(fast.info.n_vocab, 262144);
    assert_int_equal(fast.info.window, 512);
    assert_int_equal(fast.info.context, 1024);
    assert_int_equal(fast.info.context_train, 32768);
    assert_true(fast.info.tied_output);
    const kv_layer *layers;
    uint32_t n;
    model_kv_layers(fast.m, &layers, &n);
    for (uint32_t l = 0; l < n; l++) {
        assert_int_equal(layers[l].window, l % 6 == 5 ? 0 : 512);
    }
}

static void all_prompts(void **state)
{
    (void)state;
    json_t *prompts[16];
    kv_seq *seqs[16];
    uint32_t n = 0;
    measured got = {0};
    const char *name;
    json_t *prompt;
    json_object_foreach(reference_get(doc, "prompts"), name, prompt)
    {
        prompts[n] = prompt;
        seqs[n] = runner_seq(&fast);
        check_prompt(&fast, prompt, fast_path, &got, seqs[n]);
        n++;
    }
    assert_int_equal(n, 8);
    check_greedy(&fast, prompts, seqs, n, fast_path, &got);
    print_fast("8 prompts", &got);
    assert_int_equal(got.n_choices, 8 * 24); /* no gap in the file is smaller than sure_gap */
    assert_true(got.n_weights > 0 && got.intervention > 0);
    for (uint32_t i = 0; i < n; i++) {
        kv_seq_free(seqs[i]);
    }
}

/* attention_top8 and window_edge of the long prompt. */
static void check_long_attention(json_t *prompt, const int32_t *ids, uint32_t n, measured *got)
{
    caught_rows c = catch_attention(&fast, ids, n);
    const char *layer;
    json_t *heads, *pair;
    size_t i;
    json_object_foreach(reference_get(reference_get(prompt, "attention_top8"), "rows"), layer, heads)
    {
        for (uint32_t h = 0; h < fast.info.n_head; h++) {
            const float *row = caught_row(&c, (uint32_t)strtoul(layer, NULL, 10), h);
            json_array_foreach(json_array_get(heads, h), i, pair)
            {
                uint32_t key = (uint32_t)json_integer_value(json_array_get(pair, 0));
                within((double)row[key], number_at(pair, 1), fast_path->attention, &got->attention, "attention weight");
                got->n_weights++;
            }
        }
    }
    json_t *edge = reference_get(prompt, "window_edge"), *positions = reference_get(edge, "positions");
    unsigned n_zero = 0, n_seen = 0;
    json_object_foreach(reference_get(edge, "rows"), layer, heads)
    {
        for (uint32_t h = 0; h < fast.info.n_head; h++) {
            const float *row = caught_row(&c, (uint32_t)strtoul(layer, NULL, 10), h);
            for (size_t k = 0; k < json_array_size(positions); k++) {
                double right = number_at(json_array_get(heads, h), k);
                double ours = (double)row[json_integer_value(json_array_get(positions, k))];
                if (right == 0.0) {
                    assert_true(ours == 0.0); /* one position outside the window: exactly nothing */
                    n_zero++;
                } else {
                    assert_true(fabs(ours - right) <= 0.02 * right);
                    n_seen++;
                }
            }
        }
    }
    assert_true(n_zero >= 12 && n_seen >= 16);
    free(c.w);
}

/* ours must differ from a wrong window's answer by more than an error can. */
static void check_not(json_t *wrong, const float *row)
{
    double most = 0;
    for (size_t i = 0; i < json_array_size(wrong); i++) {
        json_t *pair = json_array_get(wrong, i);
        double d = fabs((double)row[json_integer_value(json_array_get(pair, 0))] - number_at(pair, 1));
        most = d > most ? d : most;
    }
    assert_true(most > 4 * f32_path.logit);
}

static void past_the_window(void **state)
{
    (void)state;
    json_t *prompt = reference_get(doc, "long_prompt");
    uint32_t n;
    int32_t *ids = reference_ids(reference_get(prompt, "ids"), &n);
    check_ids(&fast, prompt, ids, n);
    kv_seq *seq = runner_seq(&fast);
    measured got = {0};
    const float *last = runner_prompt(&fast, seq, ids, n, CHUNK, NULL);
    check_step(&fast, json_array_get(reference_get(prompt, "steps"), 0), last, fast_path, &got);
    const char *name;
    json_t *wrong;
    json_object_foreach(reference_get(prompt, "if_wrong"), name, wrong)
    {
        if (fast_path == &f32_path) { /* the difference is smaller than what 16 bits may be off */
            check_not(wrong, last);
        }
    }
    /* Local layers gave back what is out of sight; the global ones hold everything. */
    assert_int_equal(kv_seq_pages(seq, 0)[0], -1);
    assert_true(kv_seq_pages(seq, 5)[0] >= 0);
    check_greedy(&fast, &prompt, &seq, 1, fast_path, &got);
    kv_seq_free(seq);
    check_long_attention(prompt, ids, n, &got);
    print_fast("698 tokens", &got);
    free(ids);
}

static void short_prompt_on_naive(void **state)
{
    (void)state;
    runner r;
    runner_params p = params;
    p.max_rows = p.max_out = 8;
    p.n_seqs = 1;
    runner_open(&r, "naive", 2, model_path, &p);
    json_t *prompt = reference_get(reference_get(doc, "prompts"), "english_short");
    measured got = {0};
    kv_seq *seq = runner_seq(&r);
    check_prompt(&r, prompt, &f32_path, &got, seq);
    check_greedy(&r, &prompt, &seq, 1, &f32_path, &got);
    print_measured("gemma3, naive, english_short", &got);
    assert_int_equal(got.n_choices, 24);
    kv_seq_free(seq);
    runner_close(&r);
}

int main(void)
{
    int rc = gemma_file_find(model_path, sizeof model_path);
    if (rc != 0) {
        return rc;
    }
    const struct CMUnitTest of_blas[] = {cmocka_unit_test(file_is_understood), cmocka_unit_test(all_prompts),
                                         cmocka_unit_test(past_the_window), cmocka_unit_test(short_prompt_on_naive)};
    const struct CMUnitTest of_simd[] = {cmocka_unit_test(all_prompts), cmocka_unit_test(past_the_window)};
    rc = cmocka_run_group_tests(of_blas, open_blas, close_fast);
    return rc + cmocka_run_group_tests(of_simd, open_simd, close_fast);
}
