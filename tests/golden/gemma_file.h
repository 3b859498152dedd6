/* Where the real model is: ATTND_MODELS, or the cache directory that ./dev model fills. */
#ifndef GOLDEN_GEMMA_FILE_H
#define GOLDEN_GEMMA_FILE_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* path: where it is. 0: found; else the exit status: 77 skips, but not where CI says that everything must run. */
static inline int gemma_file_find(char *path, size_t size)
{
    const char *models = getenv("ATTND_MODELS"), *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    const char *file = "gemma-3-270m-q4_k_m.gguf";
    if (models != NULL) {
        snprintf(path, size, "%s/%s", models, file);
    } else if (cache != NULL && *cache != '\0') {
        snprintf(path, size, "%s/attnd/models/%s", cache, file);
    } else {
        snprintf(path, size, "%s/.cache/attnd/models/%s", home != NULL ? home : "", file);
    }
    if (access(path, R_OK) == 0) {
        return 0;
    }
    fprintf(stderr, "%s is missing: ./dev model gemma3-270m gets it\n", path);
    const char *ci = getenv("CI");
    return ci != NULL && strcmp(ci, "true") == 0 ? 1 : 77;
}

#endif
