#include "client/options.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

/* Levenshtein distance of short words, or 99. */
static size_t distance(const char *a, const char *b)
{
    enum { LIMIT = 32 };
    size_t row[LIMIT + 1], n = strlen(a), m = strlen(b);
    if (n > LIMIT || m > LIMIT)
        return 99;
    for (size_t j = 0; j <= m; j++)
        row[j] = j;
    for (size_t i = 1; i <= n; i++) {
        size_t corner = row[0];
        row[0] = i;
        for (size_t j = 1; j <= m; j++) {
            size_t best = corner + (a[i - 1] != b[j - 1]);
            corner = row[j];
            best = row[j] + 1 < best ? row[j] + 1 : best;
            row[j] = row[j - 1] + 1 < best ? row[j - 1] + 1 : best;
        }
    }
    return row[m];
}

const char *nearest(const char *word, const char *const *names, size_t count)
{
    const char *best = NULL;
    size_t least = strlen(word) / 3 + 2;
    for (size_t i = 0; i < count; i++) {
        size_t d = distance(word, names[i]);
        if (d < least) {
            least = d;
            best = names[i];
        }
    }
    return best;
}

struct found {
    const struct option_spec *spec;
    void *at;
};

static bool same_name(const char *given, size_t len, const char *name)
{
    if (strlen(name) != len)
        return false;
    for (size_t i = 0; i < len; i++)
        if (given[i] != name[i] && !(given[i] == '_' && name[i] == '-'))
            return false;
    return true;
}

static struct found find(const struct option_set *sets, const char *name, size_t len, char letter)
{
    for (; sets->table; sets++)
        for (const struct option_spec *s = sets->table; s->name; s++)
            if (letter ? s->letter == letter : same_name(name, len, s->name))
                return (struct found){s, (char *)sets->base + s->offset};
    return (struct found){NULL, NULL};
}

static enum err_code unknown(const struct option_set *sets, const char *given, size_t len, struct err *e)
{
    const char *names[128];
    size_t count = 0;
    char word[64];
    snprintf(word, sizeof(word), "%.*s", (int)len, given);
    for (; sets->table; sets++)
        for (const struct option_spec *s = sets->table; s->name && count < ARRAY_LEN(names); s++)
            if (!s->hidden)
                names[count++] = s->name;
    const char *near = nearest(word, names, count);
    if (near)
        return err_set(e, ERR_INVALID_ARGUMENT, "unknown option '--%s', did you mean '--%s'?", word, near);
    return err_set(e, ERR_INVALID_ARGUMENT, "unknown option '--%s'", word);
}

static enum err_code read_int(const char *name, const char *text, int64_t *out, struct err *e)
{
    char *end;
    errno = 0;
    long long value = strtoll(text, &end, 10);
    if (*text < '0' || *text > '9' || *end || errno)
        return err_set(e, ERR_INVALID_ARGUMENT, "'--%s %s': a number was expected", name, text);
    *out = value;
    return ERR_OK;
}

static enum err_code read_choice(const struct option_spec *s, const char *text, const char **out,
                                 struct err *e)
{
    size_t len = strlen(text);
    for (const char *at = s->value; at; at = strchr(at, '|') ? strchr(at, '|') + 1 : NULL) {
        size_t end = strcspn(at, "|");
        if (end == len && memcmp(at, text, len) == 0) {
            *out = text;
            return ERR_OK;
        }
    }
    return err_set(e, ERR_INVALID_ARGUMENT, "'--%s %s': one of %s was expected", s->name, text, s->value);
}

static enum err_code store(const struct found *f, const char *text, struct err *e)
{
    switch (f->spec->type) {
    case OPTION_FLAG:
        *(bool *)f->at = true;
        return ERR_OK;
    case OPTION_TEXT:
        *(const char **)f->at = text;
        return ERR_OK;
    case OPTION_INT:
        return read_int(f->spec->name, text, f->at, e);
    case OPTION_TEXTS:
        *(char ***)f->at = strv_append(*(char ***)f->at, text);
        return ERR_OK;
    case OPTION_CHOICE:
        return read_choice(f->spec, text, f->at, e);
    }
    BUG_ON("no such option type");
    return ERR_INTERNAL;
}

