#include "daemon/coordinator/hook_config.h"

#include <ctype.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/crypto/id.h"
#include "base/mem.h"
#include "base/net/web_url.h"
#include "daemon/coordinator/service/tell/hook.h"

#define HOOKS_MOST 64

/* One entry of the list, as it is written. */
struct hook_text {
    char *name, *post;
    char **on, **user, **job, **run;
    int as;
    int64_t timeout_ms;
};

static enum err_code texts_or_one(const struct conf_node *node, void *at, struct err *e)
{
    static const struct conf_field texts[] = {{"value", CONF_TEXTS, 0}, {0}};
    char ***list = at;
    if (!conf_is_scalar(node))
        return conf_read_value(node, texts, at, e);
    strv_free(*list);
    *list = strv_append(NULL, conf_scalar(node));
    return ERR_OK;
}

/* The message does not repeat the URL, which may be a secret. */
static enum err_code url_read(const struct conf_node *node, void *at, struct err *e)
{
    const char *text = conf_scalar(node);
    struct web_url url;
    struct err why = {0};
    if (!text)
        return conf_fail(node, e, "invalid value for 'post': expected a URL");
    if (web_url_parse(&url, text, &why) != ERR_OK)
        return conf_fail(node, e, "invalid value for 'post': %s", why.msg);
    free(*(char **)at);
    *(char **)at = xstrdup(text);
    return ERR_OK;
}

#define AT(member) offsetof(struct hook_text, member)
static const struct conf_field hook_fields[] = {
    {.key = "name", .type = CONF_TEXT, .offset = AT(name)},
    {.key = "on", .type = CONF_CUSTOM, .offset = AT(on), .fn = texts_or_one, .required = true},
    {.key = "user", .type = CONF_CUSTOM, .offset = AT(user), .fn = texts_or_one},
    {.key = "job", .type = CONF_CUSTOM, .offset = AT(job), .fn = texts_or_one},
    {.key = "post", .type = CONF_CUSTOM, .offset = AT(post), .fn = url_read},
    {.key = "as", .type = CONF_ENUM, .offset = AT(as), .names = tell_shape_names},
    {.key = "run", .type = CONF_TEXTS, .offset = AT(run)},
    {.key = "timeout", .type = CONF_DURATION, .offset = AT(timeout_ms), .min = 100, .max = 600e3},
    {.key = NULL},
};

static void hook_text_release(struct hook_text *t)
{
    free(t->name);
    free(t->post);
    strv_free(t->on);
    strv_free(t->user);
    strv_free(t->job);
    strv_free(t->run);
}

static enum err_code events_read(const struct conf_node *node, char *const *words, unsigned *on,
                                 struct err *e)
{
    *on = 0;
    for (; words && *words; words++) {
        int kind = 0;
        while (notice_names[kind] && strcmp(notice_names[kind], *words) != 0)
            kind++;
        if (!notice_names[kind]) {
            CLEANUP(buf_release) struct buf all = {0};
            for (int i = 0; notice_names[i]; i++)
                buf_printf(&all, "%s%s", i ? ", " : "", notice_names[i]);
            return conf_fail(node, e, "unknown event '%.40s', expected one of %s", *words, all.data);
        }
        *on |= 1u << kind;
    }
    return *on ? ERR_OK : conf_fail(node, e, "'on' is empty: name at least one event, such as failed");
}

/* The host or the program, with a number if another hook has that name. */
static char *hook_make_name(const struct hook_list *list, const struct hook_text *t)
{
    char base[64] = "hook";
    struct web_url url;
    struct err e = {0};
    const char *from = t->run ? strrchr(t->run[0], '/') : NULL;
    if (t->run)
        snprintf(base, sizeof base, "%.59s", from ? from + 1 : t->run[0]);
    else if (web_url_parse(&url, t->post, &e) == ERR_OK)
        snprintf(base, sizeof base, "%.59s", url.host);
    for (char *c = base; *c; c++)
        if (!isalnum((unsigned char)*c) && !strchr("-_.", *c))
            *c = '-';
    char *name = strcmp(base, HOOK_OF_JOBS) == 0 ? xstrdup("hook") : xstrdup(base);
    for (size_t i = 0, number = 1; i < list->count; i++)
        if (strcmp(list->rules[i].name, name) == 0) {
            free(name);
            name = xasprintf("%s-%zu", base, ++number);
            i = (size_t)-1; /* look again from the first */
        }
    return name;
}

