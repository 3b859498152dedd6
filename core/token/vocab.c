/* Building the vocabulary and finding tokens in it.
 *
 * The table holds token numbers, found by open addressing over SipHash of the token's key: its bytes when merging can make
 * it, its piece when not. The hash is keyed at random so that no file can be written to collide. A slot is id + 1 in its
 * low 24 bits and eight bits of the hash above, so that most misses end without touching the token. */
#include "core/token/vocab.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include "core/base/hash.h"
#include "core/base/log.h"
#include "core/base/utf8.h"

enum { MAX_TOKENS = (1 << 24) - 2 };

static const char *key_of(const atn_tokenizer *t, uint32_t id, size_t *n)
{
    const char *base = t->attr[id] & VOCAB_MERGES ? t->bytes : t->pieces;
    const uint32_t *at = t->attr[id] & VOCAB_MERGES ? t->bytes_at : t->pieces_at;
    *n = at[id + 1] - at[id];
    return base + at[id];
}

/* The token whose key is s and which merging can make, or cannot; *slot: where it is or would be. */
static int32_t find(const atn_tokenizer *t, const char *s, size_t n, bool merges, uint32_t *slot, uint32_t *tag)
{
    uint64_t h = hash_bytes(t->hash_key[0], t->hash_key[1], s, n);
    *tag = (uint32_t)(h >> 56) << 24;
    for (uint32_t i = (uint32_t)h & t->slot_mask;; i = (i + 1) & t->slot_mask) {
        uint32_t v = t->slots[i];
        *slot = i;
        if (v == 0) {
            return -1;
        }
        if ((v & 0xFF000000u) != *tag) {
            continue;
        }
        uint32_t id = (v & 0xFFFFFFu) - 1;
        size_t n_key;
        const char *key = key_of(t, id, &n_key);
        if (n_key == n && ((t->attr[id] & VOCAB_MERGES) != 0) == merges && memcmp(key, s, n) == 0) {
            return (int32_t)id;
        }
    }
}

int32_t vocab_find_bytes(const atn_tokenizer *t, const char *s, size_t n)
{
    uint32_t slot;
    uint32_t tag;
    return n > t->longest ? -1 : find(t, s, n, true, &slot, &tag);
}

int32_t vocab_find_special(const atn_tokenizer *t, const char *s, size_t n)
{
    uint32_t slot;
    uint32_t tag;
    return find(t, s, n, false, &slot, &tag);
}

/* "<0x" two hex digits ">"; anything else is -1. */
static int parse_byte_piece(gguf_str p)
{
    static const char digits[] = "0123456789abcdef";
    if (p.n != 6 || memcmp(p.s, "<0x", 3) != 0 || p.s[5] != '>') {
        return -1;
    }
    int value = 0;
    for (int i = 3; i < 5; i++) {
        char c = p.s[i] >= 'A' && p.s[i] <= 'F' ? (char)(p.s[i] - 'A' + 'a') : p.s[i];
        const char *d = c == '\0' ? NULL : strchr(digits, c);
        if (d == NULL) {
            return -1;
        }
        value = value * 16 + (int)(d - digits);
    }
    return value;
}

/* Writes a normal piece's bytes to dst (which holds p.n). Returns their number; *exact is false when text never
 * becomes this token, and its bytes then are the piece. */
static size_t decode_spm(gguf_str p, char *dst, bool *exact)
{
    size_t n = 0;
    *exact = true;
    for (size_t i = 0; i < p.n;) {
        if (vocab_is_spm_space(p.s + i, p.n - i)) {
            dst[n++] = ' ';
            i += 3;
        } else {
            *exact = *exact && p.s[i] != ' ';
            dst[n++] = p.s[i++];
        }
    }
    return n;
}

static size_t decode_bpe(gguf_str p, char *dst, bool *exact)
{
    size_t n = 0;
    for (size_t i = 0; i < p.n;) {
        uint32_t cp;
        int len = utf8_decode(p.s + i, p.n - i, &cp);
        int byte = len > 0 ? bpe_byte_of(cp) : -1;
        if (byte < 0) {
            memcpy(dst, p.s, p.n);
            *exact = false;
            return p.n;
        }
        dst[n++] = (char)byte;
        i += (size_t)len;
    }
    *exact = true;
    return n;
}

size_t vocab_decode(bool byte_level, gguf_str piece, char *dst, bool *exact)
{
    return byte_level ? decode_bpe(piece, dst, exact) : decode_spm(piece, dst, exact);
}

