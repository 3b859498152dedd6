/* From an engine event to text that may be shown.
 *
 * Bytes wait in `held` as long as the engine says that they may become part of a stop string (hold), then pass the UTF-8
 * stream, which keeps back half a character. Everything shown is also collected in the answer's `text`. */
#include "server/api/turn_text.h"
#include "server/api/state.h"
#include <stdlib.h>
#include <string.h>

enum { ANSWER_MAX_BYTES = 64 * 1024 * 1024, CHUNK = 256 };

void turn_answer_init(turn_answer *ans)
{
    *ans = (turn_answer){0};
    buf_init(&ans->text, ANSWER_MAX_BYTES);
    buf_init(&ans->held, ANSWER_MAX_BYTES);
}

void turn_answer_free(turn_answer *ans)
{
    buf_free(&ans->text);
    buf_free(&ans->held);
    free(ans->ids);
}

static bool keep_id(turn_answer *ans, int32_t id)
{
    if (ans->n_ids == ans->cap_ids) {
        uint32_t cap = ans->cap_ids > 0 ? ans->cap_ids * 2 : 64;
        int32_t *ids = realloc(ans->ids, cap * sizeof *ids);
        if (ids == NULL) {
            return false;
        }
        ans->ids = ids;
        ans->cap_ids = cap;
    }
    ans->ids[ans->n_ids++] = id;
    return true;
}

static size_t smaller(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* Moves the first n held bytes through the UTF-8 stream into the text. */
static void show(turn_answer *ans, size_t n)
{
    char out[3 * (CHUNK + sizeof ans->utf8.held)];
    for (size_t at = 0; at < n; at += CHUNK) {
        size_t m = atn_utf8_stream_push(&ans->utf8, ans->held.data + at, smaller(CHUNK, n - at), out);
        buf_add(&ans->text, out, m);
    }
    if (n > 0) {
        memmove(ans->held.data, ans->held.data + n, ans->held.len - n);
        ans->held.len -= n;
    }
}

static void end_text(turn_answer *ans, const atn_event *ev, bool include_stop)
{
    if (ev->finish == ATN_FINISH_STOP) {
        size_t cut = include_stop ? ev->stop_tail : ev->stop_cut;
        ans->held.len -= smaller(cut, ans->held.len);
    }
    show(ans, ans->held.len);
    char out[4];
    size_t n = atn_utf8_stream_flush(&ans->utf8, out);
    buf_add(&ans->text, out, n);
    ans->finish = ev->finish;
    ans->stop_index = ev->stop_index;
    ans->usage = ev->usage;
}

atn_status turn_text_event(turn *t, uint32_t i, const atn_event *ev, atn_err *err)
{
    turn_answer *ans = &t->answers[i];
    const atn_tokenizer *tok = t->a->tok;
    size_t before = ans->text.len;
    bool special = false;
    if (ev->has_token) {
        bool silent = !t->include_stop && (ev->finish == ATN_FINISH_EOS || ev->finish == ATN_FINISH_STOP_ID);
        size_t n = 0;
        const char *bytes = atn_token_bytes(tok, ev->token.id, false, &n);
        if (!keep_id(ans, ev->token.id) || (!silent && n > 0 && !buf_add(&ans->held, bytes, n))) {
            return atn_fail(err, ATN_NOMEM, NULL, "no memory for the answer's text");
        }
        ans->logprob_sum += (double)ev->token.logprob;
        special = atn_token_get_kind(tok, ev->token.id) == ATN_TOKEN_CONTROL;
    }
    if (ev->finish != ATN_FINISH_NONE) {
        end_text(ans, ev, t->include_stop);
    } else {
        show(ans, ans->held.len - smaller(t->include_stop ? 0 : ev->hold, ans->held.len));
    }
    if (ans->text.failed) {
        return atn_fail(err, ATN_NOMEM, NULL, "no memory for the answer's text");
    }
    turn_piece piece = {
        .answer = i,
        .token = ev->has_token ? &ev->token : NULL,
        .special = special,
        .text = ans->text.len > before ? ans->text.data + before : "",
        .n = ans->text.len - before,
        .finish = ev->finish,
    };
    if (t->render->on_piece != NULL) {
        t->render->on_piece(t, &piece);
    }
    return ATN_OK;
}
