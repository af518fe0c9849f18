#ifndef DDP_BASE_JOB_JOB_PYTHON_H
#define DDP_BASE_JOB_JOB_PYTHON_H

#include <stdbool.h>
#include <stddef.h>

/* Where a command line of Python has its program: "python3 -u train.py ...", "/opt/bin/python -m pkg.train ...". */
struct job_python {
    size_t options; /* words of the interpreter: its name and its options, without -m */
    size_t program; /* the word that names the script or module */
    bool module;
};

/* False: the first word is not a Python interpreter, it is to run a text (-c) or to be used by hand, or it has an option
 * that is not known here. */
bool job_python_find(char *const *command, struct job_python *out);

#endif
