#include "client/diagnose/preflight.h"

#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/mem.h"
#include "base/text.h"

#define SKEW_MS 1000         /* beyond this, times in logs mislead */
#define DISK_LOW (1LL << 30) /* less free disk space is a problem */
#define MEMORY_LOW 20        /* less than a twentieth of the memory free is a problem */

void findings_add(struct findings *f, const char *node, char *what, char *fix)
{
    f->items = array_grow(f->items, f->count, &f->cap, sizeof(*f->items));
    f->items[f->count++] = (struct finding){xstrdup(node), what, fix};
}

void findings_print_json(const struct findings *f, struct jout *o)
{
    jout_open(o, "problems", '[');
    for (size_t i = 0; i < f->count; i++) {
        jout_open(o, NULL, '{');
        jout_text(o, "node", f->items[i].node);
        jout_text(o, "problem", f->items[i].what);
        jout_text(o, "fix", f->items[i].fix ? f->items[i].fix : "");
        jout_close(o, '}');
    }
    jout_close(o, ']');
}

void findings_release(struct findings *f)
{
    for (size_t i = 0; i < f->count; i++) {
        free(f->items[i].node);
        free(f->items[i].what);
        free(f->items[i].fix);
    }
    free(f->items);
    *f = (struct findings){0};
}

/* ---- the request */

static void preflight_add_path(char ***list, size_t *count, char *path)
{
    if (!path)
        return;
    *list = xrealloc(*list, (*count + 1) * sizeof(char *));
    (*list)[(*count)++] = path;
}

void preflight_place_init(const struct job_spec *spec, char *const *env, bool hash, Ddp__V1__CheckPlace *out)
{
    size_t own = strv_len(spec->env), carried = strv_len(env);
    ddp__v1__check_place__init(out);
    out->workdir = spec->workdir ? spec->workdir : (char *)(uintptr_t) "";
    out->hash = hash;
    out->env = xcalloc(own + carried + 1, sizeof(char *));
    for (size_t i = 0; i < carried; i++)
        out->env[out->n_env++] = env[i];
    for (size_t i = 0; i < own; i++)
        out->env[out->n_env++] = spec->env[i];
    if (spec->kind == JOB_COMMAND) {
        out->command = spec->command;
        out->n_command = strv_len(spec->command);
        return;
    }
    preflight_add_path(&out->paths, &out->n_paths, spec->train.data.dir);
    preflight_add_path(&out->paths, &out->n_paths, spec->train.data.path);
    preflight_add_path(&out->paths, &out->n_paths, spec->train.data.val_path);
    preflight_add_path(&out->paths, &out->n_paths, spec->train.init_from);
    preflight_add_path(&out->writable, &out->n_writable, spec->train.snapshot.dir);
}

void preflight_place_release(Ddp__V1__CheckPlace *place)
{
    free(place->env);
    free(place->paths);
    free(place->writable);
}

/* ---- directories, data, interpreter */

static const Ddp__V1__CheckPlaceResult *preflight_place_at(const struct preflight *f, size_t node)
{
    return f->places[node] && !*f->places[node]->error ? f->places[node]->place : NULL;
}

static const Ddp__V1__CheckPath *preflight_find_path(const Ddp__V1__CheckPlaceResult *place, const char *path)
{
    for (size_t i = 0; place && i < place->n_paths; i++)
        if (strcmp(place->paths[i]->path, path) == 0 && !*place->paths[i]->problem)
            return place->paths[i];
    return NULL;
}

static bool preflight_same_content(const Ddp__V1__CheckPath *a, const Ddp__V1__CheckPath *b)
{
    /* a quick check or an older agent gives no digest, so only the sizes are compared */
    return a->bytes == b->bytes && a->files == b->files &&
           (!*a->digest || !*b->digest || strcmp(a->digest, b->digest) == 0);
}

/* Counts the nodes whose copy of the path equals this node's. 0: this node has no digest, and a copy of the same
 * size has one. Two copies with different digests both equal a copy without any, so that copy would hide that
 * they differ. */
static int preflight_count_alike(const struct preflight *f, size_t node, const char *path)
{
    const Ddp__V1__CheckPath *mine = preflight_find_path(preflight_place_at(f, node), path);
    int alike = 0;
    for (size_t i = 0; mine && i < f->count; i++) {
        const Ddp__V1__CheckPath *theirs = preflight_find_path(preflight_place_at(f, i), path);
        if (!theirs || !preflight_same_content(mine, theirs))
            continue;
        if (!*mine->digest && *theirs->digest)
            return 0;
        alike++;
    }
    return alike;
}

