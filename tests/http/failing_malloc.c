/* Preloaded into the server by test_memory.py: makes allocations fail when the test says so, through a file that both map.
 * What libuv and the dynamic loader allocate never fails: libuv aborts by design when its threads cannot start. */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

void *__libc_malloc(size_t n);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *p, size_t n);
void *__libc_memalign(size_t align, size_t n);

typedef struct control {
    _Atomic long fail_in; /* the how manyth allocation from now fails; 0: none */
    _Atomic long forever; /* so do all after it */
    _Atomic long count;   /* allocations so far */
} control;

static control *shared;

__attribute__((constructor)) static void map_control(void)
{
    const char *path = getenv("FAILING_MALLOC");
    int fd = path != NULL ? open(path, O_RDWR | O_CLOEXEC) : -1;
    void *p = fd >= 0 ? mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) : MAP_FAILED;
    if (fd >= 0) {
        close(fd);
    }
    if (p != MAP_FAILED) {
        shared = p;
    }
}

static bool exempt(void *caller)
{
    Dl_info i;
    return dladdr(caller, &i) != 0 && i.dli_fname != NULL &&
           (strstr(i.dli_fname, "libuv") != NULL || strstr(i.dli_fname, "ld-linux") != NULL);
}

static bool fails(void *caller)
{
    if (shared == NULL || exempt(caller)) {
        return false;
    }
    atomic_fetch_add(&shared->count, 1);
    long left = atomic_load(&shared->fail_in);
    while (left > 0 &&
           !atomic_compare_exchange_weak(&shared->fail_in, &left, left > 1 || !shared->forever ? left - 1 : 1)) {
    }
    if (left != 1) {
        return false;
    }
    errno = ENOMEM;
    return true;
}

#define FAILS fails(__builtin_return_address(0))

void *malloc(size_t n)
{
    return FAILS ? NULL : __libc_malloc(n);
}

void *calloc(size_t n, size_t size)
{
    return FAILS ? NULL : __libc_calloc(n, size);
}

void *realloc(void *p, size_t n)
{
    return FAILS ? NULL : __libc_realloc(p, n);
}

void *aligned_alloc(size_t align, size_t n)
{
    return FAILS ? NULL : __libc_memalign(align, n);
}

int posix_memalign(void **out, size_t align, size_t n)
{
    void *p = FAILS ? NULL : __libc_memalign(align, n);
    if (p != NULL) {
        *out = p;
    }
    return p != NULL ? 0 : ENOMEM;
}
