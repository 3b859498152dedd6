/* Special tokens in the text: a trie of the user-defined and control tokens' pieces.
 *
 * At each position the longest token wins, positions are tried left to right, as SentencePiece and Hugging Face do.
 * Only pieces of whole UTF-8 characters are put in, so that what is left between two matches is valid UTF-8 too. */
#include "core/token/vocab.h"

#include <stdlib.h>
#include "core/base/utf8.h"

static uint32_t child_of(const atn_tokenizer *t, uint32_t node, unsigned char byte)
{
    uint32_t c = t->special[node].child;
    while (c != 0 && t->special[c].byte != byte) {
        c = t->special[c].sibling;
    }
    return c;
}

/* The memory for all nodes is there: at most one a byte. */
static void add_piece(atn_tokenizer *t, const char *s, size_t n, int32_t id)
{
    uint32_t node = 0;
    for (size_t i = 0; i < n; i++) {
        unsigned char byte = (unsigned char)s[i];
        uint32_t next = node == 0 ? t->special_root[byte] : child_of(t, node, byte);
        if (next == 0) {
            next = t->n_special_nodes++;
            t->special[next] = (special_node){.id = -1, .byte = byte};
            if (node == 0) {
                t->special_root[byte] = next;
            } else {
                t->special[next].sibling = t->special[node].child;
                t->special[node].child = next;
            }
        }
        node = next;
    }
    t->special[node].id = id;
}

atn_status special_build(atn_tokenizer *t, atn_err *err)
{
    size_t n_nodes = 1;
    for (uint32_t i = 0; i < t->n_tokens; i++) {
        n_nodes += vocab_is_special(t, (int32_t)i) ? t->pieces_at[i + 1] - t->pieces_at[i] : 0;
    }
    t->special = calloc(n_nodes, sizeof *t->special);
    if (t->special == NULL) {
        return atn_fail(err, ATN_NOMEM, NULL, "no memory for the special tokens");
    }
    t->n_special_nodes = 1;
    for (uint32_t i = 0; i < t->n_tokens; i++) {
        const char *piece = t->pieces + t->pieces_at[i];
        size_t n = t->pieces_at[i + 1] - t->pieces_at[i];
        if (vocab_is_special(t, (int32_t)i) && n > 0 && utf8_valid_prefix(piece, n) == n) {
            add_piece(t, piece, n, (int32_t)i);
        }
    }
    special_node *fewer = realloc(t->special, t->n_special_nodes * sizeof *t->special);
    t->special = fewer == NULL ? t->special : fewer;
    return ATN_OK;
}

size_t special_match(const atn_tokenizer *t, const char *s, size_t n, size_t n_trusted, int32_t *id)
{
    size_t best = 0;
    uint32_t node = n > 0 ? t->special_root[(unsigned char)s[0]] : 0;
    for (size_t len = 1; node != 0; len++) {
        int32_t here = t->special[node].id;
        if (here >= 0 && (len <= n_trusted || vocab_kind(t, here) == ATN_TOKEN_USER_DEFINED)) {
            best = len;
            *id = here;
        }
        node = len < n ? child_of(t, node, (unsigned char)s[len]) : 0;
    }
    return best;
}
