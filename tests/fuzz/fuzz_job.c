#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/job/job.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Any input gives either a message or a job. The printed job parses, and prints the same text again. */
static void check_print(const struct job_spec *spec)
{
    char *first = job_print(spec), *second;
    struct job_spec again;
    struct err e = {0};

    if (job_parse(&again, first, strlen(first), "printed", &e))
        err_bug(__FILE__, __LINE__, e.msg);
    second = job_print(&again);
    BUG_ON(strcmp(first, second));
    job_release(&again);
    free(first);
    free(second);
}

/* A printed document must parse, because the client sends documents as printed text. */
static void check_document(const char *text, size_t size)
{
    struct conf_doc *doc, *again;
    struct err e = {0};
    char *printed;

    if (conf_open(&doc, text, size, "job.yaml", &e))
        return;
    printed = conf_print(doc);
    if (strlen(printed) < 1 << 20) {
        if (conf_open(&again, printed, strlen(printed), "printed", &e))
            err_bug(__FILE__, __LINE__, e.msg);
        conf_close(again);
    }
    free(printed);
    conf_close(doc);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct job_spec spec;
    struct err e = {0};

    if (job_parse(&spec, (const char *)data, size, "job.yaml", &e))
        BUG_ON(!e.code || !e.msg[0]);
    else
        check_print(&spec);
    job_release(&spec);
    check_document((const char *)data, size);
    return 0;
}
