#include "client/cmd/submit/job_text.h"

#include <errno.h>
#include <fnmatch.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/conf/conf.h"
#include "base/conf/conf_problems.h"
#include "base/file.h"
#include "base/job/job_print.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/paths.h"

#define JOB_FILE_BYTES (1 << 20)

#define FLAG(field, option, placeholder, ...)                                                                \
    {                                                                                                        \
        .name = option, .type = OPTION_TEXT, .offset = offsetof(struct job_flags, field),                    \
        .value = placeholder, .help = __VA_ARGS__                                                            \
    }
#define ALIAS(field, option)                                                                                 \
    {                                                                                                        \
        .name = option, .type = OPTION_TEXT, .offset = offsetof(struct job_flags, field), .value = "N",      \
        .hidden = true                                                                                       \
    }

const struct option_spec job_flag_options[] = {
    FLAG(name, "name", "NAME", "name of the job in lists"),
    FLAG(nodes, "nodes", "N|MIN:MAX", "number of nodes", .default_text = "1"),
    FLAG(procs, "procs-per-node", "N|gpu|cpu|auto", "workers on each node", .default_text = "1"),
    FLAG(gpus, "gpus-per-proc", "N|all", "GPUs of each worker, on nodes with GPUs", .default_text = "1"),
    FLAG(device, "device", "auto|cpu|cuda", "device that the workers compute on", .default_text = "auto"),
    FLAG(max_restarts, "max-restarts", "N", "restarts after failures",
         .default_text = "train job 3, command 0"),
    FLAG(restart_on, "restart-on", "fault|any",
         "fault: restart after a signal, a lost node and the like; any: after any exit code",
         .default_text = "fault; `run --max-restarts` of a command: any"),
    FLAG(store, "store", "launcher|program", "who serves PyTorch's TCPStore on MASTER_PORT",
         .default_text = "launcher for a Python script or module with --procs-per-node, else program"),
    FLAG(preload, "preload", "MODULE,...",
         "keep Python processes ready that have imported these modules, for restarts"),
    FLAG(priority, "priority", "N", "jobs of higher priority start first", .default_text = "0"),
    FLAG(time_limit, "time-limit", "TIME",
         "write a snapshot and stop after 90s, 15m, 2h, 1d; a number alone is seconds"),
    FLAG(tell, "tell", "URL", "post a message when the job fails, ends, stalls or restarts"),
    FLAG(tell_as, "tell-as", "auto|slack|discord|ntfy|json", "form of these messages",
         .default_text = "by the URL's host"),
    FLAG(workdir, "workdir", "DIR", "working directory of the workers",
         .default_text = "the current directory"),
    {.name = "env",
     .type = OPTION_TEXTS,
     .offset = offsetof(struct job_flags, env),
     .value = "NAME=VALUE",
     .help = "set a variable for the workers; may be repeated"},
    {.name = "set",
     .type = OPTION_TEXTS,
     .offset = offsetof(struct job_flags, set),
     .value = "KEY=VALUE",
     .help = "change a key of the job file: train.optimizer.lr=1e-3; may be repeated; "
             "docs/reference/jobfile-keys.md lists all keys"},
    ALIAS(nodes, "nnodes"),
    ALIAS(procs, "nproc-per-node"),
    {.name = "standalone",
     .type = OPTION_FLAG,
     .offset = offsetof(struct job_flags, standalone),
     .hidden = true},
    {0},
};

static enum err_code job_text_set(struct conf_doc *doc, const char *key, const char *value, const char *flag,
                                  struct err *e)
{
    CLEANUP(buf_release) struct buf quoted = {0};
    if (!json_text_valid(value))
        return err_set(e, ERR_INVALID_ARGUMENT, "%s: '%s' is not UTF-8 text", flag, value);
    job_quote(&quoted, value);
    return conf_set_as(doc, key, quoted.data, flag, e);
}

static enum err_code job_text_set_env(struct conf_doc *doc, const char *entry, struct err *e)
{
    const char *equals = strchr(entry, '=');
    if (!equals || equals == entry)
        return option_refuse("env", "NAME=VALUE", entry, e);
    CLEANUP(free_text) char *key = xasprintf("env.%.*s", (int)(equals - entry), entry);
    CLEANUP(free_text) char *flag = xasprintf("--env %.*s", (int)(equals - entry), entry);
    return job_text_set(doc, key, equals + 1, flag, e);
}

