#include <stdint.h>
#include <string.h>
#include <strings.h>

#include "base/mem.h"
#include "base/web/web_access.h"
#include "base/web/web_request.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define KEY "0123456789abcdef"

/* A cookie that is found is in the header, and is a secret by its form. */
static void cookie_check(const char *header)
{
    char value[WEB_KEY_TEXT];
    if (!web_access_cookie(header, "ddp-29602", value))
        return;
    BUG_ON(strlen(value) != WEB_KEY_TEXT - 1 || strspn(value, "0123456789abcdef") != WEB_KEY_TEXT - 1);
    BUG_ON(!strstr(header, value));
}

static bool has_name(void *user, const char *name)
{
    BUG_ON(user || !*name || strpbrk(name, "[]"));
    return *name == 'b';
}

static void access_check(const struct web_caller *caller)
{
    const struct web_rules with_key = {.key = KEY}, with_logins = {.tls = true, .has_name = has_name};
    struct err e;
    if (web_access_check(&with_key, caller, &e) == ERR_OK)
        BUG_ON(!web_access_is_loopback(caller->host) ||
               (strncmp(caller->path, "/api/", 5) == 0 && strcmp(caller->key, KEY) != 0));
    if (web_access_check(&with_logins, caller, &e) == ERR_OK)
        BUG_ON(caller->origin && strncasecmp(caller->origin, "https://", 8) != 0);
}

/* A request that is accepted has a route, a job that its path names, and parameters that are text. */
static void request_check(struct web_request *r, const char *uri)
{
    int64_t jobs[4], number;
    size_t count;
    struct err e;
    BUG_ON(r->job < 0 || (r->job && !strstr(uri, "/api/jobs/")));
    for (size_t i = 0; i < r->count; i++) {
        BUG_ON(!json_text_valid(r->parameters[i].value));
        BUG_ON(web_request_text(r, r->parameters[i].name) != r->parameters[i].value);
        if (web_request_int(r, r->parameters[i].name, -5, 1000, 0, &number, &e) == ERR_OK)
            BUG_ON(number < -5 || number > 1000);
        if (web_request_jobs(r, r->parameters[i].name, jobs, ARRAY_LEN(jobs), &count, &e) == ERR_OK)
            BUG_ON(count > ARRAY_LEN(jobs));
    }
}

/* A line each: method, URI, Host, Origin, key (or cookies). The rest is the body. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    CLEANUP(free_text) char *text = xcalloc(1, size + 1);
    char *lines[5], *at = text;
    struct web_request r;
    json_t *json;
    struct err e;
    memcpy(text, data, size);
    for (size_t i = 0; i < ARRAY_LEN(lines); i++) {
        lines[i] = at;
        at += strcspn(at, "\n");
        if (*at)
            *at++ = '\0';
    }
    const struct web_caller caller = {lines[0], lines[1], lines[2], *lines[3] ? lines[3] : NULL,
                                      lines[4], "1"};
    access_check(&caller);
    cookie_check(lines[4]);
    if (web_request_parse(&r, lines[0], lines[1], &e) != ERR_OK)
        return 0;
    request_check(&r, lines[1]);
    r.body_size = size - (size_t)(at - text);
    r.body = xcalloc(1, r.body_size + 1);
    memcpy(r.body, at, r.body_size);
    if (web_request_json(&r, "kill,from_scratch,nodes,set,token", &json, &e) == ERR_OK) {
        BUG_ON(!json_is_object(json));
        json_decref(json);
    }
    web_request_release(&r);
    return 0;
}
