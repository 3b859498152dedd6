/* The table of pre-tokenizers, and the walk that applies their stages.
 *
 * Patterns are written as published, with two changes. White space is the Unicode property White_Space, spelled out, because
 * PCRE2's own \s also takes U+180E. And DeepSeek's \s+$ looks behind first, since otherwise every start in a long run of
 * spaces would be tried to its end: that is the only pattern here that is not linear as published.
 * Where a model publishes a component instead of a pattern (Digits, Punctuation, ByteLevel), the stage is its pattern. */
#define PCRE2_CODE_UNIT_WIDTH 8
#include "core/token/pretokenizer.h"

#include <pcre2.h>
#include <stdlib.h>
#include <string.h>

#define WS           "\\p{Z}\\t-\\r\\x{85}" /* \s, inside brackets */
#define SPACES       "[" WS "]+(?![^" WS "])|[" WS "]+"
#define LINES        "[" WS "]*[\\r\\n]+"
#define ENGLISH      "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define NO_WORD      "[^\\r\\n\\p{L}\\p{N}]?"
#define SYMBOLS      " ?[^" WS "\\p{L}\\p{N}]+"
#define UPPER        "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define LOWER        "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define GPT2         "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+|" SYMBOLS "|" SPACES
#define BLOOM        " ?[^(" WS "|.,!?…。，、।۔،)]+"
#define HAN_KANA     "[一-龥぀-ゟ゠-ヿ]+"
#define DEEPSEEK_CJK "[一-龥ࠀ-一가-\\x{D7FF}]+"
/* Letters of the scripts with case, as deepseek-llm lists them. The formatter counts their bytes: it stays out. */
/* clang-format off */
#define DEEPSEEK_LETTERS \
    "A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽ" \
    "ᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚḀ-ἕἘ-Ἕἠ-ὅὈ-Ὅὐ-ὗὙὛὝὟ-ώᾀ-ᾴᾶ-ᾼιῂ-ῄῆ-ῌῐ-ΐῖ-Ίῠ-Ῥ" \
    "ῲ-ῴῶ-ῼℂℇℊ-ℓℕℙ-ℝℤΩℨK-ℭℯ-ℴℹℼ-ℿⅅ-ⅉⅎↃↄⰀ-ⱻⱾ-ⳤⳫ-ⳮⳲⳳꙀ-ꙭꚀ-ꚛꜢ-ꝯꝱ-ꞇꞋ-ꞎ" \
    "ꭰ-ꮿﬀ-ﬆﬓ-ﬗＡ-Ｚａ-ｚ𐐀-𐑏𐒰-𐓓𐓘-𐓻𐲀-𐲲𐳀-𐳲𑢠-𑣟𞤀-𞥃"
/* clang-format on */