static enum err_code job_text_apply_flags(struct conf_doc *doc, const struct job_flags *f, struct err *e)
{
    CLEANUP(free_text) char *preload = f->preload ? xasprintf("[%s]", f->preload) : NULL;
    const struct {
        const char *key, *flag, *value;
        bool text;
    } flags[] = {
        {"name", "--name", f->name, true},
        {"nodes", "--nodes", f->nodes, false},
        {"procs_per_node", "--procs-per-node", f->procs, false},
        {"gpus_per_proc", "--gpus-per-proc", f->gpus, false},
        {"device", "--device", f->device, false},
        {"max_restarts", "--max-restarts", f->max_restarts, false},
        {"restart_on", "--restart-on", f->restart_on, false},
        {"priority", "--priority", f->priority, false},
        {"workdir", "--workdir", f->workdir, true},
        {"time_limit", "--time-limit", f->time_limit, false},
        {"role", "--role", f->role, true},
        {"run_id", "--rdzv-id", f->run_id, true},
        {"grace", "--shutdown-timeout", f->grace, false},
        {"store", "--store", f->store, false},
        {"preload", "--preload", preload, false},
        {"tell", "--tell", f->tell, true},
        {"tell_as", "--tell-as", f->tell_as, false},
        {"virtual_local_rank", "--virtual-local-rank", f->virtual_local_rank ? "true" : NULL, false},
    };
    /* A text is quoted as YAML, so that `--name 7` stays a text. Other values are parsed as in a job file. */
    for (size_t i = 0; i < ARRAY_LEN(flags); i++) {
        const char *key = flags[i].key, *value = flags[i].value, *flag = flags[i].flag;
        if (!value)
            continue;
        if ((flags[i].text ? job_text_set : conf_set_as)(doc, key, value, flag, e) != ERR_OK)
            return e->code;
    }
    for (size_t i = 0; f->env && f->env[i]; i++)
        if (job_text_set_env(doc, f->env[i], e) != ERR_OK)
            return e->code;
    for (size_t i = 0; f->set && f->set[i]; i++)
        if (conf_set(doc, f->set[i], e) != ERR_OK)
            return e->code;
    return ERR_OK;
}

static void path_make_absolute(char **path, const char *dir)
{
    if (!*path || **path == '/')
        return;
    const char *rest = *path;
    while (strncmp(rest, "./", 2) == 0)
        rest += 2;
    char *whole = *rest == 0 || strcmp(rest, ".") == 0 ? xstrdup(dir) : paths_join(dir, rest);
    free(*path);
    *path = whole;
}

static enum err_code job_text_make_absolute(struct job_spec *spec, bool from_afar, struct err *e)
{
    if (from_afar && (!spec->workdir || *spec->workdir != '/'))
        return err_set(
            e, ERR_INVALID_ARGUMENT,
            "workdir: a job that is submitted over the web needs an absolute path, such as /home/ana");
    CLEANUP(free_text) char *here = getcwd(NULL, 0);
    if (!here)
        return err_sys(e, errno, "the current directory");
    if (!spec->workdir)
        spec->workdir = xstrdup(".");
    path_make_absolute(&spec->workdir, here);
    /* The job file is text: in it, a name of other bytes would become another name. */
    if (!json_text_valid(spec->workdir))
        return err_set(e, ERR_INVALID_ARGUMENT,
                       "the name of the current directory is not UTF-8: rename it, or give another one "
                       "with --workdir DIR");
    path_make_absolute(&spec->train.snapshot.dir, spec->workdir);
    path_make_absolute(&spec->train.data.dir, spec->workdir);
    path_make_absolute(&spec->train.data.path, spec->workdir);
    path_make_absolute(&spec->train.data.val_path, spec->workdir);
    path_make_absolute(&spec->train.init_from, spec->workdir);
    return ERR_OK;
}

/* "dir/fashion.yaml" -> "fashion" */
static char *job_text_base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    const char *name = slash ? slash + 1 : path;
    const char *dot = strrchr(name, '.');
    return xasprintf("%.*s", (int)(dot && dot != name ? (size_t)(dot - name) : strlen(name)), name);
}

