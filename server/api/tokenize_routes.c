/* POST /tokenize and /detokenize: what the tokenizer makes of a text, and back.
 *
 * /tokenize knows two bodies: TGI's {"inputs"} answers [{"id","text","start","stop"}] with byte offsets, llama-server's
 * {"content","add_special","parse_special","with_pieces"} answers {"tokens":[...]}; each has errors in its own shape.
 * Control tokens written out in the text stay text unless parse_special asks for them. */
#include "server/api/door.h"
#include "server/api/state.h"
#include "core/base/utf8.h"
#include <stdlib.h>

enum { ANSWER_MAX_BYTES = 512 * 1024 * 1024 };

static atn_status tokenize_tgi(const api *a, fields *top, buf *out, atn_err *err)
{
    const char *text = NULL;
    size_t n = 0, n_ids = 0;
    ATN_TRY(fields_string(top, "inputs", a->set.max_body, &text, &n, err));
    json_t *parameters;
    ATN_TRY(fields_object(top, "parameters", &parameters, err)); /* a whole /generate body may be sent */
    if (n == 0) {
        return atn_fail(err, ATN_INVALID, "inputs", "inputs must be a string that is not empty");
    }
    atn_segment seg = {.text = text, .n = n};
    int32_t *ids = NULL;
    size_t(*offsets)[2] = NULL;
    ATN_TRY(atn_tokenize_offsets(a->tok, &seg, 1, ATN_TOKENIZE_BOS, &ids, &offsets, &n_ids, err));
    buf_puts(out, "[");
    for (size_t i = 0; i < n_ids; i++) {
        size_t from = offsets[i][0], to = offsets[i][1], n_piece = 0;
        const char *piece = atn_token_piece(a->tok, ids[i], &n_piece);
        bool is_text = to > from && to <= n;
        put_comma(out);
        buf_printf(out, "{\"id\":%d,\"text\":", ids[i]);
        put_string(out, is_text ? text + from : piece, is_text ? to - from : n_piece);
        buf_printf(out, ",\"start\":%zu,\"stop\":%zu}", from, to);
    }
    buf_puts(out, "]");
    free(ids);
    free(offsets);
    return ATN_OK;
}

/* A string, or an array of byte values when the token is no text by itself. */
static void put_piece(buf *out, const char *bytes, size_t n)
{
    if (utf8_valid_prefix(bytes, n) == n) {
        put_string(out, bytes, n);
        return;
    }
    buf_puts(out, "[");
    for (size_t i = 0; i < n; i++) {
        buf_printf(out, i > 0 ? ",%u" : "%u", (unsigned char)bytes[i]);
    }
    buf_puts(out, "]");
}

static atn_status tokenize_llama(const api *a, fields *top, buf *out, atn_err *err)
{
    const char *text = "";
    size_t n = 0, n_ids = 0;
    bool add_special = false, parse_special = false, with_pieces = false;
    ATN_TRY(fields_string(top, "content", a->set.max_body, &text, &n, err));
    ATN_TRY(fields_bool(top, "add_special", &add_special, err));
    ATN_TRY(fields_bool(top, "parse_special", &parse_special, err));
    ATN_TRY(fields_bool(top, "with_pieces", &with_pieces, err));
    atn_segment seg = {.text = text, .n = n, .trusted = parse_special};
    int32_t *ids = NULL;
    ATN_TRY(atn_tokenize(a->tok, &seg, 1, add_special ? ATN_TOKENIZE_BOS : 0, &ids, &n_ids, err));
    buf_puts(out, "{\"tokens\":[");
    for (size_t i = 0; i < n_ids; i++) {
        put_comma(out);
        if (!with_pieces) {
            buf_printf(out, "%d", ids[i]);
            continue;
        }
        size_t n_piece = 0;
        const char *piece = atn_token_bytes(a->tok, ids[i], true, &n_piece);
        buf_printf(out, "{\"id\":%d,\"piece\":", ids[i]);
        put_piece(out, piece, n_piece);
        buf_puts(out, "}");
    }
    buf_puts(out, "]}");
    free(ids);
    return ATN_OK;
}

atn_status parse_tokenize(const api *a, const request_head *head, fields *top, parsed *out, atn_err *err)
{
    (void)head;
    buf_init(&out->answer, ANSWER_MAX_BYTES);
    out->openai_errors = json_object_get(top->obj, "content") != NULL && json_object_get(top->obj, "inputs") == NULL;
    return out->openai_errors ? tokenize_llama(a, top, &out->answer, err) : tokenize_tgi(a, top, &out->answer, err);
}

atn_status parse_detokenize(const api *a, const request_head *head, fields *top, parsed *out, atn_err *err)
{
    json_t *tokens = NULL;
    int32_t *ids = NULL;
    size_t n_ids = 0, n = 0;
    char *text = NULL;
    (void)head;
    ATN_TRY(fields_array(top, "tokens", &tokens, err));
    if (tokens == NULL) {
        return atn_fail(err, ATN_INVALID, "tokens", "tokens is needed");
    }
    ATN_TRY(json_token_ids(tokens, "tokens", a->info.n_vocab, JSON_MAX_VALUES, &ids, &n_ids, err));
    atn_status st = atn_detokenize(a->tok, ids, n_ids, true, &text, &n, err);
    free(ids);
    ATN_TRY(st);
    buf *b = &out->answer;
    buf_init(b, ANSWER_MAX_BYTES);
    buf_puts(b, "{\"content\":");
    put_string(b, text, n);
    buf_puts(b, "}");
    free(text);
    return ATN_OK;
}
