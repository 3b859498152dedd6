/* Log lines: formatted, escaped and counted on the stack, then written with one write(2), so that lines of different
 * threads never mix and a line costs no allocation. A reader of stderr that stopped reading costs lines, never time: what
 * would have to wait is left out. The level, the counts and the writers' lock are process-wide, as stderr is. */
#include "core/base/log.h"
#include "core/base/utf8.h"

#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { LINE_MAX_BYTES = 1024, LINES_PER_SECOND = 500 };

static atomic_int max_level = LOG_LEVEL_INFO;
static _Atomic uint64_t window; /* second << 32 | lines asked for in it */
static pthread_mutex_t writers = PTHREAD_MUTEX_INITIALIZER;
static uint32_t unwritten; /* lines that found no room since the last one that did; under the lock */

void log_set_level(log_level max)
{
    atomic_store_explicit(&max_level, (int)max, memory_order_relaxed);
}

/* Counts a line in its second. *left_out: lines that the second before had to leave out, for the first line of a new one. */
static bool line_admitted(uint64_t second, uint32_t *left_out)
{
    uint64_t seen = atomic_load_explicit(&window, memory_order_relaxed);
    uint64_t next;
    do {
        uint64_t in_second = seen >> 32 == second ? (seen & UINT32_MAX) + 1 : 1;
        next = second << 32 | (in_second < UINT32_MAX ? in_second : UINT32_MAX);
    } while (!atomic_compare_exchange_weak_explicit(&window, &seen, next, memory_order_relaxed, memory_order_relaxed));
    uint32_t before = (uint32_t)seen;
    *left_out = seen >> 32 != second && before > LINES_PER_SECOND ? before - LINES_PER_SECOND : 0;
    return (uint32_t)next <= LINES_PER_SECOND;
}

/* Copies text, with every byte that is no printable UTF-8 as \xNN, as far as it fits. Returns the bytes written. */
static size_t escape(char *out, size_t room, const char *text, size_t n)
{
    static const char digits[] = "0123456789ABCDEF";
    size_t at = 0;
    for (size_t i = 0; i < n;) {
        uint32_t cp = 0;
        int len = utf8_decode(text + i, n - i, &cp);
        bool plain = len > 0 && cp >= 0x20 && (cp < 0x7F || cp >= 0xA0) && cp != 0x2028 && cp != 0x2029;
        size_t in = len > 0 ? (size_t)len : 1;
        size_t need = plain ? in : 4 * in;
        if (at + need > room) {
            break;
        }
        for (size_t k = 0; k < in; k++) {
            unsigned char byte = (unsigned char)text[i + k];
            if (plain) {
                out[at++] = (char)byte;
            } else {
                out[at++] = '\\';
                out[at++] = 'x';
                out[at++] = digits[byte >> 4];
                out[at++] = digits[byte & 15];
            }
        }
        i += in;
    }
    return at;
}

static void format_and_write(const struct timespec *now, const char *level, const char *text, size_t n)
{
    char line[LINE_MAX_BYTES];
    struct tm utc;
    gmtime_r(&now->tv_sec, &utc);
    size_t at = strftime(line, sizeof line, "%Y-%m-%dT%H:%M:%S", &utc);
    at += (size_t)snprintf(line + at, sizeof line - at, ".%03dZ %s ", (int)(now->tv_nsec / 1000000), level);
    at += escape(line + at, sizeof line - 1 - at, text, n);
    line[at++] = '\n';
    /* A log that cannot be written has nobody to tell. */
    ssize_t written = write(STDERR_FILENO, line, at);
    (void)written;
}

/* A pipe that says it is writable has a page free, so that a line fits without waiting as long as no other thread fills it. */
static bool has_room(void)
{
    struct pollfd p = {.fd = STDERR_FILENO, .events = POLLOUT};
    return poll(&p, 1, 0) != 0; /* an error too: the write meets it at once */
}

static void write_line(const struct timespec *now, log_level level, const char *text, size_t n)
{
    static const char *const names[] = {"error", "warn", "info", "debug"};
    pthread_mutex_lock(&writers);
    if (!has_room()) {
        unwritten++;
    } else {
        if (unwritten > 0) {
            char lost[80];
            int k = snprintf(lost, sizeof lost, "%u log lines were left out: nobody read them", (unsigned)unwritten);
            format_and_write(now, names[LOG_LEVEL_WARN], lost, (size_t)k);
            unwritten = 0;
        }
        format_and_write(now, names[level], text, n);
    }
    pthread_mutex_unlock(&writers);
}

void log_write(log_level level, const char *fmt, ...)
{
    if ((int)level > atomic_load_explicit(&max_level, memory_order_relaxed)) {
        return;
    }
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    uint32_t left_out = 0;
    if (!line_admitted((uint64_t)now.tv_sec & UINT32_MAX, &left_out)) {
        return;
    }
    char text[LINE_MAX_BYTES];
    if (left_out > 0) {
        int n = snprintf(text, sizeof text, "%u log lines were left out: more than %d in a second", (unsigned)left_out,
                         LINES_PER_SECOND);
        write_line(&now, LOG_LEVEL_WARN, text, (size_t)n);
    }
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    if (n >= 0) {
        write_line(&now, level, text, (size_t)n < sizeof text ? (size_t)n : sizeof text - 1);
    }
}
