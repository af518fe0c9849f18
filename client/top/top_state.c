#include "client/top/top_state.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/mem.h"
#include "client/job_status.h"

const char *top_sort_name(enum top_sort sort)
{
    static const char *const names[TOP_SORTS] = {"turn", "job", "name", "user", "progress", "time"};

    return names[sort];
}

/* ---- which jobs, in which order */

static bool top_text_has(const char *text, const char *part)
{
    return strcasestr(text, part) != NULL;
}

static bool top_job_matches(const Ddp__V1__JobStatus *job, const char *filter)
{
    char number[24];

    snprintf(number, sizeof(number), "#%lld", (long long)job->job);
    if (!*filter || top_text_has(number, filter) || top_text_has(job->name, filter) ||
        top_text_has(job->user, filter) || top_text_has(job->state, filter))
        return true;
    for (size_t i = 0; i < job->n_nodes; i++)
        if (top_text_has(job->nodes[i], filter))
            return true;
    return false;
}

/* Jobs that have nodes or are about to come first, then the queue, then those that have ended. */
static int top_job_block(const Ddp__V1__JobStatus *job)
{
    return job_status_ended(job) ? 2 : strcmp(job->state, "queued") == 0 ? 1 : 0;
}

static int top_compare_numbers(double a, double b)
{
    return (a > b) - (a < b);
}

static int top_compare_turns(const Ddp__V1__JobStatus *x, const Ddp__V1__JobStatus *y)
{
    const int block = top_job_block(x);

    if (block != top_job_block(y))
        return block - top_job_block(y);
    if (block == 2 && x->ended_ms != y->ended_ms)
        return x->ended_ms > y->ended_ms ? -1 : 1;
    if (block == 1 && x->start_estimate && y->start_estimate)
        return x->start_estimate->position - y->start_estimate->position;
    if (block == 1 && (x->start_estimate || y->start_estimate))
        return x->start_estimate ? -1 : 1; /* a job on hold has no turn */
    return 0;
}

static int top_compare_jobs(const void *a, const void *b, void *context)
{
    const Ddp__V1__JobStatus *x = *(Ddp__V1__JobStatus *const *)a, *y = *(Ddp__V1__JobStatus *const *)b;
    const struct top_state *s = context;
    int order = 0;

    switch (s->sort) {
    case TOP_BY_NAME:
        order = strcasecmp(x->name, y->name);
        break;
    case TOP_BY_USER:
        order = strcasecmp(x->user, y->user);
        break;
    case TOP_BY_PROGRESS:
        order = top_compare_numbers(job_status_fraction(y), job_status_fraction(x));
        break;
    case TOP_BY_TIME: /* the job that was submitted last comes first */
        order = top_compare_numbers((double)y->created_ms, (double)x->created_ms);
        break;
    case TOP_BY_TURN:
        order = top_compare_turns(x, y);
        break;
    default:
        break;
    }
    if (!order)
        order = (x->job > y->job) - (x->job < y->job);
    return s->reverse ? -order : order;
}

Ddp__V1__JobStatus **top_choose(const struct top_state *s, const struct top_model *m, size_t *count)
{
    Ddp__V1__JobStatus **list = xcalloc(m->job_count + 1, sizeof(*list));
    struct top_state order = *s;

    *count = 0;
    for (size_t i = 0; i < m->job_count; i++)
        if (top_job_matches(m->jobs[i], s->filter))
            list[(*count)++] = m->jobs[i];
    qsort_r(list, *count, sizeof(*list), top_compare_jobs, &order);
    return list;
}

static size_t top_find_selected(const struct top_state *s, Ddp__V1__JobStatus *const *list, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (list[i]->job == s->selected)
            return i;
    return count;
}

void top_settle(struct top_state *s, const struct top_model *m, size_t room)
{
    size_t count;
    Ddp__V1__JobStatus **list = top_choose(s, m, &count);
    size_t at = top_find_selected(s, list, count);

    s->room = room ? room : 1;
    if (at == count) /* it is gone, or the filter hides it: the job on its row takes its place */
        at = s->selected_at < count ? s->selected_at : count ? count - 1 : 0;
    s->selected = count ? list[at]->job : 0;
    s->selected_at = at;
    if (at < s->first)
        s->first = at;
    if (at >= s->first + s->room)
        s->first = at - s->room + 1;
    if (s->first + s->room > count)
        s->first = count > s->room ? count - s->room : 0;
    if (s->first_node + 1 > m->node_count)
        s->first_node = m->node_count ? m->node_count - 1 : 0;
    free(list);
}

/* ---- keys */

static void top_move_nodes(struct top_state *s, const struct top_model *m, long by)
{
    const long at = (long)s->first_node + by, last = (long)m->node_count - 1;

    s->first_node = at < 0 ? 0 : at > last ? (last > 0 ? (size_t)last : 0) : (size_t)at;
}

