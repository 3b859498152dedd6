/* Recognising a model's chat template, and rendering conversations (chat.h).
 *
 * Marks are looked for in a copy of the template with its spelling made uniform: " as ', line ends as \n, no spaces around +.
 * A template that asks for the date of today is not taken for anything but Llama 3.2, whose fallback date is used: the same
 * conversation gives the same tokens tomorrow. */
#include "core/token/chat.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "core/base/utf8.h"
#include "core/token/vocab.h"

/* The uniform copy: malloc'ed, NUL-terminated, at most twice as long. NULs of the text end it. */
static char *uniform(const gguf_str *text)
{
    char *out = malloc(2 * text->n + 1);
    if (out == NULL) {
        return NULL;
    }
    size_t n = 0;
    for (size_t i = 0; i < text->n; i++) {
        char c = text->s[i];
        if (c == '\n') {
            out[n++] = '\\';
            out[n++] = 'n';
        } else if (c == ' ' && n > 0 && out[n - 1] == '+') {
            continue;
        } else if (c == '+') {
            while (n > 0 && out[n - 1] == ' ') {
                n--;
            }
            out[n++] = c;
        } else {
            out[n++] = c == '"' ? '\'' : c;
        }
    }
    out[n] = '\0';
    return out;
}

static bool has(const char *text, const char *mark)
{
    return strstr(text, mark) != NULL;
}

/* "<|im_start|>system\n" and plain words up to "<|im_end|>" in a template's text: said when no system message is given. */
static bool default_system(const char *text, chat_style *out)
{
    static const char open[] = "<|im_start|>system\\n";
    for (const char *at = strstr(text, open); at != NULL; at = strstr(at + 1, open)) {
        const char *from = at + sizeof open - 1;
        const char *to = strstr(from, "<|im_end|>");
        if (to == NULL || to == from || strcspn(from, "'{}<\\") < (size_t)(to - from)) {
            continue;
        }
        out->n_system = (size_t)(to - from);
        out->system = strndup(from, out->n_system);
        return out->system != NULL;
    }
    return true;
}

static chat_variant mistral_variant(const char *text)
{
    if (has(text, "[SYSTEM_PROMPT] '+message['content']+'[/SYSTEM_PROMPT]'") && !has(text, "default_system_message")) {
        return CHAT_MISTRAL_V7;
    }
    if (has(text, "' [INST] '+system_message")) {
        return CHAT_MISTRAL_V1;
    }
    if (has(text, "'[INST] '+system_message+'\\n\\n'")) {
        return CHAT_MISTRAL_V3;
    }
    if (has(text, "'[INST]'+system_message+'\\n\\n'")) {
        return CHAT_MISTRAL_TEKKEN;
    }
    bool old = has(text, "'[INST] '+message['content']+' [/INST]'") && has(text, "message['content']+eos_token");
    return old ? CHAT_MISTRAL_NO_SYSTEM : CHAT_BASE;
}

static void detect_inst(const char *text, chat_style *out)
{
    if (has(text, "<<SYS>>\\n'+system_message") && has(text, "bos_token+'[INST] '+content.strip()")) {
        out->family = CHAT_LLAMA2;
        return;
    }
    out->variant = mistral_variant(text);
    out->family = out->variant == CHAT_BASE ? CHAT_UNKNOWN : CHAT_MISTRAL;
}

static void detect_phi3(const char *text, chat_style *out)
{
    out->family = CHAT_PHI;
    if (has(text, "'<|'+message['role']+'|>'+'\\n'+message['content']+'<|end|>\\n'") && has(text, "eos_token")) {
        out->variant = CHAT_PHI3_ANY_ROLE;
    } else if (has(text, "'<|'+message['role']+'|>'+message['content']+'<|end|>'")) {
        out->variant = CHAT_PHI4_MINI;
    } else if (has(text, "'<|system|>\\n'+message['content']+'<|end|>\\n'") && has(text, "eos_token")) {
        out->variant = CHAT_PHI3;
    } else if (has(text, "'<|user|>'+'\\n'+message['content']+'<|end|>'+'\\n'+'<|assistant|>'+'\\n'")) {
        out->variant = CHAT_PHI3_NO_SYSTEM;
    } else {
        out->family = CHAT_UNKNOWN;
    }
}

