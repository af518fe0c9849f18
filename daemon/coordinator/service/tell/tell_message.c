#include "daemon/coordinator/service/tell/tell_message.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "base/mem.h"

#define NAME_MOST 100 /* bytes of a job's name in a title */

static const char *title_verb(const char *what)
{
    static const struct {
        const char *what, *verb;
    } verbs[] = {{"started", "has started"},     {"restarted", "restarts"}, {"stalled", "makes no progress"},
                 {"cancelled", "was cancelled"}, {"node_lost", "is lost"},  {"drained", "is drained"},
                 {"gpu_sick", "has a sick GPU"}};
    for (size_t i = 0; i < ARRAY_LEN(verbs); i++)
        if (strcmp(what, verbs[i].what) == 0)
            return verbs[i].verb;
    return what; /* succeeded, failed */
}

void tell_title(const struct notice_record *n, struct buf *out)
{
    if (strcmp(n->what, "test") == 0)
        buf_puts(out, "test of this hook");
    else if (n->job)
        buf_printf(out, "job %" PRId64 " '%.*s' of %.*s %s", n->job, NAME_MOST, n->name, NAME_MOST, n->user,
                   title_verb(n->what));
    else
        buf_printf(out, "node %.*s %s", NAME_MOST, n->node, title_verb(n->what));
}

void tell_json(const struct notice_record *n, const char *cluster, struct buf *out)
{
    CLEANUP(buf_release) struct buf title = {0};
    struct jout o = {.buf = out};
    tell_title(n, &title);
    jout_open(&o, NULL, '{');
    jout_int(&o, "id", n->id);
    jout_text(&o, "cluster", cluster);
    jout_text(&o, "event", n->what);
    jout_int(&o, "time_ms", n->time_ms);
    jout_text(&o, "title", title.data);
    jout_text(&o, "text", n->text);
    if (n->job) {
        jout_int(&o, "job", n->job);
        jout_text(&o, "name", n->name);
        jout_text(&o, "user", n->user);
        jout_int(&o, "generation", n->generation);
    } else if (*n->node) {
        jout_text(&o, "node", n->node);
    }
    jout_close(&o, '}');
}

/* Slack reads <!channel>, <@user> and <https://...> as commands, unless these three characters are written so. */
static void slack_escape(const char *text, struct buf *out)
{
    for (; *text; text++)
        if (*text == '&')
            buf_puts(out, "&amp;");
        else if (*text == '<')
            buf_puts(out, "&lt;");
        else if (*text == '>')
            buf_puts(out, "&gt;");
        else
            buf_putc(out, *text);
}

static void body_slack(const struct notice_record *n, struct buf *out)
{
    CLEANUP(buf_release) struct buf title = {0}, text = {0};
    struct jout o = {.buf = out};
    tell_title(n, &title);
    slack_escape(title.data, &text);
    buf_puts(&text, ": ");
    slack_escape(n->text, &text);
    jout_open(&o, NULL, '{');
    jout_text(&o, "text", text.data);
    jout_close(&o, '}');
}

void tell_body(const struct notice_record *n, enum tell_shape shape, const char *cluster, struct buf *out)
{
    if (shape == TELL_SLACK) {
        body_slack(n, out);
    } else if (shape == TELL_NTFY) {
        tell_title(n, out);
        buf_printf(out, ": %s", n->text);
    } else {
        tell_json(n, cluster, out);
    }
}

char **tell_headers(const struct notice_record *n, enum tell_shape shape)
{
    static const char *const urgent[] = {"failed", "stalled", "node_lost", "gpu_sick"};
    char **list = NULL;
    if (shape != TELL_NTFY)
        return strv_append(NULL, "Content-Type: application/json");
    list = strv_append(list, "Content-Type: text/plain; charset=utf-8");
    CLEANUP(free_text)
    char *title = n->job ? xasprintf("Title: ddp: job %" PRId64 " %s", n->job, title_verb(n->what))
                         : xasprintf("Title: ddp: %s", n->what);
    list = strv_append(list, title);
    for (size_t i = 0; i < ARRAY_LEN(urgent); i++)
        if (strcmp(n->what, urgent[i]) == 0)
            list = strv_append(list, "Priority: high");
    return list;
}
