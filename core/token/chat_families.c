/* What the published chat templates write, family by family (chat.h). Each function follows one template's text: the
 * originals and what a Jinja interpreter makes of them are the fixtures of tests/unit/token/test_chat.c.
 *
 * Two liberties. Gemma 1 and 2 refuse a system message; it is put before the first user message, as Gemma 3 does. And
 * templates that open an assistant turn whether asked or not do so only when asked. */
#include "core/token/chat.h"

#include <string.h>
#include "core/token/vocab.h"

static const char ALTERNATE[] = "roles must alternate user and assistant, after an optional system message";
static const char NO_ROLE[] = "the model's chat template has no such role";

static void content(chat_writer *w, size_t i)
{
    chat_content(w, w->msgs[i].content, w->msgs[i].n);
}

static void stripped(chat_writer *w, size_t i)
{
    const char *s = w->msgs[i].content;
    size_t n = w->msgs[i].n;
    chat_strip(&s, &n);
    chat_content(w, s, n);
}

/* The number of system messages that open the conversation (0 or 1), once the rest is known to alternate from user on. */
static size_t check_alternating(chat_writer *w)
{
    size_t from = w->roles[0] == CHAT_SYSTEM;
    if (from == w->n) {
        chat_refuse(w, 0, "a system message alone is no conversation");
    }
    for (size_t i = from; i < w->n; i++) {
        chat_role due = (i - from) % 2 == 0 ? CHAT_USER : CHAT_ASSISTANT;
        if (w->roles[i] != due) {
            chat_refuse(w, i, w->roles[i] == CHAT_TOOL ? NO_ROLE : ALTERNATE);
        }
    }
    return from;
}

static void check_no_tools(chat_writer *w)
{
    for (size_t i = 0; i < w->n; i++) {
        if (w->roles[i] == CHAT_TOOL) {
            chat_refuse(w, i, NO_ROLE);
        }
    }
}

static void write_plain(chat_writer *w)
{
    for (size_t i = 0; i < w->n; i++) {
        chat_words(w, chat_role_word(w->roles[i]));
        chat_words(w, ": ");
        content(w, i);
        chat_words(w, "\n");
    }
    chat_words(w, w->prompt ? "assistant:" : "");
}

static const char *find_last(const char *s, size_t n, const char *what)
{
    size_t len = strlen(what);
    for (size_t at = n + 1; at-- > 0;) {
        if (n - at >= len && memcmp(s + at, what, len) == 0) {
            return s + at;
        }
    }
    return NULL;
}

static void strip_newlines(const char **s, size_t *n, bool left, bool right)
{
    while (left && *n > 0 && **s == '\n') {
        (*s)++;
        (*n)--;
    }
    while (right && *n > 0 && (*s)[*n - 1] == '\n') {
        (*n)--;
    }
}

/* Qwen 3: a thought is told from the answer by </think>; after the user's last question it is kept, before it left out. */
static void write_thinker(chat_writer *w, size_t i, bool last_turn)
{
    static const char end[] = "</think>";
    const char *all = w->msgs[i].content;
    size_t n_all = w->msgs[i].n;
    const char *answer = all;
    size_t n_answer = n_all;
    const char *thought = all;
    size_t n_thought = 0;
    const char *last = find_last(all, n_all, end);
    if (last != NULL) {
        answer = last + sizeof end - 1;
        n_answer = n_all - (size_t)(answer - all);
        strip_newlines(&answer, &n_answer, true, false);
        const char *first = memmem(all, n_all, end, sizeof end - 1);
        n_thought = (size_t)(first - all);
        strip_newlines(&thought, &n_thought, false, true);
        const char *open = find_last(thought, n_thought, "<think>");
        if (open != NULL) {
            n_thought -= (size_t)(open + 7 - thought);
            thought = open + 7;
        }
        strip_newlines(&thought, &n_thought, true, true);
    }
    if (last_turn && (i + 1 == w->n || n_thought > 0)) {
        chat_words(w, "<think>\n");
        chat_content(w, thought, n_thought);
        chat_words(w, "\n</think>\n\n");
        strip_newlines(&answer, &n_answer, true, false);
    }
    chat_content(w, answer, n_answer);
}

static bool is_tool_response(const atn_chat_message *m)
{
    static const char open[] = "<tool_response>";
    static const char close[] = "</tool_response>";
    return m->n >= sizeof close - 1 && memcmp(m->content, open, sizeof open - 1) == 0 &&
           memcmp(m->content + m->n - (sizeof close - 1), close, sizeof close - 1) == 0;
}

