#include "daemon/agent/environment.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/crypto/id.h"
#include "base/mem.h"
#include "daemon/agent/wish.h"
#include "daemon/supervisor/protocol/log_place.h"

#define DEFAULT_PATH "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

/* Variables that are addressed to the agent alone, or to the worker that a nested `ddpctl run` is started in.
 */
static const char *const not_inherited[] = {
    "NOTIFY_SOCKET",  "LISTEN_FDS",       "LISTEN_PID",
    "WATCHDOG_USEC",  "WATCHDOG_PID",     "INVOCATION_ID",
    "JOURNAL_STREAM", "DDP_REPORT_FD",    "DDP_TOKEN_FD",
    "DDP_TOKEN",      "DDP_COORDINATOR",  "DDP_COORDINATOR_FILE",
    "DDP_TLS_CA",     "DDP_TLS_CERT",     "DDP_TLS_KEY",
    "DDP_JOB_FILE",   "DDP_NODE_ADDRESS", "TORCHELASTIC_TIMER_FILE",
    "DDP_CONTROL_FD", "DDP_RESUME_PATH",  "DDP_FROM_SCRATCH",
};

static size_t entry_name_length(const char *entry)
{
    return strcspn(entry, "=");
}

static size_t entry_find(char *const *env, const char *name, size_t len)
{
    size_t i = 0;

    for (; env && env[i]; i++)
        if (!strncmp(env[i], name, len) && env[i][len] == '=')
            break;
    return i;
}

static char **entry_put(char **env, const char *entry)
{
    size_t i = entry_find(env, entry, entry_name_length(entry));

    if (!strchr(entry, '='))
        return env;
    if (!env || !env[i])
        return strv_append(env, entry);
    free(env[i]);
    env[i] = xstrdup(entry);
    return env;
}

char **env_set(char **env, const char *name, const char *fmt, ...)
{
    CLEANUP(buf_release) struct buf entry = {0};
    char *value = NULL;
    va_list ap;

    va_start(ap, fmt);
    if (vasprintf(&value, fmt, ap) < 0)
        abort();
    va_end(ap);
    buf_printf(&entry, "%s=%s", name, value);
    free(value);
    return entry_put(env, entry.data);
}

const char *env_get(char *const *env, const char *name)
{
    size_t len = strlen(name), i = entry_find(env, name, len);

    return env && env[i] ? env[i] + len + 1 : NULL;
}

char **env_unset(char **env, const char *name)
{
    size_t i = entry_find(env, name, strlen(name));

    if (!env || !env[i])
        return env;
    free(env[i]);
    for (; env[i]; i++)
        env[i] = env[i + 1];
    return env;
}

static char **entries_put(char **env, char *const *entries, size_t count)
{
    for (size_t i = 0; i < count; i++)
        env = entry_put(env, entries[i]);
    return env;
}

static char **login_variables_put(char **env, const struct account *account, bool always)
{
    if (!account || (account->uid == geteuid() && !always))
        return env;
    env = env_set(env, "HOME", "%s", account->home);
    env = env_set(env, "USER", "%s", account->name);
    env = env_set(env, "LOGNAME", "%s", account->name);
    return env_set(env, "SHELL", "%s", account->shell);
}

/* A daemon's own environment belongs to its administrator (the PATH of some shell, proxies with passwords,
 * systemd's variables), so its jobs do not get it. Under `ddpctl run` agent and job belong to the same user,
 * and the job gets the user's environment, as under torchrun. */
char **environment_base(const struct settings *settings, const struct account *account,
                        char *const *inherited)
{
    char **env = inherited && *inherited ? strv_dup(inherited) : NULL;

    for (size_t i = 0; i < ARRAY_LEN(not_inherited); i++)
        env = env_unset(env, not_inherited[i]);
    if (!inherited) {
        env = env_set(env, "PATH", "%s", DEFAULT_PATH);
        env = env_set(env, "LANG", "C.UTF-8");
    }
    env = login_variables_put(env, account, !inherited);
    return entries_put(env, settings->env, strv_len(settings->env));
}

/* A node without a range for MASTER_PORT has no port to serve on. */
static bool launcher_serves_store(const struct job_spec *spec, const Ddp__V1__GroupWish *g)
{
    return spec->kind == JOB_COMMAND && spec->store == JOB_STORE_LAUNCHER && g->master_port;
}

