#include "base/web/web_request.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

#define JOB_DIGITS 18
#define BODY_JSON_MOST 65536

struct web_row {
    enum web_route route;
    bool post;
    const char *path;       /* '#' stands for the number of a job */
    const char *parameters; /* the allowed ones */
};

static const struct web_row rows[] = {
    {WEB_PAGE, false, "/", ""},
    {WEB_WATCH, false, "/api/watch", "jobs,logs"},
    {WEB_JOBS, false, "/api/jobs", "all,after"},
    {WEB_JOB, false, "/api/jobs/#", ""},
    {WEB_METRICS, false, "/api/jobs/#/metrics", "names,from_step,points,form,usage"},
    {WEB_LOGS, false, "/api/jobs/#/logs", "rank,tail,grep,generation"},
    {WEB_EVENTS, false, "/api/jobs/#/events", "after"},
    {WEB_WHY, false, "/api/jobs/#/why", ""},
    {WEB_CLUSTER_EVENTS, false, "/api/events", "after"},
    {WEB_NODES, false, "/api/nodes", ""},
    {WEB_VERSION, false, "/api/version", ""},
    {WEB_WHOAMI, false, "/api/whoami", ""},
    {WEB_SUBMIT, true, "/api/jobs", ""},
    {WEB_CANCEL, true, "/api/jobs/#/cancel", ""},
    {WEB_RESIZE, true, "/api/jobs/#/resize", ""},
    {WEB_RESTART, true, "/api/jobs/#/restart", ""},
    {WEB_RESUME, true, "/api/jobs/#/resume", ""},
    {WEB_LOGIN, true, "/api/login", ""},
    {WEB_LOGOUT, true, "/api/logout", ""},
};

static int web_hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* Decodes "%2C" and "+". False: the encoding is wrong, or there is a control character, which no parameter needs. */
static bool web_decode(const char *text, size_t len, char **out)
{
    CLEANUP(free_text) char *plain = xmalloc(len + 1);
    size_t n = 0;
    for (size_t i = 0; i < len; i++) {
        int c = (unsigned char)text[i];
        if (c == '+') {
            c = ' ';
        } else if (c == '%') {
            const int high = i + 2 < len ? web_hex_digit(text[i + 1]) : -1;
            const int low = i + 2 < len ? web_hex_digit(text[i + 2]) : -1;
            if (high < 0 || low < 0)
                return false;
            c = high * 16 + low;
            i += 2;
        }
        if (c < ' ')
            return false;
        plain[n++] = (char)c;
    }
    plain[n] = '\0';
    if (!json_text_valid(plain))
        return false;
    *out = steal(plain);
    return true;
}

/* Whether a list of words, "a,b,c", has the word. */
static bool web_list_has(const char *list, const char *word)
{
    const size_t len = strlen(word);
    while (*list) {
        const size_t item = strcspn(list, ",");
        if (item == len && memcmp(list, word, len) == 0)
            return true;
        list += item + (list[item] == ',');
    }
    return false;
}

/* Whether the path fits the row. *job is the number in the place of '#', or -1 if that is not a number. */
static bool web_path_fits(const char *path, size_t len, const char *row, int64_t *job)
{
    const char *end = path + len;
    *job = 0;
    for (; *row; row++) {
        if (*row != '#') {
            if (path == end || *path++ != *row)
                return false;
            continue;
        }
        const char *stop = memchr(path, '/', (size_t)(end - path));
        const size_t digits = (size_t)((stop ? stop : end) - path);
        if (!digits)
            return false;
        for (size_t i = 0; i < digits; i++)
            *job = *job < 0 || digits > JOB_DIGITS || path[i] < '0' || path[i] > '9'
                       ? -1
                       : *job * 10 + (path[i] - '0');
        path += digits;
    }
    return path == end;
}

static enum err_code web_add_parameter(struct web_request *r, const struct web_row *row, const char *text,
                                       size_t len, struct err *e)
{
    const char *equals = memchr(text, '=', len);
    const size_t name = equals ? (size_t)(equals - text) : len;
    struct web_parameter p = {0};
    if (!web_decode(text, name, &p.name))
        return err_set(e, ERR_INVALID_ARGUMENT, "a parameter of the URL is not valid text");
    if (!web_list_has(row->parameters, p.name)) {
        err_set(e, ERR_INVALID_ARGUMENT, "unknown parameter '%.60s' of %s%s%s", p.name, row->path,
                *row->parameters ? ", which takes " : "", row->parameters);
    } else if (web_request_text(r, p.name)) {
        err_set(e, ERR_INVALID_ARGUMENT, "parameter '%s' occurs twice", p.name);
    } else if (!web_decode(equals ? equals + 1 : "", equals ? len - name - 1 : 0, &p.value)) {
        err_set(e, ERR_INVALID_ARGUMENT, "parameter '%s' is not valid text", p.name);
    } else {
        BUG_ON(r->count == WEB_PARAMETERS); /* no route has so many parameters */
        r->parameters[r->count++] = p;
        return ERR_OK;
    }
    free(p.name);
    return e->code;
}