/* The node whose copy of the path is the most common one, the first of equals: the others are reported as
 * different from it. -1: no node has the path. */
static int preflight_reference_node(const struct preflight *f, const char *path)
{
    int best = -1, most = 0;
    for (size_t i = 0; i < f->count; i++) {
        const int alike = preflight_count_alike(f, i, path);
        if (alike > most) {
            most = alike;
            best = (int)i;
        }
    }
    return best;
}

static char *preflight_path_amount(const Ddp__V1__CheckPath *p)
{
    return xasprintf("%s in %s", text_bytes(p->bytes).text, text_counted(p->files, "file").text);
}

static void preflight_check_path(const struct preflight *f, size_t node, const Ddp__V1__CheckPath *p,
                                 struct findings *out)
{
    const char *name = f->nodes[node]->name;
    const int ref = preflight_reference_node(f, p->path);
    if (*p->problem) {
        findings_add(out, name, xasprintf("%s: %s", p->path, p->problem),
                     ref >= 0 ? xasprintf("copy it from %s, or mount the same file system as %s",
                                          f->nodes[ref]->name, f->nodes[ref]->name)
                              : xstrdup("put it under the same path on each node"));
        return;
    }
    const Ddp__V1__CheckPath *theirs =
        ref >= 0 ? preflight_find_path(preflight_place_at(f, (size_t)ref), p->path) : NULL;
    if (!theirs || preflight_same_content(p, theirs))
        return;
    CLEANUP(free_text) char *here = preflight_path_amount(p), *there = preflight_path_amount(theirs);
    findings_add(
        out, name,
        strcmp(here, there)
            ? xasprintf("%s differs from %s's: %s here, %s there", p->path, f->nodes[ref]->name, here, there)
            : xasprintf("%s differs from %s's in content (%s)", p->path, f->nodes[ref]->name, here),
        xasprintf("copy it again from %s, or use a shared file system", f->nodes[ref]->name));
}

/* A node only lists the scripts of the command that it has. So a script that another node has and this one
 * lacks is found by comparing the lists; it is reported once, against the reference node. */
static void preflight_check_absent(const struct preflight *f, size_t node, struct findings *out)
{
    const Ddp__V1__CheckPlaceResult *mine = preflight_place_at(f, node);
    for (size_t i = 0; i < f->count; i++) {
        const Ddp__V1__CheckPlaceResult *theirs = preflight_place_at(f, i);
        for (size_t k = 0; theirs && k < theirs->n_paths; k++) {
            bool listed = false, first = preflight_reference_node(f, theirs->paths[k]->path) == (int)i;
            for (size_t m = 0; m < mine->n_paths; m++)
                listed = listed || strcmp(mine->paths[m]->path, theirs->paths[k]->path) == 0;
            if (!listed && first)
                findings_add(out, f->nodes[node]->name,
                             xasprintf("%s: does not exist", theirs->paths[k]->path),
                             xasprintf("copy it from %s, or mount the same file system as %s",
                                       f->nodes[i]->name, f->nodes[i]->name));
        }
    }
}

static bool preflight_is_python(const char *program)
{
    const char *slash = strrchr(program, '/');
    return strncmp(slash ? slash + 1 : program, "python", strlen("python")) == 0;
}

/* On a node that lacks the virtual environment, PATH leads to another Python with other packages. The ranks there
 * fail at an import. With another version of PyTorch they hang in the first collective. */
static void preflight_check_interpreter(const struct preflight *f, size_t node, struct findings *out)
{
    const Ddp__V1__CheckPlaceResult *mine = preflight_place_at(f, node), *first = NULL;
    size_t where = 0;
    for (; where < node && !(first && *first->interpreter); where++)
        first = preflight_place_at(f, where);
    if (!first || !*first->interpreter || !*mine->interpreter ||
        strcmp(first->interpreter, mine->interpreter) == 0)
        return;
    /* The finding about versions names the path. It needs both versions: a cold file system may be too slow for one. */
    if (*first->interpreter_version && *mine->interpreter_version &&
        strcmp(first->interpreter_version, mine->interpreter_version) != 0)
        return;
    findings_add(out, f->nodes[node]->name,
                 xasprintf("the command is %s here, %s on %s", mine->interpreter, first->interpreter,
                           f->nodes[where - 1]->name),
                 xstrdup(preflight_is_python(mine->interpreter)
                             ? "make the virtual environment on each node, under the same path"
                             : "install it on each node, under the same path"));
}

