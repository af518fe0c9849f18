#include "base/job/tell.h"

#include <string.h>

#include "base/buf.h"
#include "base/mem.h"
#include "base/net/web_url.h"

const char *const tell_shape_names[] = {"auto", "json", "slack", "ntfy", "discord", NULL};

static bool text_ends_with(const char *text, size_t len, const char *end)
{
    const size_t most = strlen(end);
    return len >= most && memcmp(text + len - most, end, most) == 0;
}

static bool host_is_discord(const char *host)
{
    const char *const hosts[] = {"discord.com", "discordapp.com", "ptb.discord.com", "canary.discord.com"};
    for (size_t i = 0; i < ARRAY_LEN(hosts); i++)
        if (strcmp(host, hosts[i]) == 0)
            return true;
    return false;
}

enum tell_shape tell_shape_of(enum tell_shape asked, const char *url)
{
    struct web_url parts;
    struct err e;
    if (asked != TELL_AUTO)
        return asked;
    if (web_url_parse(&parts, url, &e) != ERR_OK)
        return TELL_JSON;
    if (strcmp(parts.host, "hooks.slack.com") == 0)
        return TELL_SLACK;
    if (host_is_discord(parts.host)) /* it understands Slack's messages at addresses that end so */
        return text_ends_with(parts.path, strcspn(parts.path, "?"), "/slack") ? TELL_SLACK : TELL_DISCORD;
    if (strcmp(parts.host, "ntfy.sh") == 0 || strncmp(parts.host, "ntfy.", 5) == 0)
        return TELL_NTFY;
    return TELL_JSON;
}

enum err_code tell_check(const char *url, char *const *allow, struct err *e)
{
    struct web_url parts;
    CLEANUP(free_text) char *shown = web_url_shown(url);
    if (web_url_parse(&parts, url, e) != ERR_OK)
        return err_wrap(e, "tell");
    if (allow && (!allow[0] || strcmp(allow[0], "none") == 0))
        return err_set(e, ERR_PERMISSION_DENIED, "this coordinator allows no `tell` in jobs");
    for (size_t i = 0; allow && allow[i]; i++)
        if (web_url_below(url, allow[i]))
            return ERR_OK;
    if (!allow && parts.https)
        return ERR_OK;
    if (!allow)
        return err_set(e, ERR_PERMISSION_DENIED, "tell: %s is not allowed: use https", shown);
    CLEANUP(buf_release) struct buf list = {0};
    for (size_t i = 0; allow[i] && list.len < 200; i++) {
        CLEANUP(free_text) char *one = web_url_shown(allow[i]);
        buf_printf(&list, "%s%s", i ? ", " : "", one);
    }
    return err_set(e, ERR_PERMISSION_DENIED, "tell: %s is not allowed: this coordinator allows %s", shown,
                   list.data);
}
