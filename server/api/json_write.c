/* Writing JSON text straight into a buffer: no tree is built for an answer. */
#include "server/api/json.h"
#include "core/base/utf8.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void put_escaped(buf *b, unsigned char c)
{
    static const char names[] = "\"\"\\\\\bb\ff\nn\rr\tt";
    for (const char *p = names; *p != '\0'; p += 2) {
        if ((unsigned char)p[0] == c) {
            const char pair[2] = {'\\', p[1]};
            buf_add(b, pair, 2);
            return;
        }
    }
    buf_printf(b, "\\u%04x", (unsigned)c);
}

static bool is_plain(unsigned char c)
{
    return c >= 0x20 && c < 0x7f && c != '"' && c != '\\';
}

void put_string(buf *b, const char *s, size_t n)
{
    buf_add(b, "\"", 1);
    for (size_t i = 0; i < n;) {
        size_t run = i;
        while (run < n && is_plain((unsigned char)s[run])) {
            run++;
        }
        buf_add(b, s + i, run - i);
        i = run;
        if (i == n) {
            break;
        }
        if ((unsigned char)s[i] < 0x80) {
            put_escaped(b, (unsigned char)s[i]);
            i++;
            continue;
        }
        uint32_t cp;
        int len = utf8_decode(s + i, n - i, &cp);
        if (len > 0) {
            buf_add(b, s + i, (size_t)len);
            i += (size_t)len;
        } else {
            buf_puts(b, "\xef\xbf\xbd");
            i = len < 0 ? i + (size_t)-len : n;
        }
    }
    buf_add(b, "\"", 1);
}

void put_cstring(buf *b, const char *s)
{
    if (s == NULL) {
        buf_puts(b, "null");
    } else {
        put_string(b, s, strlen(s));
    }
}

void put_float(buf *b, float v)
{
    if (!isfinite(v)) {
        buf_puts(b, "null");
        return;
    }
    char text[32];
    for (int digits = 6; digits <= 9; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, (double)v);
        if (strtof(text, NULL) == v) {
            break;
        }
    }
    buf_puts(b, text);
}

void put_comma(buf *b)
{
    if (b->len > 0 && b->data[b->len - 1] != '[' && b->data[b->len - 1] != '{') {
        buf_add(b, ",", 1);
    }
}
