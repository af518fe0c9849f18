#include "base/conf/option.h"

#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/match/nearest.h"
#include "base/mem.h"
#include "base/text.h"

#define HELP_COLUMN 30 /* where --help's texts begin */
#define HELP_WIDTH 100
#define MATCHES_MAX 32 /* options that one abbreviation may stand for */
#define LISTS_MAX 16   /* different OPTION_TEXTS on one command line */

struct option_parser {
    const struct option_set *sets;
    const struct option_rules *rules;
    void *lists[LISTS_MAX]; /* OPTION_TEXTS that this command line has used */
    size_t list_count;
};

struct option_slot { /* a row, and the address of its value */
    const struct option_spec *spec;
    void *at;
};

enum err_code option_refuse(const char *name, const char *expected, const char *text, struct err *e)
{
    return err_set(e, ERR_INVALID_ARGUMENT, "invalid value for option '--%s': expected %s, got '%.128s'",
                   name, expected, text);
}

static bool option_name_begins(const char *given, size_t len, const char *name)
{
    for (size_t i = 0; i < len; i++) /* the end of the name differs from every letter */
        if (given[i] != name[i] && !(given[i] == '_' && name[i] == '-'))
            return false;
    return len > 0;
}

static bool option_name_matches(const char *given, size_t len, const char *name)
{
    return strlen(name) == len && option_name_begins(given, len, name);
}

/* Finds an option by its letter, or by its name if letter is 0. */
static struct option_slot option_find(const struct option_set *sets, const char *name, size_t len,
                                      char letter)
{
    for (; sets->table; sets++)
        for (const struct option_spec *s = sets->table; s->name; s++)
            if (letter ? s->letter == letter : option_name_matches(name, len, s->name))
                return (struct option_slot){s, (char *)sets->base + s->offset};
    return (struct option_slot){NULL, NULL};
}

static void option_add_match(struct option_slot *matches, size_t *count, struct option_slot slot)
{
    for (size_t i = 0; i < *count; i++)
        if (matches[i].at == slot.at) /* two names of the same value */
            return;
    if (*count < MATCHES_MAX)
        matches[(*count)++] = slot;
}

/* Finds the option whose name begins like this. slot->spec stays NULL if there is none. */
static enum err_code option_expand(const struct option_set *sets, const char *given, size_t len,
                                   struct option_slot *slot, struct err *e)
{
    struct option_slot matches[MATCHES_MAX];
    CLEANUP(buf_release) struct buf names = {0};
    size_t count = 0;
    for (; sets->table; sets++)
        for (const struct option_spec *s = sets->table; s->name; s++)
            if (!s->whole && option_name_begins(given, len, s->name))
                option_add_match(matches, &count, (struct option_slot){s, (char *)sets->base + s->offset});
    if (count == 1)
        *slot = matches[0];
    if (count < 2)
        return ERR_OK;
    for (size_t i = 0; i < count; i++)
        buf_printf(&names, "%s--%s", text_separator(i, count, " or "), matches[i].spec->name);
    return err_set(e, ERR_INVALID_ARGUMENT, "option '--%.*s' is ambiguous: it may mean %.300s", (int)len,
                   given, names.data);
}

static const char *option_foreign(const struct option_rules *rules, const char *option)
{
    return rules && rules->foreign ? rules->foreign(option, rules->context) : NULL;
}

static enum err_code option_unknown(const struct option_set *sets, const struct option_rules *rules,
                                    const char *given, size_t len, struct err *e)
{
    const char *names[128];
    size_t count = 0;
    char word[64];
    snprintf(word, sizeof(word), "%.*s", (int)len, given);
    for (; sets->table; sets++)
        for (const struct option_spec *s = sets->table; s->name && count < ARRAY_LEN(names); s++)
            if (!s->hidden)
                names[count++] = s->name;
    CLEANUP(free_text) char *option = xasprintf("--%s", word);
    const char *foreign = option_foreign(rules, option);
    if (foreign)
        return err_set(e, ERR_INVALID_ARGUMENT, "unknown option '%s': %s", option, foreign);
    const char *near = nearest_name(word, names, count);
    if (near)
        return err_set(e, ERR_INVALID_ARGUMENT, "unknown option '--%s', did you mean '--%s'?", word, near);
    return err_set(e, ERR_INVALID_ARGUMENT, "unknown option '--%s'", word);
}

