/* The lazy order of candidates, see ranking.h. */
#include "core/sample/ranking.h"

#include <string.h>

uint64_t ranking_key(float value, uint32_t id)
{
    uint32_t bits;

    value += 0.0f; /* -0 becomes +0, as they are equal */
    memcpy(&bits, &value, sizeof bits);
    const uint32_t ascending = bits & 0x80000000u ? ~bits : bits | 0x80000000u;
    return (uint64_t)~ascending << 32 | id;
}

uint32_t ranking_id(uint64_t key)
{
    return (uint32_t)key;
}

/* top is the heap's root, the array's last element; heap element i lies at top[-i]. */
static void sift_down(uint64_t *top, uint32_t i, uint32_t n)
{
    const uint64_t moving = top[-(ptrdiff_t)i];

    for (;;) {
        uint32_t child = 2 * i + 1;
        if (child >= n) {
            break;
        }
        if (child + 1 < n && top[-(ptrdiff_t)(child + 1)] < top[-(ptrdiff_t)child]) {
            child++;
        }
        if (moving < top[-(ptrdiff_t)child]) {
            break;
        }
        top[-(ptrdiff_t)i] = top[-(ptrdiff_t)child];
        i = child;
    }
    top[-(ptrdiff_t)i] = moving;
}

void ranking_start(ranking *r, uint64_t *key, uint32_t n)
{
    *r = (ranking){.key = key, .n = n};
    for (uint32_t i = n / 2; i-- > 0;) {
        sift_down(key + n - 1, i, n);
    }
}

static void pop(ranking *r)
{
    uint64_t *top = r->key + r->n - 1;
    const uint64_t best = *top;

    *top = r->key[r->ranked]; /* the heap's last element makes room */
    r->key[r->ranked++] = best;
    sift_down(top, 0, r->n - r->ranked);
}

uint32_t ranking_at(ranking *r, uint32_t i)
{
    while (r->ranked <= i) {
        pop(r);
    }
    return ranking_id(r->key[i]);
}