static char **torchrun_variables_put(char **env, const struct job_spec *spec, bool alone,
                                     const Ddp__V1__GroupWish *g, const Ddp__V1__SpawnWish *s,
                                     const char *log_dir)
{
    env = env_set(env, "RANK", "%d", s->rank);
    env = env_set(env, "LOCAL_RANK", "%d", alone ? 0 : s->local_rank);
    env = env_set(env, "WORLD_SIZE", "%d", g->world_size);
    env = env_set(env, "LOCAL_WORLD_SIZE", "%d", g->local_world_size);
    env = env_set(env, "GROUP_RANK", "%d", g->node_rank);
    env = env_set(env, "GROUP_WORLD_SIZE", "%d", g->node_count);
    env = env_set(env, "ROLE_RANK", "%d", s->rank);
    env = env_set(env, "ROLE_WORLD_SIZE", "%d", g->world_size);
    env = env_set(env, "ROLE_NAME", "%s", spec->role ? spec->role : "default");
    env = env_set(env, "MASTER_ADDR", "%s", g->master_addr);
    env = env_set(env, "MASTER_PORT", "%d", g->master_port);
    env = env_set(env, "TORCHELASTIC_RESTART_COUNT", "%d", g->restart_count);
    env = env_set(env, "TORCHELASTIC_MAX_RESTARTS", "%d", g->max_restarts);
    env = env_set(env, "TORCHELASTIC_RUN_ID", "%s", spec->run_id ? spec->run_id : g->run_id);
    env =
        env_set(env, "TORCHELASTIC_USE_AGENT_STORE", "%s", launcher_serves_store(spec, g) ? "True" : "False");
    env = env_set(env, "TORCHELASTIC_ERROR_FILE", "%s/error.json", log_dir);
    /* torchrun sets these three variables only if the user has not. One thread for each rank: otherwise the
     * ranks' threads compete. */
    if (!env_get(env, "TORCH_NCCL_ASYNC_ERROR_HANDLING"))
        env = env_set(env, "TORCH_NCCL_ASYNC_ERROR_HANDLING", "1");
    if (!env_get(env, "TORCHELASTIC_SIGNALS_TO_HANDLE"))
        env = env_set(env, "TORCHELASTIC_SIGNALS_TO_HANDLE", "SIGTERM,SIGINT,SIGHUP,SIGQUIT");
    if (!env_get(env, "OMP_NUM_THREADS") && g->local_world_size > 1)
        env = env_set(env, "OMP_NUM_THREADS", "1");
    return env;
}

static char **ddp_variables_put(char **env, const struct environment_place *place,
                                const Ddp__V1__GroupWish *g, const Ddp__V1__SpawnWish *s, const char *id)
{
    env = env_set(env, "DDP_JOB_ID", "%" PRId64, g->job);
    env = env_set(env, "DDP_GENERATION", "%" PRId64, s->generation);
    env = env_set(env, "DDP_SPAWN_ID", "%s", id);
    env = env_set(env, "DDP_SPAWN", "%" PRId64, s->spawn);
    env = env_set(env, "DDP_AGENT_ID", "%s", place->instance);
    env = env_set(env, "DDP_NODE", "%s", place->settings->node);
    return env_set(env, "DDP_RUN_DIR", "%s", place->run_dir);
}

/* Whether the list, with ':' between its directories, has this one. */
static bool path_list_has(const char *list, const char *directory)
{
    const size_t len = strlen(directory);

    for (const char *at = list; at; at = strchr(at, ':') ? strchr(at, ':') + 1 : NULL)
        if (strcspn(at, ":") == len && !memcmp(at, directory, len))
            return true;
    return false;
}

/* At the end, so that no directory of the user's comes after it, but not twice: a job may have been submitted by a job. The module in
 * it steps aside for any other one of its name, also in site-packages (python/ddp.py). */
static char **python_path_put(char **env, const char *directory)
{
    const char *users = env_get(env, "PYTHONPATH");

    if (!directory || path_list_has(users, directory))
        return env;
    return env_set(env, "PYTHONPATH", "%s%s%s", users ? users : "", users && *users ? ":" : "", directory);
}

