/* Status names and error text. The table comes from the one list in the header, so a code cannot lack a name. */
#include <attnd/status.h>

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

typedef struct status_row {
    const char *name, *words, *type;
    int http;
} status_row;

static const status_row rows[] = {
#define X(name, words, http, type) {#name, words, type, http},
    ATN_STATUS_LIST(X)
#undef X
};

static const status_row *row_of(atn_status s)
{
    size_t i = (size_t)s;
    return &rows[i < sizeof rows / sizeof *rows ? i : ATN_INTERNAL];
}

const char *atn_status_name(atn_status s)
{
    return row_of(s)->name;
}

const char *atn_status_words(atn_status s)
{
    return row_of(s)->words;
}

int atn_status_http(atn_status s)
{
    return row_of(s)->http;
}

const char *atn_status_type(atn_status s)
{
    return row_of(s)->type;
}

/* Text that filled its array may have lost the end of its last character: drop what is left of that character. */
static void cut_at_character(char *text, size_t n)
{
    size_t at = n;
    while (at > 0 && ((unsigned char)text[at - 1] & 0xC0u) == 0x80u) {
        at--;
    }
    if (at == 0) {
        return; /* only continuation bytes: no UTF-8, left alone */
    }
    unsigned char lead = (unsigned char)text[at - 1];
    size_t need = lead < 0x80 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
    if (n - (at - 1) < need) {
        text[at - 1] = '\0';
    }
}

atn_status atn_fail(atn_err *err, atn_status code, const char *param, const char *fmt, ...)
{
    if (err == NULL) {
        return code;
    }
    /* Both arrays are filled from copies, so that text of err itself may be among the arguments. */
    char msg[sizeof err->msg];
    char name[sizeof err->param] = "";
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(msg, sizeof msg, fmt, ap);
    va_end(ap);
    if (n < 0) {
        msg[0] = '\0';
    } else if ((size_t)n >= sizeof msg) {
        cut_at_character(msg, sizeof msg - 1);
    }
    if (param != NULL) {
        size_t len = strnlen(param, sizeof name);
        bool cut = len == sizeof name;
        len = cut ? sizeof name - 1 : len;
        memcpy(name, param, len);
        name[len] = '\0';
        if (cut) {
            cut_at_character(name, len);
        }
    }
    err->code = code;
    memcpy(err->msg, msg, sizeof msg);
    memcpy(err->param, name, sizeof name);
    return code;
}