static enum err_code hook_add(struct hook_list *list, struct hook_text *t, const struct conf_node *node,
                              struct err *e)
{
    struct core_hook rule = {0};
    if (!t->post == !t->run)
        return conf_fail(node, e, "a hook needs one of the keys 'post' and 'run'");
    if (t->run && (!t->run[0] || t->run[0][0] != '/'))
        return conf_fail(node, e, "'run' needs the absolute path of a program, as there is no shell");
    if (t->run && t->as)
        return conf_fail(node, e, "'as' applies to 'post' only: a program gets JSON");
    if (t->name && !id_node_name(t->name))
        return conf_fail(node, e,
                         "invalid name of a hook: expected up to 63 letters, digits, '-', '_' and '.'");
    if (t->name && strcmp(t->name, HOOK_OF_JOBS) == 0)
        return conf_fail(node, e, "the name '%s' stands for the `tell` of jobs: choose another one", t->name);
    for (size_t i = 0; t->name && i < list->count; i++)
        if (strcmp(list->rules[i].name, t->name) == 0)
            return conf_fail(node, e, "two hooks have the name '%s'", t->name);
    if (list->count == HOOKS_MOST)
        return conf_fail(node, e, "more than %d hooks", HOOKS_MOST);
    if (events_read(conf_get(node, "on"), t->on, &rule.on, e) != ERR_OK)
        return e->code;
    rule.name = t->name ? steal(t->name) : hook_make_name(list, t);
    rule.users = steal(t->user);
    rule.jobs = steal(t->job);
    const struct hook hook = {.shape = t->post ? tell_shape_of((enum tell_shape)t->as, t->post) : TELL_JSON,
                              .timeout_ms = t->timeout_ms ? t->timeout_ms
                                            : t->post     ? 10000
                                                          : 30000,
                              .post = t->post,
                              .run = t->run};
    t->post = NULL; /* the list owns them now */
    t->run = NULL;
    list->rules = xrealloc(list->rules, (list->count + 1) * sizeof *list->rules);
    list->hooks = xrealloc(list->hooks, (list->count + 1) * sizeof *list->hooks);
    list->rules[list->count] = rule;
    list->hooks[list->count++] = hook;
    return ERR_OK;
}

enum err_code hook_config_read(const struct conf_node *node, void *at, struct err *e)
{
    if (!conf_is_list(node))
        return conf_refuse(node, "hooks", "a list of hooks, each with 'on' and one of 'post' and 'run'", e);
    for (size_t i = 0; i < conf_count(node); i++) {
        const struct conf_node *one = conf_at(node, i);
        struct hook_text text = {0};
        enum err_code code;
        if (!conf_is_map(one))
            code = conf_fail(one, e, "expected a hook: a map with 'on' and one of 'post' and 'run'");
        else if ((code = conf_read_map(one, hook_fields, &text, e)) == ERR_OK)
            code = hook_add(at, &text, one, e);
        hook_text_release(&text);
        if (code != ERR_OK)
            return code;
    }
    return ERR_OK;
}

static const struct conf_field tell_fields[] = {
    {.key = "allow",
     .type = CONF_CUSTOM,
     .offset = offsetof(struct hook_list, tell_allow),
     .fn = texts_or_one},
    {.key = "ca", .type = CONF_TEXT, .offset = offsetof(struct hook_list, tell_ca)},
    {.key = NULL},
};

enum err_code hook_config_read_tell(const struct conf_node *node, void *at, struct err *e)
{
    struct hook_list *list = at;
    if (!conf_is_map(node))
        return conf_refuse(node, "tell", "a map with 'allow' and 'ca'", e);
    if (conf_read_map(node, tell_fields, list, e) != ERR_OK)
        return e->code;
    if (conf_get(node, "allow") && !strv_len(list->tell_allow))
        list->tell_allow = strv_append(list->tell_allow, "none"); /* an empty list */
    for (char **one = list->tell_allow; one && *one; one++)
        if (strcmp(*one, "none") == 0 ? one != list->tell_allow || one[1] : !web_url_valid(*one))
            return conf_fail(conf_get(node, "allow"), e,
                             "invalid value for 'allow': expected none, or the beginnings of URLs such as "
                             "https://ntfy.sh/");
    return ERR_OK;
}

void hook_list_release(struct hook_list *list)
{
    for (size_t i = 0; i < list->count; i++) {
        free(list->rules[i].name);
        strv_free(list->rules[i].users);
        strv_free(list->rules[i].jobs);
        free(list->hooks[i].post);
        strv_free(list->hooks[i].run);
    }
    free(list->rules);
    free(list->hooks);
    strv_free(list->tell_allow);
    free(list->tell_ca);
    *list = (struct hook_list){0};
}