static const pre_spec table[] = {
    {"default", false, false, {"[\\p{P}$+<=>^~|]+", GPT2, "\\p{N}+", "[0-9][0-9][0-9]"}},
    {"gpt-2 phi-2 mpt olmo jais trillion granite-docling exaone4 gigachat a.x-4.0 mellum", false, false, {GPT2}},
    {"llama-bpe llama3 llama-v3 falcon3 falcon-h1 pixtral midm-2.0 lfm2",
     true,
     true,
     {ENGLISH "|" NO_WORD "\\p{L}+|\\p{N}{1,3}|" SYMBOLS "[\\r\\n]*|" LINES "|" SPACES}},
    {"dbrx smaug-bpe chatglm-bpe glm4",
     false,
     false,
     {ENGLISH "|" NO_WORD "\\p{L}+|\\p{N}{1,3}|" SYMBOLS "[\\r\\n]*|" LINES "|" SPACES}},
    {"qwen2 deepseek-r1-qwen stablelm2 megrez hunyuan solar-open grok-2 kormo f2llmv2 bailingmoe "
     "bailingmoe2 llada-moe",
     false,
     false,
     {ENGLISH "|" NO_WORD "\\p{L}+|\\p{N}|" SYMBOLS "[\\r\\n]*|" LINES "|" SPACES}},
    {"qwen35",
     false,
     false,
     {ENGLISH "|" NO_WORD "[\\p{L}\\p{M}]+|\\p{N}| ?[^" WS "\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|" LINES "|" SPACES}},
    {"smollm starcoder refact command-r codeshell exaone minerva-7b mellum2", false, false, {"\\p{N}", GPT2}},
    {"deepseek-llm",
     false,
     false,
     {"[\\r\\n]", "[" WS "]?[" DEEPSEEK_LETTERS "]+", "[" WS "]?[!-/:-~！-／：-～‘-‟　-。]+",
      "(?<![" WS "])[" WS "]+\\z", DEEPSEEK_CJK, "\\p{N}"}},
    {"deepseek-coder", false, false, {"[\\r\\n]", "[" WS "]?\\p{L}+", "[" WS "]?\\p{P}+", DEEPSEEK_CJK, "\\p{N}"}},
    {"deepseek-v3 hunyuan-dense joyai-llm",
     false,
     false,
     {"\\p{N}{1,3}", HAN_KANA,
      "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+|"
      " ?[\\p{P}\\p{S}]+[\\r\\n]*|" LINES "|" SPACES}},
    {"tekken",
     true,
     true,
     {NO_WORD UPPER "*" LOWER "+|" NO_WORD UPPER "+" LOWER "*|\\p{N}|" SYMBOLS "[\\r\\n/]*|" LINES "|" SPACES}},
    {"gpt-4o llama4 kanana2 talkie minimax-m2",
     false,
     false,
     {NO_WORD UPPER "*" LOWER "+" ENGLISH "?|" NO_WORD UPPER "+" LOWER "*" ENGLISH "?|\\p{N}{1,3}|" SYMBOLS
                    "[\\r\\n/]*|" LINES "|" SPACES}},
    {"falcon", false, false, {"[\\p{P}$+<=>^~|`]+", GPT2, "[0-9][0-9][0-9]"}},
    {"bloom poro-chat gpt3-finnish", false, false, {BLOOM}},
    {"viking", false, false, {BLOOM, "\\p{N}"}},
    {"seed-coder",
     false,
     false,
     {ENGLISH "|" NO_WORD "\\p{L}+|\\p{N}| ?[^" WS "\\p{L}\\p{N}\\r\\n]+|" LINES "|" SPACES}},
};

struct pretokenizer {
    pcre2_code *stages[PRE_MAX_STAGES];
    size_t n_stages;
};

/* One stage at work on a piece: the bytes [from, to) of the text, done up to `at`; the next match is [match, match_end). */
typedef struct level {
    size_t from, at, to;
    size_t match, match_end;
} level;

struct pre_walk {
    const pretokenizer *p;
    const char *text;
    level levels[PRE_MAX_STAGES];
    size_t depth; /* levels in use */
    pcre2_match_data *found;
    pcre2_match_context *limits;
    pcre2_jit_stack *stack;
};

static bool names_hold(const char *names, const char *name, size_t n)
{
    for (const char *at = names; *at != '\0';) {
        size_t len = strcspn(at, " ");
        if (len == n && memcmp(at, name, n) == 0) {
            return true;
        }
        at += len + (at[len] == ' ');
    }
    return false;
}

const pre_spec *pre_at(size_t i)
{
    return i < sizeof table / sizeof table[0] ? &table[i] : NULL;
}

const pre_spec *pre_find(const char *name, size_t n)
{
    for (size_t i = 0; pre_at(i) != NULL; i++) {
        if (names_hold(table[i].names, name, n)) {
            return &table[i];
        }
    }
    return NULL;
}

atn_status pre_open(const pre_spec *spec, pretokenizer **out, atn_err *err)
{
    *out = NULL;
    pretokenizer *p = calloc(1, sizeof *p);
    if (p == NULL) {
        return atn_fail(err, ATN_NOMEM, NULL, "no memory for the pre-tokenizer");
    }
    for (; p->n_stages < PRE_MAX_STAGES && spec->stages[p->n_stages] != NULL; p->n_stages++) {
        int code;
        size_t where;
        pcre2_code *re = pcre2_compile((PCRE2_SPTR)spec->stages[p->n_stages], PCRE2_ZERO_TERMINATED,
                                       PCRE2_UTF | PCRE2_UCP, &code, &where, NULL);
        if (re == NULL) {
            pre_close(p);
            if (code == PCRE2_ERROR_HEAP_FAILED) {
                return atn_fail(err, ATN_NOMEM, NULL, "no memory for the pre-tokenizer");
            }
            return atn_fail(err, ATN_INTERNAL, "tokenizer.ggml.pre", "pattern does not compile: error %d at %zu", code,
                            where);
        }
        (void)pcre2_jit_compile(re, PCRE2_JIT_COMPLETE); /* without it the interpreter runs the same pattern */
        p->stages[p->n_stages] = re;
    }
    *out = p;
    return ATN_OK;
}

