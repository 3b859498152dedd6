/* Stop strings: an Aho-Corasick automaton (Aho & Corasick 1975) over token bytes, built at admission, stepped on the engine
 * thread without allocation. Thread: one owner; a built automaton may be shared, the state is a number. */
#ifndef ATN_STOPS_H
#define ATN_STOPS_H

#include <attnd/status.h>
#include <stdbool.h>
#include <stdint.h>

typedef struct stops stops;

/* strings[i] has lens[i] >= 1 bytes. n = 0 gives an automaton that never matches. */
atn_status stops_new(const char *const *strings, const size_t *lens, uint32_t n, stops **out,
                     atn_err *err) ATN_MUST_CHECK;
void stops_free(stops *s);
/* Feeds bytes from *state (0 at the start). True at the first full match: *used = bytes consumed up to and with its last
 * byte, *which = the string (the one that ends first; of those, the one that starts first). */
bool stops_feed(const stops *s, uint32_t *state, const char *bytes, size_t n, size_t *used, uint32_t *which);
/* Length of the longest suffix of the text so far that may yet become a stop string. */
uint32_t stops_pending(const stops *s, uint32_t state);

#endif
