/* See listen.h. */
#include "server/http/listen.h"

#include "core/base/log.h"
#include "server/http/http.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    BACKLOG = 511,
    SEND_BUFFER = 64 << 10, /* of the kernel, which doubles it: what a slow reader may leave there before we notice */
};

static bool parse_address(const char *host, uint16_t port, struct sockaddr_storage *out, socklen_t *len)
{
    struct sockaddr_in *v4 = (struct sockaddr_in *)(void *)out;
    struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)(void *)out;
    *out = (struct sockaddr_storage){0};
    if (inet_pton(AF_INET, strcmp(host, "localhost") == 0 ? "127.0.0.1" : host, &v4->sin_addr) == 1) {
        v4->sin_family = AF_INET;
        v4->sin_port = htons(port);
        *len = sizeof *v4;
        return true;
    }
    if (inet_pton(AF_INET6, host, &v6->sin6_addr) == 1) {
        v6->sin6_family = AF_INET6;
        v6->sin6_port = htons(port);
        *len = sizeof *v6;
        return true;
    }
    return false;
}

static atn_status check_address(const char *host, uint16_t port, struct sockaddr_storage *out, socklen_t *len,
                                atn_err *err)
{
    return parse_address(host, port, out, len)
               ? ATN_OK
               : atn_fail(err, ATN_INVALID, "host", "must be an IPv4 or IPv6 address, or localhost");
}

atn_status http_check_host(const char *host, bool *loopback, atn_err *err)
{
    struct sockaddr_storage a;
    socklen_t len;
    ATN_TRY(check_address(host, 0, &a, &len, err));
    *loopback = a.ss_family == AF_INET ? (ntohl(((struct sockaddr_in *)(void *)&a)->sin_addr.s_addr) >> 24) == 127
                                       : IN6_IS_ADDR_LOOPBACK(&((struct sockaddr_in6 *)(void *)&a)->sin6_addr);
    return ATN_OK;
}

atn_status listen_open(const char *host, uint16_t port, int *out, uint16_t *bound, atn_err *err)
{
    struct sockaddr_storage a;
    socklen_t len;
    int one = 1, send_buffer = SEND_BUFFER;
    ATN_TRY(check_address(host, port, &a, &len, err));
    int fd = socket(a.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one) != 0 ||
        setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &send_buffer, sizeof send_buffer) != 0 || /* accepted ones inherit it */
        bind(fd, (struct sockaddr *)&a, len) != 0 || listen(fd, BACKLOG) != 0 ||
        getsockname(fd, (struct sockaddr *)&a, &len) != 0) {
        atn_status failed = atn_fail(err, ATN_IO, "port", "cannot listen on port %u: %s", port, strerror(errno));
        if (fd >= 0) {
            (void)close(fd);
        }
        return failed;
    }
    *bound = ntohs(a.ss_family == AF_INET ? ((struct sockaddr_in *)(void *)&a)->sin_port
                                          : ((struct sockaddr_in6 *)(void *)&a)->sin6_port);
    *out = fd;
    return ATN_OK;
}

uint32_t listen_fit_descriptors(uint32_t want, uint32_t others)
{
    struct rlimit lim;
    rlim_t need = (rlim_t)want + others;
    if (getrlimit(RLIMIT_NOFILE, &lim) != 0 || lim.rlim_cur >= need) {
        return want;
    }
    lim.rlim_cur = lim.rlim_max < need ? lim.rlim_max : need;
    (void)setrlimit(RLIMIT_NOFILE, &lim);
    if (getrlimit(RLIMIT_NOFILE, &lim) != 0 || lim.rlim_cur >= need) {
        return want;
    }
    uint32_t fit = lim.rlim_cur > others ? (uint32_t)lim.rlim_cur - others : 1;
    log_warn("max-connections lowered from %u to %u: the limit on open files is %llu", want, fit,
             (unsigned long long)lim.rlim_cur);
    return fit;
}
