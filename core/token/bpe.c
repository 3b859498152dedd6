/* Byte-level BPE (Sennrich et al. 2016; the byte alphabet is GPT-2's, openai/gpt-2 src/encoder.py).
 *
 * A word's bytes are its first symbols; the pair of lowest rank merges first. Rules are pairs of token numbers in an open
 * table, so that no text is built or compared while merging. */
#include "core/token/encoder.h"

#include <stdlib.h>
#include <string.h>

/* GPT-2 shows the 188 printable Latin-1 bytes as themselves and the others as U+0100 and up, in order. */
static bool shown_as_itself(unsigned b)
{
    return (b >= 0x21 && b <= 0x7E) || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE;
}

int bpe_byte_of(uint32_t cp)
{
    if (cp < 0x100) {
        return shown_as_itself(cp) ? (int)cp : -1;
    }
    uint32_t nth = cp - 0x100; /* 0x00-0x20, 0x7F-0xA0 and 0xAD */
    if (nth <= 0x20) {
        return (int)nth;
    }
    nth -= 0x21;
    if (nth <= 0xA0 - 0x7F) {
        return (int)(0x7F + nth);
    }
    return nth == 0xA0 - 0x7F + 1 ? 0xAD : -1;
}

static uint32_t rule_hash(int32_t left, int32_t right)
{
    /* Fibonacci hashing of the pair: the numbers are dense, not an attacker's text. */
    uint64_t x = ((uint64_t)(uint32_t)left << 32 | (uint32_t)right) * 0x9E3779B97F4A7C15u;
    x ^= x >> 32;
    x *= 0xD6E8FEB86659FD93u;
    return (uint32_t)(x >> 32);
}

static uint32_t rule_slot(const atn_tokenizer *t, int32_t left, int32_t right)
{
    uint32_t i = rule_hash(left, right) & t->rule_mask;
    for (; t->rule_slots[i] != 0; i = (i + 1) & t->rule_mask) {
        const merge_rule *r = &t->rules[t->rule_slots[i] - 1];
        if (r->left == left && r->right == right) {
            break;
        }
    }
    return i;
}

int64_t bpe_find_rule(const atn_tokenizer *t, int32_t left, int32_t right)
{
    return (int64_t)t->rule_slots[rule_slot(t, left, right)] - 1;
}

/* The token that a part of a rule names: its number; -1: one that merging never makes; -2: none at all. */
static int32_t find_part(const atn_tokenizer *t, gguf_str piece, char *scratch)
{
    bool exact;
    size_t n = vocab_decode(true, piece, scratch, &exact);
    int32_t id = exact ? vocab_find_bytes(t, scratch, n) : -1;
    if (id >= 0) {
        return id;
    }
    return vocab_find_special(t, piece.s, piece.n) >= 0 ? -1 : -2;
}

/* "left right"; the parts hold no space, a left that begins with one excepted. */
static atn_status add_rule(atn_tokenizer *t, gguf_str text, size_t i, char *scratch, atn_err *err)
{
    const char *space = text.n < 3 ? NULL : memchr(text.s + 1, ' ', text.n - 2);
    if (space == NULL) {
        return atn_fail(err, ATN_FORMAT, "tokenizer.ggml.merges", "merge %zu is not two tokens", i);
    }
    gguf_str left = {text.s, (size_t)(space - text.s)};
    gguf_str right = {space + 1, text.n - left.n - 1};
    merge_rule r = {find_part(t, left, scratch), find_part(t, right, scratch), -2};
    char *joined = scratch + text.n;
    memcpy(joined, left.s, left.n);
    memcpy(joined + left.n, right.s, right.n);
    r.merged = find_part(t, (gguf_str){joined, left.n + right.n}, scratch);
    if (r.left == -2 || r.right == -2 || r.merged == -2) {
        return atn_fail(err, ATN_FORMAT, "tokenizer.ggml.merges",
                        "merge %zu names a token that is not in the vocabulary", i);
    }
    uint32_t slot = r.left < 0 || r.right < 0 || r.merged < 0 ? 0 : rule_slot(t, r.left, r.right);
    if (r.left < 0 || r.right < 0 || r.merged < 0 || t->rule_slots[slot] != 0) {
        return ATN_OK; /* text never gets there (a control token, say), or an earlier rule says it */
    }
    t->rules[t->n_rules] = r;
    t->rule_slots[slot] = ++t->n_rules;
    return ATN_OK;
}

