/* Preloaded into the server by test_drain.py: the model's file, which HELD_FILE names, never finishes opening, so that loading
 * lasts as long as the test wants. */
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

int open(const char *path, int flags, ...)
{
    const char *held = getenv("HELD_FILE");
    while (held != NULL && strcmp(path, held) == 0) {
        pause();
    }
    va_list more;
    va_start(more, flags);
    mode_t mode = (flags & O_CREAT) != 0 ? va_arg(more, mode_t) : 0;
    va_end(more);
    return (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
}