static enum err_code job_text_finish(struct conf_doc *doc, const struct job_flags *flags, const char *name,
                                     char **text, struct err *e)
{
    struct job_spec spec = {0};
    if (job_text_apply_flags(doc, flags, e) == ERR_OK && job_read(&spec, doc, e) == ERR_OK &&
        job_text_make_absolute(&spec, flags->from_afar, e) == ERR_OK) {
        if (!spec.name || !*spec.name) {
            free(spec.name);
            spec.name = job_text_base_name(name);
        }
        *text = job_print(&spec);
        e->code = ERR_OK;
    }
    job_release(&spec);
    conf_close(doc);
    return e->code;
}

static enum err_code job_text_try(const struct conf_doc *doc, void *context, struct err *e)
{
    CLEANUP(job_release) struct job_spec spec = {0};
    (void)context;
    return job_read(&spec, doc, e);
}

/* Adds the line to the message of an error that makes the whole file unreadable: "job.yaml:5:3: ...". */
static void job_text_show_place(const char *path, struct err *e)
{
    CLEANUP(buf_release) struct buf source = {0}, text = {0};
    struct conf_problem problem = {.text = e->msg};
    struct err ignored;
    const size_t len = strlen(path);
    if (strncmp(e->msg, path, len) != 0 ||
        sscanf(e->msg + len, ":%zu:%zu: ", &problem.line, &problem.column) != 2 ||
        file_read(path, JOB_FILE_BYTES, &source, &ignored) != ERR_OK || !source.len)
        return;
    conf_problem_print(&problem, source.data, &text);
    err_set(e, e->code, "%s", text.data);
}

/* Finds all errors of a file in which one was found, and says where they are. */
static void job_text_explain(const char *path, const struct job_flags *flags, struct buf *others,
                             struct err *e)
{
    CLEANUP(conf_problems_release) struct conf_problems problems = {0};
    CLEANUP(buf_release) struct buf source = {0}, last = {0};
    struct conf_doc *doc;
    struct err again;
    if (file_read(path, JOB_FILE_BYTES, &source, &again) != ERR_OK || !source.len ||
        conf_open(&doc, source.data, source.len, path, &again) != ERR_OK)
        return;
    if (job_text_apply_flags(doc, flags, &again) == ERR_OK)
        conf_problems_find(doc, job_text_try, NULL, &problems);
    conf_close(doc);
    for (size_t i = 0; i < problems.count; i++) {
        const bool is_last = i + 1 == problems.count;
        if (!is_last)
            buf_puts(others, "ddpctl: ");
        conf_problem_print(&problems.list[i], source.data, is_last ? &last : others);
        if (!is_last)
            buf_putc(others, '\n');
    }
    if (last.len)
        err_set(e, ERR_INVALID_ARGUMENT, "%s", last.data);
}

enum err_code job_text_from_file(const char *path, const struct job_flags *flags, char **text,
                                 struct buf *others, struct err *e)
{
    struct conf_doc *doc;
    *e = (struct err){0};
    if (conf_open_file(&doc, path, e) != ERR_OK) {
        if (e->code == ERR_NOT_FOUND)
            return err_set(e, ERR_INVALID_ARGUMENT, "%s: no such job file", path);
        job_text_show_place(path, e);
        return e->code;
    }
    if (job_text_finish(doc, flags, path, text, e) == ERR_INVALID_ARGUMENT)
        job_text_explain(path, flags, others, e);
    return e->code;
}

enum err_code job_text_from_memory(const char *yaml, size_t size, const struct job_flags *flags,
                                   const char *name, char **text, struct err *e)
{
    struct conf_doc *doc;
    *e = (struct err){0};
    if (conf_open(&doc, yaml, size, "job file", e) != ERR_OK)
        return e->code;
    return job_text_finish(doc, flags, name, text, e);
}

const char *job_text_store(const struct job_flags *flags, bool python)
{
    if (flags->store || !python || !flags->procs)
        return flags->store;
    return "launcher";
}

enum err_code job_text_from_command(char *const *command, const struct job_flags *flags, char **text,
                                    struct err *e)
{
    CLEANUP(buf_release) struct buf yaml = {0};
    struct conf_doc *doc;
    *e = (struct err){0};
    if (!command[0])
        return err_set(e, ERR_INVALID_ARGUMENT, "a COMMAND is missing after --");
    buf_puts(&yaml, "command: ");
    for (size_t i = 0; command[i]; i++) {
        if (!json_text_valid(command[i]))
            return err_set(e, ERR_INVALID_ARGUMENT, "COMMAND: argument %zu ('%s') is not UTF-8 text", i,
                           command[i]);
        buf_puts(&yaml, i ? ", " : "[");
        job_quote(&yaml, command[i]);
    }
    buf_puts(&yaml, "]\n");
    if (conf_open(&doc, yaml.data, yaml.len, "command line", e) != ERR_OK)
        return e->code;
    return job_text_finish(doc, flags, command[0], text, e);
}

