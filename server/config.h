/* The configuration of a start: defaults, then the file of --config, then ATTND_* variables, then flags.
 * Thread: start-up. */
#ifndef ATTND_CONFIG_H
#define ATTND_CONFIG_H

#include "server/options.h"

typedef enum config_action { CONFIG_RUN, CONFIG_HELP, CONFIG_VERSION, CONFIG_PRINT, CONFIG_CHECK } config_action;

typedef struct config {
    options options;
    config_action action;
} config;

/* An error's param is the key at fault, its text the allowed range and where the value came from. env: as environ. */
atn_status config_load(int argc, char **argv, char **env, config *out, atn_err *err) ATN_MUST_CHECK;
void config_free(config *c);

/* Malloc'ed text for standard output; NULL: no memory. */
char *config_help(void);
char *config_json(const options *o); /* a file that --config would take; holds no secrets */

#endif
