#include "trainer/config.h"

#include <stdlib.h>
#include <string.h>

#include "base/conf/conf.h"
#include "base/mem.h"

static enum err_code config_env_int(const char *name, int fallback, int *out, struct err *e)
{
    const char *text = getenv(name);
    char *end = NULL;
    if (!text) {
        *out = fallback;
        return ERR_OK;
    }
    long value = strtol(text, &end, 10);
    if (!*text || *end || value < 0 || value > 1 << 20)
        return err_set(e, ERR_INVALID_ARGUMENT, "invalid %s: '%s'", name, text);
    *out = (int)value;
    return ERR_OK;
}

static void close_doc(struct conf_doc **doc)
{
    if (*doc)
        conf_close(*doc);
}

static enum err_code read_job(struct trainer_config *c, const char *path, char **sets, struct err *e)
{
    CLEANUP(close_doc) struct conf_doc *doc = NULL;
    if (conf_open_file(&doc, path, e))
        return e->code;
    for (size_t i = 0; sets && sets[i]; i++)
        if (conf_set(doc, sets[i], e))
            return e->code;
    if (job_read(&c->job, doc, e))
        return e->code;
    if (c->job.kind != JOB_TRAIN)
        return err_set(e, ERR_INVALID_ARGUMENT, "%s: expected a job file with 'train'", path);
    return ERR_OK;
}

static enum err_code read_environment(struct trainer_config *c, struct err *e)
{
    const char *path = getenv("DDP_JOB_FILE");
    if (!path)
        return err_set(
            e, ERR_INVALID_ARGUMENT,
            "DDP_JOB_FILE is not set: start ddp-trainer by hand with --standalone (see ddp-trainer --help)");
    if (config_env_int("LOCAL_RANK", 0, &c->local_rank, e) ||
        config_env_int("LOCAL_WORLD_SIZE", 1, &c->local_world_size, e))
        return e->code;
    if (c->local_world_size < 1 || c->local_rank >= c->local_world_size)
        return err_set(e, ERR_INVALID_ARGUMENT,
                       "invalid value for LOCAL_RANK: expected a number below LOCAL_WORLD_SIZE (%d), got %d",
                       c->local_world_size, c->local_rank);
    return read_job(c, path, NULL, e);
}

enum err_code config_read(struct trainer_config *out, const struct trainer_options *o, struct err *e)
{
    *out = (struct trainer_config){.standalone = o->standalone, .local_world_size = 1};
    return o->standalone || o->sizes ? read_job(out, o->job_file, o->set, e) : read_environment(out, e);
}

void config_release(struct trainer_config *c)
{
    job_release(&c->job);
    *c = (struct trainer_config){0};
}
