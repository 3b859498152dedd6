/* The handlers of the route table (routes.c), by file. Each gets an exchange whose body is whole and answers it once, now
 * or later. Thread: the loop thread. */
#ifndef ATTND_API_HANDLERS_H
#define ATTND_API_HANDLERS_H

#include "server/api/api.h"

/* generate.c */
void handle_generate(api *a, exchange *x);
void handle_generate_stream(api *a, exchange *x);
void handle_compat_generate(api *a, exchange *x);
/* tokenize_routes.c */
void handle_tokenize(api *a, exchange *x);
void handle_detokenize(api *a, exchange *x);
/* sessions.c */
void handle_sessions_list(api *a, exchange *x);
void handle_sessions_create(api *a, exchange *x);
void handle_session_show(api *a, exchange *x);
void handle_session_delete(api *a, exchange *x);
/* openai_completions.c, openai_chat.c, chat_messages.c, models.c, info.c, health.c */
void handle_completions(api *a, exchange *x);
void handle_chat_completions(api *a, exchange *x);
void handle_models_list(api *a, exchange *x);
void handle_model_show(api *a, exchange *x);
void handle_info(api *a, exchange *x);
void handle_hello(api *a, exchange *x);         /* GET / */
void handle_apply_template(api *a, exchange *x); /* POST /apply-template: {messages} -> {"prompt"} */
void handle_chat_tokenize(api *a, exchange *x);  /* POST /chat_tokenize */
void handle_livez(api *a, exchange *x);
void handle_readyz(api *a, exchange *x); /* /readyz and /health */
void handle_metrics(api *a, exchange *x);
/* Called on every tick: /livez learns from it whether the engine still moves. */
void health_tick(api *a, mono_time now);

#endif
