/* Log lines on stderr: one line an event, control characters escaped, a rate limit a second.
 * Thread: any. */
#ifndef ATN_LOG_H
#define ATN_LOG_H

#include <attnd/status.h>

typedef enum log_level { LOG_LEVEL_ERROR, LOG_LEVEL_WARN, LOG_LEVEL_INFO, LOG_LEVEL_DEBUG } log_level;

void log_set_level(log_level max); /* before threads start */
/* "2026-11-29T18:20:32.123Z level text"; a line over 1 KiB is cut, CR, LF and ESC come out as \xNN. */
void log_write(log_level level, const char *fmt, ...) ATN_PRINTF(2, 3);

#define log_error(...) log_write(LOG_LEVEL_ERROR, __VA_ARGS__)
#define log_warn(...)  log_write(LOG_LEVEL_WARN, __VA_ARGS__)
#define log_info(...)  log_write(LOG_LEVEL_INFO, __VA_ARGS__)
#define log_debug(...) log_write(LOG_LEVEL_DEBUG, __VA_ARGS__)

#endif
