/* Log lines, read back from a file that stands in for stderr. */
#include "core/base/log.h"

#include <ctype.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

typedef struct capture {
    int saved, file;
    char text[1 << 17];
} capture;

static capture cap;

static void capture_start(void)
{
    char path[] = "/tmp/attnd-test-log-XXXXXX";
    cap.file = mkstemp(path);
    assert_true(cap.file >= 0);
    unlink(path);
    cap.saved = dup(STDERR_FILENO);
    dup2(cap.file, STDERR_FILENO);
}

static const char *capture_end(void)
{
    dup2(cap.saved, STDERR_FILENO);
    close(cap.saved);
    ssize_t n = pread(cap.file, cap.text, sizeof cap.text - 1, 0);
    close(cap.file);
    assert_true(n >= 0);
    cap.text[n] = '\0';
    return cap.text;
}

static void test_form(void **state)
{
    (void)state;
    capture_start();
    log_warn("%d pages", 7);
    const char *line = capture_end();
    const char *form = "dddd-dd-ddTdd:dd:dd.dddZ warn 7 pages\n";
    assert_int_equal(strlen(line), strlen(form));
    for (size_t i = 0; i < 24; i++) {
        assert_true(form[i] == 'd' ? isdigit((unsigned char)line[i]) != 0 : line[i] == form[i]);
    }
    assert_string_equal(line + 24, form + 24);
}

static void test_escapes(void **state)
{
    (void)state;
    capture_start();
    log_info("a%sb", "\r\n\x1b[31m\t\x7f\xff\xC2\x9B\xE2\x80\xA8 \xC3\xA9 \xE2\x82");
    const char *line = capture_end();
    assert_string_equal(line + 24,
                        " info a\\x0D\\x0A\\x1B[31m\\x09\\x7F\\xFF\\xC2\\x9B\\xE2\\x80\\xA8 \xC3\xA9 \\xE2\\x82b\n");
}

static void test_long_line_is_cut_to_one_line(void **state)
{
    (void)state;
    char text[4000];
    memset(text, '\n', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    capture_start();
    log_error("%s", text);
    const char *line = capture_end();
    size_t n = strlen(line);
    assert_in_range(n, 1000, 1024);
    assert_ptr_equal(strchr(line, '\n'), line + n - 1);
    assert_string_equal(line + n - 5, "\\x0A\n");
}

static void test_level(void **state)
{
    (void)state;
    capture_start();
    log_debug("hidden");
    log_set_level(LOG_LEVEL_DEBUG);
    log_debug("shown");
    log_set_level(LOG_LEVEL_ERROR);
    log_warn("hidden");
    log_set_level(LOG_LEVEL_INFO);
    const char *text = capture_end();
    assert_null(strstr(text, "hidden"));
    assert_non_null(strstr(text, " debug shown\n"));
}

static void test_rate_limit(void **state)
{
    (void)state;
    capture_start();
    for (int i = 0; i < 5000; i++) {
        log_info("flood");
    }
    sleep(1);
    log_info("after");
    const char *text = capture_end();
    size_t n = 0;
    for (const char *at = text; (at = strstr(at, " info flood\n")) != NULL; at++) {
        n++;
    }
    assert_in_range(n, 400, 4999); /* 500 for each second that the loop touched, less what tests before it wrote */
    assert_non_null(strstr(text, " log lines were left out"));
    assert_non_null(strstr(text, " info after\n"));
}

/* Nobody reads the pipe: lines are left out instead of waited for, and counted once there is room again. */
static void test_full_pipe(void **state)
{
    (void)state;
    enum { LINES = 200, LONG = 900 }; /* more than a pipe holds, fewer than a second admits */
    static char text[LONG + 1];
    int ends[2];
    memset(text, 'x', LONG);
    assert_int_equal(pipe(ends), 0);
    int saved = dup(STDERR_FILENO);
    dup2(ends[1], STDERR_FILENO);
    alarm(20); /* a line that waits ends the test */
    for (int i = 0; i < LINES; i++) {
        log_warn("%s", text);
    }
    ssize_t n = read(ends[0], cap.text, sizeof cap.text - 1);
    log_warn("last");
    alarm(0);
    dup2(saved, STDERR_FILENO);
    close(saved);
    assert_true(n > LONG);
    int kept = 0;
    for (ssize_t i = 0; i < n; i++) {
        kept += cap.text[i] == '\n';
    }
    assert_in_range(kept, 10, LINES - 1);
    n = read(ends[0], cap.text, sizeof cap.text - 1);
    assert_true(n > 0);
    cap.text[n] = '\0';
    char lost[80];
    snprintf(lost, sizeof lost, "%d log lines were left out: nobody read them", LINES - kept);
    assert_non_null(strstr(cap.text, lost));
    assert_non_null(strstr(cap.text, "last\n"));
    close(ends[0]);
    close(ends[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_form),
        cmocka_unit_test(test_escapes),
        cmocka_unit_test(test_long_line_is_cut_to_one_line),
        cmocka_unit_test(test_level),
        cmocka_unit_test(test_rate_limit),
        cmocka_unit_test(test_full_pipe),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
