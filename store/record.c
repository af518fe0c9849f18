#include "store/record.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "store/change.h"

static uint8_t *bytes_dup(const uint8_t *data, size_t size)
{
    return data && size ? xmemdup(data, size) : NULL;
}

void job_record_copy(struct job_record *to, const struct job_record *from)
{
    *to = *from;
    to->request_id = xstrdup(from->request_id);
    to->name = xstrdup(from->name);
    to->user = xstrdup(from->user);
    to->job_file = xstrdup(from->job_file);
    to->env = from->env ? strv_dup(from->env) : NULL;
    to->reason = xstrdup(from->reason);
    to->last_restart = xstrdup(from->last_restart);
    to->progress = xstrdup(from->progress);
}

void job_record_release(struct job_record *r)
{
    free(r->request_id);
    free(r->name);
    free(r->user);
    free(r->job_file);
    strv_free(r->env);
    free(r->reason);
    free(r->last_restart);
    free(r->progress);
    *r = (struct job_record){0};
}

void node_record_copy(struct node_record *to, const struct node_record *from)
{
    *to = *from;
    to->name = xstrdup(from->name);
    to->instance = xstrdup(from->instance);
    to->address = xstrdup(from->address);
    to->version = xstrdup(from->version);
    to->log_dir = xstrdup(from->log_dir);
    to->note = xstrdup(from->note);
    to->gpus = xstrdup(from->gpus);
}

void node_record_release(struct node_record *r)
{
    free(r->name);
    free(r->instance);
    free(r->address);
    free(r->version);
    free(r->log_dir);
    free(r->note);
    free(r->gpus);
    *r = (struct node_record){0};
}

void generation_record_copy(struct generation_record *to, const struct generation_record *from)
{
    *to = *from;
    to->reason = xstrdup(from->reason);
    to->master_addr = xstrdup(from->master_addr);
    to->bootstrap = bytes_dup(from->bootstrap, from->bootstrap_size);
    to->source_digest = xstrdup(from->source_digest);
    to->source_path = xstrdup(from->source_path);
}

void generation_record_release(struct generation_record *r)
{
    free(r->reason);
    free(r->master_addr);
    free(r->bootstrap);
    free(r->source_digest);
    free(r->source_path);
    *r = (struct generation_record){0};
}

void rank_record_copy(struct rank_record *to, const struct rank_record *from)
{
    *to = *from;
    to->node = xstrdup(from->node);
    to->address = bytes_dup(from->address, from->address_size);
    to->version = xstrdup(from->version);
    to->computes = xstrdup(from->computes);
}

void rank_record_release(struct rank_record *r)
{
    free(r->node);
    free(r->version);
    free(r->computes);
    free(r->address);
    *r = (struct rank_record){0};
}

void spawn_record_copy(struct spawn_record *to, const struct spawn_record *from)
{
    *to = *from;
    to->node = xstrdup(from->node);
    to->gpu_uuids = from->gpu_uuids ? strv_dup(from->gpu_uuids) : NULL;
    to->message = xstrdup(from->message);
    to->stderr_tail = xstrdup(from->stderr_tail);
}

void spawn_record_release(struct spawn_record *r)
{
    free(r->node);
    strv_free(r->gpu_uuids);
    free(r->message);
    free(r->stderr_tail);
    *r = (struct spawn_record){0};
}

void snapshot_record_copy(struct snapshot_record *to, const struct snapshot_record *from)
{
    *to = *from;
    to->digest = xstrdup(from->digest);
    to->path = xstrdup(from->path);
    to->nodes = from->nodes ? strv_dup(from->nodes) : NULL;
}

void snapshot_record_release(struct snapshot_record *r)
{
    free(r->digest);
    free(r->path);
    strv_free(r->nodes);
    *r = (struct snapshot_record){0};
}

void event_record_copy(struct event_record *to, const struct event_record *from)
{
    *to = *from;
    to->what = xstrdup(from->what);
    to->text = xstrdup(from->text);
}

void event_record_release(struct event_record *r)
{
    free(r->what);
    free(r->text);
    *r = (struct event_record){0};
}

void user_record_copy(struct user_record *to, const struct user_record *from)
{
    *to = *from;
    to->name = xstrdup(from->name);
    to->role = xstrdup(from->role);
}

void user_record_release(struct user_record *r)
{
    free(r->name);
    free(r->role);
    *r = (struct user_record){0};
}

void audit_record_release(struct audit_record *r)
{
    free(r->who);
    free(r->origin);
    free(r->what);
    free(r->text);
    *r = (struct audit_record){0};
}

void notice_record_release(struct notice_record *r)
{
    free(r->hook);
    free(r->what);
    free(r->text);
    free(r->name);
    free(r->user);
    free(r->node);
    free(r->url);
    *r = (struct notice_record){0};
}

void change_release(struct change *c)
{
    switch (c->kind) {
    case CHANGE_JOB_INSERT:
    case CHANGE_JOB_PUT:
        job_record_release(c->job);
        break;
    case CHANGE_NODE_INSERT:
    case CHANGE_NODE_PUT:
        node_record_release(c->node);
        break;
    case CHANGE_GENERATION_INSERT:
    case CHANGE_GENERATION_PUT:
        generation_record_release(c->generation);
        break;
    case CHANGE_RANK_INSERT:
    case CHANGE_RANK_PUT:
        rank_record_release(c->rank);
        break;
    case CHANGE_SPAWN_INSERT:
    case CHANGE_SPAWN_PUT:
        spawn_record_release(c->spawn);
        break;
    case CHANGE_SNAPSHOT_PUT:
    case CHANGE_SNAPSHOT_DELETE:
        snapshot_record_release(c->snapshot);
        break;
    case CHANGE_EVENT:
        event_record_release(c->event);
        break;
    case CHANGE_USER_PUT:
        user_record_release(c->user);
        break;
    case CHANGE_AUDIT:
        audit_record_release(c->audit);
        break;
    case CHANGE_NOTICE:
        notice_record_release(c->notice);
        break;
    case CHANGE_JOB_MOVE:
    case CHANGE_NODE_MOVE:
    case CHANGE_NODE_DELETE:
    case CHANGE_GENERATION_MOVE:
    case CHANGE_GENERATION_DELETE:
    case CHANGE_RANK_MOVE:
    case CHANGE_JOB_PROGRESS:
    case CHANGE_JOB_FORGET:
    case CHANGE_USER_DELETE:
    case CHANGE_JOB_CLEAR:
    case CHANGE_LOST_NUMBER_REMOVED:
    case CHANGE_META:
        c->job = NULL; /* no record */
        break;
    }
    free(c->job); /* whichever it is: all are pointers in one union */
    free(c->name);
    free(c->text);
    *c = (struct change){0};
}

#define RELEASE_ALL(array, count, release)                                                                   \
    do {                                                                                                     \
        for (size_t i_ = 0; i_ < (count); i_++)                                                              \
            release(&(array)[i_]);                                                                           \
        free(array);                                                                                         \
    } while (0)

void records_release(struct records *r)
{
    RELEASE_ALL(r->jobs, r->job_count, job_record_release);
    RELEASE_ALL(r->nodes, r->node_count, node_record_release);
    RELEASE_ALL(r->generations, r->generation_count, generation_record_release);
    RELEASE_ALL(r->ranks, r->rank_count, rank_record_release);
    RELEASE_ALL(r->spawns, r->spawn_count, spawn_record_release);
    RELEASE_ALL(r->snapshots, r->snapshot_count, snapshot_record_release);
    free(r->removed);
    *r = (struct records){0};
}
