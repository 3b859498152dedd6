/* Chat styles: a family of templates, and the variant of it that a model's own template text is.
 *
 * Templates are programs; this module runs none. It knows the published templates of seven families by marks in their text
 * and writes what they would, so that a conversation becomes segments: the family's words trusted, contents not.
 * chat.c recognises and checks, chat_families.c holds the words. Thread: a style is immutable once detected. */
#ifndef ATN_CHAT_H
#define ATN_CHAT_H

#include <attnd/tokenizer.h>
#include "core/load/gguf.h"

typedef enum chat_family {
    CHAT_PLAIN, /* no template: role lines */
    CHAT_CHATML,
    CHAT_LLAMA2,
    CHAT_LLAMA3,
    CHAT_GEMMA,
    CHAT_MISTRAL,
    CHAT_PHI,
    CHAT_ZEPHYR,
    CHAT_UNKNOWN, /* a template that no family fits */
} chat_family;

typedef enum chat_variant {
    CHAT_BASE,              /* the family's only or newest form */
    CHAT_CHATML_TOOLS,      /* tool results are wrapped in <tool_response> (Qwen 2.5) */
    CHAT_CHATML_THINK,      /* the same, and thoughts of earlier turns are left out (Qwen 3) */
    CHAT_LLAMA3_DATED,      /* a system turn with dates always comes first (3.1 and later) */
    CHAT_MISTRAL_NO_SYSTEM, /* before v1 */
    CHAT_MISTRAL_V1,
    CHAT_MISTRAL_V3,
    CHAT_MISTRAL_TEKKEN, /* v3-tekken */
    CHAT_MISTRAL_V7,
    CHAT_PHI3,           /* as of 2024-07 */
    CHAT_PHI3_NO_SYSTEM, /* the first Phi-3 mini and medium */
    CHAT_PHI3_ANY_ROLE,  /* Phi-3 small */
    CHAT_PHI4,
    CHAT_PHI4_MINI,
} chat_variant;

typedef struct chat_style {
    chat_family family;
    chat_variant variant;
    bool bos;     /* the template opens with BOS */
    char *system; /* [n_system] what the template says for a system message when none is given; NULL: nothing */
    size_t n_system;
} chat_style;

/* Recognises a template (NULL: the model has none). ATN_NOMEM. */
atn_status chat_style_detect(const gguf_str *chat_template, chat_style *out, atn_err *err) ATN_MUST_CHECK;
void chat_style_free(chat_style *s);

typedef enum chat_role { CHAT_SYSTEM, CHAT_USER, CHAT_ASSISTANT, CHAT_TOOL } chat_role;

/* A conversation being written out. The first error sticks, as in a buf. */
typedef struct chat_writer {
    const atn_tokenizer *t;
    const atn_chat_message *msgs; /* [n] */
    const chat_role *roles;       /* [n] */
    size_t n;
    bool prompt; /* open an assistant turn at the end */
    atn_segment *segs;
    size_t n_segs, cap;
    atn_status status;
    atn_err *err;
} chat_writer;

void chat_words(chat_writer *w, const char *words);            /* trusted, static */
void chat_token(chat_writer *w, int32_t id);                   /* trusted; -1 writes nothing */
void chat_content(chat_writer *w, const char *text, size_t n); /* not trusted */
void chat_refuse(chat_writer *w, size_t i, const char *why);   /* ATN_INVALID about messages[i] */
const char *chat_role_word(chat_role r);                       /* "system", ... */
/* What Python's str.strip() leaves of s: text, moved and shortened. */
void chat_strip(const char **s, size_t *n);

/* Writes the whole conversation in the tokenizer's style, BOS at the start excepted. */
void chat_write(chat_writer *w, const chat_style *style);

#endif