static void preflight_check_place(const struct preflight *f, size_t node, struct findings *out)
{
    const Ddp__V1__CheckPlaceResult *p = preflight_place_at(f, node);
    const char *name = f->nodes[node]->name;
    if (!p)
        return;
    if (*p->workdir_problem)
        findings_add(out, name, xasprintf("working directory %s", p->workdir_problem),
                     xasprintf("create it for user %s, mount it, or use another --workdir", p->user));
    if (*p->interpreter_problem)
        findings_add(out, name, xasprintf("%s", p->interpreter_problem),
                     xstrdup("install it, or give its full path"));
    preflight_check_interpreter(f, node, out);
    if (*p->name_problem)
        findings_add(out, name, xstrdup(p->name_problem),
                     xstrdup("add the coordinator's name to /etc/hosts, or check /etc/resolv.conf"));
    for (size_t i = 0; i < p->n_paths; i++)
        preflight_check_path(f, node, p->paths[i], out);
    preflight_check_absent(f, node, out);
    for (size_t i = 0; i < p->n_problems; i++)
        findings_add(out, name, xstrdup(p->problems[i]), xasprintf("let user %s write to it", p->user));
}

void preflight_check_places(const struct preflight *f, struct findings *out)
{
    for (size_t i = 0; i < f->count; i++)
        preflight_check_place(f, i, out);
}

/* ---- the node itself */

static const char *preflight_first_version(const struct preflight *f, size_t *where)
{
    for (size_t i = 0; i < f->count; i++)
        if (preflight_place_at(f, i) && *preflight_place_at(f, i)->interpreter_version) {
            *where = i;
            return preflight_place_at(f, i)->interpreter_version;
        }
    return NULL;
}

static void preflight_check_versions(const struct preflight *f, size_t node, struct findings *out)
{
    const Ddp__V1__CheckPlaceResult *p = preflight_place_at(f, node);
    const char *name = f->nodes[node]->name;
    size_t where = 0;
    const char *first = preflight_first_version(f, &where);
    if (p && first && *p->interpreter_version && strcmp(first, p->interpreter_version) != 0)
        findings_add(out, name,
                     xasprintf("%s is %s here, %s on %s", p->interpreter, p->interpreter_version, first,
                               f->nodes[where]->name),
                     xstrdup("install the same version on each node"));
    if (f->version && f->places[node] && !*f->places[node]->error &&
        strcmp(f->version, f->places[node]->version) != 0)
        findings_add(
            out, name,
            xasprintf("its agent is version %s, the coordinator %s", f->places[node]->version, f->version),
            xstrdup("install the same version and restart the agent; its jobs continue meanwhile"));
}

static void preflight_check_clock(const struct preflight *f, size_t node, struct findings *out)
{
    const Ddp__V1__CheckAnswer *a = f->places[node];
    const int64_t skew = a->skew_ms < 0 ? -a->skew_ms : a->skew_ms;
    /* the answer's travel time is part of the measured skew */
    if (skew >= SKEW_MS + a->trip_ms)
        findings_add(out, f->nodes[node]->name,
                     xasprintf("its clock is %s %s the coordinator's", text_duration(skew).text,
                               a->skew_ms > 0 ? "ahead of" : "behind"),
                     xstrdup("use NTP: systemctl enable --now systemd-timesyncd (or chrony)"));
}

/* File systems store users as numbers. If an account has different numbers, a job that moves between nodes
 * would not own its snapshots on a shared file system. */
static void preflight_check_user(const struct preflight *f, size_t node, struct findings *out)
{
    const Ddp__V1__CheckPlaceResult *p = preflight_place_at(f, node), *first = NULL;
    size_t where = 0;
    while (where < node && !(first && first->user_number)) {
        first = preflight_place_at(f, where);
        where += first && first->user_number ? 0 : 1;
    }
    /* 0: an older agent that does not report it; the first node that does is the reference */
    if (!p || !p->user_number || where == node || p->user_number == first->user_number)
        return;
    findings_add(out, f->nodes[node]->name,
                 xasprintf("jobs run as %s with uid %lld here, as %s with uid %lld on %s", p->user,
                           (long long)p->user_number - 1, first->user, (long long)first->user_number - 1,
                           f->nodes[where]->name),
                 xstrdup("give the account the same uid on all nodes; a shared file system treats different "
                         "uids as different users"));
}

