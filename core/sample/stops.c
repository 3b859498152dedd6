/* Aho-Corasick over bytes (Aho & Corasick 1975: Efficient string matching).
 *
 * States are the nodes of a trie of all strings, 0 the root, so that a state's depth is the length of the longest suffix
 * of the text that some string begins with. Children hang in a sibling list: there are at most as many as strings, and the
 * automaton stays a few dozen bytes for each byte of a stop string. */
#include "core/sample/stops.h"

#include <stdlib.h>
#include <string.h>

enum { NO_STRING = UINT32_MAX };

typedef struct node {
    uint32_t child, sibling; /* 0: none, as the root is nobody's child */
    uint32_t fail;           /* the longest proper suffix that is a node too */
    uint32_t depth;
    uint32_t string; /* the longest string that ends here, NO_STRING when none does */
    unsigned char byte;
} node;

struct stops {
    uint32_t n_nodes;
    node nodes[];
};

static uint32_t child_of(const stops *s, uint32_t state, unsigned char byte)
{
    uint32_t c = s->nodes[state].child;
    while (c != 0 && s->nodes[c].byte != byte) {
        c = s->nodes[c].sibling;
    }
    return c;
}

static uint32_t step(const stops *s, uint32_t state, unsigned char byte)
{
    for (;;) {
        const uint32_t next = child_of(s, state, byte);
        if (next != 0 || state == 0) {
            return next;
        }
        state = s->nodes[state].fail;
    }
}

static void add_string(stops *s, uint32_t index, const char *bytes, size_t n)
{
    uint32_t state = 0;

    for (size_t i = 0; i < n; i++) {
        const unsigned char byte = (unsigned char)bytes[i];
        uint32_t next = child_of(s, state, byte);
        if (next == 0) {
            next = s->n_nodes++;
            s->nodes[next] = (node){.sibling = s->nodes[state].child,
                                    .depth = s->nodes[state].depth + 1,
                                    .string = NO_STRING,
                                    .byte = byte};
            s->nodes[state].child = next;
        }
        state = next;
    }
    if (s->nodes[state].string == NO_STRING) {
        s->nodes[state].string = index; /* of equal strings the first is the one reported */
    }
}

/* Breadth first: a node's fail link is shorter than the node, so it is complete before it is needed. */
static void link_failures(stops *s, uint32_t *queue)
{
    size_t head = 0, tail = 0;

    queue[tail++] = 0;
    while (head < tail) {
        const uint32_t parent = queue[head++];
        for (uint32_t c = s->nodes[parent].child; c != 0; c = s->nodes[c].sibling) {
            node *n = &s->nodes[c];
            n->fail = parent == 0 ? 0 : step(s, s->nodes[parent].fail, n->byte);
            if (n->string == NO_STRING) {
                n->string = s->nodes[n->fail].string;
            }
            queue[tail++] = c;
        }
    }
}

atn_status stops_new(const char *const *strings, const size_t *lens, uint32_t n, stops **out, atn_err *err)
{
    size_t max_nodes = 1;

    for (uint32_t i = 0; i < n; i++) {
        if (lens[i] == 0) {
            return atn_fail(err, ATN_INVALID, "stop", "a stop string must not be empty");
        }
        if (lens[i] > UINT32_MAX / 64 || max_nodes + lens[i] > UINT32_MAX / 64) {
            return atn_fail(err, ATN_TOO_LARGE, "stop", "stop strings are too long together");
        }
        max_nodes += lens[i];
    }
    stops *s = calloc(1, sizeof *s + max_nodes * sizeof(node));
    uint32_t *queue = malloc(max_nodes * sizeof *queue);
    if (!s || !queue) {
        free(s);
        free(queue);
        return atn_fail(err, ATN_NOMEM, "stop", "no memory for %zu bytes of stop strings", max_nodes - 1);
    }
    s->n_nodes = 1;
    s->nodes[0].string = NO_STRING;
    for (uint32_t i = 0; i < n; i++) {
        add_string(s, i, strings[i], lens[i]);
    }
    link_failures(s, queue);
    free(queue);
    *out = s;
    return ATN_OK;
}

void stops_free(stops *s)
{
    free(s);
}

bool stops_feed(const stops *s, uint32_t *state, const char *bytes, size_t n, size_t *used, uint32_t *which)
{
    for (size_t i = 0; i < n; i++) {
        *state = step(s, *state, (unsigned char)bytes[i]);
        if (s->nodes[*state].string != NO_STRING) {
            *used = i + 1;
            *which = s->nodes[*state].string;
            return true;
        }
    }
    return false;
}

uint32_t stops_pending(const stops *s, uint32_t state)
{
    return s->nodes[state].depth;
}