static char **trainer_variables_put(char **env, const struct environment_place *place)
{
    const struct settings *set = place->settings;

    env = env_set(env, "DDP_COORDINATOR", "%s", set->coordinator);
    if (place->coordinator_file)
        env = env_set(env, "DDP_COORDINATOR_FILE", "%s", place->coordinator_file);
    env = env_set(env, "DDP_JOB_FILE", "%s", place->job_file);
    env = env_set(env, "DDP_NODE_ADDRESS", "%s", place->address);
    env = env_set(env, "DDP_CLUSTER_ID", "%s", place->cluster);
    /* Without this variable the trainer would have to execute itself again. */
    if (!env_get(env, "OMP_WAIT_POLICY"))
        env = env_set(env, "OMP_WAIT_POLICY", "passive");
    if (!set->tls.ca)
        return env;
    env = env_set(env, "DDP_TLS_CA", "%s", set->tls.ca);
    env = env_set(env, "DDP_TLS_CERT", "%s", set->tls.cert);
    return env_set(env, "DDP_TLS_KEY", "%s", set->tls.key);
}

static void gpu_list_append(struct buf *out, const Ddp__V1__SpawnWish *s)
{
    for (size_t i = 0; i < s->n_gpu_uuids; i++)
        buf_printf(out, "%s%s", out->len ? "," : "", s->gpu_uuids[i]);
}

static bool spawn_has_gpu(const Ddp__V1__SpawnWish *s, const char *uuid)
{
    for (size_t i = 0; i < s->n_gpu_uuids; i++)
        if (!strcmp(s->gpu_uuids[i], uuid))
            return true;
    return false;
}

/* Whether two workers of the generation share a GPU. */
static bool gpus_are_shared(const Ddp__V1__GroupWish *g, int64_t generation)
{
    for (size_t a = 0; a < g->n_spawns; a++)
        for (size_t b = 0; b < a; b++)
            for (size_t i = 0; i < g->spawns[a]->n_gpu_uuids; i++)
                if (g->spawns[a]->generation == generation && g->spawns[b]->generation == generation &&
                    spawn_has_gpu(g->spawns[b], g->spawns[a]->gpu_uuids[i]))
                    return true;
    return false;
}

/* A command sees all of the job's GPUs on its node, ordered by local rank, so that cuda:LOCAL_RANK is its
 * own, as under torchrun. A native worker, and one with a virtual local rank, sees only its own. */
static char **visible_gpus_put(char **env, bool own, const Ddp__V1__GroupWish *g, const Ddp__V1__SpawnWish *s)
{
    CLEANUP(buf_release) struct buf list = {0};

    for (int rank = 0; !own && rank < g->local_world_size; rank++)
        for (size_t i = 0; i < g->n_spawns; i++)
            if (g->spawns[i]->local_rank == rank && g->spawns[i]->generation == s->generation)
                gpu_list_append(&list, g->spawns[i]);
    if (own)
        gpu_list_append(&list, s);
    return list.len ? env_set(env, "CUDA_VISIBLE_DEVICES", "%s", list.data) : env;
}

/* Replaces torchrun's macro ${local_rank} in an argument. The caller frees the result. */
static char *word_expand(const char *word, int local_rank)
{
    static const char macro[] = "${local_rank}";
    CLEANUP(buf_release) struct buf out = {0};
    const char *at;

    for (; (at = strstr(word, macro)); word = at + sizeof(macro) - 1) {
        buf_append(&out, word, (size_t)(at - word));
        buf_printf(&out, "%d", local_rank);
    }
    buf_puts(&out, word);
    return buf_steal(&out);
}

static char **command_expand(char *const *words, const Ddp__V1__SpawnWish *s)
{
    char **argv = NULL;

    for (; *words; words++) {
        CLEANUP(free_text) char *word = word_expand(*words, s->local_rank);

        argv = strv_append(argv, word);
    }
    return argv;
}