static void top_move_selection(struct top_state *s, const struct top_model *m, long by)
{
    size_t count;
    Ddp__V1__JobStatus **list = top_choose(s, m, &count);
    const size_t at = top_find_selected(s, list, count);
    long to = (at < count ? (long)at : 0) + by;

    to = to >= (long)count ? (long)count - 1 : to;
    s->selected = count ? list[to > 0 ? to : 0]->job : 0;
    free(list);
    top_settle(s, m, s->room);
}

/* False: the key does not move. */
static bool top_press_move(struct top_state *s, const struct top_model *m, const struct top_key *key)
{
    const long page = (long)s->room, all = (long)(m->job_count + m->node_count);
    long by = 0;

    switch (key->kind) {
    case TOP_KEY_UP:
        by = -1;
        break;
    case TOP_KEY_DOWN:
        by = 1;
        break;
    case TOP_KEY_PAGE_UP:
        by = -page;
        break;
    case TOP_KEY_PAGE_DOWN:
        by = page;
        break;
    case TOP_KEY_HOME:
        by = -all;
        break;
    case TOP_KEY_END:
        by = all;
        break;
    case TOP_KEY_CHARACTER:
        by = !strcmp(key->text, "k") ? -1 : !strcmp(key->text, "j") ? 1 : 0;
        break;
    default:
        break;
    }
    if (by && s->page == TOP_NODES)
        top_move_nodes(s, m, by);
    else if (by && s->page == TOP_JOBS)
        top_move_selection(s, m, by);
    return by != 0;
}

/* The last character of the filter goes. */
static void top_filter_shorten(struct top_state *s)
{
    size_t len = strlen(s->filter);

    while (len && ((unsigned char)s->filter[len - 1] & 0xc0) == 0x80)
        len--;
    s->filter[len ? len - 1 : 0] = '\0';
}

static void top_press_filter(struct top_state *s, const struct top_key *key)
{
    const size_t len = strlen(s->filter);

    if (key->kind == TOP_KEY_ENTER) {
        s->prompt = TOP_NO_PROMPT;
    } else if (key->kind == TOP_KEY_ESCAPE) {
        s->prompt = TOP_NO_PROMPT;
        s->filter[0] = '\0';
    } else if (key->kind == TOP_KEY_BACKSPACE) {
        top_filter_shorten(s);
    } else if (key->kind == TOP_KEY_CHARACTER && len + strlen(key->text) < sizeof(s->filter)) {
        memcpy(s->filter + len, key->text, strlen(key->text) + 1);
    }
}

static void top_ask_to_cancel(struct top_state *s, const struct top_model *m)
{
    const int64_t job = s->page == TOP_JOB ? s->open : s->selected;

    for (size_t i = 0; i < m->job_count; i++)
        if (m->jobs[i]->job == job && job_status_ended(m->jobs[i])) {
            snprintf(s->message, sizeof(s->message), "job %lld has ended", (long long)job);
            return;
        }
    if (!job || s->page == TOP_NODES)
        return;
    s->cancels = job;
    s->prompt = TOP_ASKS_CANCEL;
}

static void top_go_back(struct top_state *s)
{
    if (s->page == TOP_JOBS)
        s->filter[0] = '\0';
    s->page = TOP_JOBS;
}

static enum top_action top_press_letter(struct top_state *s, const struct top_model *m, char letter)
{
    switch (letter) {
    case 'q':
        if (s->page == TOP_JOBS)
            return TOP_QUIT;
        s->page = TOP_JOBS;
        break;
    case 's':
        s->sort = (s->sort + 1) % TOP_SORTS;
        break;
    case 'r':
        s->reverse = !s->reverse;
        break;
    case 'n':
        s->page = s->page == TOP_NODES ? TOP_JOBS : TOP_NODES;
        break;
    case 'c':
        top_ask_to_cancel(s, m);
        break;
    case '/':
        s->page = TOP_JOBS;
        s->prompt = TOP_FILTERS;
        break;
    default:
        break;
    }
    return TOP_NOTHING;
}

enum top_action top_press(struct top_state *s, const struct top_model *m, const struct top_key *key)
{
    enum top_action action = TOP_NOTHING;

    s->message[0] = '\0';
    if (s->prompt == TOP_ASKS_CANCEL) {
        s->prompt = TOP_NO_PROMPT;
        return key->kind == TOP_KEY_CHARACTER && !strcmp(key->text, "y") ? TOP_CANCEL_JOB : TOP_NOTHING;
    }
    if (s->prompt == TOP_FILTERS) {
        top_press_filter(s, key);
    } else if (top_press_move(s, m, key)) {
        return TOP_NOTHING;
    } else if (key->kind == TOP_KEY_ENTER && s->page == TOP_JOBS && s->selected) {
        s->open = s->selected;
        s->page = TOP_JOB;
    } else if (key->kind == TOP_KEY_ESCAPE || key->kind == TOP_KEY_BACKSPACE) {
        top_go_back(s);
    } else if (key->kind == TOP_KEY_CHARACTER && !key->text[1]) {
        action = top_press_letter(s, m, key->text[0]);
    }
    top_settle(s, m, s->room);
    return action;
}
