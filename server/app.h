/* The program: configuration, start order, drain, stop.
 * Thread: main. */
#ifndef ATTND_APP_H
#define ATTND_APP_H

/* Exit status: 0 after a signal, 1 when something fails while starting to listen, 2 for a wrong option, key file or model. */
int app_main(int argc, char **argv, char **env);

#endif