/* One option at argv[*i]; steps over a value that is an argument of its own. */
static enum err_code parse_one(const struct option_set *sets, int argc, char **argv, int *i, struct err *e)
{
    const char *arg = argv[*i], *value = NULL;
    bool is_long = arg[1] == '-';
    size_t len = is_long ? strcspn(arg + 2, "=") : 0;
    struct found f = is_long ? find(sets, arg + 2, len, 0) : find(sets, NULL, 0, arg[1]);
    if (!f.spec && is_long)
        return unknown(sets, arg + 2, len, e);
    if (!f.spec)
        return err_set(e, ERR_INVALID_ARGUMENT, "unknown option '-%c'", arg[1]);
    if (is_long && arg[2 + len] == '=')
        value = arg + 3 + len;
    else if (!is_long && arg[2])
        value = arg + 2;
    if (f.spec->type == OPTION_FLAG) {
        if (value)
            return err_set(e, ERR_INVALID_ARGUMENT, "'%s': --%s takes no value", arg, f.spec->name);
        return store(&f, NULL, e);
    }
    if (!value && f.spec->fits && (*i + 1 >= argc || !f.spec->fits(argv[*i + 1])))
        value = f.spec->otherwise;
    if (!value && *i + 1 >= argc)
        return err_set(e, ERR_INVALID_ARGUMENT, "'%s' wants a value: %s", arg, f.spec->value);
    return store(&f, value ? value : argv[++*i], e);
}

enum err_code options_parse(const struct option_set *sets, int argc, char **argv,
                            bool (*ends)(const char *argument), struct arguments *args, struct err *e)
{
    *args = (struct arguments){.list = xcalloc((size_t)argc + 1, sizeof(*args->list))};
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--") == 0) {
            args->tail = argv + i + 1;
            return ERR_OK;
        }
        bool argument = argv[i][0] != '-' || !argv[i][1];
        if (argument && ends && ends(argv[i])) {
            args->tail = argv + i;
            return ERR_OK;
        }
        if (argument)
            args->list[args->count++] = argv[i];
        else if (parse_one(sets, argc, argv, &i, e) != ERR_OK)
            return e->code;
    }
    return ERR_OK;
}

static const char *variable(const struct option_spec *s, const char *prefix, char *const *env)
{
    char name[64];
    int len = snprintf(name, sizeof(name), "%s%s=", prefix, s->name);
    BUG_ON(len < 0 || (size_t)len >= sizeof(name));
    for (char *at = name + strlen(prefix); *at; at++)
        *at = *at == '-' ? '_' : (char)toupper((unsigned char)*at);
    for (; *env; env++)
        if (strncmp(*env, name, (size_t)len) == 0)
            return *env;
    return NULL;
}

static bool is_given(const struct option_spec *s, const void *at)
{
    switch (s->type) {
    case OPTION_FLAG:
        return *(const bool *)at;
    case OPTION_INT:
        return *(const int64_t *)at != 0;
    case OPTION_TEXTS:
        return *(char **const *)at != NULL;
    default:
        return *(const char *const *)at != NULL;
    }
}

enum err_code options_environment(const struct option_spec *table, void *base, const char *prefix,
                                  char *const *env, struct err *e)
{
    for (const struct option_spec *s = table; s->name; s++) {
        struct found f = {s, (char *)base + s->offset};
        const char *entry = is_given(s, f.at) ? NULL : variable(s, prefix, env);
        const char *value = entry ? strchr(entry, '=') + 1 : "";
        if (!*value || (s->type == OPTION_FLAG && strcmp(value, "0") == 0))
            continue;
        if (store(&f, value, e) != ERR_OK)
            return err_wrap(e, "%.*s", (int)strcspn(entry, "="), entry);
    }
    return ERR_OK;
}

void arguments_release(struct arguments *args)
{
    free(args->list);
    *args = (struct arguments){0};
}

void options_release(const struct option_spec *table, void *base)
{
    for (const struct option_spec *s = table; s && s->name; s++) {
        if (s->type != OPTION_TEXTS)
            continue;
        char ***list = (char ***)((char *)base + s->offset);
        strv_free(*list);
        *list = NULL; /* an alias may name the same field */
    }
}

void options_help(const struct option_spec *table, struct buf *out)
{
    for (const struct option_spec *s = table; s->name; s++) {
        char left[80];
        if (s->hidden)
            continue;
        snprintf(left, sizeof(left), "  %c%c%s --%s%s%s", s->letter ? '-' : ' ', s->letter ? s->letter : ' ',
                 s->letter ? "," : " ", s->name, s->value ? " " : "", s->value ? s->value : "");
        if (strlen(left) > 28)
            buf_printf(out, "%s\n%30s%s\n", left, "", s->help);
        else
            buf_printf(out, "%-30s%s\n", left, s->help);
    }
}
