/* The one model that is served, as OpenAI's routes name it. Thread: the loop thread. */
#ifndef ATTND_MODELS_H
#define ATTND_MODELS_H

#include "server/api/api.h"

/* 404 with OpenAI's code for it. The name itself, which came from the client, is not repeated. */
void models_reply_unknown(exchange *x);

#endif
