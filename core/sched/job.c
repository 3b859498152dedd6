/* Making and freeing of jobs, see job.h. */
#include "core/sched/job.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

static atn_status copy_stops(job *j, const atn_request *r, atn_err *err)
{
    const char *strings[ATN_MAX_STOPS] = {0};
    size_t lens[ATN_MAX_STOPS] = {0};

    for (uint32_t i = 0; i < r->n_stops; i++) {
        strings[i] = r->stops[i].bytes;
        lens[i] = r->stops[i].n;
        j->stop_lens[i] = (uint32_t)r->stops[i].n;
    }
    return stops_new(strings, lens, r->n_stops, &j->stops, err);
}

static void *copy(const void *src, size_t bytes)
{
    void *p = malloc(bytes > 0 ? bytes : 1);
    if (p && bytes > 0) {
        memcpy(p, src, bytes);
    }
    return p;
}

atn_status job_new(const atn_request *r, atn_stream *stream, job **out, atn_err *err)
{
    atn_status st = ATN_OK;
    job *j = calloc(1, sizeof *j + r->n_choices * sizeof j->seqs[0]);

    *out = NULL;
    if (!j) {
        return atn_fail(err, ATN_NOMEM, NULL, "no memory for a request");
    }
    j->domain = r->domain;
    j->sequence = r->sequence;
    j->sample = r->sample;
    j->n_stop_ids = r->n_stop_ids;
    if (r->n_stop_ids > 0) {
        memcpy(j->stop_ids, r->stop_ids, r->n_stop_ids * sizeof j->stop_ids[0]);
    }
    j->ignore_eos = r->ignore_eos;
    j->prompt_logprobs = r->prompt_logprobs;
    j->n_prompt = r->n_tokens;
    j->max_new = r->max_new_tokens;
    j->keep = r->sequence != 0;
    j->n_choices = j->n_live = r->n_choices;
    for (uint32_t c = 0; c < r->n_choices; c++) {
        j->seqs[c] = (job_seq){.job = j, .choice = c, .live = true};
    }
    j->bias = copy(r->sample.bias, r->sample.n_bias * sizeof j->bias[0]);
    j->prompt = copy(r->tokens, r->n_tokens * sizeof j->prompt[0]);
    if (!j->bias || !j->prompt) {
        st = atn_fail(err, ATN_NOMEM, NULL, "no memory for a request of %u tokens", r->n_tokens);
        goto fail;
    }
    j->sample.bias = j->bias;
    st = copy_stops(j, r, err);
    if (st != ATN_OK) {
        goto fail;
    }
    j->stream = stream;
    j->submitted = mono_now();
    if (r->deadline_ms > 0) {
        j->deadline.us = j->submitted.us + (uint64_t)r->deadline_ms * 1000;
    }
    *out = j;
    return ATN_OK;
fail:
    job_free(j);
    return st;
}

void job_free(job *j)
{
    if (!j) {
        return;
    }
    for (uint32_t c = 0; c < j->n_choices; c++) {
        kv_seq_free(j->seqs[c].kv);
        atn_sampler_free(j->seqs[c].sampler);
        free(j->seqs[c].tokens);
    }
    if (j->stream) {
        stream_leave(j->stream);
    }
    kept_free(j->kept_node);
    stops_free(j->stops);
    free(j->bias);
    free(j->prompt);
    free(j);
}

uint32_t job_positions(const job *j)
{
    return j->n_prompt + (j->max_new > 0 ? j->max_new - 1 : 0);
}

void job_list_add(job_list *l, job *j)
{
    j->next = NULL;
    *(l->last ? &l->last->next : &l->first) = j;
    l->last = j;
}

job *job_list_take(job_list *l, job **link)
{
    job *j = *link;

    *link = j->next;
    if (l->last == j) {
        /* link is a field of the job in front, or the list's own first. */
        l->last = link == &l->first ? NULL : (job *)((char *)link - offsetof(job, next));
    }
    j->next = NULL;
    return j;
}
