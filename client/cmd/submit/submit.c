#include "client/cmd/submit/submit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/paths.h"
#include "client/cmd/submit/follow.h"
#include "client/reply_json.h"

static bool word_is_one_of(const char *word, const char *const *list, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(word, list[i]) == 0)
            return true;
    return false;
}

/* The script of ./job.sh, or of `bash -l job.sh`. NULL: there is none. */
static const char *submit_find_script(char *const *words)
{
    static const char *const shells[] = {"sh", "bash", "dash", "ksh", "zsh"};
    static const char *const with_value[] = {"-o", "+o", "-O", "+O", "--rcfile", "--init-file"};
    const char *slash = strrchr(words[0], '/');
    if (!word_is_one_of(slash ? slash + 1 : words[0], shells, ARRAY_LEN(shells)))
        return words[0];
    while (*++words && (**words == '-' || **words == '+')) {
        if ((*words)[1] != '-' && strchr(*words, 'c')) /* -c, -lc: a command */
            return NULL;
        if (word_is_one_of(*words, with_value, ARRAY_LEN(with_value)) && words[1])
            words++;
    }
    return *words;
}

static bool head_has_directive(const char *head, const char *line)
{
    for (const char *at = strstr(head, line); at; at = strstr(at + 1, line))
        if (at > head && at[-1] == '\n' && (at[strlen(line)] == ' ' || at[strlen(line)] == '\t'))
            return true;
    return false;
}

/* A batch system reads options from such lines of a script. ddp ignores them, so the job gets one node and no time limit. */
static void submit_warn_directives(char *const *words, const char *workdir)
{
    const char *word = submit_find_script(words);
    if (!word)
        return;
    CLEANUP(free_text) char *path = paths_join(workdir, word);
    CLEANUP(buf_release) struct buf talk = {0};
    char head[4096] = "";
    struct stat st;
    FILE *f = stat(path, &st) == 0 && S_ISREG(st.st_mode) ? fopen(path, "re") : NULL;

    if (!f)
        return;
    head[fread(head, 1, sizeof head - 1, f)] = '\0';
    fclose(f);
    const char *line = head_has_directive(head, "#SBATCH") ? "#SBATCH"
                       : head_has_directive(head, "#PBS")  ? "#PBS"
                                                           : NULL;
    if (!line || strncmp(head, "#!", 2) != 0)
        return;
    buf_printf(&talk,
               "ddpctl: warning: ddp does not read the %s lines of %s; give their values as options: "
               "`ddpctl submit --help`\n",
               line, word);
    stderr_put(&talk);
}

/* Checks the script on this machine, in the working directory that the job has there. */
static enum err_code submit_check_script(const struct command_form *form, char *const *words,
                                         const char *text, struct err *e)
{
    CLEANUP(job_release) struct job_spec spec = {0};
    if (job_parse(&spec, text, strlen(text), "job file", e) != ERR_OK)
        return e->code;
    if (command_words_check(form, words[0], spec.workdir, false, e) != ERR_OK)
        return e->code;
    if (!form->module)
        submit_warn_directives(words, spec.workdir);
    return ERR_OK;
}

void submit_warn_units(const struct job_flags *flags)
{
    CLEANUP(buf_release) struct buf talk = {0};
    const char *limit = flags->time_limit;
    if (!limit || !*limit || limit[strspn(limit, "0123456789")])
        return;
    buf_printf(&talk, "ddpctl: warning: --time-limit %s means %s seconds; write %ss, or %sm for minutes\n",
               limit, limit, limit, limit);
    stderr_put(&talk);
}

enum err_code submit_text(const struct option_arguments *args, const struct command_form *form,
                          const struct job_flags *flags, char **text, struct err *e)
{
    CLEANUP(free_text) char *made = NULL;
    struct job_flags all = *flags;
    char **words;
    submit_warn_units(flags);
    if (args->tail && args->count)
        return err_set(e, ERR_INVALID_ARGUMENT, "give either a job file or a COMMAND, not both: '%s'",
                       args->list[0]);
    if (!args->tail && !args->count)
        return err_set(e, ERR_INVALID_ARGUMENT, "nothing to run: give JOB.yaml, SCRIPT.py or a COMMAND");
    if (!args->tail) {
        CLEANUP(buf_release) struct buf others = {0};
        const enum err_code code = job_text_from_file(args->list[0], flags, text, &others, e);
        stderr_put(&others);
        return code;
    }
    if (command_words_make(form, args->tail, getenv("PYTHON_EXEC"), &words, e) != ERR_OK)
        return e->code;
    all.store = job_text_store(flags, command_words_are_python(form, args->tail[0]));
    enum err_code code = job_text_from_command(words, &all, &made, e);
    strv_free(words);
    if (code != ERR_OK || submit_check_script(form, args->tail, made, e) != ERR_OK)
        return e->code;
    *text = steal(made);
    return ERR_OK;
}

/* The job may not need the variable, and scripts name variables that are set on some machines only. So this is a warning, as
 * for `mpirun -x`. */
static void submit_warn_unset(char *const *environment, char *const *exports)
{
    CLEANUP(buf_release) struct buf talk = {0};
    char **unset = job_text_unset_exports(environment, exports);
    for (size_t i = 0; unset && unset[i]; i++)
        buf_printf(
            &talk,
            "ddpctl: warning: --export %s: this variable is not set in ddpctl's environment, so the workers do "
            "not get it\n",
            unset[i]);
    stderr_put(&talk);
    strv_free(unset);
}

enum err_code submit_environment(bool command, char *const *exports, char ***env, struct err *e)
{
    char *const nothing[] = {NULL};
    *env = NULL;
    if (!command && !exports)
        return ERR_OK;
    char *const *environment = environ ? environ : nothing;
    if (job_text_environment(environment, exports, env, e) != ERR_OK)
        return e->code;
    submit_warn_unset(environment, exports);
    return ERR_OK;
}

int submit_after(struct link *link, int64_t job, const char *name, bool follow, const char *output)
{
    CLEANUP(buf_release) struct buf out = {0}, talk = {0};
    struct err e;
    int code = EXIT_DONE;
    if (follow) {
        if (follow_job(link, job, &code, &e) != ERR_OK)
            return error_print(&e);
        return code;
    }
    if (output && strcmp(output, "json") == 0) {
        reply_json_submitted(job, name, &out);
    } else {
        /* only the number goes to stdout: job=$(ddpctl submit ...) */
        buf_printf(&out, "%lld\n", (long long)job);
        buf_printf(&talk, "#%lld %s submitted\n   ddpctl status %lld --watch\n", (long long)job, name,
                   (long long)job);
    }
    stderr_put(&talk);
    return stdout_put(&out) ? code : EXIT_FAILED;
}
