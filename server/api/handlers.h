/* The handlers of the route table (routes.c), by file; doors are in door.h. Each gets an exchange whose body is whole and
 * answers it once, now or later. Thread: the loop thread. */
#ifndef ATTND_API_HANDLERS_H
#define ATTND_API_HANDLERS_H

#include "server/api/api.h"

/* sessions.c */
void handle_sessions_list(api *a, exchange *x);
void handle_sessions_create(api *a, exchange *x);
void handle_session_show(api *a, exchange *x);
void handle_session_delete(api *a, exchange *x);
/* models.c, info.c, health.c */
void handle_models_list(api *a, exchange *x);
void handle_model_show(api *a, exchange *x);
void handle_info(api *a, exchange *x);
void info_list_backends(api *a);        /* once, when the model is there */
void handle_hello(api *a, exchange *x); /* GET / */
void handle_livez(api *a, exchange *x);
void handle_readyz(api *a, exchange *x); /* /readyz and /health */
void handle_metrics(api *a, exchange *x);
/* Called on every tick: /livez learns from it whether the engine still moves. */
void health_tick(api *a, mono_time now);

#endif
