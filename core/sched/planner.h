/* The batch planner: policy as a pure function. Arrays in, a plan out: no clock, no I/O, no locks.
 *
 * Every step each running sequence that may decode gets one row first, then the rest of the token budget goes to prefill
 * chunks, oldest admission first. While prompts wait a quarter of the rows and one output are theirs, so that neither kind
 * starves the other; decoders beyond their part take turns, those served longest ago first. Sequences whose reader stalls are
 * passed over. Tests assert plans as text. */
#ifndef ATN_PLANNER_H
#define ATN_PLANNER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum plan_kind { PLAN_PREFILL, PLAN_DECODE } plan_kind; /* encode joins here */

typedef struct plan_seq {
    uint32_t id;           /* the caller's name for it */
    uint64_t admitted;     /* order of admission */
    uint64_t last_served;  /* rises from item to item: when it was last served; 0: not yet */
    uint32_t prefill_left; /* prompt tokens not yet computed; 0: it decodes */
    bool wants_all_rows;   /* prefill rows are all outputs (prompt logprobs) */
    bool paused;           /* its ring is full */
} plan_seq;

typedef struct plan_limits {
    uint32_t step_tokens; /* rows a step */
    uint32_t max_out;     /* logits rows a step */
} plan_limits;

typedef struct plan_item {
    plan_kind kind;
    uint32_t seq; /* index into seqs */
    uint32_t n;   /* rows */
} plan_item;

/* How many sequences a step serves, if each decoder is to get a row at least every second step, whatever prompts wait. */
uint32_t plan_most_seqs(uint32_t step_tokens);
/* items has room for n_seqs. Returns the number of items: decodes, then prefills. Deterministic. */
size_t plan_step(const plan_seq *seqs, size_t n_seqs, const plan_limits *lim, plan_item *items);

#endif
