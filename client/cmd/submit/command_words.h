#ifndef DDP_CLIENT_CMD_SUBMIT_COMMAND_WORDS_H
#define DDP_CLIENT_CMD_SUBMIT_COMMAND_WORDS_H

#include "base/conf/option.h"

/* SCRIPT.py or COMMAND with its arguments, as run, submit and check take them. The first word that is neither
 * an option nor a job file begins the command, and every word after it belongs to the command. */

struct command_form {
    bool module, no_python, run_path;
};

#define COMMAND_FORM_OPTIONS(owner, member)                                                                  \
    {.name = "module",                                                                                       \
     .letter = 'm',                                                                                          \
     .type = OPTION_FLAG,                                                                                    \
     .offset = offsetof(struct owner, member.module),                                                        \
     .help = "SCRIPT is a Python module: python3 -u -m SCRIPT"},                                             \
        {.name = "no-python",                                                                                \
         .type = OPTION_FLAG,                                                                                \
         .offset = offsetof(struct owner, member.no_python),                                                 \
         .help = "run SCRIPT without Python, even if it ends in .py"},                                       \
    {                                                                                                        \
        .name = "run-path", .type = OPTION_FLAG, .offset = offsetof(struct owner, member.run_path),          \
        .help = "run SCRIPT with python3 -u, whatever it ends in"                                            \
    }

/* True if the argument begins a script or command, false if it names a job file: *.yaml, *.yml, or a file
 * below /dev, such as /dev/stdin and a shell's <(...). */
bool command_words_begin(const char *argument);
/* The words to execute, ended by NULL; strv_free. python: the interpreter, NULL for python3. A script whose
 * name does not end in .py is executed directly; torchrun wants --no-python for that. */
MUST_CHECK enum err_code command_words_make(const struct command_form *form, char *const *tail,
                                            const char *python, char ***words, struct err *e);
/* Whether Python runs the command whose first word is `word`. */
bool command_words_are_python(const struct command_form *form, const char *word);
/* Checks the script or command as far as this machine shows: INVALID_ARGUMENT for a script that does not
 * exist, that is a directory or that may not be read, and for a command that looks like a misspelled job
 * file. A relative path is relative to workdir. A script whose directory does not exist here is accepted,
 * because the nodes may have it, unless the command runs on this machine. */
MUST_CHECK enum err_code command_words_check(const struct command_form *form, const char *word,
                                             const char *workdir, bool runs_here, struct err *e);

#endif
