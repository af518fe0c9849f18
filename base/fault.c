#include "base/fault.h"

#ifdef DDP_FAULTS

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The plan is read from the environment at the first hit and never changes; only the counters do. */
enum { FAULT_MAX = 16 };

struct fault {
    char name[64];
    long first; /* the hit that fails, from 1 */
    bool on;    /* every later hit fails, too */
    bool kill;
    long hits;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static bool loaded;
static struct fault plan[FAULT_MAX];
static int planned;

/* Parses "name[:first[+]][=kill][@rank]". An invalid plan ends the process, so that no test passes because of a typing
 * error. */
static void fault_add(const char *entry)
{
    struct fault *fault = &plan[planned++];
    const char *rank = getenv("RANK"), *wanted = NULL;
    size_t len = strcspn(entry, ":=@");
    const char *rest = entry + len;
    char *end;

    fault->first = 1;
    if (*rest == ':') {
        fault->first = strtol(rest + 1, &end, 10);
        rest = end;
    }
    if (*rest == '+') {
        fault->on = true;
        rest++;
    }
    if (!strncmp(rest, "=kill", strlen("=kill"))) {
        fault->kill = true;
        rest += strlen("=kill");
    }
    if (*rest == '@') {
        wanted = rest + 1;
        rest = wanted + strspn(wanted, "0123456789");
    }
    /* *rest: characters are left that no part of the format has taken */
    if (!len || len >= sizeof(fault->name) || fault->first < 1 || *rest || wanted == rest) {
        fprintf(stderr,
                "DDP_FAULT: invalid entry '%s': expected name:hit, name:hit+ or name:hit=kill, and @rank\n",
                entry);
        abort();
    }
    if (wanted && (!rank || strcmp(rank, wanted) != 0))
        planned--; /* for another rank */
    else
        memcpy(fault->name, entry, len);
}

static void fault_load(void)
{
    const char *text = getenv("DDP_FAULT");
    char copy[1024], *at, *entry;

    loaded = true;
    if (!text)
        return;
    snprintf(copy, sizeof(copy), "%s", text);
    for (entry = strtok_r(copy, ",", &at); entry && planned < FAULT_MAX; entry = strtok_r(NULL, ",", &at))
        fault_add(entry);
}

bool fault_hit(const char *name)
{
    bool fails = false, kills = false;

    pthread_mutex_lock(&lock);
    if (!loaded)
        fault_load();
    for (int i = 0; i < planned; i++) {
        struct fault *fault = &plan[i];

        if (strcmp(fault->name, name))
            continue;
        fault->hits++;
        if (fault->hits == fault->first || (fault->on && fault->hits > fault->first)) {
            fails = true;
            kills |= fault->kill;
        }
    }
    pthread_mutex_unlock(&lock);
    if (kills)
        raise(SIGKILL);
    return fails;
}

#endif
