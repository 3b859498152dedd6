/* The listening socket, and how many connections the limit on open files carries. Thread: start-up. */
#ifndef ATTND_LISTEN_H
#define ATTND_LISTEN_H

#include <attnd/status.h>
#include <stdint.h>

/* host: an IPv4 or IPv6 address, or "localhost"; port 0: a free one. *out: listening, not blocking, the caller's; *bound: its
 * port. Errors: ATN_INVALID (host), ATN_IO (port: in use, no rights). */
atn_status listen_open(const char *host, uint16_t port, int *out, uint16_t *bound, atn_err *err) ATN_MUST_CHECK;
/* Connections that fit beside `others` descriptors: `want`, or as many as the limit carries once it is raised as far as
 * allowed, at least 1. Says in the log that they are fewer. */
uint32_t listen_fit_descriptors(uint32_t want, uint32_t others);

#endif
