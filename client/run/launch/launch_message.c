#include "client/run/launch/launch_message.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"

#define MOST_BYTES (4 << 20) /* of an environment */

char *launch_message_text(const struct launch_message *at)
{
    return xasprintf("%lld,%lld,%lld,%s,%s,%s", (long long)at->rank, (long long)at->count,
                     (long long)at->port, at->id, at->host, at->env);
}

static bool launch_message_next_number(char **rest, int64_t *value)
{
    char *end;
    errno = 0;
    *value = strtoll(*rest, &end, 10);
    bool good = end != *rest && *end == ',' && errno == 0;
    *rest = end + good;
    return good;
}

enum err_code launch_message_parse(const char *text, struct launch_message *at, struct err *e)
{
    CLEANUP(free_text) char *copy = xstrdup(text);
    char *rest = copy;
    *at = (struct launch_message){0};
    bool good = launch_message_next_number(&rest, &at->rank) &&
                launch_message_next_number(&rest, &at->count) &&
                launch_message_next_number(&rest, &at->port) && at->rank >= -1 && at->rank < at->count &&
                at->port > 0 && at->port < 65536;
    const char *id = good ? strsep(&rest, ",") : NULL;
    const char *host = rest ? strsep(&rest, ",") : NULL;
    if (!id || !host || !rest)
        return err_set(e, ERR_INVALID_ARGUMENT, "--launched '%s': this option is for ddpctl itself", text);
    at->id = xstrdup(id);
    at->host = xstrdup(host);
    at->env = xstrdup(rest);
    return ERR_OK;
}

void launch_message_release(struct launch_message *at)
{
    free(at->id);
    free(at->host);
    free(at->env);
    *at = (struct launch_message){0};
}

void launch_message_apply(const struct launch_message *at, struct run_request *r)
{
    if (!r->nodes_min)
        r->nodes_min = r->nodes_max = at->count;
    if (r->node_rank < 0)
        r->node_rank = at->rank;
    if (!r->id && *at->id)
        r->id = xstrdup(at->id);
    r->secondary = at->rank > 0;
    if (r->host || !*at->host)
        return;
    r->host = xstrdup(at->host);
    r->port = at->port;
    if (r->is_host < 0 && at->rank >= 0)
        r->is_host = at->rank == 0;
}

char *launch_message_pack(char *const *environment, size_t *size)
{
    struct buf all = {0};
    for (; environment && *environment; environment++)
        buf_append(&all, *environment, strlen(*environment) + 1);
    buf_putc(&all, 0);
    *size = all.len;
    return buf_steal(&all);
}

/* Reads up to the empty text, byte by byte: what follows belongs to the lifeline. */
static enum err_code environment_read(int fd, struct buf *all, struct err *e)
{
    char byte;
    for (bool begins = true;; begins = !byte) {
        ssize_t n = read(fd, &byte, 1);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0 || all->len >= MOST_BYTES)
            return err_set(e, ERR_UNAVAILABLE, "the launcher of this run ended before it had sent the token");
        if (begins && !byte)
            return ERR_OK;
        buf_append(all, &byte, 1);
    }
}

static enum err_code environment_receive(int fd, struct err *e)
{
    CLEANUP(buf_release) struct buf all = {0};
    if (environment_read(fd, &all, e) != ERR_OK)
        return e->code;
    for (size_t at = 0; at < all.len; at += strlen(all.data + at) + 1) {
        char *entry = all.data + at, *value = strchr(entry, '=');
        if (!value)
            return err_set(e, ERR_INVALID_ARGUMENT, "the launcher of this run sent an invalid environment");
        *value = 0;
        setenv(entry, value + 1, 1);
        *value = '=';
    }
    return ERR_OK;
}

/* Raises in this thread, so that a signal is handled before the next byte is read: two pending ones would be merged,
 * and the second ^C lost. */
static void *lifeline_main(void *unused)
{
    unsigned char number;
    ssize_t n;
    (void)unused;
    while ((n = read(STDIN_FILENO, &number, 1)) == 1 || (n < 0 && errno == EINTR))
        if (n == 1)
            raise(number);
    raise(SIGTERM);
    return NULL;
}

static enum err_code lifeline_follow(struct err *e)
{
    pthread_t thread;
    const int rc = pthread_create(&thread, NULL, lifeline_main, NULL);
    if (rc != 0)
        return err_sys(e, rc, "cannot start the thread for the launcher's signals");
    pthread_detach(thread);
    return ERR_OK;
}

enum err_code launch_message_receive(const struct launch_message *at, struct err *e)
{
    if (!*at->env)
        return ERR_OK;
    if (strcmp(at->env, "-") == 0) {
        if (environment_receive(STDIN_FILENO, e) != ERR_OK)
            return e->code;
        return lifeline_follow(e);
    }
    CLEANUP(close_fd) int fd = open(at->env, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0)
        return err_sys(e, errno, "%s", at->env);
    return environment_receive(fd, e);
}
