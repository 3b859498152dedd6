/* The generation parameters that all doors share: one struct, one set of ranges, one place that reads them.
 *
 * A door fills a gen_params with its own defaults, reads the common fields with params_read_*, reads the names that only
 * it has with fields_*, and moves the struct into a turn_spec. Owns its memory, so the parsed body may go at once.
 * Thread: any, but for request_head_read, which is the loop thread's. */
#ifndef ATTND_API_PARAMS_H
#define ATTND_API_PARAMS_H

#include "server/api/api.h"
#include "server/api/json.h"
#include "server/session/session.h"

enum { PARAMS_MAX_STOPS = 16 }; /* stop strings that a request may name */

typedef struct gen_params {
    atn_sample_params sample;       /* sample.bias points into `bias` */
    atn_logit_bias *bias;           /* malloc'ed, [sample.n_bias] */
    bool has_temperature, has_seed; /* the request named them */
    bool has_max_new;
    uint32_t max_new_tokens;       /* when has_max_new; else the turn takes the server's default or what is left */
    uint32_t n_choices;            /* 1 .. ATN_MAX_CHOICES, a prompt */
    atn_stop stops[ATN_MAX_STOPS]; /* bytes point into stop_bytes, or are static */
    uint32_t n_stops;
    char *stop_bytes; /* malloc'ed */
    int32_t stop_ids[ATN_MAX_STOP_IDS];
    uint32_t n_stop_ids;
    bool ignore_eos, prompt_logprobs;
    uint32_t deadline_ms; /* 0: none */
} gen_params;

/* atn_sample_defaults (greedy), one choice, nothing else. */
void params_init(gen_params *p);
void params_free(gen_params *p); /* NULL members are fine */

/* temperature, top_p, top_k, min_p, typical_p, repetition_penalty, frequency_penalty, presence_penalty, seed, logit_bias,
 * stop_token_ids, ignore_eos: ranges as in attnd/sampler.h; top_k -1 and everything at or above the vocabulary is 0 (off).
 * A seed is drawn when none is named, so that the answer can always be repeated. ATN_INVALID names the field. */
atn_status params_read_sampling(fields *f, uint32_t n_vocab, gen_params *p, atn_err *err) ATN_MUST_CHECK;
/* A string or an array of strings under `name`: 1 .. ATN_MAX_STOP_BYTES bytes each, at most PARAMS_MAX_STOPS. */
atn_status params_read_stop(fields *f, const char *name, gen_params *p, atn_err *err) ATN_MUST_CHECK;
/* The token limit under `name`, 0 (prompt only) .. 2^31-1; absent: what p has stays. */
atn_status params_read_max_new(fields *f, const char *name, gen_params *p, atn_err *err) ATN_MUST_CHECK;

/* What a request says besides its body, as far as reading the body needs it: copies, which outlive the exchange. */
typedef struct request_head {
    uint64_t key_hash;                   /* of the key that asks */
    atn_domain domain;                   /* the key's, mixed with header x-cache-salt */
    bool has_session_id;                 /* header x-session-id or X-Conversation-Id */
    char session_id[SESSION_ID_MAX + 2]; /* one that is too long is cut, and still too long */
    char request_id[128];
} request_head;

void request_head_read(exchange *x, request_head *out);

/* Which session a request means, and in whose domain it runs: the head's, or members session_id, create, turn, cache_salt,
 * and deadline_ms. */
typedef struct session_ref {
    atn_domain domain;
    char id[SESSION_ID_MAX + 1]; /* "": none named */
    bool create;
    bool has_turn;
    uint32_t turn; /* the number this turn should have, the first is 1 */
} session_ref;

/* f is the top object of the body, NULL when there is none. p (may be NULL) gets deadline_ms. */
atn_status params_read_session(const request_head *head, fields *f, session_ref *out, gen_params *p,
                               atn_err *err) ATN_MUST_CHECK;

#endif