/* The mode of daemon/capture/capture.h and its argument; NULL: none. */
static char **capture_words(const struct job_capture *c)
{
    static const char *const modes[] = {[JOB_CAPTURE_AUTO] = "shapes",
                                        [JOB_CAPTURE_PATTERN] = "pattern",
                                        [JOB_CAPTURE_TENSORBOARD] = "tensorboard"};
    char **words = c->from == JOB_CAPTURE_NONE ? NULL : strv_append(NULL, modes[c->from]);

    return c->text ? strv_append(words, c->text) : words;
}

void environment_order(struct spawn_order *out, const struct environment_place *place,
                       const struct job_spec *spec, const Ddp__V1__GroupWish *group,
                       const Ddp__V1__SpawnWish *spawn)
{
    const struct settings *set = place->settings;
    char **env = environment_base(set, place->account, place->inherited);
    bool native = spec->kind == JOB_TRAIN;
    /* CUDA_VISIBLE_DEVICES cannot name a GPU twice, so LOCAL_RANK cannot number shared GPUs: each worker sees
     * only its own, as number 0 */
    bool alone = spec->virtual_local_rank || (!native && gpus_are_shared(group, spawn->generation));

    memset(out, 0, sizeof(*out));
    out->spawn = spawn->spawn;
    out->first_generation = wish_first_generation(spawn);
    out->first_local_rank = wish_first_local_rank(spawn);
    out->native = native;
    out->grace_ms = group->grace_ms;
    out->foreground =
        !native && (set->attach == ATTACH_ONLY_RANK ? group->world_size == 1 : set->attach == spawn->rank);
    out->id = xasprintf("%" PRId64 ".%s.%" PRId64, group->job, set->node, spawn->spawn);
    out->owner = xstrdup(place->instance);
    out->workdir = xstrdup(set->workdir ? set->workdir : spec->workdir);
    out->user = xstrdup(place->user);
    out->log_dir =
        log_place_path(set->log_dir, group->job, out->first_generation, set->node, out->first_local_rank);
    if (spawn->rank == 0 && !native)
        out->master_port = group->master_port;
    out->store = out->master_port && launcher_serves_store(spec, group);
    /* The worker must not use GPUs that it has not leased. */
    if (place->has_gpus && !spawn->n_gpu_uuids)
        env = env_set(env, "CUDA_VISIBLE_DEVICES", "%s", "");
    env = entries_put(env, group->env, group->n_env);
    env = entries_put(env, spec->env, strv_len(spec->env));
    env = torchrun_variables_put(env, spec, alone, group, spawn, out->log_dir);
    env = visible_gpus_put(env, native || alone, group, spawn);
    if (spawn->n_gpu_uuids && set->slots_per_gpu > 1) /* NCCL refuses two ranks of one host on one GPU */
        env = env_set(env, "NCCL_HOSTID", "%s-%s", place->instance, out->id);
    env = ddp_variables_put(env, place, group, spawn, out->id);
    if (spawn->n_gpu_uuids && set->slots_per_gpu > 1) /* a trainer plans with its part of the memory */
        env = env_set(env, "DDP_SLOTS_PER_GPU", "%" PRId64, set->slots_per_gpu);
    out->preload = strv_len(spec->preload) ? strv_dup(spec->preload) : NULL;
    if (spawn->rank == 0 && !native)
        out->capture = capture_words(&spec->capture);
    out->gpu_slots = (int)set->slots_per_gpu;
    for (size_t i = 0; i < spawn->n_gpu_uuids; i++)
        out->gpu_uuids = strv_append(out->gpu_uuids, spawn->gpu_uuids[i]);
    if (native) {
        out->token = xmalloc(spawn->token.len * 2 + 1);
        hex_encode(out->token, spawn->token.data, spawn->token.len);
        out->argv = strv_append(NULL, place->trainer);
        env = trainer_variables_put(env, place);
    } else {
        /* Otherwise Python writes to a file in pieces of 8 KB, and logs and curves come late. */
        if (!env_get(env, "PYTHONUNBUFFERED"))
            env = env_set(env, "PYTHONUNBUFFERED", "1");
        out->argv = command_expand(set->command ? set->command : spec->command, spawn);
        env = python_path_put(env, place->python);
        if (*group->resume_path)
            env = env_set(env, "DDP_RESUME_PATH", "%s", group->resume_path);
        if (group->from_scratch)
            env = env_set(env, "DDP_FROM_SCRATCH", "1");
    }
    out->env = env;
}
