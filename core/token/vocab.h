/* The vocabulary: what every other file of core/token works on.
 *
 * A token has a *piece*, its text as the file writes it ("▁the", "Ġthe", "<0x0A>", "<eos>"), and *bytes*, what it stands
 * for in text (" the", " the", "\n", "<eos>"). Normal tokens are found by their bytes, so that neither tokenizer rewrites
 * the text it reads; all others by their piece. User-defined and control tokens are also in a trie, because they are cut
 * out of the text before anything is merged.
 * Thread: built by one, then immutable. */
#ifndef ATN_VOCAB_H
#define ATN_VOCAB_H

#include <attnd/tokenizer.h>
#include <string.h>
#include "core/load/gguf.h"
#include "core/token/chat.h"
#include "core/token/pretokenizer.h"
#include "core/token/tokenizer.h"

/* A tokenizer as plain arrays, as in the file: what tokenizer_open reads and what tests write. Borrowed. */
typedef struct token_source {
    gguf_str model;         /* "llama" or "gpt2" */
    gguf_str pre;           /* "" : none named */
    const gguf_str *pieces; /* [n_tokens] */
    const float *scores;    /* [n_tokens]; NULL: all equal */
    const int32_t *kinds;   /* [n_tokens] as in tokenizer.ggml.token_type; NULL: all normal */
    size_t n_tokens;
    const gguf_str *merges; /* [n_merges] "left right", best first */
    size_t n_merges;
    int32_t bos, eos, eot, eom, unknown;    /* -1: not named */
    int add_bos, add_eos, add_space_prefix; /* 0, 1; -1: not said */
    const gguf_str *chat_template;          /* NULL: none */
} token_source;

/* A node of the trie of special tokens; children of one node are a list of siblings. */
typedef struct special_node {
    uint32_t child, sibling; /* 0: none */
    int32_t id;              /* -1: no token ends here */
    unsigned char byte;
} special_node;

typedef struct merge_rule { /* byte-level BPE: token ids; its rank is its index */
    int32_t left, right, merged;
} merge_rule;

struct atn_tokenizer {
    bool byte_level; /* gpt2; else SPM */
    uint32_t n_tokens;
    char *pieces;        /* all pieces, joined */
    uint32_t *pieces_at; /* [n_tokens + 1] */
    char *bytes;
    uint32_t *bytes_at;  /* [n_tokens + 1] */
    unsigned char *attr; /* [n_tokens]: VOCAB_KIND bits, VOCAB_MERGES, VOCAB_ENDS */
    uint32_t *priority;  /* SPM, [n_tokens]: ascending means better score */
    uint32_t longest;    /* bytes of the longest token that merging can make */
    uint32_t *slots;     /* open addressing over tokens; see vocab.c */
    uint32_t slot_mask;
    uint64_t hash_key[2];
    int32_t byte_id[256]; /* the token of a single byte; -1: none */
    int32_t bos, eos, unknown;
    bool add_bos, add_eos, add_space_prefix;

    special_node *special; /* [n_special_nodes]; node 0 is the root */
    uint32_t n_special_nodes;
    uint32_t special_root[256]; /* first byte: node; 0: no special token starts so */

    /* gpt2 only */
    char pre_name[33]; /* the id in force */
    const pre_spec *pre_spec;
    pretokenizer *pre;
    merge_rule *rules; /* [n_rules] */
    uint32_t n_rules;
    uint32_t *rule_slots; /* rule index + 1; 0: free */
    uint32_t rule_mask;

    chat_style chat;
};

enum {
    VOCAB_KIND = 7,   /* mask of atn_token_kind */
    VOCAB_MERGES = 8, /* merging may make it: a normal token whose bytes are known */
    VOCAB_ENDS = 16,  /* ends a generation */
};

/* Errors: ATN_FORMAT (param: the metadata key), ATN_UNSUPPORTED (model or pre), ATN_NOMEM. */
atn_status vocab_build(const token_source *src, bool allow_unknown_pre, atn_tokenizer **out,
                       atn_err *err) ATN_MUST_CHECK;

/* The token that merging may make of these bytes; -1: none. */
int32_t vocab_find_bytes(const atn_tokenizer *t, const char *s, size_t n);
/* The token that merging may not make (control, user-defined, byte, ...) written so in the file; -1: none. */
int32_t vocab_find_special(const atn_tokenizer *t, const char *s, size_t n);

/* Writes the bytes that a normal piece stands for to dst, which holds piece.n. Returns their number; *exact is false when no
 * text becomes that piece: dst then is the piece itself. */
size_t vocab_decode(bool byte_level, gguf_str piece, char *dst, bool *exact);

static inline atn_token_kind vocab_kind(const atn_tokenizer *t, int32_t id)
{
    return (atn_token_kind)(t->attr[id] & VOCAB_KIND);
}

/* Is the token cut out of the text before anything is merged? */
static inline bool vocab_is_special(const atn_tokenizer *t, int32_t id)
{
    atn_token_kind kind = vocab_kind(t, id);
    return kind == ATN_TOKEN_CONTROL || kind == ATN_TOKEN_UNKNOWN || kind == ATN_TOKEN_USER_DEFINED;
}

/* Does s[0..n) begin with U+2581, three bytes, as SentencePiece writes a space? */
static inline bool vocab_is_spm_space(const char *s, size_t n)
{
    return n >= 3 && memcmp(s, "\xE2\x96\x81", 3) == 0;
}

/* Index of the rule for a pair of tokens, which is its rank; -1: none. */
int64_t bpe_find_rule(const atn_tokenizer *t, int32_t left, int32_t right);
/* Reads merges into rules. Part of vocab_build. */
atn_status bpe_build(atn_tokenizer *t, const gguf_str *merges, size_t n, atn_err *err) ATN_MUST_CHECK;
/* The byte that byte-level BPE writes as code point cp; -1: none (GPT-2, bytes_to_unicode). */
int bpe_byte_of(uint32_t cp);

/* Builds the trie of user-defined and control tokens. Part of vocab_build. */
atn_status special_build(atn_tokenizer *t, atn_err *err) ATN_MUST_CHECK;
/* The longest special token at s[0..n), of which the first n_trusted bytes may be a control token. Returns its length and
 * sets *id; 0: none. Cost: at most the length of the longest special token. */
size_t special_match(const atn_tokenizer *t, const char *s, size_t n, size_t n_trusted, int32_t *id);

#endif