static size_t last_question(const chat_writer *w)
{
    for (size_t i = w->n; i-- > 0;) {
        if (w->roles[i] == CHAT_USER && !is_tool_response(&w->msgs[i])) {
            return i;
        }
    }
    return w->n - 1;
}

static void write_tool_result(chat_writer *w, size_t i)
{
    bool first = i == 0 || w->roles[i - 1] != CHAT_TOOL;
    bool last = i + 1 == w->n || w->roles[i + 1] != CHAT_TOOL;
    chat_words(w, first ? "<|im_start|>user\n<tool_response>\n" : "\n<tool_response>\n");
    content(w, i);
    chat_words(w, last ? "\n</tool_response><|im_end|>\n" : "\n</tool_response>");
}

static void write_chatml(chat_writer *w, const chat_style *style)
{
    if (style->system != NULL && w->roles[0] != CHAT_SYSTEM) {
        chat_words(w, "<|im_start|>system\n");
        chat_words(w, style->system);
        chat_words(w, "<|im_end|>\n");
    }
    size_t question = last_question(w);
    for (size_t i = 0; i < w->n; i++) {
        if (w->roles[i] == CHAT_TOOL && style->variant != CHAT_BASE) {
            write_tool_result(w, i);
            continue;
        }
        chat_words(w, "<|im_start|>");
        chat_words(w, chat_role_word(w->roles[i]));
        chat_words(w, "\n");
        if (w->roles[i] == CHAT_ASSISTANT && style->variant == CHAT_CHATML_THINK) {
            write_thinker(w, i, i > question);
        } else {
            content(w, i);
        }
        chat_words(w, "<|im_end|>\n");
    }
    chat_words(w, w->prompt ? "<|im_start|>assistant\n" : "");
}

static void write_llama2(chat_writer *w)
{
    size_t from = check_alternating(w);
    for (size_t i = from; w->status == ATN_OK && i < w->n; i++) {
        if (w->roles[i] == CHAT_ASSISTANT) {
            chat_words(w, " ");
            stripped(w, i);
            chat_words(w, " ");
            chat_token(w, w->t->eos);
            continue;
        }
        /* The first BOS is the one that atn_chat_render puts. */
        chat_token(w, i == from ? -1 : w->t->bos);
        chat_words(w, "[INST] ");
        if (i == from && from == 1) {
            const char *rest = w->msgs[i].content;
            size_t n = w->msgs[i].n;
            chat_words(w, "<<SYS>>\n");
            content(w, 0);
            chat_strip(&rest, &n);
            /* The template strips system and user text as one: only its end has spaces to lose. */
            chat_words(w, n > 0 ? "\n<</SYS>>\n\n" : "\n<</SYS>>");
            n = n > 0 ? (size_t)(rest + n - w->msgs[i].content) : 0;
            chat_content(w, w->msgs[i].content, n);
        } else {
            stripped(w, i);
        }
        chat_words(w, " [/INST]");
    }
}

static void write_llama3(chat_writer *w, const chat_style *style)
{
    check_no_tools(w);
    size_t from = 0;
    if (style->variant == CHAT_LLAMA3_DATED) {
        from = w->roles[0] == CHAT_SYSTEM;
        chat_words(w, "<|start_header_id|>system<|end_header_id|>\n\n"
                      "Cutting Knowledge Date: December 2023\nToday Date: 26 Jul 2024\n\n");
        if (from == 1) {
            stripped(w, 0);
        }
        chat_words(w, "<|eot_id|>");
    }
    for (size_t i = from; i < w->n; i++) {
        chat_words(w, "<|start_header_id|>");
        chat_words(w, chat_role_word(w->roles[i]));
        chat_words(w, "<|end_header_id|>\n\n");
        stripped(w, i);
        chat_words(w, "<|eot_id|>");
    }
    chat_words(w, w->prompt ? "<|start_header_id|>assistant<|end_header_id|>\n\n" : "");
}

static void write_gemma(chat_writer *w)
{
    size_t from = check_alternating(w);
    for (size_t i = from; i < w->n; i++) {
        chat_words(w, w->roles[i] == CHAT_USER ? "<start_of_turn>user\n" : "<start_of_turn>model\n");
        if (i == 1 && from == 1) {
            content(w, 0);
            chat_words(w, "\n\n");
        }
        stripped(w, i);
        chat_words(w, "<end_of_turn>\n");
    }
    chat_words(w, w->prompt ? "<start_of_turn>model\n" : "");
}

