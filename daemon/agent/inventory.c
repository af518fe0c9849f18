#include "daemon/agent/inventory.h"

#include <errno.h>
#include <ifaddrs.h>
#include <inttypes.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/host_memory.h"
#include "base/mem.h"
#include "proto/rpc_address.h"

void inventory_read(struct inventory *out)
{
    cpu_set_t set;
    struct host_memory memory;

    out->cores =
        sched_getaffinity(0, sizeof(set), &set) ? (int)sysconf(_SC_NPROCESSORS_ONLN) : CPU_COUNT(&set);
    host_memory_read(&memory);
    out->memory_bytes = memory.total;
}

void inventory_measure(struct inventory_meter *meter, struct inventory_load *out)
{
    FILE *f = fopen("/proc/stat", "re");
    int64_t t[8] = {0}, total = 0, busy;
    struct host_memory memory;

    if (f) {
        if (fscanf(f,
                   "cpu %" SCNd64 " %" SCNd64 " %" SCNd64 " %" SCNd64 " %" SCNd64 " %" SCNd64 " %" SCNd64
                   " %" SCNd64,
                   &t[0], &t[1], &t[2], &t[3], &t[4], &t[5], &t[6], &t[7]) != 8)
            memset(t, 0, sizeof(t));
        fclose(f);
    }
    for (size_t i = 0; i < ARRAY_LEN(t); i++)
        total += t[i];
    busy = total - t[3] - t[4]; /* idle, waiting for a disk */
    out->load = total > meter->total ? (double)(busy - meter->busy) / (double)(total - meter->total) : 0;
    host_memory_read(&memory);
    out->memory_free = memory.available;
    *meter = (struct inventory_meter){busy, total};
}

static enum err_code address_towards(const struct addrinfo *to, char **out, struct err *e)
{
    CLEANUP(close_fd) int fd = socket(to->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    struct sockaddr_storage from;
    socklen_t size = sizeof(from);
    char host[NI_MAXHOST];
    int rc;

    if (fd < 0 || connect(fd, to->ai_addr, to->ai_addrlen) ||
        getsockname(fd, (struct sockaddr *)&from, &size))
        return err_sys(e, errno, "no route");
    rc = getnameinfo((struct sockaddr *)&from, size, host, sizeof(host), NULL, 0, NI_NUMERICHOST);
    if (rc)
        return err_set(e, ERR_UNAVAILABLE, "own address: %s", gai_strerror(rc));
    *out = xstrdup(host);
    return ERR_OK;
}

static enum err_code address_towards_host(const char *host, int port_number, char **out, struct err *e)
{
    struct addrinfo hints = {.ai_socktype = SOCK_DGRAM}, *found = NULL;
    char port[16];
    int rc;

    snprintf(port, sizeof(port), "%d", port_number);
    rc = getaddrinfo(host, port, &hints, &found);
    if (rc)
        return err_set(e, rc == EAI_AGAIN ? ERR_UNAVAILABLE : ERR_NOT_FOUND, "%s: %s", host,
                       gai_strerror(rc));
    err_set(e, ERR_NOT_FOUND, "it has no address");
    for (const struct addrinfo *ai = found; ai; ai = ai->ai_next)
        if (!address_towards(ai, out, e)) {
            freeaddrinfo(found);
            return ERR_OK;
        }
    freeaddrinfo(found);
    return err_wrap(e, "%s", host);
}

static bool interface_is_outward(const struct ifaddrs *i)
{
    const unsigned wanted = IFF_UP | IFF_RUNNING;

    if (!i->ifa_addr || (i->ifa_flags & (wanted | IFF_LOOPBACK)) != wanted)
        return false;
    if (i->ifa_addr->sa_family == AF_INET)
        return true;
    return i->ifa_addr->sa_family == AF_INET6 &&
           !IN6_IS_ADDR_LINKLOCAL(&((const struct sockaddr_in6 *)i->ifa_addr)->sin6_addr);
}

/* The address of the first interface that has one, for a network without a default route. NULL: there is
 * none. */
static char *address_of_interface(void)
{
    struct ifaddrs *list = NULL;
    char host[NI_MAXHOST], *out = NULL;

    if (getifaddrs(&list))
        return NULL;
    for (const struct ifaddrs *i = list; i && !out; i = i->ifa_next) {
        socklen_t size = i->ifa_addr && i->ifa_addr->sa_family == AF_INET6 ? sizeof(struct sockaddr_in6)
                                                                           : sizeof(struct sockaddr_in);
        if (interface_is_outward(i) &&
            !getnameinfo(i->ifa_addr, size, host, sizeof(host), NULL, 0, NI_NUMERICHOST))
            out = xstrdup(host);
    }
    freeifaddrs(list);
    return out;
}

/* The coordinator is on this machine, but other nodes are not: the source address of the default route. The
 * addresses of the documentation networks (RFC 5737, RFC 3849) stand for "elsewhere"; nothing is sent there.
 */
static char *address_outward(void)
{
    char *out = NULL;
    struct err ignored;

    if (!address_towards_host("192.0.2.1", 9, &out, &ignored) ||
        !address_towards_host("2001:db8::1", 9, &out, &ignored))
        return out;
    out = address_of_interface();
    return out ? out : xstrdup("127.0.0.1");
}

enum err_code inventory_address(const char *coordinator, char **out, struct err *e)
{
    CLEANUP(free_text) char *source = NULL;
    struct rpc_address at;

    if (rpc_address_parse(coordinator, &at, e))
        return e->code;
    if (!at.path && address_towards_host(at.host, at.port, &source, e))
        return e->code;
    if (!source || !strncmp(source, "127.", 4) || !strcmp(source, "::1"))
        *out = address_outward();
    else
        *out = steal(source);
    return ERR_OK;
}
