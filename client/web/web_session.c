#include "client/web/web_session.h"

#include <stdlib.h>

#include "base/mem.h"
#include "base/web/web_access.h"
#include "base/web/web_server.h"
#include "client/web/page/web_page.h"
#include "client/web/web_answers.h"
#include "client/web/web_watch.h"

static void session_answer(void *link, const struct web_asker *asker, const struct web_request *request,
                           struct web_reply *reply)
{
    (void)asker;
    web_answer(link, request, reply);
}

struct web_session {
    struct link link;
    char key[WEB_KEY_TEXT];
    char *url;
    struct web_levels *levels;
    struct web_watch *watch;
    struct web_server *server;
};

enum err_code web_session_open(struct web_session **out, struct link *link, uint16_t port, struct err *e)
{
    struct web_session *s = xcalloc(1, sizeof(*s));
    s->link = *link;
    *link = (struct link){0};
    web_access_new_key(s->key);
    s->levels = web_levels_create();
    struct web_options options = {
        .port = port ? port : WEB_SESSION_PORT,
        .key = s->key,
        .page = (const char *)web_page_html,
        .page_size = web_page_size,
        .levels = s->levels,
        .answer = session_answer,
        .user = &s->link,
    };
    enum err_code code = web_server_open(&s->server, &options, e);
    if (code != ERR_OK && !port) {
        options.port = 0;
        code = web_server_open(&s->server, &options, e);
    }
    if (code != ERR_OK) {
        web_session_close(s);
        return e->code;
    }
    s->watch = web_watch_open(&s->link, s->levels);
    s->url = xasprintf("http://127.0.0.1:%u/#k=%s", (unsigned)web_server_port(s->server), s->key);
    *out = s;
    return ERR_OK;
}

const char *web_session_url(const struct web_session *s)
{
    return s->url;
}

void web_session_close(struct web_session *s)
{
    if (!s)
        return;
    rpc_channel_cancel(s->link.channel); /* nobody waits for the answers to present calls */
    web_watch_close(s->watch);
    web_server_close(s->server);
    web_levels_free(s->levels);
    link_close(&s->link);
    free(s->url);
    free(s);
}