static void preflight_check_room(const struct preflight *f, size_t node, struct findings *out)
{
    const Ddp__V1__CheckPlaceResult *p = preflight_place_at(f, node);
    const char *name = f->nodes[node]->name;
    if (p && p->disk_free < DISK_LOW)
        findings_add(
            out, name,
            xasprintf("only %s of disk space are free where jobs run", text_bytes(p->disk_free).text),
            xstrdup("free some space for snapshots and logs"));
    if (p && p->memory_bytes && p->memory_free < p->memory_bytes / MEMORY_LOW)
        findings_add(out, name,
                     xasprintf("only %s of %s of memory are free", text_bytes(p->memory_free).text,
                               text_bytes(p->memory_bytes).text),
                     xstrdup("find out what else runs there"));
}

/* ---- links */

/* A firewall or a wrong address usually affects every port between two nodes. So there is one finding for a
 * pair of nodes, with the problem of the first port that failed; it names the port if another one worked. */
static void preflight_check_link(const struct preflight *f, size_t from, size_t to, struct findings *out)
{
    const Ddp__V1__CheckAnswer *a = f->links[from];
    const char *problem = NULL;
    int bad = 0, all = 0, port = 0;
    for (size_t i = 0; a && i < a->n_links; i++) {
        if (strcmp(a->links[i]->node, f->nodes[to]->name) != 0)
            continue;
        all++;
        if (!*a->links[i]->problem)
            continue;
        bad++;
        if (!problem) { /* the first one stands for all */
            problem = a->links[i]->problem;
            port = a->links[i]->port;
        }
    }
    if (!bad)
        return;
    findings_add(
        out, f->nodes[from]->name,
        bad == all
            ? xasprintf("cannot reach %s at %s: %s", f->nodes[to]->name, f->nodes[to]->address, problem)
            : xasprintf("cannot reach port %d of %s at %s: %s", port, f->nodes[to]->name,
                        f->nodes[to]->address, problem),
        bad == all
            ? xasprintf("open all TCP ports between the nodes; or set `address:` in %s's agent.yaml to one "
                        "that %s reaches",
                        f->nodes[to]->name, f->nodes[from]->name)
            : xasprintf("open all TCP ports between the nodes, including the kernel's ephemeral range"));
}

static void preflight_check_listen(const struct preflight *f, size_t node, struct findings *out)
{
    const Ddp__V1__CheckAnswer *a = f->listens[node];
    if (a && *a->error)
        findings_add(out, f->nodes[node]->name, xasprintf("no port could be tried: %s", a->error), NULL);
    else if (a && a->listen && *a->listen->problem)
        findings_add(out, f->nodes[node]->name, xstrdup(a->listen->problem),
                     xstrdup("give its agent another --ports range, or stop the program that uses the port"));
}

/* ---- size */

/* The number of GPUs or CPU slots that the job needs on each node; 0: any number. */
static int64_t preflight_wanted_of_each(const struct job_spec *spec, bool gpus)
{
    int64_t procs = spec->procs == JOB_PROCS_NUMBER ? spec->procs_per_node : 0;
    if (!gpus || spec->gpus_per_proc == JOB_GPUS_ALL)
        return procs;
    return procs ? procs * spec->gpus_per_proc : spec->gpus_per_proc;
}

/* The number of the node's GPUs that the job could use. Sick GPUs do not count, and a train job cannot use
 * any on a node whose trainer has no GPU plugin, and of a node without NCCL only with one worker in all. */
static int64_t preflight_usable_gpus(const Ddp__V1__NodeStatus *n, const struct job_spec *spec)
{
    int64_t count = 0;
    const bool several = spec->nodes_min > 1 || (spec->procs == JOB_PROCS_NUMBER && spec->procs_per_node > 1);
    if (spec->kind == JOB_TRAIN &&
        (strcmp(n->nccl_version, "none") == 0 || (several && strcmp(n->nccl_version, "missing") == 0)))
        return 0;
    for (size_t i = 0; i < n->n_gpus; i++)
        count += n->gpus[i]->healthy;
    return count;
}

static bool preflight_node_fits(const Ddp__V1__NodeStatus *n, const struct job_spec *spec, bool gpus)
{
    const int64_t wanted = preflight_wanted_of_each(spec, gpus),
                  has = gpus ? preflight_usable_gpus(n, spec) : n->slots;
    if (!gpus || spec->gpus_per_proc == JOB_GPUS_ALL)
        return has > 0 && has >= wanted;
    return has >= spec->gpus_per_proc && has * (n->slots_per_gpu > 0 ? n->slots_per_gpu : 1) >= wanted;
}

static int64_t preflight_count_fits(const struct preflight *f, const struct job_spec *spec, bool gpus)
{
    int64_t count = 0;
    for (size_t i = 0; i < f->count; i++)
        count += preflight_node_fits(f->nodes[i], spec, gpus);
    return count;
}

