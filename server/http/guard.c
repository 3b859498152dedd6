/* See guard.h. */
#include "server/http/guard.h"

#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool is_alnum(char c)
{
    return is_digit(c) || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
}

static bool is_control(char c)
{
    return (unsigned char)c < 0x20 || c == 0x7f;
}

static bool named(const guard_header *h, const char *name)
{
    return h->name_len == strlen(name) && strncasecmp(h->name, name, h->name_len) == 0;
}

static bool name_ok(const guard_header *h)
{
    for (size_t i = 0; i < h->name_len; i++) {
        char c = h->name[i];
        if (c == '\0' || !(is_alnum(c) || strchr("!#$%&'*+-.^_`|~", c) != NULL)) {
            return false;
        }
    }
    return h->name_len > 0;
}

static bool value_ok(const guard_header *h)
{
    for (size_t i = 0; i < h->value_len; i++) {
        if (is_control(h->value[i]) && h->value[i] != '\t') {
            return false;
        }
    }
    return true;
}

/* False: not digits alone. Too large a number saturates. */
static bool parse_length(const guard_header *h, uint64_t *out)
{
    uint64_t v = 0;
    for (size_t i = 0; i < h->value_len; i++) {
        if (!is_digit(h->value[i])) {
            return false;
        }
        uint64_t digit = (uint64_t)(h->value[i] - '0');
        v = v > (UINT64_MAX - digit) / 10 ? UINT64_MAX : v * 10 + digit;
    }
    *out = v;
    return h->value_len > 0;
}

atn_status guard_framing_check(const guard_header *h, size_t n, guard_framing *out, atn_err *err)
{
    size_t n_length = 0, n_coding = 0;
    const guard_header *length = NULL, *coding = NULL;
    bool names = true, values = true;
    *out = (guard_framing){0};
    for (size_t i = 0; i < n; i++) {
        names = names && name_ok(&h[i]);
        values = values && value_ok(&h[i]);
        if (named(&h[i], "Content-Length")) {
            length = &h[i];
            n_length++;
        } else if (named(&h[i], "Transfer-Encoding")) {
            coding = &h[i];
            n_coding++;
        }
    }
    /* A name that is no token may be a length field to somebody else, so a body may follow. */
    out->has_body = n_length + n_coding > 0 || !names;
    out->chunked = n_coding > 0;
    if (!names) {
        return atn_fail(err, ATN_INVALID, NULL, "malformed header name");
    }
    if (!values) {
        return atn_fail(err, ATN_INVALID, NULL, "control byte in a header value");
    }
    if (n_length > 1 || n_coding > 1 || (n_length > 0 && n_coding > 0)) {
        return atn_fail(err, ATN_INVALID, NULL, "conflicting message length");
    }
    if (coding != NULL && (coding->value_len != 7 || strncasecmp(coding->value, "chunked", 7) != 0)) {
        return atn_fail(err, ATN_UNSUPPORTED, NULL, "the only transfer coding is chunked");
    }
    if (length != NULL && !parse_length(length, &out->content_length)) {
        return atn_fail(err, ATN_INVALID, NULL, "malformed content length");
    }
    return ATN_OK;
}

static int hex(char c)
{
    return is_digit(c) ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

atn_status guard_target(const char *raw, char **path, const char **query, atn_err *err)
{
    *path = NULL;
    *query = "";
    if (raw[0] != '/') {
        return atn_fail(err, ATN_INVALID, NULL, "the request target must begin with '/'");
    }
    const char *end = raw + strcspn(raw, "?");
    for (const char *p = raw; *p != '\0'; p++) {
        if (is_control(*p) || *p == ' ' || *p == '#' || (unsigned char)*p >= 0x80) {
            return atn_fail(err, ATN_INVALID, NULL, "byte not allowed in the request target");
        }
    }
    char *out = malloc((size_t)(end - raw) + 1);
    if (out == NULL) {
        return atn_fail(err, ATN_NOMEM, NULL, "no memory for the request");
    }
    size_t n = 0;
    for (const char *p = raw; p < end; p++) {
        char c = *p;
        if (c == '%') {
            int hi = hex(p[1]), lo = hi < 0 ? -1 : hex(p[2]);
            c = lo < 0 ? '\0' : (char)(hi * 16 + lo);
            if (is_control(c)) {
                free(out);
                return atn_fail(err, ATN_INVALID, NULL, "escape not allowed in the request target");
            }
            p += 2;
        }
        out[n++] = c;
    }
    out[n] = '\0';
    *path = out;
    *query = *end == '?' ? end + 1 : "";
    return ATN_OK;
}

/* Takes the port off: "name:80", "[::1]:80". False: malformed or too long. */
static bool host_name(const char *value, size_t n, char out[256])
{
    if (n == 0 || n > 255) {
        return false;
    }
    size_t end = n;
    if (value[0] == '[') {
        const char *close = memchr(value, ']', n);
        if (close == NULL) {
            return false;
        }
        end = (size_t)(close - value) + 1;
    } else {
        const char *colon = memchr(value, ':', n);
        end = colon != NULL ? (size_t)(colon - value) : n;
    }
    if (end < n && (value[end] != ':' || n - end > 6)) {
        return false;
    }
    for (size_t i = end + 1; i < n; i++) {
        if (!is_digit(value[i])) {
            return false;
        }
    }
    for (size_t i = 0; i < end; i++) {
        if (!(is_alnum(value[i]) || strchr("-._:[]%", value[i]) != NULL)) {
            return false;
        }
    }
    bool bracketed = value[0] == '[';
    size_t from = bracketed ? 1 : 0, len = bracketed ? end - 2 : end;
    memcpy(out, value + from, len);
    out[len] = '\0';
    return len > 0;
}

static bool host_allowed(const char *name, const guard_hosts *allowed)
{
    unsigned char address[sizeof(struct in6_addr)];
    if (inet_pton(AF_INET, name, address) == 1 || inet_pton(AF_INET6, name, address) == 1 ||
        strcasecmp(name, "localhost") == 0) {
        return true;
    }
    for (size_t i = 0; i < allowed->n; i++) {
        if (strcmp(allowed->names[i], "*") == 0 || strcasecmp(allowed->names[i], name) == 0) {
            return true;
        }
    }
    return false;
}

atn_status guard_host(const guard_header *h, size_t n, const char *version, const guard_hosts *allowed, atn_err *err)
{
    const guard_header *host = NULL;
    size_t n_host = 0;
    for (size_t i = 0; i < n; i++) {
        if (named(&h[i], "Host")) {
            host = &h[i];
            n_host++;
        }
    }
    if (n_host == 0 && strcmp(version, "HTTP/1.0") == 0) {
        return ATN_OK;
    }
    char name[256];
    if (n_host != 1 || !host_name(host->value, host->value_len, name)) {
        return atn_fail(err, ATN_INVALID, NULL, "exactly one well-formed Host header is needed");
    }
    if (!host_allowed(name, allowed)) {
        return atn_fail(err, ATN_FORBIDDEN, NULL, "host not allowed: see --allow-host");
    }
    return ATN_OK;
}

bool guard_request_id_ok(const char *id)
{
    size_t n = 0;
    for (; id[n] != '\0'; n++) {
        if (n == GUARD_MAX_REQUEST_ID || !(is_alnum(id[n]) || strchr("._-", id[n]) != NULL)) {
            return false;
        }
    }
    return n > 0;
}
