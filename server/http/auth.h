/* Who asks: API keys, their names and rights.
 *
 * The key file holds one key a line, "KEY NAME RIGHTS", fields apart by blanks; RIGHTS is a comma list of infer, admin,
 * attention, or "all"; '#' begins a comment line. Keys are kept as SHA-256 only, and a presented key is compared with every
 * one of them in constant time. Without a file everybody has all rights.
 * Thread: immutable once open. */
#ifndef ATTND_AUTH_H
#define ATTND_AUTH_H

#include "server/api/exchange.h"

typedef struct auth auth;

/* path NULL: no keys. Errors name the line: ATN_IO, ATN_INVALID, ATN_NOMEM. */
atn_status auth_open(const char *path, auth **out, atn_err *err) ATN_MUST_CHECK;
void auth_close(auth *a); /* NULL is fine */
/* Header values, NULL when absent: "Authorization: Bearer KEY", else "x-api-key: KEY".
 * ATN_UNAUTHENTICATED: keys exist and none of them came; who is then anonymous without rights. */
atn_status auth_check(const auth *a, const char *authorization, const char *x_api_key, identity *who,
                      atn_err *err) ATN_MUST_CHECK;

#endif
