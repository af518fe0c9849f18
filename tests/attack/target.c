#include "tests/attack/target.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static void target_refuse(const char *text, const char *why)
{
    fprintf(stderr, "refused: %s: %s\n", text, why);
    exit(2);
}

/* Whether this process is in a network namespace that `ip netns add` made. */
static bool target_in_own_network(void)
{
    struct stat self, named;
    struct dirent *entry;
    bool found = false;
    DIR *names = opendir("/run/netns");

    if (!names || stat("/proc/self/ns/net", &self))
        return false;
    while ((entry = readdir(names)))
        found |= fstatat(dirfd(names), entry->d_name, &named, 0) == 0 && named.st_dev == self.st_dev &&
                 named.st_ino == self.st_ino;
    closedir(names);
    return found;
}

/* Whether this network namespace has no default route, so that nothing leaves the machine. */
static bool target_without_default_route(void)
{
    char line[256], device[64];
    bool routed = false;
    unsigned destination;
    FILE *routes = fopen("/proc/self/net/route", "r");

    if (!routes)
        return false;
    while (fgets(line, sizeof(line), routes))
        routed |= sscanf(line, "%63s %x", device, &destination) == 2 && destination == 0;
    fclose(routes);
    return !routed;
}

static void target_allow(const struct target *t, const char *text)
{
    const struct sockaddr_in *v4 = (const struct sockaddr_in *)&t->address;
    const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)&t->address;
    uint32_t address;

    if (t->address.ss_family == AF_INET6) {
        if (!IN6_IS_ADDR_LOOPBACK(&v6->sin6_addr))
            target_refuse(text, "the only IPv6 address allowed is ::1");
        return;
    }
    address = ntohl(v4->sin_addr.s_addr);
    if (address >> 24 == 127)
        return;
    if (address >> 24 != 10)
        target_refuse(text, "only 127.0.0.0/8, ::1 and 10.0.0.0/8 are allowed");
    if (!target_in_own_network() || !target_without_default_route())
        target_refuse(
            text, "10.0.0.0/8 is allowed only in a network namespace of `ip netns` without a default route");
}

void target_parse(struct target *t, const char *text, const char *from)
{
    struct sockaddr_in *v4 = (struct sockaddr_in *)&t->address;
    struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)&t->address;
    const char *colon = strrchr(text, ':');
    char host[64];
    uint16_t port;

    memset(t, 0, sizeof(*t));
    if (!colon || colon == text || (size_t)(colon - text) >= sizeof(host))
        target_refuse(text, "expected ADDRESS:PORT");
    port = (uint16_t)target_number("port", colon + 1, 1, 65535);
    snprintf(host, sizeof(host), "%.*s", (int)(colon - text), text);
    if (host[0] == '[' && host[strlen(host) - 1] == ']') {
        host[strlen(host) - 1] = '\0';
        if (inet_pton(AF_INET6, host + 1, &v6->sin6_addr) != 1)
            target_refuse(text, "not an IPv6 address");
        v6->sin6_family = AF_INET6;
        v6->sin6_port = htons(port);
        t->length = sizeof(*v6);
    } else {
        if (inet_pton(AF_INET, host, &v4->sin_addr) != 1)
            target_refuse(text, "not an IPv4 address");
        v4->sin_family = AF_INET;
        v4->sin_port = htons(port);
        t->length = sizeof(*v4);
    }
    target_allow(t, text); /* exits if the target is not allowed, before any socket is made */
    if (from) {
        if (inet_pton(AF_INET, from, &t->from.sin_addr) != 1 || t->address.ss_family != AF_INET)
            target_refuse(from, "the source must be an IPv4 address, like the target");
        t->from.sin_family = AF_INET;
    }
}

int target_connect(const struct target *t)
{
    int fd = socket(t->address.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    int on = 1, kept;

    if (fd < 0)
        return -1;
    /* With this option the kernel chooses the source port at connect, not at bind. It then knows the target, and can
     * use each of the source address's 28,000 ports once for each target. */
    if (t->from.sin_family && (setsockopt(fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &on, sizeof(on)) ||
                               bind(fd, (const struct sockaddr *)&t->from, sizeof(t->from))))
        goto fail;
    if (connect(fd, (const struct sockaddr *)&t->address, t->length) == 0 || errno == EINPROGRESS)
        return fd;
fail:
    kept = errno;
    close(fd);
    errno = kept;
    return -1;
}

int64_t target_number(const char *name, const char *text, int64_t least, int64_t most)
{
    char *end;
    int64_t value;

    errno = 0;
    value = strtoll(text, &end, 10);
    if (errno || end == text || *end || value < least || value > most) {
        fprintf(stderr, "%s: expected a number from %lld to %lld, got '%s'\n", name, (long long)least,
                (long long)most, text);
        exit(2);
    }
    return value;
}

int64_t target_now_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

void target_descriptors(int64_t wanted)
{
    struct rlimit files;

    getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
    if ((int64_t)files.rlim_cur < wanted) {
        fprintf(stderr, "%lld descriptors are needed, but the hard limit is %lld\n", (long long)wanted,
                (long long)files.rlim_cur);
        exit(2);
    }
}
