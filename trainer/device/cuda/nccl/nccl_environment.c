/* Sets the environment variables that NCCL reads. By itself NCCL takes the first network interface that is not
 * Docker's. That need not be the interface that reaches the peers, nor the encrypted one; the node's address tells
 * which is. But a machine may have several networks for data, such as one interface for each GPU. NCCL then spreads its
 * traffic over all of them, and is left alone. */
#include "trainer/device/cuda/nccl/nccl_environment.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/mem.h"

static bool interface_has_address(const struct sockaddr *a, const struct sockaddr *b)
{
    if (!a || a->sa_family != b->sa_family)
        return false;
    if (a->sa_family == AF_INET)
        return ((const struct sockaddr_in *)a)->sin_addr.s_addr ==
               ((const struct sockaddr_in *)b)->sin_addr.s_addr;
    return a->sa_family == AF_INET6 && IN6_ARE_ADDR_EQUAL(&((const struct sockaddr_in6 *)a)->sin6_addr,
                                                          &((const struct sockaddr_in6 *)b)->sin6_addr);
}

static bool is_loopback(const struct sockaddr *a)
{
    if (a->sa_family == AF_INET)
        return ntohl(((const struct sockaddr_in *)a)->sin_addr.s_addr) >> 24 == 127;
    return a->sa_family == AF_INET6 && IN6_IS_ADDR_LOOPBACK(&((const struct sockaddr_in6 *)a)->sin6_addr);
}

/* Finds the interface of this machine that has one of the host's addresses; the first such address counts. */
static bool find_interface(const struct addrinfo *host, bool loopback, char name[IF_NAMESIZE], int *family)
{
    struct ifaddrs *list = NULL;
    bool found = false;

    if (getifaddrs(&list))
        return false;
    for (; host && !found; host = host->ai_next) {
        if (is_loopback(host->ai_addr) && !loopback)
            continue;
        for (const struct ifaddrs *i = list; i && !found; i = i->ifa_next) {
            found = interface_has_address(i->ifa_addr, host->ai_addr);
            if (found) {
                snprintf(name, IF_NAMESIZE, "%s", i->ifa_name);
                *family = host->ai_family;
            }
        }
    }
    freeifaddrs(list);
    return found;
}

/* ---- other networks, as the kernel lists them in `sys` (/sys/class/net) */

static bool interface_has(const char *sys, const char *name, const char *file)
{
    CLEANUP(free_text) char *path = xasprintf("%s/%s/%s", sys, name, file);

    return access(path, F_OK) == 0;
}

/* Returns the number in the interface's file, or -1: there is none, or the driver does not know it. */
static long interface_number(const char *sys, const char *name, const char *file)
{
    CLEANUP(free_text) char *path = xasprintf("%s/%s/%s", sys, name, file);
    FILE *f = fopen(path, "re");
    long found = -1;

    if (f && fscanf(f, "%ld", &found) != 1)
        found = -1;
    if (f)
        fclose(f);
    return found;
}

/* Whether `other` may carry data as well as `chosen` does. Only hardware counts: not the bridges of containers, and neither a part
 * of a bond nor what lies below a VLAN. An interface that is slower is not for data, nor is Wi-Fi, whose speed the kernel does not
 * list; another one whose speed is unknown may be. */
static bool carries_data_too(const char *sys, const char *other, const char *chosen)
{
    CLEANUP(free_text) char *below = xasprintf("lower_%s", other);
    const long speed = interface_number(sys, other, "speed"), least = interface_number(sys, chosen, "speed");

    return strcmp(other, chosen) != 0 && interface_has(sys, other, "device") &&
           !interface_has(sys, other, "phy80211") && !interface_has(sys, other, "master") &&
           !interface_has(sys, chosen, below) && (speed <= 0 || least <= 0 || speed >= least);
}

