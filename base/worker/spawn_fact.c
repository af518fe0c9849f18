#include "base/worker/spawn_fact.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

static const char *const state_names[] = {"starting", "running", "stopping", "exited"};

const char *spawn_state_name(enum spawn_state state)
{
    return state_names[state];
}

bool spawn_state_parse(const char *name, enum spawn_state *out)
{
    for (size_t i = 0; name && i < ARRAY_LEN(state_names); i++)
        if (!strcmp(name, state_names[i])) {
            *out = (enum spawn_state)i;
            return true;
        }
    return false;
}

/* The keys are those of the records on disk: an older supervisor's record must stay readable. "generation"
 * and "local_rank" have the place of the logs. */
void spawn_fact_encode(struct jout *o, const struct spawn_fact *f)
{
    jout_int(o, "job", f->job);
    jout_int(o, "spawn", f->spawn);
    jout_int(o, "generation", f->first_generation);
    jout_int(o, "local_rank", f->first_local_rank);
    jout_text(o, "state", spawn_state_name(f->state));
    jout_int(o, "pid", f->pid);
    jout_int(o, "started_ms", f->started_ms);
    jout_int(o, "ended_ms", f->ended_ms);
    jout_int(o, "code", f->code);
    jout_int(o, "signal", f->signal);
    jout_bool(o, "out_of_memory", f->out_of_memory);
    jout_bool(o, "lost", f->lost);
    jout_bool(o, "not_started", f->not_started);
    jout_bool(o, "port_busy", f->port_busy);
    jout_bool(o, "lease_expired", f->lease_expired);
    jout_bool(o, "node_trouble", f->node_trouble);
    jout_bool(o, "no_account", f->no_account);
    jout_bool(o, "stopped", f->stopped);
    jout_bool(o, "interrupted", f->interrupted);
    jout_text(o, "message", f->message);
    jout_text(o, "stderr_tail", f->stderr_tail);
    jout_text(o, "id", f->id);
    jout_text(o, "owner", f->owner);
    jout_text(o, "cgroup", f->cgroup);
    if (f->asks.commit) {
        jout_int(o, "commit", f->asks.commit);
        jout_int(o, "commit_step", f->asks.step);
        jout_int(o, "commit_bytes", f->asks.bytes);
        jout_text(o, "commit_path", f->asks.path);
    }
    if (f->asks.heeds)
        jout_bool(o, "heeds", true);
    if (f->asks.promise)
        jout_int(o, "promise", f->asks.promise);
}

static char *member_copy(const json_t *obj, const char *key)
{
    return xstrdup(json_get_text(obj, key, NULL));
}

enum err_code spawn_fact_decode(struct spawn_fact *f, const json_t *obj, struct err *e)
{
    bool known = spawn_state_parse(json_get_text(obj, "state", NULL), &f->state);

    f->job = json_get_int(obj, "job", 0); /* 0: an older supervisor does not write it */
    f->spawn = json_get_int(obj, "spawn", 0);
    f->first_generation = json_get_int(obj, "generation", 0);
    f->first_local_rank = (int)json_get_int(obj, "local_rank", 0);
    f->pid = json_get_int(obj, "pid", 0);
    f->started_ms = json_get_int(obj, "started_ms", 0);
    f->ended_ms = json_get_int(obj, "ended_ms", 0);
    f->code = (int)json_get_int(obj, "code", 0);
    f->signal = (int)json_get_int(obj, "signal", 0);
    f->out_of_memory = json_get_bool(obj, "out_of_memory", false);
    f->lost = json_get_bool(obj, "lost", false);
    f->not_started = json_get_bool(obj, "not_started", false);
    f->port_busy = json_get_bool(obj, "port_busy", false);
    f->lease_expired = json_get_bool(obj, "lease_expired", false);
    f->node_trouble = json_get_bool(obj, "node_trouble", false);
    f->no_account = json_get_bool(obj, "no_account", false);
    f->stopped = json_get_bool(obj, "stopped", false);
    f->interrupted = json_get_bool(obj, "interrupted", false);
    f->message = member_copy(obj, "message");
    f->stderr_tail = member_copy(obj, "stderr_tail");
    f->id = member_copy(obj, "id");
    f->owner = member_copy(obj, "owner");
    f->cgroup = member_copy(obj, "cgroup");
    f->asks.commit = json_get_int(obj, "commit", 0);
    f->asks.step = json_get_int(obj, "commit_step", 0);
    f->asks.bytes = json_get_int(obj, "commit_bytes", 0);
    f->asks.path = member_copy(obj, "commit_path");
    f->asks.heeds = json_get_bool(obj, "heeds", false);
    f->asks.promise = json_get_int(obj, "promise", 0);
    if (!known || f->spawn <= 0)
        return err_set(e, ERR_INVALID_ARGUMENT, "the fact has no spawn number, or an unknown state");
    return ERR_OK;
}

void spawn_fact_set_text(const char **text, char *value)
{
    free((char *)*text);
    *text = value;
}

void spawn_fact_copy(struct spawn_fact *to, const struct spawn_fact *from)
{
    struct spawn_fact copy = *from;

    copy.message = xstrdup(from->message);
    copy.stderr_tail = xstrdup(from->stderr_tail);
    copy.id = xstrdup(from->id);
    copy.owner = xstrdup(from->owner);
    copy.cgroup = xstrdup(from->cgroup);
    copy.asks.path = xstrdup(from->asks.path);
    spawn_fact_release(to);
    *to = copy;
}

void spawn_fact_release(struct spawn_fact *f)
{
    free((char *)f->message);
    free((char *)f->stderr_tail);
    free((char *)f->id);
    free((char *)f->owner);
    free((char *)f->cgroup);
    free((char *)f->asks.path);
    memset(f, 0, sizeof(*f));
}
