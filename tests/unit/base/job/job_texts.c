#include "tests/unit/base/job/job_texts.h"

#include <string.h>

#include "base/mem.h"

void accept_job(struct job_spec *spec, const char *text)
{
    struct err e = {0};

    if (job_parse(spec, text, strlen(text), "jobs/job.yaml", &e))
        fail_msg("%s", e.msg);
}

void refuse_job(const char *text, const char *message)
{
    CLEANUP(job_release) struct job_spec spec;
    struct err e = {0};

    if (!job_parse(&spec, text, strlen(text), "job.yaml", &e))
        fail_msg("accepted: %s", text);
    assert_int_equal(e.code, ERR_INVALID_ARGUMENT);
    assert_string_equal(e.msg, message);
}
