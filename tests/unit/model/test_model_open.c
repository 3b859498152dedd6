/* Opening models whose metadata or tensors lie: each is refused with the key or tensor at fault, and nothing leaks. The files are
 * the tiny goldens with a few bytes changed in memory. */
#include "core/model/hparams.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

typedef struct image {
    unsigned char *bytes;
    size_t n;
} image;

static atn_backend *be;

static image load(const char *name)
{
    char path[256];
    snprintf(path, sizeof path, "tests/golden/data/%s.gguf", name);
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    image m = {.bytes = malloc(1 << 20)};
    assert_non_null(m.bytes);
    m.n = fread(m.bytes, 1, 1 << 20, f);
    assert_true(m.n > 0 && m.n < 1 << 20);
    fclose(f);
    return m;
}

/* Where the text stands as a whole length-prefixed string: its first byte. */
static unsigned char *find(const image *m, const char *text)
{
    size_t n = strlen(text);
    for (size_t i = 8; i + n <= m->n; i++) {
        uint64_t len;
        memcpy(&len, m->bytes + i - 8, 8);
        if (len == n && memcmp(m->bytes + i, text, n) == 0) {
            return m->bytes + i;
        }
    }
    fail_msg("the file has no string %s", text);
    return NULL;
}

/* A key's 4-byte value (u32, i32 or f32). */
static void set_u32(const image *m, const char *key, uint32_t value)
{
    memcpy(find(m, key) + strlen(key) + 4, &value, 4);
}

static void set_f32(const image *m, const char *key, float value)
{
    memcpy(find(m, key) + strlen(key) + 4, &value, 4);
}

static void set_type(const image *m, const char *key, uint32_t type)
{
    memcpy(find(m, key) + strlen(key), &type, 4);
}

/* Another string of the same length in place of this one. */
static void rename_string(const image *m, const char *from, const char *to)
{
    assert_int_equal(strlen(from), strlen(to));
    memcpy(find(m, from), to, strlen(to));
}

static atn_status open_image(const image *m, uint32_t context, atn_err *err)
{
    gguf *g;
    atn_model *model = NULL;
    memset(err, 0, sizeof *err);
    atn_status st = gguf_open_memory(m->bytes, m->n, &g, err);
    if (st != ATN_OK) {
        return st;
    }
    st = model_open_gguf(g, &(atn_model_params){.context = context}, be, &model, err);
    gguf_close(g);
    assert_true((st == ATN_OK) == (model != NULL));
    atn_model_close(model);
    return st;
}

/* Refused with this status, naming this key or tensor; frees the image. */
static void refused(image m, atn_status want, const char *param)
{
    atn_err err;
    atn_status st = open_image(&m, 0, &err);
    if (st != want || strcmp(err.param, param) != 0) {
        fail_msg("%s: '%s': %s; %s for '%s' was expected", atn_status_name(st), err.param, err.msg,
                 atn_status_name(want), param);
    }
    assert_true(err.msg[0] != '\0');
    free(m.bytes);
}

static void good_files_open(void **state)
{
    (void)state;
    const char *names[] = {"tiny-llama-q8_0", "tiny-gpt2-f16", "tiny-qwen2-f16", "tiny-qwen3-q8_0", "tiny-gemma3-q8_0"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        image m = load(names[i]);
        atn_err err;
        if (open_image(&m, 0, &err) != ATN_OK) {
            fail_msg("%s: %s: %s", names[i], err.param, err.msg);
        }
        free(m.bytes);
    }
}

