/* Text to token ids: joins the segments, cuts out special tokens, and hands what lies between to SPM or BPE. */
#include "core/token/encoder.h"

#include <stdlib.h>
#include <string.h>
#include "core/base/utf8.h"

enum { MAX_IDS = INT32_MAX };

atn_status encoder_push(encoder *e, int32_t id, size_t from, size_t to, atn_err *err)
{
    if (id < 0) {
        return atn_fail(err, ATN_INVALID, NULL, "the model has no token for the text's byte %zu", from);
    }
    if (e->n == e->cap) {
        size_t want = e->cap == 0 ? 64 : e->cap + e->cap / 2;
        int32_t *ids = realloc(e->ids, want * sizeof *ids);
        e->ids = ids == NULL ? e->ids : ids;
        size_t(*spans)[2] = NULL;
        if (ids != NULL && e->want_spans) {
            spans = realloc(e->spans, want * sizeof *spans);
            e->spans = spans == NULL ? e->spans : spans;
        }
        if (ids == NULL || (e->want_spans && spans == NULL)) {
            return atn_fail(err, ATN_NOMEM, NULL, "no memory to tokenize");
        }
        e->cap = want;
    }
    if (e->n == MAX_IDS) {
        return atn_fail(err, ATN_TOO_LARGE, NULL, "more than %d tokens", MAX_IDS);
    }
    if (e->want_spans) {
        e->spans[e->n][0] = from;
        e->spans[e->n][1] = to;
    }
    e->ids[e->n++] = id;
    return ATN_OK;
}

/* The segments as one text. */
typedef struct joined {
    const char *text;
    char *owned; /* NULL when the text is a segment's own */
    size_t n;
} joined;

static atn_status join(const atn_segment *segs, size_t n_segs, joined *out, atn_err *err)
{
    *out = (joined){0};
    size_t n = 0;
    for (size_t i = 0; i < n_segs; i++) {
        if (segs[i].n > (size_t)INT32_MAX - n) {
            return atn_fail(err, ATN_TOO_LARGE, NULL, "the text is over %d bytes", INT32_MAX);
        }
        n += segs[i].n;
    }
    out->n = n;
    out->text = "";
    if (n_segs == 1) {
        out->text = segs[0].text;
    } else if (n > 0) {
        out->owned = malloc(n);
        if (out->owned == NULL) {
            return atn_fail(err, ATN_NOMEM, NULL, "no memory to tokenize");
        }
        out->text = out->owned;
        size_t at = 0;
        for (size_t i = 0; i < n_segs; i++) {
            if (segs[i].n > 0) {
                memcpy(out->owned + at, segs[i].text, segs[i].n);
                at += segs[i].n;
            }
        }
    }
    size_t valid = n == 0 ? 0 : utf8_valid_prefix(out->text, n);
    if (valid < n) {
        free(out->owned);
        *out = (joined){0};
        return atn_fail(err, ATN_INVALID, NULL, "the text is not valid UTF-8 at byte %zu", valid);
    }
    return ATN_OK;
}

/* Follows the segments while the text is read: how many bytes from `at` on are trusted without a break. */
typedef struct trust {
    const atn_segment *segs;
    size_t n_segs;
    size_t i;        /* the next segment to look at */
    size_t run_from; /* the trusted run [run_from, run_to) that ends last so far */
    size_t run_to;
    size_t pos; /* where segment i starts */
} trust;

static size_t trusted_from(trust *w, size_t at)
{
    while (w->run_to <= at && w->i < w->n_segs) {
        w->run_from = w->pos;
        w->run_to = w->pos;
        for (; w->i < w->n_segs && (w->segs[w->i].trusted || w->segs[w->i].n == 0); w->i++) {
            w->run_to += w->segs[w->i].n;
        }
        w->pos = w->run_to;
        if (w->i < w->n_segs && w->run_to <= at) {
            w->pos += w->segs[w->i++].n; /* an untrusted segment */
        }
    }
    return at >= w->run_from && at < w->run_to ? w->run_to - at : 0;
}

static atn_status encode_plain(encoder *e, size_t from, size_t to, bool after_cut, atn_err *err)
{
    if (from == to) {
        return ATN_OK;
    }
    return e->t->byte_level ? bpe_encode(e, from, to, err) : spm_encode(e, from, to, after_cut, err);
}

static atn_status encode_all(encoder *e, const joined *text, const atn_segment *segs, size_t n_segs, unsigned flags,
                             atn_err *err)
{
    const atn_tokenizer *t = e->t;
    trust trusted = {.segs = segs, .n_segs = n_segs};
    size_t from = 0;
    if (flags & ATN_TOKENIZE_BOS && t->add_bos) {
        ATN_TRY(encoder_push(e, t->bos, 0, 0, err));
    }
    for (size_t at = 0; at < text->n;) {
        int32_t id = -1;
        size_t len = 0;
        if (t->special_root[(unsigned char)text->text[at]] != 0) {
            len = special_match(t, text->text + at, text->n - at, trusted_from(&trusted, at), &id);
        }
        if (len == 0) {
            at++;
            continue;
        }
        ATN_TRY(encode_plain(e, from, at, true, err));
        ATN_TRY(encoder_push(e, id, at, at + len, err));
        at += len;
        from = at;
    }
    ATN_TRY(encode_plain(e, from, text->n, true, err));
    if (flags & ATN_TOKENIZE_BOS && t->add_eos) {
        ATN_TRY(encoder_push(e, t->eos, text->n, text->n, err));
    }
    return ATN_OK;
}

static atn_status tokenize(const atn_tokenizer *t, const atn_segment *segs, size_t n_segs, unsigned flags, encoder *e,
                           atn_err *err)
{
    joined text;
    ATN_TRY(join(segs, n_segs, &text, err));
    e->t = t;
    e->text = text.text;
    /* Never NULL on success, not even for no token. */
    atn_status status = encoder_push(e, 0, 0, 0, err);
    e->n = 0;
    if (status == ATN_OK) {
        status = encode_all(e, &text, segs, n_segs, flags, err);
    }
    merge_free(&e->merge);
    pre_walk_close(e->walk);
    free(e->copy);
    free(text.owned);
    if (status != ATN_OK) {
        free(e->ids);
        free(e->spans);
    }
    return status;
}

atn_status atn_tokenize(const atn_tokenizer *t, const atn_segment *segs, size_t n_segs, unsigned flags, int32_t **ids,
                        size_t *n_ids, atn_err *err)
{
    encoder e = {0};
    ATN_TRY(tokenize(t, segs, n_segs, flags, &e, err));
    *ids = e.ids;
    *n_ids = e.n;
    return ATN_OK;
}

atn_status atn_tokenize_offsets(const atn_tokenizer *t, const atn_segment *segs, size_t n_segs, unsigned flags,
                                int32_t **ids, size_t (**offsets)[2], size_t *n_ids, atn_err *err)
{
    encoder e = {.want_spans = true};
    ATN_TRY(tokenize(t, segs, n_segs, flags, &e, err));
    *ids = e.ids;
    *offsets = e.spans;
    *n_ids = e.n;
    return ATN_OK;
}