atn_status bpe_build(atn_tokenizer *t, const gguf_str *merges, size_t n, atn_err *err)
{
    size_t longest = 0;
    for (size_t i = 0; i < n; i++) {
        longest = merges[i].n > longest ? merges[i].n : longest;
    }
    if (n > INT32_MAX / 4 || longest > INT32_MAX / 4) {
        return atn_fail(err, ATN_FORMAT, "tokenizer.ggml.merges", "too many merges, or too long a merge");
    }
    size_t n_slots = 16;
    while (n_slots < 2 * n) {
        n_slots *= 2;
    }
    t->rule_mask = (uint32_t)(n_slots - 1);
    t->rules = malloc((n + 1) * sizeof *t->rules);
    t->rule_slots = calloc(n_slots, sizeof *t->rule_slots);
    char *scratch = malloc(2 * longest + 1);
    atn_status status = ATN_OK;
    if (t->rules == NULL || t->rule_slots == NULL || scratch == NULL) {
        status = atn_fail(err, ATN_NOMEM, NULL, "no memory for the merges");
    }
    for (size_t i = 0; status == ATN_OK && i < n; i++) {
        status = add_rule(t, merges[i], i, scratch, err);
    }
    free(scratch);
    return status;
}

static bool lookup(const void *arg, const merge_symbol *left, const merge_symbol *right, uint32_t *priority,
                   int32_t *id)
{
    const atn_tokenizer *t = arg;
    int64_t rule = left->id < 0 || right->id < 0 ? -1 : bpe_find_rule(t, left->id, right->id);
    if (rule < 0) {
        return false;
    }
    *priority = (uint32_t)rule;
    *id = t->rules[rule].merged;
    return true;
}

static atn_status encode_word(encoder *e, const char *word, size_t at, size_t n, atn_err *err)
{
    const atn_tokenizer *t = e->t;
    if (t->pre_spec->whole_words) {
        int32_t id = vocab_find_bytes(t, word, n);
        if (id >= 0) {
            return encoder_push(e, id, at, at + n, err);
        }
    }
    merge_clear(&e->merge);
    bool ok = true;
    for (size_t i = 0; ok && i < n; i++) {
        ok = merge_add(&e->merge, (uint32_t)i, (uint32_t)i + 1, t->byte_id[(unsigned char)word[i]]);
    }
    if (!ok || !merge_run(&e->merge, lookup, t)) {
        return atn_fail(err, ATN_NOMEM, NULL, "no memory to tokenize");
    }
    for (uint32_t i = 0; i != MERGE_NONE; i = e->merge.symbols[i].next) {
        const merge_symbol *s = &e->merge.symbols[i];
        ATN_TRY(encoder_push(e, s->id < 0 ? t->unknown : s->id, at + s->from, at + s->to, err));
    }
    return ATN_OK;
}

atn_status bpe_encode(encoder *e, size_t from, size_t to, atn_err *err)
{
    const char *text = e->text + from;
    if (e->walk == NULL) {
        ATN_TRY(pre_walk_open(e->t->pre, &e->walk, err));
    }
    pre_walk_start(e->walk, text, to - from);
    for (;;) {
        size_t a;
        size_t b;
        ATN_TRY(pre_walk_next(e->walk, &a, &b, err));
        if (a == b) {
            return ATN_OK;
        }
        ATN_TRY(encode_word(e, text + a, from + a, b - a, err));
    }
}
