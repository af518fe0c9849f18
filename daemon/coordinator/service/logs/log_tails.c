#include "daemon/coordinator/service/logs/log_tails.h"

#include <search.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/mem.h"

#define RUN_COST (2 * sizeof(int64_t))

struct tails_job {
    int64_t job;
    struct log_tail *first, *last;
    void *tree; /* tsearch: its copies by spawn and stream; a large job has tens of thousands */
    size_t count, cost;
    size_t most;                   /* no copy has more bytes */
    struct tails_job *next, *prev; /* ordered by the last message; the newest is first */
};

struct tails_node {
    char *name;
    int64_t complete_ms, heard_ms;
};

struct log_tails {
    struct tails_job *first, *last;
    size_t cost;
    struct tails_node *nodes;
    size_t node_count, node_cap;
};

struct log_tails *log_tails_create(void)
{
    return xcalloc(1, sizeof(struct log_tails));
}

/* ---- lists */

static struct tails_job *tails_find_job(const struct log_tails *t, int64_t job)
{
    struct tails_job *j = t->first;

    while (j && j->job != job)
        j = j->next;
    return j;
}

static void tails_unlink_job(struct log_tails *t, struct tails_job *j)
{
    *(j->prev ? &j->prev->next : &t->first) = j->next;
    *(j->next ? &j->next->prev : &t->last) = j->prev;
}

static void tails_link_job(struct log_tails *t, struct tails_job *j)
{
    j->prev = NULL;
    j->next = t->first;
    *(j->next ? &j->next->prev : &t->last) = j;
    t->first = j;
}

static int compare_tails(const void *a, const void *b)
{
    const struct log_tail *x = a, *y = b;

    if (x->spawn != y->spawn)
        return x->spawn < y->spawn ? -1 : 1;
    return x->standard_error - y->standard_error;
}

static struct log_tail *job_find_tail(const struct tails_job *j, int64_t spawn, bool standard_error)
{
    const struct log_tail key = {.spawn = spawn, .standard_error = standard_error};
    struct log_tail **found = j ? tfind(&key, &j->tree, compare_tails) : NULL;

    return found ? *found : NULL;
}

static void job_unlink_tail(struct tails_job *j, struct log_tail *x)
{
    *(x->prev ? &x->prev->next : &j->first) = x->next;
    *(x->next ? &x->next->prev : &j->last) = x->prev;
}

static void job_link_tail(struct tails_job *j, struct log_tail *x)
{
    x->prev = NULL;
    x->next = j->first;
    *(x->next ? &x->next->prev : &j->last) = x;
    j->first = x;
}

/* ---- limits */

static void tail_count(struct log_tails *t, struct tails_job *j, struct log_tail *x, size_t cost)
{
    t->cost += cost - x->cost;
    j->cost += cost - x->cost;
    x->cost = cost;
}

static size_t tail_cost(const struct log_tail *x)
{
    return LOG_TAIL_COST + x->data.len + x->run_count * RUN_COST;
}

static void tail_free(struct log_tails *t, struct tails_job *j, struct log_tail *x)
{
    tail_count(t, j, x, 0);
    job_unlink_tail(j, x);
    tdelete(x, &j->tree, compare_tails);
    j->count--;
    free(x->node);
    buf_release(&x->data);
    free(x->run_bytes);
    free(x->run_us);
    free(x);
}

static void job_free(struct log_tails *t, struct tails_job *j)
{
    while (j->first)
        tail_free(t, j, j->first);
    tails_unlink_job(t, j);
    free(j);
}

/* Removes bytes at the front. */
static void tail_cut(struct log_tail *x, size_t bytes)
{
    size_t gone = 0, left = bytes;

    while (gone < x->run_count && (size_t)x->run_bytes[gone] <= left)
        left -= (size_t)x->run_bytes[gone++];
    if (gone < x->run_count)
        x->run_bytes[gone] -= (int64_t)left;
    x->run_count -= gone;
    if (gone) { /* otherwise there may be no runs and no arrays */
        memmove(x->run_bytes, x->run_bytes + gone, x->run_count * sizeof(*x->run_bytes));
        memmove(x->run_us, x->run_us + gone, x->run_count * sizeof(*x->run_us));
    }
    buf_consume(&x->data, bytes);
    x->offset += (int64_t)bytes;
}