static enum err_code option_refuse_number(const struct option_spec *s, const char *text, struct err *e)
{
    /* "1.5" is a number, so "expected a number" would not explain the refusal */
    const char *number =
        s->type == OPTION_INT && strspn(text, "0123456789.") == strlen(text) && strchr(text, '.')
            ? "a whole number"
            : "a number";
    char expected[96];
    if (s->max > 0 && !isinf(s->max))
        snprintf(expected, sizeof(expected), "%s from %.15g to %.15g", number, s->min, s->max);
    else if (s->min > 0)
        snprintf(expected, sizeof(expected), "%s of at least %.15g", number, s->min);
    else
        snprintf(expected, sizeof(expected), "%s", number);
    return option_refuse(s->name, expected, text, e);
}

static bool option_in_range(const struct option_spec *s, double value)
{
    return value >= s->min && (s->max == 0 || value <= s->max);
}

static enum err_code option_read_int(const struct option_spec *s, const char *text, int64_t *out,
                                     struct err *e)
{
    char *end;
    errno = 0;
    long long value = strtoll(text, &end, 10);
    /* strtoll would accept blanks and a sign */
    if (!isdigit((unsigned char)*text) || *end || errno || !option_in_range(s, (double)value))
        return option_refuse_number(s, text, e);
    *out = value;
    return ERR_OK;
}

static enum err_code option_read_real(const struct option_spec *s, const char *text, double *out,
                                      struct err *e)
{
    char *end;
    double value = strtod(text, &end);
    /* strtod would also accept nan and inf */
    if (end == text || *end || !isfinite(value) || !option_in_range(s, value))
        return option_refuse_number(s, text, e);
    *out = value;
    return ERR_OK;
}

static enum err_code option_read_fd(const struct option_spec *s, const char *text, int *out, struct err *e)
{
    char *end;
    errno = 0;
    long value = strtol(text, &end, 10);
    if (!isdigit((unsigned char)*text) || *end || errno || value > INT_MAX)
        return option_refuse(s->name, "the number of a file descriptor", text, e);
    *out = (int)value;
    return ERR_OK;
}

static enum err_code option_read_choice(const struct option_spec *s, const char *text, const char **out,
                                        struct err *e)
{
    char expected[96];
    size_t len = strlen(text);
    for (const char *at = s->value; at; at = strchr(at, '|') ? strchr(at, '|') + 1 : NULL) {
        size_t end = strcspn(at, "|");
        if (end == len && memcmp(at, text, len) == 0) {
            *out = text;
            return ERR_OK;
        }
    }
    snprintf(expected, sizeof(expected), "one of %s", s->value);
    return option_refuse(s->name, expected, text, e);
}

static void option_add_text(struct option_parser *p, char ***list, const char *text)
{
    bool used = false;
    for (size_t i = 0; i < p->list_count; i++)
        used |= p->lists[i] == list;
    if (!used) { /* The present values came from a file or are defaults, so the command line replaces them. */
        BUG_ON(p->list_count == LISTS_MAX);
        p->lists[p->list_count++] = list;
        strv_free(*list);
        *list = NULL;
    }
    *list = strv_append(*list, text);
}

static enum err_code option_store(struct option_parser *p, const struct option_slot *slot, const char *text,
                                  struct err *e)
{
    const struct option_spec *s = slot->spec;
    if (s->check && !s->check(text))
        return option_refuse(s->name, s->expected, text, e);
    switch (s->type) {
    case OPTION_FLAG:
        *(bool *)slot->at = true;
        return ERR_OK;
    case OPTION_TEXT:
        *(const char **)slot->at = text;
        return ERR_OK;
    case OPTION_COPY:
        free(*(char **)slot->at);
        *(char **)slot->at = xstrdup(text);
        return ERR_OK;
    case OPTION_TEXTS:
        option_add_text(p, slot->at, text);
        return ERR_OK;
    case OPTION_INT:
        return option_read_int(s, text, slot->at, e);
    case OPTION_REAL:
        return option_read_real(s, text, slot->at, e);
    case OPTION_CHOICE:
        return option_read_choice(s, text, slot->at, e);
    case OPTION_FD:
        return option_read_fd(s, text, slot->at, e);
    case OPTION_PARSED:
        return s->parse(text, slot->at) ? ERR_OK : option_refuse(s->name, s->expected, text, e);
    }
    BUG_ON("unknown option type");
    return ERR_INTERNAL;
}