static void numbers_out_of_range(void **state)
{
    (void)state;
    const struct {
        const char *file, *key;
        uint32_t value;
    } bad[] = {
        {"tiny-llama-q8_0", "llama.attention.head_count", 0},
        {"tiny-llama-q8_0", "llama.attention.head_count", 0xffffffffu},
        {"tiny-llama-q8_0", "llama.attention.head_count", 12}, /* does not divide the width */
        {"tiny-llama-q8_0", "llama.attention.head_count_kv", 0},
        {"tiny-llama-q8_0", "llama.attention.head_count_kv", 5},
        {"tiny-llama-q8_0", "llama.attention.head_count_kv", 3}, /* does not divide the heads */
        {"tiny-llama-q8_0", "llama.block_count", 0},
        {"tiny-llama-q8_0", "llama.block_count", 0x80000000u},
        {"tiny-llama-q8_0", "llama.context_length", 0},
        {"tiny-llama-q8_0", "llama.context_length", 0xffffffffu},
        {"tiny-llama-q8_0", "llama.embedding_length", 0},
        {"tiny-llama-q8_0", "llama.embedding_length", 0x7fffffffu},
        {"tiny-llama-q8_0", "llama.feed_forward_length", 0},
        {"tiny-llama-q8_0", "llama.feed_forward_length", 0x40000000u},
        {"tiny-llama-q8_0", "llama.rope.dimension_count", 31},
        {"tiny-llama-q8_0", "llama.rope.dimension_count", 0},
        {"tiny-llama-q8_0", "llama.rope.dimension_count", 34}, /* above the head size */
        {"tiny-llama-q8_0", "llama.vocab_size", 511},
        {"tiny-llama-q8_0", "llama.vocab_size", 0},
        {"tiny-qwen3-q8_0", "qwen3.attention.key_length", 0},
        {"tiny-qwen3-q8_0", "qwen3.attention.key_length", 1 << 20},
        {"tiny-qwen3-q8_0", "qwen3.attention.value_length", 0},
        {"tiny-gemma3-q8_0", "gemma3.attention.sliding_window", 0},
        {"tiny-gemma3-q8_0", "gemma3.attention.sliding_window", 0x80000000u},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        image m = load(bad[i].file);
        set_u32(&m, bad[i].key, bad[i].value);
        refused(m, ATN_FORMAT, bad[i].key);
    }
}

static void floats_out_of_range(void **state)
{
    (void)state;
    const struct {
        const char *file, *key;
        float value;
    } bad[] = {
        {"tiny-llama-q8_0", "llama.attention.layer_norm_rms_epsilon", -1e-5f},
        {"tiny-llama-q8_0", "llama.attention.layer_norm_rms_epsilon", (float)(0.0 / 0.0)},
        {"tiny-llama-q8_0", "llama.rope.freq_base", 0.0f},
        {"tiny-llama-q8_0", "llama.rope.freq_base", (float)(1.0 / 0.0)},
        {"tiny-gpt2-f16", "gpt2.attention.layer_norm_epsilon", 2.0f},
        {"tiny-qwen2-f16", "qwen2.rope.scaling.factor", -4.0f},
        {"tiny-qwen2-f16", "qwen2.rope.scaling.factor", 1e-6f}, /* angles without end */
        {"tiny-gemma3-q8_0", "gemma3.final_logit_softcapping", -1.0f},
        {"tiny-gemma3-q8_0", "gemma3.attn_logit_softcapping", (float)(0.0 / 0.0)},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        image m = load(bad[i].file);
        set_f32(&m, bad[i].key, bad[i].value);
        refused(m, ATN_FORMAT, bad[i].key);
    }
}

static void keys_missing_or_of_another_type(void **state)
{
    (void)state;
    const char *needed[] = {"llama.attention.head_count", "llama.block_count",
                            "llama.context_length",       "llama.embedding_length",
                            "llama.feed_forward_length",  "llama.attention.layer_norm_rms_epsilon",
                            "general.architecture"};
    for (size_t i = 0; i < sizeof needed / sizeof *needed; i++) {
        image m = load("tiny-llama-q8_0");
        unsigned char *key = find(&m, needed[i]);
        key[strlen(needed[i]) - 1] ^= 1; /* another key now */
        refused(m, ATN_FORMAT, needed[i]);
    }
    image m = load("tiny-llama-q8_0");
    set_type(&m, "llama.block_count", GGUF_F32);
    refused(m, ATN_FORMAT, "llama.block_count");
    m = load("tiny-llama-q8_0");
    set_type(&m, "llama.attention.head_count", GGUF_I32);
    set_u32(&m, "llama.attention.head_count", (uint32_t)-4);
    refused(m, ATN_FORMAT, "llama.attention.head_count");
}