/* Joins each run with the next one. This halves the number of times; some become slightly too late. */
static void tail_join_runs(struct log_tail *x)
{
    size_t count = 0;

    for (size_t i = 0; i < x->run_count; i += 2, count++) {
        const bool pair = i + 1 < x->run_count;

        x->run_us[count] = x->run_us[i + pair];
        x->run_bytes[count] = x->run_bytes[i] + (pair ? x->run_bytes[i + 1] : 0);
    }
    x->run_count = count;
}

static void tail_limit(struct log_tails *t, struct tails_job *j, struct log_tail *x, size_t most)
{
    if (x->data.len > most)
        tail_cut(x, x->data.len - most);
    while (x->run_count > 1 && x->run_count * RUN_COST > most / 4)
        tail_join_runs(x);
    if (x->data.cap > 2 * x->data.len + LOG_TAIL_LEAST) { /* memory is left from a large part */
        struct buf small = {0};

        buf_append(&small, x->data.data, x->data.len);
        buf_release(&x->data);
        x->data = small;
    }
    tail_count(t, j, x, tail_cost(x));
}

/* Three quarters are for the bytes. The rest is for their times and for LOG_TAIL_COST. */
static size_t job_share(const struct tails_job *j)
{
    const size_t share = LOG_TAILS_JOB_BYTES / 4 * 3 / (j->count ? j->count : 1);

    return share > LOG_TAIL_BYTES ? LOG_TAIL_BYTES : share < LOG_TAIL_LEAST ? LOG_TAIL_LEAST : share;
}

/* First the job's copies are cut to the job's share. If that is not enough, the oldest copies are removed. A job with
 * tens of thousands of copies reaches its limit each time it sends a part. So its copies are cut only if the share has
 * become smaller. */
static void job_limit(struct log_tails *t, struct tails_job *j)
{
    const size_t share = job_share(j);

    if (j->cost > LOG_TAILS_JOB_BYTES && j->most > share) {
        for (struct log_tail *x = j->last; x; x = x->prev)
            tail_limit(t, j, x, share);
        j->most = share;
    }
    while (j->cost > LOG_TAILS_JOB_BYTES && j->last != j->first)
        tail_free(t, j, j->last);
}

static void tails_limit(struct log_tails *t)
{
    while (t->cost > LOG_TAILS_BYTES && t->last) {
        struct tails_job *j = t->last;

        if (j->last != j->first)
            tail_free(t, j, j->last);
        else
            job_free(t, j);
    }
}

/* ---- parts */

static void tail_add_run(struct log_tail *x, int64_t bytes, int64_t wall_us)
{
    const size_t cap = x->run_cap;

    if (x->run_count && x->run_us[x->run_count - 1] == wall_us) {
        x->run_bytes[x->run_count - 1] += bytes;
        return;
    }
    x->run_bytes = array_grow(x->run_bytes, x->run_count, &x->run_cap, sizeof(*x->run_bytes));
    if (x->run_cap != cap)
        x->run_us = xrealloc(x->run_us, x->run_cap * sizeof(*x->run_us));
    x->run_bytes[x->run_count] = bytes;
    x->run_us[x->run_count++] = wall_us;
}

/* The agent is not trusted, so the runs are corrected to cover the bytes exactly. */
static void tail_append(struct log_tail *x, const struct log_tail_part *part)
{
    size_t left = part->size;

    buf_append(&x->data, part->data, part->size);
    for (size_t i = 0; i < part->run_count && left; i++) {
        const int64_t bytes = part->run_bytes[i];
        const size_t take = bytes <= 0 ? 0 : (uint64_t)bytes < left ? (size_t)bytes : left;

        if (take)
            tail_add_run(x, (int64_t)take, part->run_us[i] > 0 ? part->run_us[i] : 0);
        left -= take;
        if (x->run_count > LOG_TAIL_RUNS)
            tail_join_runs(x);
    }
    if (left)
        tail_add_run(x, (int64_t)left, 0);
}