static enum err_code web_read_query(struct web_request *r, const struct web_row *row, const char *query,
                                    struct err *e)
{
    while (*query) {
        const size_t len = strcspn(query, "&");
        if (len && web_add_parameter(r, row, query, len, e) != ERR_OK)
            return e->code;
        query += len + (query[len] == '&');
    }
    return ERR_OK;
}

enum err_code web_request_parse(struct web_request *out, const char *method, const char *uri, struct err *e)
{
    struct web_request r = {0};
    const struct web_row *row = NULL;
    const bool post = strcmp(method, "POST") == 0, get = !strcmp(method, "GET") || !strcmp(method, "HEAD");
    const size_t path = strcspn(uri, "?");
    bool known = false;
    if (strlen(uri) > WEB_URI_MOST)
        return err_set(e, ERR_INVALID_ARGUMENT, "the URL is longer than %d bytes", WEB_URI_MOST);
    for (size_t i = 0; i < ARRAY_LEN(rows) && !row; i++) {
        if (!web_path_fits(uri, path, rows[i].path, &r.job))
            continue;
        known = true;
        if (rows[i].post ? post : get)
            row = &rows[i];
    }
    if (!row && known)
        return err_set(e, ERR_UNIMPLEMENTED, "this path does not accept the method %.20s", method);
    if (!row)
        return err_set(e, ERR_NOT_FOUND, "no such path: '%.*s'", (int)(path < 100 ? path : 100), uri);
    if (r.job < 0)
        return err_set(e, ERR_INVALID_ARGUMENT, "%s: expected the number of a job in place of '#'",
                       row->path);
    r.route = row->route;
    if (web_read_query(&r, row, uri[path] ? uri + path + 1 : "", e) != ERR_OK) {
        web_request_release(&r);
        return e->code;
    }
    *out = r;
    return ERR_OK;
}

void web_request_release(struct web_request *r)
{
    for (size_t i = 0; i < r->count; i++) {
        free(r->parameters[i].name);
        free(r->parameters[i].value);
    }
    free(r->body);
    *r = (struct web_request){0};
}

const char *web_request_text(const struct web_request *r, const char *name)
{
    for (size_t i = 0; i < r->count; i++)
        if (strcmp(r->parameters[i].name, name) == 0)
            return r->parameters[i].value;
    return NULL;
}

enum err_code web_request_int(const struct web_request *r, const char *name, int64_t min, int64_t max,
                              int64_t fallback, int64_t *out, struct err *e)
{
    const char *text = web_request_text(r, name);
    char *end = NULL;
    if (!text) {
        *out = fallback;
        return ERR_OK;
    }
    const size_t sign = *text == '-', digits = strspn(text + sign, "0123456789");
    const int64_t value = strtoll(text, &end, 10);
    if (!digits || digits > JOB_DIGITS || text[sign + digits] || value < min || value > max)
        return err_set(e, ERR_INVALID_ARGUMENT, "%s: expected a number from %lld to %lld, got '%.60s'", name,
                       (long long)min, (long long)max, text);
    *out = value;
    return ERR_OK;
}

enum err_code web_request_jobs(const struct web_request *r, const char *name, int64_t *jobs, size_t most,
                               size_t *count, struct err *e)
{
    const char *text = web_request_text(r, name);
    size_t n = 0;
    while (text && *text) {
        const size_t len = strcspn(text, ","), digits = strspn(text, "0123456789");
        if (!len || digits != len || len > JOB_DIGITS)
            return err_set(e, ERR_INVALID_ARGUMENT, "%s: expected numbers of jobs, such as 9,12, got '%.60s'",
                           name, text);
        if (n == most)
            return err_set(e, ERR_INVALID_ARGUMENT, "%s: at most %zu jobs", name, most);
        jobs[n++] = strtoll(text, NULL, 10);
        text += len + (text[len] == ',');
    }
    *count = n;
    return ERR_OK;
}

enum err_code web_request_json(const struct web_request *r, const char *keys, json_t **out, struct err *e)
{
    CLEANUP(json_release) json_t *body = NULL;
    const char *key;
    json_t *value;
    if (!r->body_size) {
        *out = json_object();
        return ERR_OK;
    }
    if (json_parse(r->body, r->body_size, BODY_JSON_MOST, &body, e) != ERR_OK)
        return err_wrap(e, "body");
    if (!json_is_object(body))
        return err_set(e, ERR_INVALID_ARGUMENT, "body: expected a JSON object, such as {}");
    json_object_foreach(body, key, value)
    {
        if (!web_list_has(keys, key))
            return err_set(e, ERR_INVALID_ARGUMENT, "body: unknown key '%.60s', expected %s", key, keys);
    }
    *out = steal(body);
    return ERR_OK;
}