/* Mistral's versions differ in where spaces stand and which user message the system message goes into. */
static void write_mistral(chat_writer *w, const chat_style *style)
{
    chat_variant v = style->variant;
    if (v == CHAT_MISTRAL_NO_SYSTEM && w->roles[0] == CHAT_SYSTEM) {
        chat_refuse(w, 0, NO_ROLE);
    }
    size_t from = check_alternating(w);
    bool spaced = v == CHAT_MISTRAL_V1 || v == CHAT_MISTRAL_NO_SYSTEM;
    const char *open = v == CHAT_MISTRAL_V1 ? " [INST] " : v == CHAT_MISTRAL_TEKKEN ? "[INST]" : "[INST] ";
    const char *answer = v == CHAT_MISTRAL_TEKKEN || v == CHAT_MISTRAL_NO_SYSTEM ? "" : " ";
    size_t with_system = v == CHAT_MISTRAL_V1 ? 1 : w->n - 1;
    for (size_t i = from; i < w->n; i++) {
        if (w->roles[i] == CHAT_ASSISTANT) {
            chat_words(w, answer);
            v == CHAT_MISTRAL_V3 ? stripped(w, i) : content(w, i);
            chat_token(w, w->t->eos);
            continue;
        }
        chat_words(w, open);
        if (from == 1 && i == with_system) {
            content(w, 0);
            chat_words(w, "\n\n");
        }
        content(w, i);
        chat_words(w, spaced ? " [/INST]" : "[/INST]");
    }
}

static void write_mistral_v7(chat_writer *w)
{
    check_no_tools(w);
    for (size_t i = 0; i < w->n; i++) {
        chat_role r = w->roles[i];
        chat_words(w, r == CHAT_USER ? "[INST] " : r == CHAT_SYSTEM ? "[SYSTEM_PROMPT] " : " ");
        content(w, i);
        chat_words(w, r == CHAT_USER ? "[/INST]" : r == CHAT_SYSTEM ? "[/SYSTEM_PROMPT]" : "");
        chat_token(w, r == CHAT_ASSISTANT ? w->t->eos : -1);
    }
}

static void write_phi4(chat_writer *w)
{
    check_no_tools(w);
    for (size_t i = 0; i < w->n; i++) {
        chat_words(w, "<|im_start|>");
        chat_words(w, chat_role_word(w->roles[i]));
        chat_words(w, "<|im_sep|>");
        content(w, i);
        chat_words(w, "<|im_end|>");
    }
    chat_words(w, w->prompt ? "<|im_start|>assistant<|im_sep|>" : "");
}

static void write_phi3(chat_writer *w, const chat_style *style)
{
    check_no_tools(w);
    bool lines = style->variant != CHAT_PHI4_MINI;
    for (size_t i = 0; i < w->n; i++) {
        bool silent = w->roles[i] == CHAT_SYSTEM &&
                      (style->variant == CHAT_PHI3_NO_SYSTEM || (style->variant == CHAT_PHI3 && w->msgs[i].n == 0));
        if (silent) {
            continue;
        }
        chat_words(w, "<|");
        chat_words(w, chat_role_word(w->roles[i]));
        chat_words(w, lines ? "|>\n" : "|>");
        content(w, i);
        chat_words(w, lines ? "<|end|>\n" : "<|end|>");
    }
    if (w->prompt) {
        chat_words(w, lines ? "<|assistant|>\n" : "<|assistant|>");
    } else {
        chat_token(w, style->variant == CHAT_PHI3_NO_SYSTEM ? -1 : w->t->eos);
    }
}

static void write_zephyr(chat_writer *w)
{
    check_no_tools(w);
    for (size_t i = 0; i < w->n; i++) {
        chat_words(w, "<|");
        chat_words(w, chat_role_word(w->roles[i]));
        chat_words(w, "|>\n");
        content(w, i);
        chat_token(w, w->t->eos);
        chat_words(w, "\n");
    }
    chat_words(w, w->prompt ? "<|assistant|>\n" : "");
}

void chat_write(chat_writer *w, const chat_style *style)
{
    switch (style->family) {
    case CHAT_CHATML:
        write_chatml(w, style);
        break;
    case CHAT_LLAMA2:
        write_llama2(w);
        break;
    case CHAT_LLAMA3:
        write_llama3(w, style);
        break;
    case CHAT_GEMMA:
        write_gemma(w);
        break;
    case CHAT_MISTRAL:
        style->variant == CHAT_MISTRAL_V7 ? write_mistral_v7(w) : write_mistral(w, style);
        break;
    case CHAT_PHI:
        style->variant == CHAT_PHI4 ? write_phi4(w) : write_phi3(w, style);
        break;
    case CHAT_ZEPHYR:
        write_zephyr(w);
        break;
    case CHAT_PLAIN:
    case CHAT_UNKNOWN:
        write_plain(w);
        break;
    }
}