enum err_code job_text_change(const char *stored, const struct job_flags *flags, char **text, struct err *e)
{
    struct conf_doc *doc;
    *e = (struct err){0};
    if (conf_open(&doc, stored, strlen(stored), "job file", e) != ERR_OK)
        return e->code;
    return job_text_finish(doc, flags, "job", text, e);
}

char **job_text_missing(const char *text)
{
    struct job_spec spec;
    struct err e;
    char **warnings = NULL;
    if (job_parse(&spec, text, strlen(text), "job file", &e) == ERR_OK) {
        const struct {
            const char *key, *path;
        } paths[] = {{"workdir", spec.workdir},
                     {"train.data.dir", spec.train.data.dir},
                     {"train.data.path", spec.train.data.path},
                     {"train.data.val_path", spec.train.data.val_path},
                     {"train.init_from", spec.train.init_from}};
        for (size_t i = 0; i < ARRAY_LEN(paths); i++) {
            if (!paths[i].path || file_exists(paths[i].path))
                continue;
            CLEANUP(free_text)
            char *line = xasprintf("%s %s does not exist on this machine", paths[i].key, paths[i].path);
            warnings = strv_append(warnings, line);
        }
    }
    job_release(&spec);
    return warnings;
}

static bool variable_matches(const char *entry, const char *pattern)
{
    size_t len = strcspn(entry, "=");
    CLEANUP(free_text) char *name = xasprintf("%.*s", (int)len, entry);
    return fnmatch(pattern, name, 0) == 0;
}

static bool variable_matches_any(const char *entry, const char *const *patterns)
{
    for (; *patterns; patterns++)
        if (variable_matches(entry, *patterns))
            return true;
    return false;
}

enum err_code job_text_environment(char *const *environment, char *const *exports, char ***out, struct err *e)
{
    static const char *const usual[] = {"PATH",    "VIRTUAL_ENV",     "CONDA_PREFIX", "CONDA_DEFAULT_ENV",
                                        "HF_HOME", "LD_LIBRARY_PATH", "PYTHONPATH",   "WANDB_*",
                                        NULL};
    static const char *const never[] = {"DDP_*", "TERM",    "PWD",   "OLDPWD", "SHLVL",
                                        "_",     "DISPLAY", "SSH_*", NULL};
    bool all = false, none = false;
    char **list = NULL;
    for (size_t i = 0; exports && exports[i]; i++) {
        if (strpbrk(exports[i], "=,")) /* forms of sbatch; no variable has such a name */
            return err_set(
                e, ERR_INVALID_ARGUMENT,
                "invalid value for option '--export': expected the name of one variable, ALL or NONE, "
                "got '%s'; --env NAME=VALUE sets a variable",
                exports[i]);
        all = all || strcmp(exports[i], "ALL") == 0;
        none = none || strcmp(exports[i], "NONE") == 0;
    }
    if (all && none)
        return err_set(e, ERR_INVALID_ARGUMENT, "--export ALL and --export NONE contradict each other");
    for (size_t i = 0; environment[i]; i++) {
        /* ALL leaves out the variables of the terminal and of ddp itself. A name in exports is always taken,
         * even one of these. */
        bool take = all ? !variable_matches_any(environment[i], never)
                        : !none && variable_matches_any(environment[i], usual);
        for (size_t k = 0; !take && exports && exports[k]; k++)
            take = variable_matches(environment[i], exports[k]);
        if (take)
            list = strv_append(list, environment[i]);
    }
    *out = list;
    return ERR_OK;
}

char **job_text_unset_exports(char *const *environment, char *const *exports)
{
    char **unset = NULL;
    for (; exports && *exports; exports++) {
        bool found = strcmp(*exports, "ALL") == 0 || strcmp(*exports, "NONE") == 0;
        for (size_t i = 0; !found && environment[i]; i++)
            found = variable_matches(environment[i], *exports);
        if (!found)
            unset = strv_append(unset, *exports);
    }
    return unset;
}
