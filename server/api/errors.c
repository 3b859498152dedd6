/* Errors as clients see them: OpenAI's shape everywhere, TGI's on TGI's routes.
 *
 * OpenAI: {"error":{"message","type","param","code"}}, the status of attnd/status.h. TGI: {"error","error_type"}, 422 for
 * what the request got wrong and 424 for what failed while generating; TGI has no place for the field's name, so the
 * message carries it. */
#include "server/api/json.h"
#include "server/api/state.h"
#include <ctype.h>
#include <stdio.h>
#include <string.h>

enum { RETRY_OVERLOADED_S = 1, RETRY_UNAVAILABLE_S = 5, ERROR_BYTES = 2048 };

typedef struct tgi_error {
    int http;
    const char *type, *prefix;
} tgi_error;

static tgi_error tgi_of(atn_status code)
{
    switch (code) {
    case ATN_INVALID:
    case ATN_CONTEXT:
    case ATN_UNSUPPORTED:
        return (tgi_error){422, "validation", "Input validation error: "};
    case ATN_TOO_LARGE:
        return (tgi_error){413, "validation", "Input validation error: "};
    case ATN_OVERLOADED:
    case ATN_NOMEM:
        return (tgi_error){429, "overloaded", "Model is overloaded: "};
    case ATN_CANCELLED:
    case ATN_INTERNAL:
    case ATN_NONFINITE:
    case ATN_IO:
    case ATN_FORMAT:
        return (tgi_error){424, "generation", "Request failed during generation: "};
    case ATN_DEADLINE:
        return (tgi_error){504, "timeout", ""};
    case ATN_UNAVAILABLE:
        return (tgi_error){503, "unavailable", ""};
    default:
        return (tgi_error){atn_status_http(code), atn_status_type(code), ""};
    }
}

static void put_tgi_error(buf *b, const atn_err *err)
{
    tgi_error e = tgi_of(err->code);
    char text[sizeof err->msg + sizeof err->param + 64];
    bool named = err->param[0] == '\0' || strstr(err->msg, err->param) != NULL;
    snprintf(text, sizeof text, "%s%s%s%s", e.prefix, named ? "" : err->param, named ? "" : ": ", err->msg);
    buf_puts(b, "{\"error\":");
    put_cstring(b, text);
    buf_printf(b, ",\"error_type\":\"%s\"}", e.type);
}

static void put_openai_error(buf *b, const atn_err *err)
{
    char code[32];
    snprintf(code, sizeof code, "%s", atn_status_name(err->code));
    for (char *p = code; *p != '\0'; p++) {
        *p = (char)tolower((unsigned char)*p);
    }
    buf_puts(b, "{\"error\":{\"message\":");
    put_cstring(b, err->msg);
    buf_printf(b, ",\"type\":\"%s\",\"param\":", atn_status_type(err->code));
    put_cstring(b, err->param[0] != '\0' ? err->param : NULL);
    buf_printf(b, ",\"code\":\"%s\"}}", code);
}

static void put_error(buf *b, const api_route *r, const atn_err *err)
{
    buf_init(b, ERROR_BYTES);
    if (r != NULL && r->tgi) {
        put_tgi_error(b, err);
    } else {
        put_openai_error(b, err);
    }
}

size_t api_error_json(const api_route *r, const atn_err *err, char *out, size_t cap)
{
    buf b;
    put_error(&b, r, err);
    size_t n = !b.failed && b.len < cap ? b.len : 0;
    if (n > 0) {
        memcpy(out, b.data, n + 1);
    }
    buf_free(&b);
    return n;
}

unsigned api_retry_after_s(atn_status code)
{
    switch (code) {
    case ATN_OVERLOADED:
    case ATN_NOMEM:
        return RETRY_OVERLOADED_S;
    case ATN_UNAVAILABLE:
        return RETRY_UNAVAILABLE_S;
    default:
        return 0;
    }
}

void api_reply_error(exchange *x, const api_route *r, const atn_err *err, unsigned retry_after_s)
{
    buf b;
    put_error(&b, r, err);
    char seconds[16];
    reply_header h[2];
    size_t n_h = 0;
    if (retry_after_s > 0) {
        snprintf(seconds, sizeof seconds, "%u", retry_after_s);
        h[n_h++] = (reply_header){"Retry-After", seconds};
    }
    if (err->code == ATN_CONFLICT) {
        h[n_h++] = (reply_header){"x-should-retry", "false"}; /* OpenAI's clients would repeat it */
    }
    int status = r != NULL && r->tgi ? tgi_of(err->code).http : atn_status_http(err->code);
    x->ops->reply(x, status, "application/json", h, n_h, &b);
    buf_free(&b);
}

void api_fail(exchange *x, const atn_err *err)
{
    api_reply_error(x, x->route, err, api_retry_after_s(err->code));
}
