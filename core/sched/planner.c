/* The planner's policy, see planner.h. Sequences are few (max_sequences), so picking is a plain scan. */
#include "core/sched/planner.h"

static uint32_t min_u32(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

static bool may_run(const plan_seq *s, plan_kind kind)
{
    return !s->paused && (s->prefill_left == 0) == (kind == PLAN_DECODE);
}

/* Is a to be served before b? Decoders take turns; prompts go in order of admission. */
static bool before(const plan_seq *a, const plan_seq *b, plan_kind kind)
{
    if (kind == PLAN_DECODE && a->last_served != b->last_served) {
        return a->last_served < b->last_served;
    }
    return a->admitted != b->admitted ? a->admitted < b->admitted : a->id < b->id;
}

/* Puts the indices of all that may run behind each other, in the order of service. Returns how many. */
static size_t in_order(const plan_seq *seqs, size_t n_seqs, plan_kind kind, plan_item *items)
{
    size_t n = 0;

    for (size_t i = 0; i < n_seqs; i++) {
        if (!may_run(&seqs[i], kind)) {
            continue;
        }
        size_t at = n++;
        while (at > 0 && before(&seqs[i], &seqs[items[at - 1].seq], kind)) {
            items[at] = items[at - 1];
            at--;
        }
        items[at] = (plan_item){.kind = kind, .seq = (uint32_t)i};
    }
    return n;
}

/* Rows of a prompt that fit: its last row is an output, or each one is. */
static uint32_t chunk(const plan_seq *s, uint32_t rows, uint32_t outs)
{
    uint32_t n = min_u32(s->prefill_left, rows);

    if (s->wants_all_rows) {
        return min_u32(n, outs);
    }
    return n == s->prefill_left && outs == 0 ? n - 1 : n;
}

/* Rows for decoding while prompts wait. A lone row cannot be shared: then decoding has it, and prompts wait until the decoders
 * are done. */
static uint32_t decoders_rows(uint32_t rows)
{
    return rows - (rows < 4 ? rows > 1 : rows / 4);
}

uint32_t plan_most_seqs(uint32_t step_tokens)
{
    return 2 * decoders_rows(step_tokens);
}

size_t plan_step(const plan_seq *seqs, size_t n_seqs, const plan_limits *lim, plan_item *items)
{
    uint32_t rows = lim->step_tokens, outs = lim->max_out;
    uint32_t decode_rows = min_u32(rows, outs);
    bool prompts = false;

    for (size_t i = 0; i < n_seqs; i++) {
        prompts = prompts || may_run(&seqs[i], PLAN_PREFILL);
    }
    if (prompts) {
        decode_rows = min_u32(decoders_rows(rows), outs - (outs > 1));
    }
    const size_t n_decode = min_u32((uint32_t)in_order(seqs, n_seqs, PLAN_DECODE, items), decode_rows);
    for (size_t i = 0; i < n_decode; i++) {
        items[i].n = 1;
    }
    rows -= (uint32_t)n_decode;
    outs -= (uint32_t)n_decode;

    const size_t n_prefill = in_order(seqs, n_seqs, PLAN_PREFILL, items + n_decode);
    size_t n = n_decode;
    for (size_t i = n_decode; i < n_decode + n_prefill && rows > 0; i++) {
        const plan_seq *s = &seqs[items[i].seq];
        const uint32_t take = chunk(s, rows, outs);
        if (take == 0) {
            continue;
        }
        items[n] = items[i];
        items[n++].n = take;
        rows -= take;
        outs -= s->wants_all_rows ? take : take == s->prefill_left;
    }
    return n;
}
