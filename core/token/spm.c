/* SentencePiece BPE with byte fallback (Kudo & Richardson 2018; google/sentencepiece, bpe_model.cc).
 *
 * Characters merge into the pair whose token has the best score, leftmost among equals; a character that is no token
 * becomes its bytes. The vocabulary is searched by bytes, with spaces as spaces, so only a U+2581 of the text itself, which
 * the model cannot tell from a space, has to be rewritten. */
#include "core/token/encoder.h"

#include <stdlib.h>
#include <string.h>

static size_t char_len(unsigned char lead)
{
    return lead < 0x80 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
}

/* Copies the text as the vocabulary has it, never longer than text and prefix together. */
static size_t rewrite(char *dst, const char *text, size_t n, bool prefix)
{
    size_t at = 0;
    if (prefix) {
        dst[at++] = ' ';
    }
    for (size_t i = 0; i < n;) {
        if (vocab_is_spm_space(text + i, n - i)) {
            dst[at++] = ' ';
            i += 3;
        } else {
            dst[at++] = text[i++];
        }
    }
    return at;
}

static bool lookup(const void *arg, const merge_symbol *left, const merge_symbol *right, uint32_t *priority,
                   int32_t *id)
{
    const encoder *e = arg;
    *id = vocab_find_bytes(e->t, e->copy + left->from, right->to - left->from);
    if (*id < 0) {
        return false;
    }
    *priority = e->t->priority[*id];
    return true;
}

/* Where the copy's bytes [from, to) end in the text, when they start at text position at. */
static size_t text_end(const encoder *e, const merge_symbol *s, size_t at, bool prefix)
{
    for (uint32_t i = s->from; i < s->to; i++) {
        if (i == 0 && prefix) {
            continue; /* the added space stands for no byte */
        }
        bool wide = e->copy[i] == ' ' && e->text[at] != ' ';
        at += wide ? 3 : 1;
    }
    return at;
}

/* A character that is no token: its bytes, or one unknown token where the model has no byte tokens. */
static atn_status push_bytes(encoder *e, const merge_symbol *s, size_t from, size_t to, atn_err *err)
{
    const atn_tokenizer *t = e->t;
    bool all = true;
    for (uint32_t i = s->from; i < s->to; i++) {
        all = all && t->byte_id[(unsigned char)e->copy[i]] >= 0;
    }
    if (!all) {
        return encoder_push(e, t->unknown, from, to, err);
    }
    bool same = to - from == s->to - s->from; /* not so for an added or a rewritten space */
    for (uint32_t i = s->from; i < s->to; i++) {
        size_t at = from + (i - s->from);
        ATN_TRY(encoder_push(e, t->byte_id[(unsigned char)e->copy[i]], same ? at : from, same ? at + 1 : to, err));
    }
    return ATN_OK;
}

atn_status spm_encode(encoder *e, size_t from, size_t to, bool after_cut, atn_err *err)
{
    if (from == to) {
        return ATN_OK;
    }
    bool prefix = after_cut && e->t->add_space_prefix;
    size_t most = to - from + 1;
    if (most > e->copy_cap) {
        char *more = realloc(e->copy, most);
        if (more == NULL) {
            return atn_fail(err, ATN_NOMEM, NULL, "no memory to tokenize");
        }
        e->copy = more;
        e->copy_cap = most;
    }
    size_t n = rewrite(e->copy, e->text + from, to - from, prefix);
    merge_clear(&e->merge);
    bool ok = true;
    for (size_t i = 0; ok && i < n;) {
        size_t len = char_len((unsigned char)e->copy[i]);
        ok = merge_add(&e->merge, (uint32_t)i, (uint32_t)(i + len), vocab_find_bytes(e->t, e->copy + i, len));
        i += len;
    }
    if (!ok || !merge_run(&e->merge, lookup, e)) {
        return atn_fail(err, ATN_NOMEM, NULL, "no memory to tokenize");
    }
    size_t at = from;
    for (uint32_t i = 0; i != MERGE_NONE; i = e->merge.symbols[i].next) {
        const merge_symbol *s = &e->merge.symbols[i];
        size_t end = text_end(e, s, at, prefix);
        if (s->id >= 0) {
            ATN_TRY(encoder_push(e, s->id, at, end, err));
        } else {
            ATN_TRY(push_bytes(e, s, at, end, err));
        }
        at = end;
    }
    return ATN_OK;
}