static void what_is_not_supported(void **state)
{
    (void)state;
    image m = load("tiny-llama-q8_0");
    rename_string(&m, "llama", "mamba");
    atn_err err;
    assert_int_equal(open_image(&m, 0, &err), ATN_UNSUPPORTED);
    assert_non_null(strstr(err.msg, "mamba"));
    refused(m, ATN_UNSUPPORTED, "general.architecture");
    m = load("tiny-qwen2-f16");
    rename_string(&m, "yarn", "foam");
    refused(m, ATN_UNSUPPORTED, "qwen2.rope.scaling.type");
    /* What refuses a mixture of experts: a key above what is supported. */
    m = load("tiny-llama-q8_0");
    gguf *g;
    assert_int_equal(gguf_open_memory(m.bytes, m.n, &g, &err), ATN_OK);
    assert_int_equal(hparams_refuse_above(g, "llama", "expert_count", 0, &err), ATN_OK); /* absent */
    assert_int_equal(hparams_refuse_above(g, "llama", "block_count", 2, &err), ATN_OK);
    assert_int_equal(hparams_refuse_above(g, "llama", "block_count", 1, &err), ATN_UNSUPPORTED);
    assert_string_equal(err.param, "llama.block_count");
    gguf_close(g);
    free(m.bytes);
}

static void tensors_that_do_not_fit(void **state)
{
    (void)state;
    /* A tensor under another name is missing under its own. */
    image m = load("tiny-llama-q8_0");
    rename_string(&m, "blk.1.ffn_up.weight", "blk.1.ffn_UP.weight");
    refused(m, ATN_FORMAT, "blk.1.ffn_up.weight");
    m = load("tiny-gpt2-f16");
    rename_string(&m, "position_embd.weight", "position_embD.weight");
    refused(m, ATN_FORMAT, "position_embd.weight");
    m = load("tiny-qwen2-f16");
    rename_string(&m, "blk.0.attn_k.bias", "blk.0.attn_k.bIas");
    refused(m, ATN_FORMAT, "blk.0.attn_k.bias");
    m = load("tiny-gemma3-q8_0");
    rename_string(&m, "blk.6.post_ffw_norm.weight", "blk.6.post_ffw_norm.weIght");
    refused(m, ATN_FORMAT, "blk.6.post_ffw_norm.weight");
    /* A wrong width. */
    m = load("tiny-llama-q8_0");
    set_u32(&m, "llama.feed_forward_length", 128);
    refused(m, ATN_FORMAT, "blk.0.ffn_gate.weight");
    /* A head more than the file has. */
    m = load("tiny-llama-q8_0");
    set_u32(&m, "llama.attention.head_count_kv", 4);
    refused(m, ATN_FORMAT, "blk.0.attn_k.weight");
    /* A layer too few leaves tensors over: this is not the model that the file describes. */
    m = load("tiny-llama-q8_0");
    set_u32(&m, "llama.block_count", 1);
    refused(m, ATN_FORMAT, "blk.1.attn_norm.weight");
    m = load("tiny-llama-q8_0");
    set_u32(&m, "llama.block_count", 3);
    refused(m, ATN_FORMAT, "blk.2.attn_norm.weight");
    /* The output matrix may be absent; an unknown tensor in its place may not. */
    m = load("tiny-llama-q8_0");
    rename_string(&m, "output.weight", "ouTput.weight");
    refused(m, ATN_FORMAT, "ouTput.weight");
}

static void context_in_range(void **state)
{
    (void)state;
    image m = load("tiny-llama-q8_0"); /* 256 positions */
    atn_err err;
    assert_int_equal(open_image(&m, 256, &err), ATN_OK);
    assert_int_equal(open_image(&m, 257, &err), ATN_INVALID);
    assert_string_equal(err.param, "context");
    free(m.bytes);
}

