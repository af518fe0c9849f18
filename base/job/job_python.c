#include "base/job/job_python.h"

#include <string.h>

static bool word_is_python(const char *word)
{
    const char *slash = strrchr(word, '/');

    return !strncmp(slash ? slash + 1 : word, "python", strlen("python"));
}

bool job_python_find(char *const *command, struct job_python *out)
{
    size_t i = 1;

    if (!command || !command[0] || !word_is_python(command[0]))
        return false;
    for (; command[i] && command[i][0] == '-'; i++) {
        const char *letters = command[i] + 1;

        if (!strcmp(letters, "m")) {
            *out = (struct job_python){.options = i, .program = i + 1, .module = true};
            return command[i + 1] != NULL;
        }
        if (!strcmp(letters, "X") || !strcmp(letters, "W"))
            i += command[i + 1] != NULL; /* the value is a word of its own */
        else if (*letters != 'X' && *letters != 'W' &&
                 (!*letters || letters[strspn(letters, "bBdEIOPqsSuv")]))
            return false;
    }
    *out = (struct job_python){.options = i, .program = i};
    return command[i] != NULL;
}
