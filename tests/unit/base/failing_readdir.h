#ifndef DDP_TESTS_UNIT_BASE_FAILING_READDIR_H
#define DDP_TESTS_UNIT_BASE_FAILING_READDIR_H

#include <dirent.h>
#include <errno.h>

/* A readdir that fails with EIO after some entries. The program includes this once, and links with --wrap=readdir. */
static int entries_until_error = -1; /* -1: it never fails */
struct dirent *__real_readdir(DIR *d);
struct dirent *__wrap_readdir(DIR *d);

struct dirent *__wrap_readdir(DIR *d)
{
    if (entries_until_error == 0) {
        errno = EIO;
        return NULL;
    }
    if (entries_until_error > 0)
        entries_until_error--;
    return __real_readdir(d);
}

#endif
