/* Tokenizers: text to token ids and back.
 *
 * Two families from GGUF metadata: SentencePiece BPE with byte fallback (`llama`) and byte-level BPE (`gpt2`, with a
 * pre-tokenizer named by `tokenizer.ggml.pre`). Input is a list of segments; only bytes of a trusted segment may become
 * control tokens, so text that a user sent never does. Segments are otherwise one text: merges cross their borders.
 *
 *     atn_segment seg = {text, n, .trusted = false};
 *     atn_tokenize(tok, &seg, 1, ATN_TOKENIZE_BOS, &ids, &n_ids, &err);  ...  free(ids);
 *
 * Thread: an open tokenizer is immutable and may be used by any number of threads; a detokenizer belongs to one.
 */
#ifndef ATTND_TOKENIZER_H
#define ATTND_TOKENIZER_H

#include <attnd/status.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct atn_tokenizer atn_tokenizer;

typedef struct atn_segment {
    const char *text; /* UTF-8, not NUL-terminated */
    size_t n;         /* bytes */
    bool trusted;     /* control tokens written out in it become those tokens */
} atn_segment;

enum {
    ATN_TOKENIZE_BOS = 1, /* put BOS first (EOS last) where the model's metadata asks for it */
};

/* Token attributes, from tokenizer.ggml.token_type. */
typedef enum atn_token_kind {
    ATN_TOKEN_NORMAL = 1,
    ATN_TOKEN_UNKNOWN = 2,
    ATN_TOKEN_CONTROL = 3,
    ATN_TOKEN_USER_DEFINED = 4,
    ATN_TOKEN_UNUSED = 5,
    ATN_TOKEN_BYTE = 6,
} atn_token_kind;

uint32_t atn_vocab_size(const atn_tokenizer *t);
int32_t atn_token_bos(const atn_tokenizer *t);           /* -1: none */
int32_t atn_token_eos(const atn_tokenizer *t);           /* -1: none */
bool atn_token_adds_bos(const atn_tokenizer *t);         /* does ATN_TOKENIZE_BOS put one? */
bool atn_token_ends(const atn_tokenizer *t, int32_t id); /* end of generation: eos, eot, eom */
atn_token_kind atn_token_get_kind(const atn_tokenizer *t, int32_t id);
/* The bytes that the token stands for inside running text (no leading-space rule); n = 0 for control tokens unless
 * with_control. Owned by the tokenizer. */
const char *atn_token_bytes(const atn_tokenizer *t, int32_t id, bool with_control, size_t *n);
/* The token's own text in the vocabulary, as written in the file ("▁the", "<0x0A>", "<eos>"). */
const char *atn_token_piece(const atn_tokenizer *t, int32_t id, size_t *n);
const char *atn_tokenizer_kind(const atn_tokenizer *t); /* "llama" or "gpt2" */
const char *atn_tokenizer_pre(const atn_tokenizer *t);  /* "llama-bpe"; "" for SPM */

/* ids: malloc'ed array of n_ids, the caller frees it; never NULL on success. Linear time in the text, bounded stack.
 * Text must be valid UTF-8 and of bytes that the model has tokens for (some lack control characters): ATN_INVALID with the
 * byte's position else. ATN_TOO_LARGE above 2^31-1 tokens or bytes. ATN_NOMEM. */
atn_status atn_tokenize(const atn_tokenizer *t, const atn_segment *segs, size_t n_segs, unsigned flags, int32_t **ids,
                        size_t *n_ids, atn_err *err) ATN_MUST_CHECK;
/* Like atn_tokenize; offsets (malloc'ed, [n_ids][2]) gets each token's byte range [start, end) in the joined text. */
atn_status atn_tokenize_offsets(const atn_tokenizer *t, const atn_segment *segs, size_t n_segs, unsigned flags,
                                int32_t **ids, size_t (**offsets)[2], size_t *n_ids, atn_err *err) ATN_MUST_CHECK;
/* Whole text of ids (an SPM model's added leading space dropped). text: malloc'ed, NUL-terminated, n bytes; bytes that are
 * no UTF-8 become U+FFFD. ATN_INVALID when an id is out of range. */
atn_status atn_detokenize(const atn_tokenizer *t, const int32_t *ids, size_t n_ids, bool with_control, char **text,
                          size_t *n, atn_err *err) ATN_MUST_CHECK;

/* Streaming: bytes go in token by token, whole UTF-8 characters come out. Invalid bytes become U+FFFD as soon as they are
 * known to be invalid. The sum of the outputs equals the text of the joined bytes. Allocates nothing. */
typedef struct atn_utf8_stream {
    unsigned char held[4];
    unsigned n_held;
} atn_utf8_stream;
/* out must hold 3 * (n + n_held) bytes. Returns bytes written. */
size_t atn_utf8_stream_push(atn_utf8_stream *s, const char *bytes, size_t n, char *out);
size_t atn_utf8_stream_flush(atn_utf8_stream *s, char *out); /* a held tail becomes one U+FFFD; out holds 3 bytes */

/* ---- chat ---- */

enum { ATN_CHAT_MAX_STOPS = 4 };

typedef struct atn_chat_message {
    const char *role; /* "system", "user", "assistant", "tool": checked by the caller, trusted words */
    const char *content;
    size_t n; /* bytes of content */
} atn_chat_message;

/* The family that the model's template text was recognised as: "chatml", "llama2", "llama3", "gemma", "mistral", "phi",
 * "zephyr"; "plain" when the model has no template; NULL when it has one that no family fits. */
const char *atn_chat_family(const atn_tokenizer *t);
/* What ends an assistant's turn where the family has no token for it: the text that opens the next turn, in whatever role.
 * [*n] static strings, at most ATN_CHAT_MAX_STOPS; only "plain" has any. */
const char *const *atn_chat_stops(const atn_tokenizer *t, size_t *n);
/* Renders a conversation to segments: the family's own words are trusted, contents and nothing else are not. segs: malloc'ed;
 * their text points into the messages or into static or tokenizer memory. Made to be tokenized with ATN_TOKENIZE_BOS: a BOS
 * that the template opens with is written only where that flag puts none. ATN_UNSUPPORTED when atn_chat_family is NULL;
 * ATN_INVALID (param "messages[i]") for a role or an order of roles that the template refuses.
 * add_generation_prompt: end with the words that open an assistant turn. */
atn_status atn_chat_render(const atn_tokenizer *t, const atn_chat_message *msgs, size_t n_msgs,
                           bool add_generation_prompt, atn_segment **segs, size_t *n_segs, atn_err *err) ATN_MUST_CHECK;

#endif