static atn_status add_token(atn_tokenizer *t, uint32_t id, gguf_str piece, int32_t kind, atn_err *err)
{
    if (kind < 0 || kind > ATN_TOKEN_BYTE) {
        return atn_fail(err, ATN_FORMAT, "tokenizer.ggml.token_type", "element %u is %d, allowed are 0 to 6", id, kind);
    }
    if (kind == 0) { /* undefined */
        kind = ATN_TOKEN_UNUSED;
    }
    char *piece_at = t->pieces + t->pieces_at[id];
    char *bytes_at = t->bytes + t->bytes_at[id];
    size_t n = piece.n;
    if (n > 0) {
        memcpy(piece_at, piece.s, n);
    }
    t->attr[id] = (unsigned char)kind;
    if (kind == ATN_TOKEN_BYTE) {
        int byte = parse_byte_piece(piece);
        if (byte < 0) {
            return atn_fail(err, ATN_FORMAT, "tokenizer.ggml.tokens", "byte token %u is not written <0xNN>", id);
        }
        if (t->byte_id[byte] >= 0) {
            return atn_fail(err, ATN_FORMAT, "tokenizer.ggml.tokens", "byte token %u repeats token %d", id,
                            t->byte_id[byte]);
        }
        t->byte_id[byte] = (int32_t)id;
        *bytes_at = (char)byte;
        n = 1;
    } else if (kind == ATN_TOKEN_NORMAL && n > 0) {
        bool exact;
        n = vocab_decode(t->byte_level, piece, bytes_at, &exact);
        t->attr[id] |= exact ? VOCAB_MERGES : 0;
        t->longest = exact && n > t->longest ? (uint32_t)n : t->longest;
    } else if (n > 0) {
        memcpy(bytes_at, piece.s, n);
    }
    t->pieces_at[id + 1] = t->pieces_at[id] + (uint32_t)piece.n;
    t->bytes_at[id + 1] = t->bytes_at[id] + (uint32_t)n;
    return ATN_OK;
}

static atn_status index_token(atn_tokenizer *t, uint32_t id, atn_err *err)
{
    size_t n;
    const char *key = key_of(t, id, &n);
    if (n == 0) {
        return ATN_OK; /* an empty token stands for nothing */
    }
    uint32_t slot;
    uint32_t tag;
    int32_t other = find(t, key, n, (t->attr[id] & VOCAB_MERGES) != 0, &slot, &tag);
    if (other >= 0) {
        return atn_fail(err, ATN_FORMAT, "tokenizer.ggml.tokens", "token %u repeats token %d", id, other);
    }
    t->slots[slot] = tag | (id + 1);
    return ATN_OK;
}

static atn_status allocate(atn_tokenizer *t, const token_source *src, atn_err *err)
{
    if (src->n_tokens < 1 || src->n_tokens > MAX_TOKENS) {
        return atn_fail(err, ATN_FORMAT, "tokenizer.ggml.tokens", "%zu tokens, allowed are 1 to %d", src->n_tokens,
                        MAX_TOKENS);
    }
    size_t n_text = 1;
    for (size_t i = 0; i < src->n_tokens; i++) {
        if (src->pieces[i].n >= UINT32_MAX - n_text) {
            return atn_fail(err, ATN_FORMAT, "tokenizer.ggml.tokens", "the tokens' text is over 4 GiB");
        }
        n_text += src->pieces[i].n;
    }
    t->n_tokens = (uint32_t)src->n_tokens;
    size_t n_slots = 16;
    while (n_slots < 2 * src->n_tokens) {
        n_slots *= 2;
    }
    t->slot_mask = (uint32_t)(n_slots - 1);
    t->pieces = malloc(n_text);
    t->pieces_at = calloc(src->n_tokens + 1, sizeof *t->pieces_at);
    t->bytes = malloc(n_text);
    t->bytes_at = calloc(src->n_tokens + 1, sizeof *t->bytes_at);
    t->attr = calloc(src->n_tokens, 1);
    t->slots = calloc(n_slots, sizeof *t->slots);
    if (!t->byte_level) {
        t->priority = malloc(src->n_tokens * sizeof *t->priority);
    }
    bool ok = t->pieces != NULL && t->pieces_at != NULL && t->bytes != NULL && t->bytes_at != NULL && t->attr != NULL &&
              t->slots != NULL && (t->byte_level || t->priority != NULL);
    return ok ? ATN_OK : atn_fail(err, ATN_NOMEM, NULL, "no memory for the vocabulary");
}

/* Floats as unsigned numbers of the same order, best score first: IEEE bits sort like sign and magnitude. */
static uint32_t priority_of(float score)
{
    float s = score + 0.0f; /* -0 becomes 0 */
    uint32_t bits;
    memcpy(&bits, &s, sizeof bits);
    uint32_t ascending = bits & 0x80000000u ? ~bits : bits | 0x80000000u;
    return ~ascending;
}

static atn_status read_scores(atn_tokenizer *t, const float *scores, atn_err *err)
{
    for (uint32_t i = 0; i < t->n_tokens; i++) {
        float s = scores == NULL ? 0.0f : scores[i];
        if (!isfinite(s)) {
            return atn_fail(err, ATN_FORMAT, "tokenizer.ggml.scores", "element %u is not finite", i);
        }
        t->priority[i] = priority_of(s);
    }
    return ATN_OK;
}