/* Parses the option at argv[*i]. If its value is the next argument, moves *i to that argument. */
static enum err_code option_parse_at(struct option_parser *p, int argc, char **argv, int *i, struct err *e)
{
    const char *arg = argv[*i], *value = NULL;
    /* --name, --name VALUE, --name=VALUE, -r VALUE or -rVALUE */
    bool is_long = arg[1] == '-';
    size_t len = is_long ? strcspn(arg + 2, "=") : 0;
    struct option_slot slot =
        is_long ? option_find(p->sets, arg + 2, len, 0) : option_find(p->sets, NULL, 0, arg[1]);
    if (!slot.spec && is_long && p->rules && p->rules->abbreviations &&
        option_expand(p->sets, arg + 2, len, &slot, e) != ERR_OK)
        return e->code;
    const struct option_spec *s = slot.spec;
    if (!s && is_long)
        return option_unknown(p->sets, p->rules, arg + 2, len, e);
    if (!s) {
        const char option[] = {'-', arg[1], 0}, *foreign = option_foreign(p->rules, option);
        return err_set(e, ERR_INVALID_ARGUMENT, "unknown option '%s'%s%s", option, foreign ? ": " : "",
                       foreign ? foreign : "");
    }
    if (is_long && arg[2 + len] == '=')
        value = arg + 3 + len;
    else if (!is_long && arg[2])
        value = arg + 2;
    if (s->type == OPTION_FLAG) {
        if (value)
            return err_set(e, ERR_INVALID_ARGUMENT, "option '--%s' does not take a value, got '%.128s'",
                           s->name, value);
        return option_store(p, &slot, NULL, e);
    }
    /* The value may be left out: an argument that does not fit is not the value but the next word. */
    if (!value && s->fits && (*i + 1 >= argc || !s->fits(argv[*i + 1])))
        value = s->otherwise;
    if (!value && *i + 1 >= argc)
        return err_set(e, ERR_INVALID_ARGUMENT, "option '--%s' requires a value: %s", s->name, s->value);
    return option_store(p, &slot, value ? value : argv[++*i], e);
}

static bool option_is_negative(const char *argument)
{
    const size_t digits = strspn(argument + 1, "0123456789");
    return *argument == '-' && digits && !argument[1 + digits];
}

enum err_code option_parse(const struct option_set *sets, int argc, char **argv,
                           const struct option_rules *rules, struct option_arguments *args, struct err *e)
{
    struct option_parser p = {.sets = sets, .rules = rules};
    *args = (struct option_arguments){.list = xcalloc((size_t)argc + 1, sizeof(*args->list))};
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--") == 0) {
            args->tail = argv + i + 1;
            args->dashes = true;
            return ERR_OK;
        }
        bool argument = argv[i][0] != '-' || !argv[i][1] || /* "-" alone stands for stdin */
                        (rules && rules->numbers && option_is_negative(argv[i]));
        if (argument && rules && rules->ends && rules->ends(argv[i])) {
            args->tail = argv + i;
            return ERR_OK;
        }
        if (argument)
            args->list[args->count++] = argv[i];
        else if (option_parse_at(&p, argc, argv, &i, e) != ERR_OK)
            return e->code;
    }
    return ERR_OK;
}

/* Returns the entry of env that belongs to the option, or NULL. */
static const char *option_variable(const struct option_spec *s, const char *prefix, char *const *env)
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

static bool option_is_given(const struct option_spec *s, const void *at)
{
    switch (s->type) {
    case OPTION_FLAG:
        return *(const bool *)at;
    case OPTION_TEXT:
    case OPTION_CHOICE:
        return *(const char *const *)at != NULL;
    case OPTION_COPY:
        return *(char *const *)at != NULL;
    case OPTION_TEXTS:
        return *(char **const *)at != NULL;
    case OPTION_INT:
        return *(const int64_t *)at != 0;
    case OPTION_REAL:
        return *(const double *)at != 0;
    case OPTION_FD:
    case OPTION_PARSED:
        break;
    }
    BUG_ON("an option of this type cannot come from a variable");
    return false;
}

