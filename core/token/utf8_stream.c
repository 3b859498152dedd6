/* Bytes that come token by token to whole UTF-8 characters. */
#include <attnd/tokenizer.h>

#include <string.h>
#include "core/base/utf8.h"

static const char REPLACEMENT[] = "\xEF\xBF\xBD"; /* U+FFFD */

size_t atn_utf8_stream_push(atn_utf8_stream *s, const char *bytes, size_t n, char *out)
{
    size_t written = 0;
    size_t at = 0;
    while (s->n_held > 0 && at < n) {
        /* A held character grows byte by byte until it is whole or wrong; held bytes alone are always a valid start. */
        uint32_t cp;
        s->held[s->n_held] = (unsigned char)bytes[at];
        int len = utf8_decode((const char *)s->held, s->n_held + 1, &cp);
        if (len < 0) {
            memcpy(out + written, REPLACEMENT, 3);
            written += 3;
            s->n_held = 0; /* the new byte is read again, on its own */
            break;
        }
        at++;
        s->n_held++;
        if (len > 0) {
            memcpy(out + written, s->held, (size_t)len);
            written += (size_t)len;
            s->n_held = 0;
        }
    }
    while (at < n) {
        uint32_t cp;
        int len = utf8_decode(bytes + at, n - at, &cp);
        if (len == 0) {
            s->n_held = (unsigned)(n - at);
            memcpy(s->held, bytes + at, n - at);
            break;
        }
        if (len > 0) {
            memcpy(out + written, bytes + at, (size_t)len);
            written += (size_t)len;
        } else {
            memcpy(out + written, REPLACEMENT, 3);
            written += 3;
        }
        at += (size_t)(len < 0 ? -len : len);
    }
    return written;
}

size_t atn_utf8_stream_flush(atn_utf8_stream *s, char *out)
{
    if (s->n_held == 0) {
        return 0;
    }
    s->n_held = 0;
    memcpy(out, REPLACEMENT, 3);
    return 3;
}