/* Byte-level BPE: the tokens of single bytes, where every word starts from. Some models lack bytes that they never saw. */
static void find_byte_tokens(atn_tokenizer *t)
{
    for (int b = 0; b < 256; b++) {
        char c = (char)b;
        if (t->byte_id[b] < 0) {
            t->byte_id[b] = vocab_find_bytes(t, &c, 1);
        }
    }
}

/* An id from the file, or the one that SentencePiece models use when the file is silent and that token is a special one. */
static atn_status read_id(const atn_tokenizer *t, const char *key, int32_t id, int32_t usual, int32_t *out,
                          atn_err *err)
{
    if (id < -1 || (id >= 0 && (uint32_t)id >= t->n_tokens)) {
        return atn_fail(err, ATN_FORMAT, key, "%d, allowed are 0 to %u", id, t->n_tokens - 1);
    }
    if (id < 0 && !t->byte_level && usual >= 0 && (uint32_t)usual < t->n_tokens) {
        atn_token_kind kind = vocab_kind(t, usual);
        id = kind == ATN_TOKEN_CONTROL || kind == ATN_TOKEN_UNKNOWN ? usual : -1;
    }
    *out = id;
    return ATN_OK;
}

/* Ends of a generation: what the file names, and control tokens that published models end a turn with. A user-defined
 * token of that text is text: Gemma's "</s>" is a piece of HTML. */
static atn_status read_ends(atn_tokenizer *t, const token_source *src, atn_err *err)
{
    static const char *const known[] = {
        "<|im_end|>",      "<|eot_id|>",
        "<|eom_id|>",      "<|end|>",
        "<end_of_turn>",   "<|endoftext|>",
        "<|end_of_text|>", "</s>",
        "<|end_of_turn|>", "<EOT>",
        "<eos>",           "[EOS]",
        "[EOT]",           "<｜end▁of▁sentence｜>",
    };
    int32_t eot = -1;
    int32_t eom = -1;
    ATN_TRY(read_id(t, "tokenizer.ggml.eot_token_id", src->eot, -1, &eot, err));
    ATN_TRY(read_id(t, "tokenizer.ggml.eom_token_id", src->eom, -1, &eom, err));
    const int32_t named[] = {t->eos, eot, eom};
    for (size_t i = 0; i < sizeof named / sizeof named[0]; i++) {
        if (named[i] >= 0) {
            t->attr[named[i]] |= VOCAB_ENDS;
        }
    }
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        int32_t id = vocab_find_special(t, known[i], strlen(known[i]));
        if (id >= 0 && vocab_kind(t, id) == ATN_TOKEN_CONTROL) {
            t->attr[id] |= VOCAB_ENDS;
        }
    }
    return ATN_OK;
}

static atn_status read_special_ids(atn_tokenizer *t, const token_source *src, atn_err *err)
{
    ATN_TRY(read_id(t, "tokenizer.ggml.bos_token_id", src->bos, 1, &t->bos, err));
    ATN_TRY(read_id(t, "tokenizer.ggml.eos_token_id", src->eos, 2, &t->eos, err));
    ATN_TRY(read_id(t, "tokenizer.ggml.unknown_token_id", src->unknown, 0, &t->unknown, err));
    bool bos = t->byte_level ? t->pre_spec->add_bos : true;
    t->add_bos = (src->add_bos < 0 ? bos : src->add_bos == 1) && t->bos >= 0;
    t->add_eos = src->add_eos == 1 && t->eos >= 0;
    t->add_space_prefix = !t->byte_level && src->add_space_prefix != 0;
    return read_ends(t, src, err);
}

static atn_status read_model(atn_tokenizer *t, const token_source *src, bool allow_unknown_pre, atn_err *err)
{
    char name[33];
    if (src->model.n == 5 && memcmp(src->model.s, "llama", 5) == 0) {
        return ATN_OK;
    }
    if (src->model.n != 4 || memcmp(src->model.s, "gpt2", 4) != 0) {
        return atn_fail(err, ATN_UNSUPPORTED, "tokenizer.ggml.model",
                        "tokenizer \"%s\" is not known: llama and gpt2 are",
                        gguf_printable(src->model, name, sizeof name));
    }
    t->byte_level = true;
    t->pre_spec = src->pre.n == 0 ? NULL : pre_find(src->pre.s, src->pre.n);
    if (t->pre_spec == NULL) {
        if (src->pre.n > 0 && !allow_unknown_pre) {
            return atn_fail(err, ATN_UNSUPPORTED, "tokenizer.ggml.pre", "pre-tokenizer \"%s\" is not known",
                            gguf_printable(src->pre, name, sizeof name));
        }
        log_warn("the model's pre-tokenizer %s is read as default",
                 src->pre.n == 0 ? "is not named and" : gguf_printable(src->pre, name, sizeof name));
        t->pre_spec = pre_find("default", 7);
        memcpy(t->pre_name, "default", sizeof "default");
    } else {
        gguf_printable(src->pre, t->pre_name, sizeof t->pre_name);
    }
    return pre_open(t->pre_spec, &t->pre, err);
}

