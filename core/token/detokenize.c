/* Token ids to text, the whole at once. */
#include "core/token/vocab.h"

#include <stdlib.h>
#include "core/base/buf.h"

/* Undoes spm_encode's added space: it stands first, and after every token that was cut out of the text. */
static bool drops_space(const atn_tokenizer *t, int32_t id, bool after_cut, const char *bytes, size_t n)
{
    return after_cut && t->add_space_prefix && !vocab_is_special(t, id) && n > 0 && bytes[0] == ' ';
}

atn_status atn_detokenize(const atn_tokenizer *t, const int32_t *ids, size_t n_ids, bool with_control, char **text,
                          size_t *n, atn_err *err)
{
    buf raw;
    buf whole;
    buf_init(&raw, SIZE_MAX / 8);
    buf_init(&whole, SIZE_MAX / 8);
    bool after_cut = true;
    for (size_t i = 0; i < n_ids; i++) {
        if (ids[i] < 0 || (uint32_t)ids[i] >= t->n_tokens) {
            buf_free(&raw);
            return atn_fail(err, ATN_INVALID, NULL, "token %zu is %d, allowed are 0 to %u", i, ids[i], t->n_tokens - 1);
        }
        size_t len;
        const char *bytes = atn_token_bytes(t, ids[i], with_control, &len);
        bool drop = drops_space(t, ids[i], after_cut, bytes, len);
        buf_add(&raw, bytes + drop, len - drop);
        after_cut = vocab_is_special(t, ids[i]);
    }
    atn_utf8_stream stream = {0};
    for (size_t at = 0; at < raw.len;) {
        char out[3 * 256 + 12];
        size_t len = raw.len - at < 256 ? raw.len - at : 256;
        buf_add(&whole, out, atn_utf8_stream_push(&stream, raw.data + at, len, out));
        at += len;
    }
    char tail[3];
    buf_add(&whole, tail, atn_utf8_stream_flush(&stream, tail));
    buf_add(&whole, "", 0);
    bool failed = raw.failed || whole.failed;
    buf_free(&raw);
    *text = failed ? NULL : buf_take(&whole, n);
    if (*text == NULL) {
        buf_free(&whole);
        return atn_fail(err, ATN_NOMEM, NULL, "no memory for the text");
    }
    return ATN_OK;
}
