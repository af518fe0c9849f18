#include "daemon/coordinator/service/tell/tell_message.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "base/mem.h"

#define NAME_MOST 100 /* bytes of a job's name in a title */
/* Discord refuses messages of more than 2000 characters, also in Slack's form. ntfy turns a text of more than 4096
 * bytes into an attachment, which a server may refuse. A text has at least as many bytes as characters. */
#define CHAT_MOST 2000
#define NTFY_MOST 4096
#define CUT "..."      /* the end of a message that was too long */
#define ESCAPED_MOST 8 /* bytes of an escaped character, with a NUL */

static const char *title_verb(const char *what)
{
    static const struct {
        const char *what, *verb;
    } verbs[] = {{"started", "has started"},       {"restarted", "restarts"},
                 {"stalled", "makes no progress"}, {"cancelled", "was cancelled"},
                 {"node_lost", "is lost"},         {"drained", "is drained"},
                 {"gpu_sick", "has a sick GPU"},   {"gpus_idle", "has idle GPUs"}};
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

/* Writes the escaped form of the character at `at` to `out`, and returns its size. 0: the character needs no escape. */
typedef size_t (*tell_escape_fn)(const char *at, char out[ESCAPED_MOST]);

static size_t escape_as(char out[ESCAPED_MOST], const char *text)
{
    return (size_t)snprintf(out, ESCAPED_MOST, "%s", text);
}

/* Slack reads <!channel>, <@user> and <https://...> as commands, unless these three characters are written so. Discord
 * may get the same message. It reads @everyone and @here, so an invisible character separates the sign from the word. */
static size_t slack_escape(const char *at, char out[ESCAPED_MOST])
{
    if (*at == '@' && (strncmp(at + 1, "everyone", 8) == 0 || strncmp(at + 1, "here", 4) == 0))
        return escape_as(out, "@\xe2\x81\xa0"); /* U+2060, word joiner */
    return *at == '&'   ? escape_as(out, "&amp;")
           : *at == '<' ? escape_as(out, "&lt;")
           : *at == '>' ? escape_as(out, "&gt;")
                        : 0;
}

/* Discord formats texts by Markdown; after a backslash the next character has no meaning. */
static size_t discord_escape(const char *at, char out[ESCAPED_MOST])
{
    return strchr("\\*_~`|>#[]", *at) ? escape_as(out, (const char[]){'\\', *at, '\0'}) : 0;
}

static size_t ntfy_escape(const char *at, char out[ESCAPED_MOST])
{
    (void)at;
    (void)out;
    return 0;
}

/* "TITLE: TEXT" in valid UTF-8, in which `escape` has replaced what the service would interpret. A text of more than `most`
 * bytes is cut and ends with "...". */
static char *message_text(const struct notice_record *n, tell_escape_fn escape, size_t most)
{
    CLEANUP(buf_release) struct buf plain = {0};
    struct buf text = {0};
    tell_title(n, &plain);
    buf_printf(&plain, ": %s", n->text);
    for (const char *at = plain.data; *at;) {
        char put[ESCAPED_MOST];
        const size_t length = json_char_length(at);
        size_t size = escape(at, put);
        if (!size && length)
            memcpy(put, at, size = length);
        else if (!size)
            size = escape_as(put, "\xef\xbf\xbd"); /* U+FFFD */
        if (text.len + size + strlen(CUT) > most) {
            buf_puts(&text, CUT);
            break;
        }
        buf_append(&text, put, size);
        at += length ? length : 1;
    }
    return buf_steal(&text);
}

static void body_slack(const struct notice_record *n, struct buf *out)
{
    CLEANUP(free_text) char *text = message_text(n, slack_escape, CHAT_MOST);
    struct jout o = {.buf = out};
    jout_open(&o, NULL, '{');
    jout_text(&o, "text", text);
    jout_bool(&o, "mrkdwn", false);
    jout_close(&o, '}');
}

static void body_discord(const struct notice_record *n, struct buf *out)
{
    CLEANUP(free_text) char *text = message_text(n, discord_escape, CHAT_MOST);
    struct jout o = {.buf = out};
    jout_open(&o, NULL, '{');
    jout_text(&o, "content", text);
    jout_raw(&o, "allowed_mentions", "{\"parse\":[]}");
    jout_close(&o, '}');
}

void tell_body(const struct notice_record *n, enum tell_shape shape, const char *cluster, struct buf *out)
{
    if (shape == TELL_SLACK) {
        body_slack(n, out);
    } else if (shape == TELL_DISCORD) {
        body_discord(n, out);
    } else if (shape == TELL_NTFY) {
        CLEANUP(free_text) char *text = message_text(n, ntfy_escape, NTFY_MOST);
        buf_puts(out, text);
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
