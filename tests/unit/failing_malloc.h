/* malloc and its kin that fail when told to. They replace the C library's in the program that includes this, in one file;
 * under a sanitizer, which brings its own, only the run without failures remains. */
#ifndef ATN_FAILING_MALLOC_H
#define ATN_FAILING_MALLOC_H

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>

#if defined(__has_feature)
#define SANITIZED (__has_feature(address_sanitizer) || __has_feature(thread_sanitizer))
#elif defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#else
#define SANITIZED 0
#endif

static long fail_at; /* the how manyth allocation from now fails; 0: none */
static long n_live;  /* allocated and not freed */

#if !SANITIZED
void *__libc_malloc(size_t n);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *p, size_t n);
void __libc_free(void *p);

static bool fails(void)
{
    if (fail_at > 0 && --fail_at == 0) {
        errno = ENOMEM;
        return true;
    }
    return false;
}

void *malloc(size_t n)
{
    void *p = fails() ? NULL : __libc_malloc(n);
    n_live += p != NULL;
    return p;
}

void *calloc(size_t n, size_t size)
{
    void *p = fails() ? NULL : __libc_calloc(n, size);
    n_live += p != NULL;
    return p;
}

void *realloc(void *old, size_t n)
{
    void *p = fails() ? NULL : __libc_realloc(old, n);
    n_live += p != NULL && old == NULL;
    return p;
}

void free(void *p)
{
    n_live -= p != NULL;
    __libc_free(p);
}
#endif

#endif
