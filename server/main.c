/* The program's entry; everything else is app.c, so that tests can link the server as a library. */
#include "server/app.h"

extern char **environ;

int main(int argc, char **argv)
{
    return app_main(argc, argv, environ);
}
