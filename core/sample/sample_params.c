/* Sampling parameters: their neutral values and their ranges. */
#include <attnd/sampler.h>

#include <math.h>

static const float max_repetition = 100, max_bias = 10000;

atn_sample_params atn_sample_defaults(void)
{
    return (atn_sample_params){.top_p = 1, .typical_p = 1, .repetition_penalty = 1};
}

/* Written so that a NaN is out of range. */
static atn_status check_range(float value, float low, float high, const char *name, atn_err *err)
{
    if (!(value >= low && value <= high)) {
        return atn_fail(err, ATN_INVALID, name, "%s must be from %g to %g", name, (double)low, (double)high);
    }
    return ATN_OK;
}

static atn_status check_share(float value, const char *name, atn_err *err)
{
    if (!(value > 0 && value <= 1)) {
        return atn_fail(err, ATN_INVALID, name, "%s must be above 0 and at most 1", name);
    }
    return ATN_OK;
}

static atn_status check_bias(const atn_sample_params *p, uint32_t n_vocab, atn_err *err)
{
    if (p->n_bias > ATN_MAX_LOGIT_BIAS) {
        return atn_fail(err, ATN_INVALID, "logit_bias", "%u entries, at most %d are allowed", p->n_bias,
                        ATN_MAX_LOGIT_BIAS);
    }
    for (uint32_t i = 0; i < p->n_bias; i++) {
        const float b = p->bias[i].bias;
        if (p->bias[i].id < 0 || (uint32_t)p->bias[i].id >= n_vocab) {
            return atn_fail(err, ATN_INVALID, "logit_bias", "token id %d out of range 0..%u", p->bias[i].id,
                            n_vocab - 1);
        }
        if (b != -INFINITY && !(b >= -max_bias && b <= max_bias)) {
            return atn_fail(err, ATN_INVALID, "logit_bias", "a bias must be from %g to %g, or minus infinity",
                            (double)-max_bias, (double)max_bias);
        }
    }
    return ATN_OK;
}

atn_status atn_sample_check(const atn_sample_params *p, uint32_t n_vocab, atn_err *err)
{
    ATN_TRY(check_range(p->temperature, 0, 100, "temperature", err));
    if (p->top_k < 0) {
        return atn_fail(err, ATN_INVALID, "top_k", "top_k must be 0 (off) or more");
    }
    ATN_TRY(check_share(p->top_p, "top_p", err));
    ATN_TRY(check_range(p->min_p, 0, 1, "min_p", err));
    ATN_TRY(check_share(p->typical_p, "typical_p", err));
    if (!(p->repetition_penalty > 0 && p->repetition_penalty <= max_repetition)) {
        return atn_fail(err, ATN_INVALID, "repetition_penalty", "repetition_penalty must be above 0 and at most %g",
                        (double)max_repetition);
    }
    ATN_TRY(check_range(p->frequency_penalty, -2, 2, "frequency_penalty", err));
    ATN_TRY(check_range(p->presence_penalty, -2, 2, "presence_penalty", err));
    if (p->n_top > ATN_MAX_TOP) {
        return atn_fail(err, ATN_INVALID, "n_top", "n_top must be at most %d", ATN_MAX_TOP);
    }
    return check_bias(p, n_vocab, err);
}