/* ---- steps ---- */

static void wrong_batches_are_refused(void **state)
{
    (void)state;
    atn_err err;
    atn_model *m;
    assert_int_equal(
        atn_model_open("tests/golden/data/tiny-llama-q8_0.gguf", &(atn_model_params){.context = 64}, be, &m, &err),
        ATN_OK);
    kv_config cfg = {.type = ATN_DTYPE_F32, .page_tokens = 32, .max_step = 64};
    model_kv_layers(m, &cfg.layers, &cfg.n_layers);
    cfg.budget_bytes = 64 * kv_page_bytes(&cfg);
    kv_pool *kv;
    assert_int_equal(kv_pool_open(be, &cfg, &kv, &err), ATN_OK);
    model_scratch *s;
    assert_int_equal(model_scratch_new(m, kv, 8, 2, &s, &err), ATN_OK);
    assert_true(model_scratch_bytes(m, 8, 2) > 2 * 512 * sizeof(float));
    kv_seq *seq;
    assert_int_equal(kv_seq_new(kv, 128, &seq, &err), ATN_OK);
    assert_int_equal(kv_seq_extend(seq, 8, &err), ATN_OK);

    int32_t tokens[16] = {5, 6, 7, 8, 9, 10, 11, 12}, rows[3] = {0, 3, 7};
    model_span span = {.seq = seq, .row = 0, .n = 8};
    const model_batch good = {
        .tokens = tokens, .n_rows = 8, .spans = &span, .n_spans = 1, .out_rows = rows + 1, .n_out = 2};
    assert_int_equal(model_step(m, s, &good, &err), ATN_OK);
    model_batch b = good;
    b.n_rows = 9;
    assert_int_equal(model_step(m, s, &b, &err), ATN_INVALID);
    b = good;
    b.n_rows = 0;
    assert_int_equal(model_step(m, s, &b, &err), ATN_INVALID);
    b = good;
    b.out_rows = rows;
    b.n_out = 3;
    assert_int_equal(model_step(m, s, &b, &err), ATN_INVALID);
    b = good;
    span.n = 7; /* a row without a sequence */
    assert_int_equal(model_step(m, s, &b, &err), ATN_INVALID);
    span.n = 8;
    rows[2] = 8;
    assert_int_equal(model_step(m, s, &b, &err), ATN_INVALID);
    rows[2] = 7;
    tokens[3] = 512;
    assert_int_equal(model_step(m, s, &b, &err), ATN_INVALID);
    tokens[3] = -1;
    assert_int_equal(model_step(m, s, &b, &err), ATN_INVALID);
    tokens[3] = 8;
    for (int i = 0; i < 8; i++) {
        assert_int_equal(kv_seq_extend(seq, 8, &err), ATN_OK);
        assert_int_equal(model_step(m, s, &good, &err), ATN_OK);
        kv_seq_commit(seq, 8);
    }
    assert_int_equal(kv_seq_extend(seq, 8, &err), ATN_OK);
    assert_int_equal(model_step(m, s, &good, &err), ATN_CONTEXT);

    kv_seq_free(seq);
    model_scratch_free(s);
    kv_pool_close(kv);
    atn_model_close(m);
}

static int open_backend(void **state)
{
    (void)state;
    atn_err err;
    return atn_backend_open("naive", &(atn_backend_params){.n_threads = 1}, &be, &err) == ATN_OK ? 0 : -1;
}

static int close_backend(void **state)
{
    (void)state;
    atn_backend_close(be);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(good_files_open),       cmocka_unit_test(numbers_out_of_range),
        cmocka_unit_test(floats_out_of_range),   cmocka_unit_test(keys_missing_or_of_another_type),
        cmocka_unit_test(what_is_not_supported), cmocka_unit_test(tensors_that_do_not_fit),
        cmocka_unit_test(context_in_range),      cmocka_unit_test(wrong_batches_are_refused),
    };
    return cmocka_run_group_tests(tests, open_backend, close_backend);
}
