/* See auth.h. */
#include "server/http/auth.h"

#include "core/base/hash.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/random.h>
#include <sys/stat.h>

enum {
    MAX_KEYS = 10000,
    MAX_KEY_BYTES = 512,
    MAX_NAME_BYTES = 64,
    MAX_LINE = 1024,
    ALL_RIGHTS = RIGHT_INFER | RIGHT_ADMIN | RIGHT_ATTENTION_FULL,
};

typedef struct key {
    unsigned char sha[32];
    uint64_t domain;
    unsigned rights;
    char name[MAX_NAME_BYTES + 1];
} key;

struct auth {
    key *keys;
    size_t n;
    uint64_t k0, k1; /* of domain hashes: a client cannot aim at another key's domain */
    bool file_given;
};

static bool parse_rights(char *text, unsigned *out)
{
    *out = 0;
    for (char *rest = text, *word; (word = strsep(&rest, ",")) != NULL;) {
        if (strcmp(word, "infer") == 0) {
            *out |= RIGHT_INFER;
        } else if (strcmp(word, "admin") == 0) {
            *out |= RIGHT_ADMIN;
        } else if (strcmp(word, "attention") == 0) {
            *out |= RIGHT_ATTENTION_FULL;
        } else if (strcmp(word, "all") == 0) {
            *out |= ALL_RIGHTS;
        } else {
            return false;
        }
    }
    return true;
}

static const key *find(const auth *a, const unsigned char sha[32])
{
    const key *found = NULL;
    for (size_t i = 0; i < a->n; i++) { /* all of them: the time must not tell which one matched */
        if (hash_equal_const_time(a->keys[i].sha, sha, sizeof a->keys[i].sha)) {
            found = &a->keys[i];
        }
    }
    return found;
}

/* Appends the key of one line; a blank or comment line adds nothing. */
static atn_status add_line(auth *a, char *line, unsigned number, atn_err *err)
{
    char *save = NULL;
    char *secret = strtok_r(line, " \t\r\n", &save);
    if (secret == NULL || secret[0] == '#') {
        return ATN_OK;
    }
    char *name = strtok_r(NULL, " \t\r\n", &save), *rights = strtok_r(NULL, " \t\r\n", &save);
    if (rights == NULL || strtok_r(NULL, " \t\r\n", &save) != NULL) {
        return atn_fail(err, ATN_INVALID, "api-key-file", "line %u: must be KEY NAME RIGHTS", number);
    }
    if (strlen(secret) > MAX_KEY_BYTES || strlen(name) > MAX_NAME_BYTES) {
        return atn_fail(err, ATN_INVALID, "api-key-file", "line %u: a key has at most %d bytes, a name %d", number,
                        MAX_KEY_BYTES, MAX_NAME_BYTES);
    }
    key k = {0};
    if (!parse_rights(rights, &k.rights)) {
        return atn_fail(err, ATN_INVALID, "api-key-file",
                        "line %u: rights are infer, admin, attention or all, apart by commas", number);
    }
    hash_sha256(secret, strlen(secret), k.sha);
    if (find(a, k.sha) != NULL) {
        return atn_fail(err, ATN_INVALID, "api-key-file", "line %u: this key is there already", number);
    }
    if (a->n == MAX_KEYS) {
        return atn_fail(err, ATN_INVALID, "api-key-file", "more than %d keys", MAX_KEYS);
    }
    key *grown = realloc(a->keys, (a->n + 1) * sizeof *grown);
    if (grown == NULL) {
        return atn_fail(err, ATN_NOMEM, "api-key-file", "no memory for keys");
    }
    memcpy(k.name, name, strlen(name) + 1);
    k.domain = hash_bytes(a->k0, a->k1, k.sha, sizeof k.sha);
    a->keys = grown;
    a->keys[a->n++] = k;
    return ATN_OK;
}

static atn_status read_file(auth *a, const char *path, atn_err *err)
{
    FILE *f = fopen(path, "re");
    struct stat st;
    if (f == NULL) {
        return atn_fail(err, ATN_IO, "api-key-file", "cannot open it: %s", strerror(errno));
    }
    atn_status s = ATN_OK;
    if (fstat(fileno(f), &st) != 0 || !S_ISREG(st.st_mode)) {
        s = atn_fail(err, ATN_IO, "api-key-file", "not a regular file");
    }
    char line[MAX_LINE];
    for (unsigned number = 1; s == ATN_OK && fgets(line, sizeof line, f) != NULL; number++) {
        if (strlen(line) == sizeof line - 1 && line[sizeof line - 2] != '\n') {
            s = atn_fail(err, ATN_INVALID, "api-key-file", "line %u: over %d bytes", number, MAX_LINE - 2);
        } else {
            s = add_line(a, line, number, err);
        }
    }
    if (s == ATN_OK && ferror(f)) {
        s = atn_fail(err, ATN_IO, "api-key-file", "cannot read it");
    }
    explicit_bzero(line, sizeof line);
    (void)fclose(f);
    if (s == ATN_OK && a->n == 0) {
        s = atn_fail(err, ATN_INVALID, "api-key-file", "holds no key");
    }
    return s;
}

atn_status auth_open(const char *path, auth **out, atn_err *err)
{
    *out = NULL;
    auth *a = calloc(1, sizeof *a);
    if (a == NULL) {
        return atn_fail(err, ATN_NOMEM, NULL, "no memory for keys");
    }
    uint64_t seed[2];
    atn_status s = ATN_OK;
    if (getrandom(seed, sizeof seed, 0) != (ssize_t)sizeof seed) {
        s = atn_fail(err, ATN_IO, NULL, "the system gives no random numbers");
    } else {
        a->k0 = seed[0];
        a->k1 = seed[1];
        a->file_given = path != NULL;
        s = path != NULL ? read_file(a, path, err) : ATN_OK;
    }
    if (s != ATN_OK) {
        auth_close(a);
        return s;
    }
    *out = a;
    return ATN_OK;
}

void auth_close(auth *a)
{
    if (a != NULL) {
        free(a->keys);
        free(a);
    }
}

atn_status auth_check(const auth *a, const char *authorization, const char *x_api_key, identity *who, atn_err *err)
{
    *who = (identity){.name = "anonymous"};
    if (!a->file_given) {
        who->rights = ALL_RIGHTS;
        who->key_hash = hash_bytes(a->k0, a->k1, "", 0);
        return ATN_OK;
    }
    const char *secret = x_api_key;
    if (authorization != NULL) {
        secret =
            strncasecmp(authorization, "Bearer ", 7) == 0 ? authorization + 7 + strspn(authorization + 7, " ") : NULL;
    }
    unsigned char sha[32];
    hash_sha256(secret != NULL ? secret : "", secret != NULL ? strlen(secret) : 0, sha);
    const key *k = find(a, sha);
    if (k == NULL) {
        return atn_fail(err, ATN_UNAUTHENTICATED, NULL,
                        secret == NULL ? "an API key is needed: Authorization: Bearer KEY" : "unknown API key");
    }
    *who = (identity){.name = k->name, .rights = k->rights, .key_hash = k->domain};
    return ATN_OK;
}