/* ARPHRD_NONE of <net/if_arp.h>: WireGuard and other tunnels. Whoever gives a node a tunnel's address wants the traffic in the
 * tunnel, whatever else there is. */
enum { TUNNEL = 65534 };

bool nccl_only_network(const char *sys, const char *const *names, size_t count, const char *chosen)
{
    if (interface_number(sys, chosen, "type") == TUNNEL)
        return true;
    for (size_t i = 0; i < count; i++)
        if (carries_data_too(sys, names[i], chosen))
            return false;
    return true;
}

static bool is_link_local(const struct sockaddr *a)
{
    if (a->sa_family == AF_INET)
        return ntohl(((const struct sockaddr_in *)a)->sin_addr.s_addr) >> 16 == 0xa9fe; /* 169.254/16 */
    return a->sa_family == AF_INET6 && IN6_IS_ADDR_LINKLOCAL(&((const struct sockaddr_in6 *)a)->sin6_addr);
}

/* Of this machine: among the interfaces that are up and have an address. */
static bool is_only_network(const char *chosen)
{
    struct ifaddrs *list = NULL;
    const char **names = NULL;
    size_t count = 0, room = 0;

    if (getifaddrs(&list))
        return true;
    for (const struct ifaddrs *i = list; i; i = i->ifa_next) {
        const struct sockaddr *a = i->ifa_addr;
        if (!a || (a->sa_family != AF_INET && a->sa_family != AF_INET6) || is_link_local(a) ||
            is_loopback(a) || !(i->ifa_flags & IFF_UP))
            continue;
        names = array_grow(names, count, &room, sizeof(*names));
        names[count++] = i->ifa_name;
    }
    const bool only = nccl_only_network("/sys/class/net", names, count, chosen);
    free(names);
    freeifaddrs(list);
    return only;
}

/* Chooses the interface that has the node's address. "=" before its name asks NCCL for exactly that name. The address
 * chooses nothing if no interface has it, such as a router's address. Nor does a host name that resolves to loopback:
 * many machines map their own name to it, while their peers resolve another address. NCCL never listens on ::1. Nothing is
 * chosen on a machine with other networks for data. */
static void choose_interface(const char *address)
{
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
    struct addrinfo *host = NULL;
    char name[IF_NAMESIZE], exact[IF_NAMESIZE + 1];
    struct in_addr number;
    int family = AF_UNSPEC;

    if (getenv("NCCL_SOCKET_IFNAME") || getaddrinfo(address, NULL, &hints, &host))
        return;
    /* 127.0.0.1 written as a number is meant as it stands: all ranks are on this machine. */
    const bool numeric = inet_pton(AF_INET, address, &number) == 1;

    if (find_interface(host, numeric, name, &family) &&
        ((numeric && is_loopback(host->ai_addr)) || is_only_network(name))) {
        snprintf(exact, sizeof(exact), "=%s", name);
        setenv("NCCL_SOCKET_IFNAME", exact, 1);
        setenv("NCCL_SOCKET_FAMILY", family == AF_INET6 ? "AF_INET6" : "AF_INET", 0);
    }
    freeaddrinfo(host);
}

void nccl_environment(bool reproducible)
{
    static const struct {
        const char *name, *value;
        bool for_bits;
    } wanted[] = {
        {"NCCL_RAS_ENABLE", "0", false}, /* its port would answer any process on this machine */
        {"NCCL_ALGO", "Ring", true}, /* one algorithm and protocol: the order of the sums does not change */
        {"NCCL_PROTO", "Simple", true},
        {"NCCL_NVLS_ENABLE", "0", true}, /* the NVLink switch adds in no fixed order */
    };
    const char *address = getenv("DDP_NODE_ADDRESS");

    for (size_t i = 0; i < ARRAY_LEN(wanted); i++)
        if (reproducible || !wanted[i].for_bits)
            setenv(wanted[i].name, wanted[i].value, 0); /* 0: what the user has set stays */
    if (address && *address)
        choose_interface(address);
}
