#include "tests/unit/agent/logs/log_files.h"

#include "tests/unit/base/check.h"

#include <stdio.h>

#include "base/file.h"
#include "base/mem.h"

void log_file_write(const char *directory, int local_rank, const char *name, const char *mode,
                    const char *text)
{
    CLEANUP(free_text) char *dir = xasprintf("%s/7/generation_2/box1/%d", directory, local_rank);
    CLEANUP(free_text) char *path = xasprintf("%s/%s", dir, name);
    struct err e;
    FILE *f;

    assert_ok(file_mkdirs(dir, 0755, &e), &e);
    f = fopen(path, mode);
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}