enum err_code option_environment(const struct option_spec *table, void *base, const char *prefix,
                                 char *const *env, struct err *e)
{
    struct option_parser p = {0};
    for (const struct option_spec *s = table; s->name; s++) {
        struct option_slot slot = {s, (char *)base + s->offset};
        const char *entry = option_is_given(s, slot.at) ? NULL : option_variable(s, prefix, env);
        const char *value = entry ? strchr(entry, '=') + 1 : "";
        if (!*value || (s->type == OPTION_FLAG && strcmp(value, "0") == 0))
            continue;
        if (option_store(&p, &slot, value, e) != ERR_OK)
            return err_wrap(e, "%.*s", (int)strcspn(entry, "="), entry);
    }
    return ERR_OK;
}

void option_arguments_release(struct option_arguments *args)
{
    free(args->list);
    *args = (struct option_arguments){0};
}

void option_release(const struct option_spec *table, void *base)
{
    for (const struct option_spec *s = table; s && s->name; s++) {
        void *at = (char *)base + s->offset;
        /* Sets each field to NULL, since an alias may name the same field. */
        if (s->type == OPTION_TEXTS) {
            strv_free(*(char ***)at);
            *(char ***)at = NULL;
        } else if (s->type == OPTION_COPY) {
            free(*(char **)at);
            *(char **)at = NULL;
        }
    }
}

/* Appends words behind column `at`, with line breaks before HELP_WIDTH. */
static void option_help_words(struct buf *out, const char *text, size_t *at)
{
    while (*(text += strspn(text, " "))) {
        size_t len = strcspn(text, " ");
        if (*at > HELP_COLUMN && *at + 1 + len > HELP_WIDTH) {
            buf_printf(out, "\n%*s", HELP_COLUMN, "");
            *at = HELP_COLUMN;
        }
        buf_printf(out, "%s%.*s", *at > HELP_COLUMN ? " " : "", (int)len, text);
        *at += len + (*at > HELP_COLUMN);
        text += len;
    }
}

void option_help(const struct option_spec *table, struct buf *out)
{
    for (const struct option_spec *s = table; s->name; s++) {
        char left[80];
        size_t at = HELP_COLUMN;
        if (s->hidden)
            continue;
        snprintf(left, sizeof(left), "  %c%c%s --%s%s%s", s->letter ? '-' : ' ', s->letter ? s->letter : ' ',
                 s->letter ? "," : " ", s->name, s->value ? " " : "", s->value ? s->value : "");
        if (strlen(left) > HELP_COLUMN - 2) /* too long for its column: the text starts on the next line */
            buf_printf(out, "%s\n%*s", left, HELP_COLUMN, "");
        else
            buf_printf(out, "%-*s", HELP_COLUMN, left);
        option_help_words(out, s->help, &at);
        if (s->default_text) {
            CLEANUP(free_text) char *usual = xasprintf("(default: %s)", s->default_text);
            option_help_words(out, usual, &at);
        }
        buf_putc(out, '\n');
    }
}

static enum conf_type option_conf_type(const struct option_spec *s)
{
    if (s->from_node)
        return CONF_CUSTOM;
    switch (s->type) {
    case OPTION_FLAG:
        return CONF_BOOL;
    case OPTION_COPY:
        return CONF_TEXT;
    case OPTION_TEXTS:
        return CONF_TEXTS;
    case OPTION_INT:
        return CONF_INT;
    case OPTION_REAL:
        return CONF_REAL;
    case OPTION_PARSED:
        return CONF_PARSED;
    case OPTION_TEXT: /* OPTION_TEXT borrows, but the file's text is freed before the options are */
    case OPTION_CHOICE:
    case OPTION_FD:
        break;
    }
    BUG_ON("an option of this type cannot have a key");
    return CONF_TEXT;
}

struct conf_field *option_conf_fields(const struct option_spec *table, const struct conf_field *more)
{
    struct conf_field *fields = NULL;
    size_t count = 0, cap = 0;
    for (const struct option_spec *s = table; s->name; s++) {
        if (!s->key)
            continue;
        fields = array_grow(fields, count, &cap, sizeof(*fields));
        fields[count++] = (struct conf_field){.key = s->key,
                                              .type = option_conf_type(s),
                                              .offset = s->offset,
                                              .min = s->min,
                                              .max = s->max,
                                              .parse = s->parse,
                                              .expected = s->expected,
                                              .fn = s->from_node};
    }
    for (; more && more->key; more++) {
        fields = array_grow(fields, count, &cap, sizeof(*fields));
        fields[count++] = *more;
    }
    fields = array_grow(fields, count, &cap, sizeof(*fields)); /* one more: the end of the table */
    fields[count] = (struct conf_field){0};
    return fields;
}