static atn_status build(atn_tokenizer *t, const token_source *src, bool allow_unknown_pre, atn_err *err)
{
    if (getrandom(t->hash_key, sizeof t->hash_key, GRND_NONBLOCK) != sizeof t->hash_key) {
        t->hash_key[0] = (uint64_t)(uintptr_t)t; /* early boot: an address is what there is */
    }
    memset(t->byte_id, -1, sizeof t->byte_id);
    ATN_TRY(read_model(t, src, allow_unknown_pre, err));
    ATN_TRY(allocate(t, src, err));
    for (uint32_t i = 0; i < t->n_tokens; i++) {
        int32_t kind = src->kinds == NULL ? ATN_TOKEN_NORMAL : src->kinds[i];
        ATN_TRY(add_token(t, i, src->pieces[i], kind, err));
    }
    for (uint32_t i = 0; i < t->n_tokens; i++) {
        ATN_TRY(index_token(t, i, err));
    }
    ATN_TRY(read_special_ids(t, src, err));
    ATN_TRY(special_build(t, err));
    if (t->byte_level) {
        find_byte_tokens(t);
        ATN_TRY(bpe_build(t, src->merges, src->n_merges, err));
    } else {
        ATN_TRY(read_scores(t, src->scores, err));
    }
    return chat_style_detect(src->chat_template, &t->chat, err);
}

atn_status vocab_build(const token_source *src, bool allow_unknown_pre, atn_tokenizer **out, atn_err *err)
{
    *out = NULL;
    atn_tokenizer *t = calloc(1, sizeof *t);
    if (t == NULL) {
        return atn_fail(err, ATN_NOMEM, NULL, "no memory for the tokenizer");
    }
    atn_status status = build(t, src, allow_unknown_pre, err);
    if (status != ATN_OK) {
        tokenizer_close(t);
        return status;
    }
    *out = t;
    return ATN_OK;
}

void tokenizer_close(atn_tokenizer *t)
{
    if (t == NULL) {
        return;
    }
    free(t->pieces);
    free(t->pieces_at);
    free(t->bytes);
    free(t->bytes_at);
    free(t->attr);
    free(t->priority);
    free(t->slots);
    free(t->special);
    pre_close(t->pre);
    free(t->rules);
    free(t->rule_slots);
    chat_style_free(&t->chat);
    free(t);
}

uint32_t atn_vocab_size(const atn_tokenizer *t)
{
    return t->n_tokens;
}

int32_t atn_token_bos(const atn_tokenizer *t)
{
    return t->bos;
}

int32_t atn_token_eos(const atn_tokenizer *t)
{
    return t->eos;
}

bool atn_token_adds_bos(const atn_tokenizer *t)
{
    return t->add_bos;
}

static bool in_range(const atn_tokenizer *t, int32_t id)
{
    return id >= 0 && (uint32_t)id < t->n_tokens;
}

bool atn_token_ends(const atn_tokenizer *t, int32_t id)
{
    return in_range(t, id) && (t->attr[id] & VOCAB_ENDS) != 0;
}

atn_token_kind atn_token_get_kind(const atn_tokenizer *t, int32_t id)
{
    return in_range(t, id) ? vocab_kind(t, id) : ATN_TOKEN_UNUSED;
}

const char *atn_token_bytes(const atn_tokenizer *t, int32_t id, bool with_control, size_t *n)
{
    *n = 0;
    if (!in_range(t, id)) {
        return "";
    }
    atn_token_kind kind = vocab_kind(t, id);
    bool silent = kind == ATN_TOKEN_CONTROL || kind == ATN_TOKEN_UNKNOWN || kind == ATN_TOKEN_UNUSED;
    if (!silent || with_control) {
        *n = t->bytes_at[id + 1] - t->bytes_at[id];
    }
    return t->bytes + t->bytes_at[id];
}

const char *atn_token_piece(const atn_tokenizer *t, int32_t id, size_t *n)
{
    *n = 0;
    if (!in_range(t, id)) {
        return "";
    }
    *n = t->pieces_at[id + 1] - t->pieces_at[id];
    return t->pieces + t->pieces_at[id];
}

const char *atn_tokenizer_kind(const atn_tokenizer *t)
{
    return t->byte_level ? "gpt2" : "llama";
}

const char *atn_tokenizer_pre(const atn_tokenizer *t)
{
    return t->pre_name;
}
