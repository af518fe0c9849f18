#include "client/cmd/submit/command_words.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/paths.h"

static bool word_ends_in(const char *word, const char *ending)
{
    const char *dot = strrchr(word, '.');
    return dot && strcmp(dot, ending) == 0;
}

bool command_words_begin(const char *argument)
{
    return !word_ends_in(argument, ".yaml") && !word_ends_in(argument, ".yml") &&
           strncmp(argument, "/dev/", strlen("/dev/")) != 0;
}

/* The word is a Python file, which the interpreter reads. */
static bool word_is_script(const struct command_form *form, const char *word)
{
    return form->run_path || (!form->module && !form->no_python && word_ends_in(word, ".py"));
}

bool command_words_are_python(const struct command_form *form, const char *word)
{
    return form->module || word_is_script(form, word);
}

enum err_code command_words_make(const struct command_form *form, char *const *tail, const char *python,
                                 char ***words, struct err *e)
{
    char **list = NULL;
    if (!tail[0])
        return err_set(e, ERR_INVALID_ARGUMENT, "a COMMAND is missing after --");
    if (form->no_python && form->module)
        return err_set(e, ERR_INVALID_ARGUMENT, "--no-python and --module contradict each other");
    if (form->module && form->run_path)
        return err_set(e, ERR_INVALID_ARGUMENT, "--module and --run-path contradict each other");
    if (command_words_are_python(form, tail[0])) {
        list = strv_append(list, python ? python : "python3");
        list = strv_append(list, "-u");
    }
    if (form->module)
        list = strv_append(list, "-m");
    for (; *tail; tail++)
        list = strv_append(list, *tail);
    *words = list;
    return ERR_OK;
}

static bool directory_exists(const char *file)
{
    CLEANUP(free_text) char *copy = xstrdup(file);
    struct stat st;
    *strrchr(copy, '/') = 0; /* "" is the root, whose files are looked for on this machine, too */
    return !*copy || (stat(copy, &st) == 0 && S_ISDIR(st.st_mode));
}

static enum err_code script_check(const char *word, const char *path, bool runs_here, struct err *e)
{
    struct stat st;
    const bool found = stat(path, &st) == 0;
    if (!found && errno == ENOENT && (runs_here || directory_exists(path)))
        return err_set(e, ERR_INVALID_ARGUMENT, "script '%s': no such file%s", word,
                       runs_here ? "" : " (if only the nodes have it, type python3 before it)");
    if (!found && errno != ENOENT)
        return err_set(e, ERR_INVALID_ARGUMENT, "script '%s': %s", word, strerror(errno));
    if (found && S_ISDIR(st.st_mode))
        return err_set(e, ERR_INVALID_ARGUMENT, "script '%s': is a directory; give a file in it", word);
    if (found && access(path, R_OK) != 0)
        return err_set(e, ERR_INVALID_ARGUMENT, "script '%s': %s; run `chmod +r %s`", word, strerror(errno),
                       word);
    return ERR_OK;
}

/* A program that is not on this machine may be on the nodes. But if PATH does not find a name, and the working
 * directory has a file of this name, that is a mistake. */
static enum err_code program_check(const char *word, const char *path, struct err *e)
{
    struct stat st;
    if (stat(path, &st) != 0)
        return ERR_OK;
    if (strchr(word, '/'))
        return !S_ISDIR(st.st_mode) ? ERR_OK
                                    : err_set(e, ERR_INVALID_ARGUMENT,
                                              "'%s' is a directory; give a script or a command", word);
    if (paths_finds_program(word))
        return ERR_OK;
    if (S_ISDIR(st.st_mode))
        return err_set(e, ERR_INVALID_ARGUMENT, "'%s' is a directory; give a script or a command", word);
    return err_set(e, ERR_INVALID_ARGUMENT,
                   "no command '%s' in PATH; a job file's name ends in .yaml, and the program in this "
                   "directory is ./%s",
                   word, word);
}

enum err_code command_words_check(const struct command_form *form, const char *word, const char *workdir,
                                  bool runs_here, struct err *e)
{
    if (form->module) /* Python finds the module in its own path */
        return ERR_OK;
    CLEANUP(free_text) char *path = paths_join(workdir, word);
    return word_is_script(form, word) ? script_check(word, path, runs_here, e) : program_check(word, path, e);
}