/* Counts GPUs if the job demands them, or if it may use them and enough nodes have them. The coordinator
 * places jobs by the same rule. */
void preflight_check_size(const struct preflight *f, const struct job_spec *spec, struct findings *out)
{
    const bool must = spec->device == JOB_DEVICE_CUDA || spec->procs == JOB_PROCS_GPU;
    const bool may = spec->device != JOB_DEVICE_CPU && spec->procs != JOB_PROCS_CPU;
    const bool gpus = must || (may && preflight_count_fits(f, spec, true) >= spec->nodes_min);
    const int64_t fit = preflight_count_fits(f, spec, gpus), each = preflight_wanted_of_each(spec, gpus);
    if (fit >= spec->nodes_min) /* an elastic job starts with its minimum */
        return;
    if ((int64_t)f->count < spec->nodes_min)
        findings_add(out, "",
                     xasprintf("the job needs %s, but only %zu can take work",
                               text_counted(spec->nodes_min, "node").text, f->count),
                     xstrdup("`ddpctl nodes` shows the state of the others"));
    else
        findings_add(out, "",
                     xasprintf("the job needs %s with %s each, but only %lld of %zu have them",
                               text_counted(spec->nodes_min, "node").text,
                               text_counted(each ? each : 1, gpus ? "GPU" : "slot").text, (long long)fit,
                               f->count),
                     xstrdup(gpus ? "use fewer, or --device cpu; `ddpctl nodes` shows the GPUs of each node"
                                  : "use fewer --procs-per-node, or raise `slots:` in agent.yaml"));
}

/* ---- instruction sets */

/* wanted: the job's `isa`. Returns the set that `isa: auto` uses on the node; for any other `isa`, the largest set of the node's
 * CPU. Returns ISA_AUTO if the node did not answer, or its agent is too old to know. */
static enum isa preflight_isa_at(const struct preflight *f, size_t node, enum isa wanted)
{
    const Ddp__V1__CheckPlaceResult *p = f->places ? preflight_place_at(f, node) : NULL;
    const char *name = !p ? "" : wanted == ISA_AUTO && *p->isa_auto ? p->isa_auto : p->isa;
    for (int i = ISA_BASE; isa_names[i]; i++)
        if (strcmp(name, isa_names[i]) == 0)
            return (enum isa)i;
    return ISA_AUTO;
}

void preflight_check_isa(const struct preflight *f, const struct job_spec *spec, struct findings *out)
{
    enum isa least = ISA_AUTO, most = ISA_AUTO;
    if (spec->kind != JOB_TRAIN || spec->device == JOB_DEVICE_CUDA ||
        (spec->device == JOB_DEVICE_AUTO && preflight_count_fits(f, spec, true)))
        return;
    for (size_t i = 0; i < f->count; i++) {
        const enum isa isa = preflight_isa_at(f, i, spec->train.isa);
        if (isa == ISA_AUTO)
            continue;
        least = least == ISA_AUTO || isa < least ? isa : least;
        most = isa > most ? isa : most;
        if (isa < spec->train.isa)
            findings_add(out, f->nodes[i]->name,
                         xasprintf("its CPU has no more than %s, but the job needs %s", isa_names[isa],
                                   isa_names[spec->train.isa]),
                         xasprintf("set train.isa: %s, or give the job other nodes", isa_names[isa]));
    }
    if (spec->train.isa != ISA_AUTO || least == most)
        return;
    findings_add(
        out, "",
        xasprintf("the nodes would use different instruction sets (%s to %s), so the result of a run would "
                  "depend on its nodes",
                  isa_names[least], isa_names[most]),
        xasprintf("set train.isa to %s, which all nodes support", isa_names[least]));
}

void preflight_check(const struct preflight *f, struct findings *out)
{
    for (size_t i = 0; i < f->count; i++) {
        const char *name = f->nodes[i]->name;
        if (!f->places[i])
            continue;
        if (*f->places[i]->error) {
            findings_add(out, name, xasprintf("no answer: %s", f->places[i]->error),
                         xasprintf("read its agent's log (journalctl -u ddp-agent on %s)", name));
            continue;
        }
        preflight_check_place(f, i, out);
        preflight_check_versions(f, i, out);
        preflight_check_clock(f, i, out);
        preflight_check_user(f, i, out);
        preflight_check_room(f, i, out);
    }
    for (size_t i = 0; f->listens && i < f->count; i++)
        preflight_check_listen(f, i, out);
    for (size_t i = 0; f->links && i < f->count; i++)
        for (size_t k = 0; k < f->count; k++)
            if (k != i)
                preflight_check_link(f, i, k, out);
}