void pre_close(pretokenizer *p)
{
    if (p == NULL) {
        return;
    }
    for (size_t i = 0; i < p->n_stages; i++) {
        pcre2_code_free(p->stages[i]);
    }
    free(p);
}

atn_status pre_walk_open(const pretokenizer *p, pre_walk **out, atn_err *err)
{
    enum { JIT_STACK_MIN = 32 << 10, JIT_STACK_MAX = 256 << 10, HEAP_KIB = 16 << 10 };
    *out = NULL;
    pre_walk *w = calloc(1, sizeof *w);
    if (w == NULL) {
        return atn_fail(err, ATN_NOMEM, NULL, "no memory to tokenize");
    }
    w->p = p;
    w->found = pcre2_match_data_create(1, NULL);
    w->limits = pcre2_match_context_create(NULL);
    if (w->found == NULL || w->limits == NULL) {
        pre_walk_close(w);
        return atn_fail(err, ATN_NOMEM, NULL, "no memory to tokenize");
    }
    /* One match tries each position of its run a few times; the patterns hold no nested repeats. */
    (void)pcre2_set_match_limit(w->limits, UINT32_MAX);
    (void)pcre2_set_heap_limit(w->limits, HEAP_KIB);
    w->stack = pcre2_jit_stack_create(JIT_STACK_MIN, JIT_STACK_MAX, NULL); /* NULL where there is no JIT */
    if (w->stack != NULL) {
        pcre2_jit_stack_assign(w->limits, NULL, w->stack);
    }
    *out = w;
    return ATN_OK;
}

void pre_walk_close(pre_walk *w)
{
    if (w == NULL) {
        return;
    }
    pcre2_match_data_free(w->found);
    pcre2_match_context_free(w->limits);
    pcre2_jit_stack_free(w->stack);
    free(w);
}

void pre_walk_start(pre_walk *w, const char *text, size_t n)
{
    w->text = text;
    w->levels[0] = (level){.to = n};
    w->depth = 1;
}

/* Finds the next match of stage s at or behind lv->at; none: an empty one at the end. */
static atn_status search(pre_walk *w, size_t s, level *lv, atn_err *err)
{
    PCRE2_SPTR piece = (PCRE2_SPTR)w->text + lv->from;
    uint32_t options = PCRE2_NO_UTF_CHECK;
    int rc = pcre2_match(w->p->stages[s], piece, lv->to - lv->from, lv->at - lv->from, options, w->found, w->limits);
    if (rc == PCRE2_ERROR_JIT_STACKLIMIT) {
        options |= PCRE2_NO_JIT;
        rc = pcre2_match(w->p->stages[s], piece, lv->to - lv->from, lv->at - lv->from, options, w->found, w->limits);
    }
    const size_t *span = pcre2_get_ovector_pointer(w->found);
    if (rc == PCRE2_ERROR_NOMEMORY) {
        return atn_fail(err, ATN_NOMEM, NULL, "no memory to tokenize");
    }
    if (rc < 0 && rc != PCRE2_ERROR_NOMATCH) {
        return atn_fail(err, ATN_INTERNAL, NULL, "the pre-tokenizer failed: PCRE2 error %d", rc);
    }
    bool none = rc == PCRE2_ERROR_NOMATCH || span[0] == span[1];
    lv->match = none ? lv->to : lv->from + span[0];
    lv->match_end = none ? lv->to : lv->from + span[1];
    return ATN_OK;
}

atn_status pre_walk_next(pre_walk *w, size_t *from, size_t *to, atn_err *err)
{
    for (;;) {
        level *lv = &w->levels[w->depth - 1];
        if (lv->at == lv->to) {
            if (w->depth == 1) {
                *from = *to = lv->to;
                return ATN_OK;
            }
            w->depth--;
            continue;
        }
        if (lv->at >= lv->match_end) {
            ATN_TRY(search(w, w->depth - 1, lv, err));
        }
        *from = lv->at;
        *to = lv->at < lv->match ? lv->match : lv->match_end; /* what lies before the match, or the match */
        lv->at = *to;
        if (w->depth == w->p->n_stages) {
            return ATN_OK;
        }
        w->levels[w->depth++] = (level){*from, *from, *to, *from, *from};
    }
}