static struct tails_job *tails_take_job(struct log_tails *t, int64_t job)
{
    struct tails_job *j = tails_find_job(t, job);

    if (j) {
        tails_unlink_job(t, j);
    } else {
        j = xcalloc(1, sizeof(*j));
        j->job = job;
    }
    tails_link_job(t, j);
    return j;
}

static struct log_tail *job_take_tail(struct tails_job *j, const struct log_tail_part *part)
{
    struct log_tail *x = job_find_tail(j, part->spawn, part->standard_error);

    if (x) {
        job_unlink_tail(j, x);
    } else {
        x = xcalloc(1, sizeof(*x));
        x->spawn = part->spawn;
        x->standard_error = part->standard_error;
        x->node = xstrdup(part->node);
        BUG_ON(!tsearch(x, &j->tree, compare_tails));
        j->count++;
    }
    job_link_tail(j, x);
    return x;
}

void log_tails_put(struct log_tails *t, const struct log_tail_part *part, int64_t now_ms)
{
    struct tails_job *j = tails_take_job(t, part->job);
    struct log_tail *x = job_take_tail(j, part);

    if (part->offset != x->offset + (int64_t)x->data.len) {
        tail_cut(x, x->data.len);
        x->offset = part->offset;
    }
    tail_append(x, part);
    x->sent_ms = now_ms;
    tail_limit(t, j, x, job_share(j));
    j->most = job_share(j) > j->most ? job_share(j) : j->most;
    job_limit(t, j);
    tails_limit(t);
}

const struct log_tail *log_tails_find(const struct log_tails *t, int64_t job, int64_t spawn,
                                      bool standard_error)
{
    return job_find_tail(tails_find_job(t, job), spawn, standard_error);
}

void log_tails_drop_job(struct log_tails *t, int64_t job)
{
    struct tails_job *j = tails_find_job(t, job);

    if (j)
        job_free(t, j);
}

size_t log_tails_bytes(const struct log_tails *t)
{
    return t->cost;
}

void log_tails_free(struct log_tails *t)
{
    if (!t)
        return;
    while (t->first)
        job_free(t, t->first);
    for (size_t i = 0; i < t->node_count; i++)
        free(t->nodes[i].name);
    free(t->nodes);
    free(t);
}

/* ---- nodes */

/* The place of the node in the list, which is sorted by name, or where it should be inserted. A binary search, because
 * each heartbeat of an agent calls this. */
static size_t tails_node_place(const struct log_tails *t, const char *name)
{
    size_t low = 0, high = t->node_count;

    while (low < high) {
        const size_t mid = (low + high) / 2;
        if (strcmp(t->nodes[mid].name, name) < 0)
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

static struct tails_node *tails_find_node(const struct log_tails *t, const char *name)
{
    const size_t at = tails_node_place(t, name);
    return at < t->node_count && strcmp(t->nodes[at].name, name) == 0 ? &t->nodes[at] : NULL;
}

void log_tails_heard(struct log_tails *t, const char *node, int64_t complete_ms, int64_t now_ms)
{
    struct tails_node *n = tails_find_node(t, node);

    if (!n) {
        const size_t at = tails_node_place(t, node);
        t->nodes = array_grow(t->nodes, t->node_count, &t->node_cap, sizeof(*t->nodes));
        n = &t->nodes[at];
        memmove(n + 1, n, (t->node_count++ - at) * sizeof(*n));
        *n = (struct tails_node){.name = xstrdup(node)};
    }
    n->heard_ms = now_ms;
    if (complete_ms > n->complete_ms && complete_ms <= now_ms)
        n->complete_ms = complete_ms;
}

int64_t log_tails_age(const struct log_tails *t, const struct log_tail *tail)
{
    const struct tails_node *n = tails_find_node(t, tail->node);
    const int64_t as_of = n && n->complete_ms > tail->sent_ms ? n->complete_ms : tail->sent_ms;

    return n && n->heard_ms > as_of ? n->heard_ms - as_of : 0;
}
