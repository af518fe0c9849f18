#include "daemon/coordinator/core/forecast/run_history.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

#define NEWEST 9 /* earlier jobs that count */
/* A job that runs longer than all earlier ones is expected to run for another 1/10 of its time so far. */
#define OVERDUE 10

struct run_history_entry {
    const char *user, *name; /* borrowed; not NULL */
    int64_t id, run_ms;
};

static int compare_newest(const struct run_history_entry *a, const struct run_history_entry *b)
{
    return (a->id < b->id) - (a->id > b->id);
}

static int compare_names(const void *a, const void *b)
{
    const struct run_history_entry *x = a, *y = b;
    const int names = strcmp(x->name, y->name);

    return names ? names : compare_newest(x, y);
}

static int compare_users(const void *a, const void *b)
{
    const struct run_history_entry *x = a, *y = b;
    const int users = strcmp(x->user, y->user);

    return users ? users : compare_names(a, b);
}

/* Only jobs that succeeded say how long such a job takes. */
void run_history_collect(struct run_history *history, const struct core *core)
{
    *history = (struct run_history){.by_user = xcalloc(core->job_count + 1, sizeof(*history->by_user))};
    for (size_t i = 0; i < core->job_count; i++) {
        const struct job_record *r = &core->jobs[i]->r;
        if (r->state != JOB_SUCCEEDED || !r->started_ms || r->ended_ms <= r->started_ms)
            continue;
        history->by_user[history->count++] = (struct run_history_entry){
            .user = r->user ? r->user : "",
            .name = r->name ? r->name : "",
            .id = r->id,
            .run_ms = r->ended_ms - r->started_ms,
        };
    }
    history->by_name = xmemdup(history->by_user, (history->count + 1) * sizeof(*history->by_user));
    qsort(history->by_user, history->count, sizeof(*history->by_user), compare_users);
    qsort(history->by_name, history->count, sizeof(*history->by_name), compare_names);
}

/* Orders an entry against what is looked for; user NULL: anybody's. */
static int compare_key(const struct run_history_entry *entry, const char *user, const char *name)
{
    const int users = user ? strcmp(entry->user, user) : 0;

    return users ? users : strcmp(entry->name, name);
}

static int compare_times(const void *a, const void *b)
{
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

    return (x > y) - (x < y);
}

/* The median of the times that are longer than the job has run already. */
static int64_t median_left(int64_t *times, size_t count, int64_t elapsed_ms)
{
    size_t over = 0;

    qsort(times, count, sizeof(*times), compare_times);
    while (over < count && times[over] <= elapsed_ms)
        over++;
    return over == count ? elapsed_ms / OVERDUE : times[over + (count - over) / 2] - elapsed_ms;
}

static int64_t find_left(const struct run_history_entry *list, size_t count, const char *user,
                         const char *name, int64_t elapsed_ms)
{
    int64_t times[NEWEST];
    size_t low = 0, high = count, found = 0;

    while (low < high) {
        const size_t mid = (low + high) / 2;
        if (compare_key(&list[mid], user, name) < 0)
            low = mid + 1;
        else
            high = mid;
    }
    for (; low < count && found < NEWEST && compare_key(&list[low], user, name) == 0; low++)
        times[found++] = list[low].run_ms;
    return found ? median_left(times, found, elapsed_ms) : -1;
}

int64_t run_history_left(const struct run_history *history, const char *user, const char *name,
                         int64_t elapsed_ms)
{
    const char *who = user ? user : "", *what = name ? name : "";
    const int64_t left = find_left(history->by_user, history->count, who, what, elapsed_ms);

    /* the user's jobs of other names say nothing about this one */
    return left < 0 ? find_left(history->by_name, history->count, NULL, what, elapsed_ms) : left;
}

void run_history_release(struct run_history *history)
{
    free(history->by_user);
    free(history->by_name);
    *history = (struct run_history){0};
}
