#include "base/conf/program.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"

#define SETS_MAX 4
#define MISUSED 2 /* the exit code */

struct program_flags {
    bool help, version;
};

static const struct option_spec program_options[] = {
    {.name = "help",
     .letter = 'h',
     .type = OPTION_FLAG,
     .offset = offsetof(struct program_flags, help),
     .help = "print this text"},
    {.name = "version",
     .type = OPTION_FLAG,
     .offset = offsetof(struct program_flags, version),
     .help = "print the version"},
    {0},
};

static void program_print_help(const struct program *p, const struct option_set *sets)
{
    CLEANUP(buf_release) struct buf out = {0};
    const char *line = p->usage;
    for (bool first = true; *line; first = false) {
        size_t len = strcspn(line, "\n");
        buf_printf(&out, "%s %.*s\n", first ? "usage:" : "      ", (int)len, line);
        line += len + (line[len] == '\n');
    }
    buf_printf(&out, "\n%s\n\n", p->help);
    for (; sets->table; sets++)
        option_help(sets->table, &out);
    if (p->more)
        buf_printf(&out, "\n%s\n", p->more);
    fputs(out.data, stdout);
}

int program_misused(const struct program *p, const char *message)
{
    fprintf(stderr, "%.*s: %s\nTry '%s --help'.\n", (int)strcspn(p->name, " "), p->name, message, p->name);
    return MISUSED;
}

int program_parse(const struct program *p, const struct option_set *sets, int argc, char **argv,
                  struct option_arguments *args)
{
    struct program_flags flags = {0};
    struct option_set all[SETS_MAX + 2] = {{0}};
    struct err e;
    size_t count = 0;

    for (; sets[count].table; count++) {
        BUG_ON(count == SETS_MAX);
        all[count] = sets[count];
    }
    all[count] = (struct option_set){program_options, &flags};
    enum err_code code = option_parse(all, argc, argv, NULL, args, &e);
    /* --help is answered even if a later option is wrong. */
    if (flags.help)
        program_print_help(p, all);
    else if (flags.version)
        printf("%.*s %s\n", (int)strcspn(p->name, " "), p->name, DDP_VERSION);
    else if (code != ERR_OK)
        return program_misused(p, e.msg);
    else
        return -1;
    return fflush(stdout) ? 1 : 0;
}