static bool detect_chatml(const char *text, chat_style *out)
{
    bool turns = has(text, "'<|im_start|>'+message['role']+'\\n'+message['content']") ||
                 has(text, "'<|im_start|>'+message.role+'\\n'+message.content") ||
                 has(text, "<|im_start|>{{ message['role'] }}\\n{{ message['content'] }}<|im_end|>");
    /* Other ways to show tool results, and models that are made to think first, are not this family. */
    bool tools = has(text, "<tool_response>");
    bool other = (tools && !has(text, "'\\n<tool_response>\\n'")) || has(text, "<|im_start|>assistant\\n<think>") ||
                 has(text, "content']|trim") || has(text, "content'] | trim");
    if (!turns || other) {
        return true;
    }
    out->family = CHAT_CHATML;
    if (tools) {
        out->variant = has(text, "reasoning_content") && has(text, "</think>") ? CHAT_CHATML_THINK : CHAT_CHATML_TOOLS;
    }
    return default_system(text, out);
}

static bool detect(const char *text, chat_style *out)
{
    bool dated_llama = has(text, "<|start_header_id|>") && has(text, "Cutting Knowledge Date: December 2023") &&
                       has(text, "26 Jul 2024");
    out->family = CHAT_UNKNOWN;
    out->bos = has(text, "bos_token");
    if (has(text, "strftime_now") && !dated_llama) {
        return true;
    }
    if (has(text, "<|im_sep|>")) {
        bool turns = has(text, "'<|im_start|>user<|im_sep|>'+message['content']+'<|im_end|>");
        out->family = turns ? CHAT_PHI : CHAT_UNKNOWN;
        out->variant = CHAT_PHI4;
    } else if (has(text, "<|im_start|>")) {
        return detect_chatml(text, out);
    } else if (has(text, "[INST]")) {
        detect_inst(text, out);
    } else if (has(text, "<|start_header_id|>")) {
        bool turns =
            has(text, "'<|start_header_id|>'+message['role']+'<|end_header_id|>\\n\\n'+message['content'] | trim");
        out->family = turns ? CHAT_LLAMA3 : CHAT_UNKNOWN;
        out->variant = dated_llama ? CHAT_LLAMA3_DATED : CHAT_BASE;
    } else if (has(text, "<start_of_turn>")) {
        bool turns = has(text, "'<start_of_turn>'+role+'\\n'") && has(text, "<end_of_turn>");
        out->family = turns ? CHAT_GEMMA : CHAT_UNKNOWN;
    } else if (has(text, "<|end|>")) {
        detect_phi3(text, out);
    } else if (has(text, "'<|user|>\\n'+message['content']+eos_token") &&
               has(text, "'<|system|>\\n'+message['content']+eos_token")) {
        out->family = CHAT_ZEPHYR;
    }
    return true;
}

atn_status chat_style_detect(const gguf_str *chat_template, chat_style *out, atn_err *err)
{
    *out = (chat_style){.family = CHAT_PLAIN};
    if (chat_template == NULL) {
        return ATN_OK;
    }
    char *text = chat_template->n < SIZE_MAX / 4 ? uniform(chat_template) : NULL;
    bool ok = text != NULL && detect(text, out);
    free(text);
    return ok ? ATN_OK : atn_fail(err, ATN_NOMEM, NULL, "no memory for the chat template");
}

void chat_style_free(chat_style *s)
{
    free(s->system);
    *s = (chat_style){0};
}

static void add(chat_writer *w, const char *text, size_t n, bool trusted)
{
    if (w->status != ATN_OK || n == 0) {
        return;
    }
    if (w->n_segs == w->cap) {
        size_t want = w->cap == 0 ? 32 : 2 * w->cap;
        atn_segment *more = realloc(w->segs, want * sizeof *more);
        if (more == NULL) {
            w->status = atn_fail(w->err, ATN_NOMEM, NULL, "no memory for the conversation");
            return;
        }
        w->segs = more;
        w->cap = want;
    }
    w->segs[w->n_segs++] = (atn_segment){text, n, trusted};
}

void chat_words(chat_writer *w, const char *words)
{
    add(w, words, strlen(words), true);
}

void chat_token(chat_writer *w, int32_t id)
{
    size_t n;
    const char *piece = atn_token_piece(w->t, id, &n);
    add(w, piece, n, true);
}

