/* Opening a tokenizer from GGUF metadata. The public side is attnd/tokenizer.h. Thread: the loading thread. */
#ifndef ATN_CORE_TOKENIZER_H
#define ATN_CORE_TOKENIZER_H

#include <attnd/tokenizer.h>
#include "core/load/gguf.h"

/* Copies what it needs; g may be closed after. Errors: ATN_FORMAT (key and range), ATN_UNSUPPORTED (tokenizer model or pre id,
 * by name), ATN_NOMEM. allow_unknown_pre: an unknown tokenizer.ggml.pre is read as "default". */
atn_status tokenizer_open(const gguf *g, bool allow_unknown_pre, atn_tokenizer **out, atn_err *err) ATN_MUST_CHECK;
void tokenizer_close(atn_tokenizer *t);

#endif