void chat_content(chat_writer *w, const char *text, size_t n)
{
    add(w, text, n, false);
}

void chat_refuse(chat_writer *w, size_t i, const char *why)
{
    if (w->status == ATN_OK) {
        char param[32];
        snprintf(param, sizeof param, "messages[%zu]", i);
        w->status = atn_fail(w->err, ATN_INVALID, param, "%s", why);
    }
}

static const char *const role_words[] = {"system", "user", "assistant", "tool"};

const char *chat_role_word(chat_role r)
{
    return role_words[r];
}

static bool parse_role(const char *word, chat_role *out)
{
    for (size_t i = 0; i < sizeof role_words / sizeof role_words[0]; i++) {
        if (word != NULL && strcmp(word, role_words[i]) == 0) {
            *out = (chat_role)i;
            return true;
        }
    }
    return false;
}

/* str.isspace(): White_Space and the four information separators. */
static bool is_space(uint32_t cp)
{
    return (cp >= 0x09 && cp <= 0x0D) || (cp >= 0x1C && cp <= 0x20) || cp == 0x85 || cp == 0xA0 || cp == 0x1680 ||
           (cp >= 0x2000 && cp <= 0x200A) || cp == 0x2028 || cp == 0x2029 || cp == 0x202F || cp == 0x205F ||
           cp == 0x3000;
}

void chat_strip(const char **s, size_t *n)
{
    uint32_t cp;
    int len;
    while (*n > 0 && (len = utf8_decode(*s, *n, &cp)) > 0 && is_space(cp)) {
        *s += len;
        *n -= (size_t)len;
    }
    for (;;) {
        size_t at = *n;
        while (at > 0 && *n - at < 4 && ((unsigned char)(*s)[at - 1] & 0xC0) == 0x80) {
            at--;
        }
        if (at == 0 || utf8_decode(*s + at - 1, *n - at + 1, &cp) <= 0 || !is_space(cp)) {
            return;
        }
        *n = at - 1;
    }
}

const char *atn_chat_family(const atn_tokenizer *t)
{
    static const char *const names[] = {"plain",   "chatml", "llama2", "llama3", "gemma",
                                        "mistral", "phi",    "zephyr", NULL};
    return names[t->chat.family];
}

const char *const *atn_chat_stops(const atn_tokenizer *t, size_t *n)
{
    static const char *const role_lines[ATN_CHAT_MAX_STOPS] = {"\nsystem:", "\nuser:", "\nassistant:", "\ntool:"};
    *n = t->chat.family == CHAT_PLAIN ? ATN_CHAT_MAX_STOPS : 0;
    return role_lines;
}

atn_status atn_chat_render(const atn_tokenizer *t, const atn_chat_message *msgs, size_t n_msgs,
                           bool add_generation_prompt, atn_segment **segs, size_t *n_segs, atn_err *err)
{
    if (t->chat.family == CHAT_UNKNOWN) {
        return atn_fail(err, ATN_UNSUPPORTED, "messages", "the model's chat template is of no known family");
    }
    if (n_msgs == 0) {
        return atn_fail(err, ATN_INVALID, "messages", "there must be at least one message");
    }
    chat_role *roles = calloc(n_msgs, sizeof *roles);
    chat_writer w = {.t = t, .msgs = msgs, .roles = roles, .n = n_msgs, .prompt = add_generation_prompt, .err = err};
    w.segs = calloc(1, sizeof *w.segs);
    w.cap = 1;
    if (roles == NULL || w.segs == NULL) {
        w.status = atn_fail(err, ATN_NOMEM, NULL, "no memory for the conversation");
    }
    for (size_t i = 0; w.status == ATN_OK && i < n_msgs; i++) {
        if (!parse_role(msgs[i].role, &roles[i])) {
            chat_refuse(&w, i, "role must be system, user, assistant or tool");
        }
    }
    if (w.status == ATN_OK) {
        if (t->chat.bos && !t->add_bos) {
            chat_token(&w, t->bos);
        }
        chat_write(&w, &t->chat);
    }
    free(roles);
    if (w.status != ATN_OK) {
        free(w.segs);
        return w.status;
    }
    *segs = w.segs;
    *n_segs = w.n_segs;
    return ATN_OK;
}
