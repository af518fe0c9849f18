#include "base/job/job.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/job/job_capture.h"
#include "base/job/job_names.h"
#include "base/job/job_python.h"
#include "base/job/job_sync.h"
#include "base/job/job_train.h"
#include "base/job/job_variant.h"
#include "base/job/tell.h"
#include "base/mem.h"
#include "base/net/web_url.h"

static const char *const job_logs_names[] = {"shared", "private", NULL};
const char *const job_device_names[] = {"auto", "cpu", "cuda", NULL};
const char *const job_lost_names[] = {"wait", "fail", NULL};
const char *const job_store_names[] = {"program", "launcher", NULL};
const char *const job_restart_names[] = {"fault", "any", NULL};
const char *const job_idle_names[] = {"tell", "stop", NULL};

#define AT(member) offsetof(struct job_spec, member)
#define NODE_NAME_MAX 64
#define JOB_IDLE_AFTER_MS 1800000 /* of `idle` without `after` */
enum { NODES_MAX = 10000, PROCS_MAX = 1024 };

#define NODES_EXPECTED "N or MIN:MAX, such as 2 or \"1:4\""

/* Reads 2 or "1:4". */
static enum err_code read_nodes(const struct conf_node *node, void *at, struct err *e)
{
    struct job_spec *spec = at;
    const char *text = conf_scalar(node);
    long long low, high;
    char *end;

    if (!text || !isdigit((unsigned char)*text) || (!conf_is_plain(node) && !strchr(text, ':')))
        return conf_refuse(node, "nodes", NODES_EXPECTED, e);
    low = strtoll(text, &end, 10);
    high = low;
    if (*end == ':' && isdigit((unsigned char)end[1]))
        high = strtoll(end + 1, &end, 10);
    if (*end)
        return conf_refuse(node, "nodes", NODES_EXPECTED, e);
    if (low < 1 || high > NODES_MAX)
        return conf_fail(node, e, "invalid value for 'nodes': expected numbers from 1 to %d, got '%.64s'",
                         NODES_MAX, text);
    if (low > high)
        return conf_refuse(node, "nodes", "MIN:MAX with MIN <= MAX", e);
    spec->nodes_min = low;
    spec->nodes_max = high;
    return ERR_OK;
}

static enum err_code read_procs(const struct conf_node *node, void *at, struct err *e)
{
    static const char *const words[] = {"gpu", "cpu", "auto"};
    static const struct conf_field number[] = {{"procs_per_node", CONF_INT, 0, .min = 1, .max = PROCS_MAX},
                                               {0}};
    struct job_spec *spec = at;
    const char *text = conf_scalar(node);

    for (size_t i = 0; text && i < ARRAY_LEN(words); i++)
        if (!strcmp(text, words[i])) {
            spec->procs = (enum job_procs)(JOB_PROCS_GPU + i);
            return ERR_OK;
        }
    if (!conf_is_plain(node) || isalpha((unsigned char)*text))
        return conf_refuse(node, "procs_per_node", "a number, gpu, cpu or auto", e);
    if (conf_read_value(node, number, &spec->procs_per_node, e))
        return e->code;
    spec->procs = JOB_PROCS_NUMBER;
    return ERR_OK;
}

static enum err_code read_gpus(const struct conf_node *node, void *at, struct err *e)
{
    static const struct conf_field number[] = {{"gpus_per_proc", CONF_INT, 0, .min = 1, .max = 64}, {0}};
    const char *text = conf_scalar(node);

    if (text && !strcmp(text, "all")) {
        *(int64_t *)at = JOB_GPUS_ALL;
        return ERR_OK;
    }
    if (!conf_is_plain(node) || isalpha((unsigned char)*text))
        return conf_refuse(node, "gpus_per_proc", "a number or all", e);
    return conf_read_value(node, number, at, e);
}

/* Names become parts of paths and columns of tables, so few characters are allowed. */
static enum err_code read_name(const struct conf_node *node, void *at, struct err *e)
{
    const char *text = conf_scalar(node);
    size_t len = text ? strlen(text) : 0;

    if (!len || len > 64 || !isalnum((unsigned char)*text))
        return conf_refuse(node, "name",
                           "1 to 64 letters, digits, '.', '_' or '-', beginning with a letter or digit", e);
    for (size_t i = 0; i < len; i++)
        if (!isalnum((unsigned char)text[i]) && !strchr("._-", text[i]))
            return conf_refuse(node, "name", "only letters, digits, '.', '_' and '-'", e);
    free(*(char **)at);
    *(char **)at = xstrdup(text);
    return ERR_OK;
}

/* Reads a text that goes into a worker's environment and in front of the lines of its output. */
static enum err_code read_label(const struct conf_node *node, void *at, struct err *e)
{
    const char *text = conf_scalar(node);
    size_t len = text ? strlen(text) : 0;

    if (!len || len > 128)
        return conf_refuse(node, conf_key(node), "text of 1 to 128 bytes", e);
    for (size_t i = 0; i < len; i++)
        if ((unsigned char)text[i] < ' ' || text[i] == 0x7f)
            return conf_fail(node, e, "invalid value for '%s': it contains a control character",
                             conf_key(node));
    free(*(char **)at);
    *(char **)at = xstrdup(text);
    return ERR_OK;
}

/* The message does not repeat the URL, which may be a secret. */
static enum err_code read_tell(const struct conf_node *node, void *at, struct err *e)
{
    const char *text = conf_scalar(node);
    struct web_url url;
    struct err why;

    if (!text)
        return conf_fail(node, e, "invalid value for 'tell': expected a URL");
    if (web_url_parse(&url, text, &why) != ERR_OK)
        return conf_fail(node, e, "invalid value for 'tell': %s", why.msg);
    free(*(char **)at);
    *(char **)at = xstrdup(text);
    return ERR_OK;
}

static enum err_code read_command(const struct conf_node *node, void *at, struct err *e)
{
    static const struct conf_field texts[] = {{"command", CONF_TEXTS, 0}, {0}};
    char ***command = at;

    if (conf_read_value(node, texts, command, e))
        return e->code;
    if (!strv_len(*command) || !***command)
        return conf_fail(node, e, "'command' is empty: give the program and its arguments");
    return ERR_OK;
}

/* Names of modules, which are imported as they are. */
static enum err_code read_preload(const struct conf_node *node, void *at, struct err *e)
{
    static const struct conf_field texts[] = {{"preload", CONF_TEXTS, 0}, {0}};
    char ***names = at;

    if (conf_read_value(node, texts, names, e))
        return e->code;
    for (char *const *name = *names; name && *name; name++) {
        const char *c = *name;

        while (isalnum((unsigned char)*c) || *c == '_' || (*c == '.' && c > *name && c[1]))
            c++;
        if (!**name || *c || isdigit((unsigned char)**name))
            return conf_fail(
                node, e, "invalid value for 'preload': '%.64s' is not the name of a Python module", *name);
    }
    return ERR_OK;
}

static enum err_code read_only_nodes(const struct conf_node *node, void *at, struct err *e)
{
    static const struct conf_field texts[] = {{"only_nodes", CONF_TEXTS, 0}, {0}};
    char ***names = at;

    if (conf_read_value(node, texts, names, e))
        return e->code;
    if (!strv_len(*names))
        return conf_fail(node, e, "'only_nodes' is empty: name a node, or remove the key");
    for (char *const *name = *names; *name; name++)
        if (!**name || strlen(*name) > NODE_NAME_MAX)
            return conf_refuse(node, "only_nodes", "names of nodes, such as [box1, box2]", e);
    return ERR_OK;
}

/* The agent or the supervisor sets these variables and would silently overwrite a value of the job file. */
static bool is_reserved(const char *name)
{
    static const char *const reserved[] = {
        "RANK",
        "LOCAL_RANK",
        "WORLD_SIZE",
        "LOCAL_WORLD_SIZE",
        "GROUP_RANK",
        "ROLE_RANK",
        "GROUP_WORLD_SIZE",
        "MASTER_ADDR",
        "MASTER_PORT",
        "ROLE_WORLD_SIZE",
        "DDP_JOB_ID",
        "DDP_GENERATION",
        "DDP_SPAWN_ID",
        "DDP_REPORT_FD",
        "DDP_TOKEN_FD",
        "DDP_CONTROL_FD",
        "DDP_RESUME_PATH",
        "DDP_FROM_SCRATCH",
        "DDP_SPAWN",
        "DDP_AGENT_ID",
        "DDP_NODE",
        "DDP_RUN_DIR",
        "DDP_SLOTS_PER_GPU",
        "TORCHELASTIC_RESTART_COUNT",
        "TORCHELASTIC_MAX_RESTARTS",
        "TORCHELASTIC_RUN_ID",
    };

    for (size_t i = 0; i < ARRAY_LEN(reserved); i++)
        if (!strcmp(name, reserved[i]))
            return true;
    return false;
}

static enum err_code read_env(const struct conf_node *node, void *at, struct err *e)
{
    static const struct conf_field env[] = {{"env", CONF_ENV, 0}, {0}};

    for (size_t i = 0; conf_is_map(node) && i < conf_count(node); i++)
        if (is_reserved(conf_key(conf_at(node, i))))
            return conf_fail(conf_at(node, i), e, "ddp sets '%s' for each rank: remove it from 'env'",
                             conf_key(conf_at(node, i)));
    return conf_read_value(node, env, at, e);
}

/* Reads "5%", "5 %" and 0.05. */
static bool parse_share(const char *text, void *at)
{
    char *end;
    double value = strtod(text, &end);

    if (end == text)
        return false;
    while (*end == ' ')
        end++;
    if (*end == '%') {
        value /= 100;
        end++;
    }
    if (*end || !(value > 0 && value <= 1))
        return false;
    *(double *)at = value;
    return true;
}

static const struct conf_field idle_fields[] = {
    {"gpu", CONF_PARSED, AT(idle.gpu), .parse = parse_share,
     .expected = "a share above 0 and up to 1, such as 5% or 0.05"},
    {"after", CONF_DURATION, AT(idle.after_ms), .min = 10000, .max = INFINITY},
    {"then", CONF_ENUM, AT(idle.then), .names = job_idle_names},
    {0},
};

/* A new key also needs a default in job_defaults and a line in job_print.c, and a row in job_tune.c if it can change while
 * the job runs. Keys below `train` are in job_train.c. */
static const struct conf_field job_fields[] = {
    {"name", CONF_CUSTOM, AT(name), .fn = read_name},
    {"nodes", CONF_CUSTOM, 0, .fn = read_nodes},
    {"procs_per_node", CONF_CUSTOM, 0, .fn = read_procs},
    {"gpus_per_proc", CONF_CUSTOM, AT(gpus_per_proc), .fn = read_gpus},
    {"device", CONF_ENUM, AT(device), .names = job_device_names},
    {"only_nodes", CONF_CUSTOM, AT(only_nodes), .fn = read_only_nodes},
    {"max_restarts", CONF_INT, AT(max_restarts), .min = 0, .max = 1000000},
    {"restart_on", CONF_ENUM, AT(restart_on), .names = job_restart_names},
    {"max_replacements", CONF_INT, AT(max_replacements), .min = 0, .max = 1000000},
    {"priority", CONF_INT, AT(priority), .min = -1000, .max = 1000},
    {"hold", CONF_BOOL, AT(hold)},
    {"time_limit", CONF_DURATION, AT(time_limit_ms), .min = 1000, .max = INFINITY},
    {"lease", CONF_DURATION, AT(lease_ms), .min = 1000, .max = INFINITY},
    {"join_timeout", CONF_DURATION, AT(join_timeout_ms), .min = 1000, .max = INFINITY},
    {"grace", CONF_DURATION, AT(grace_ms), .min = 0, .max = INFINITY},
    {"stall_timeout", CONF_DURATION, AT(stall_timeout_ms), .min = 0, .max = INFINITY},
    {"idle", CONF_STRUCT, 0, .fields = idle_fields},
    {"on_lost_snapshots", CONF_ENUM, AT(on_lost_snapshots), .names = job_lost_names},
    {"env", CONF_CUSTOM, AT(env), .fn = read_env},
    {"workdir", CONF_TEXT, AT(workdir)},
    {"command", CONF_CUSTOM, AT(command), .fn = read_command},
    {"preload", CONF_CUSTOM, AT(preload), .fn = read_preload},
    {"capture", CONF_CUSTOM, AT(capture), .fn = job_capture_read},
    {"role", CONF_CUSTOM, AT(role), .fn = read_label},
    {"run_id", CONF_CUSTOM, AT(run_id), .fn = read_label},
    {"logs", CONF_ENUM, AT(logs), .names = job_logs_names},
    {"store", CONF_ENUM, AT(store), .names = job_store_names},
    {"tell", CONF_CUSTOM, AT(tell), .fn = read_tell},
    {"tell_as", CONF_ENUM, AT(tell_as), .names = tell_shape_names},
    {"virtual_local_rank", CONF_BOOL, AT(virtual_local_rank)},
    {"train", CONF_CUSTOM, AT(train), .fn = job_train_read, .fields = job_train_fields},
    {0},
};

void job_defaults(struct job_spec *spec, enum job_kind kind)
{
    *spec = (struct job_spec){
        .kind = kind,
        .nodes_min = 1,
        .nodes_max = 1,
        .procs = JOB_PROCS_NUMBER,
        .procs_per_node = 1,
        .gpus_per_proc = 1,
        .device = JOB_DEVICE_AUTO,
        .max_restarts = kind == JOB_TRAIN ? 3 : 0,
        .max_replacements = kind == JOB_TRAIN ? 20 : 0,
        .lease_ms = kind == JOB_TRAIN ? 600000 : 60000,
        .join_timeout_ms = 60000,
        .grace_ms = 30000,
        .idle = {.gpu = 0.05},
    };
    if (kind == JOB_TRAIN)
        job_train_defaults(&spec->train);
}

static bool name_ends_with(const char *text, const char *end)
{
    size_t len = strlen(text), most = strlen(end);

    return len > most && !strcmp(text + len - most, end);
}

/* Returns the word that names the job: the script of `python3 -u dir/train.py 50`, else the program. */
static const char *command_subject(char *const *command)
{
    const char *slash = strrchr(command[0], '/');
    const char *program = slash ? slash + 1 : command[0];
    bool python = !strncmp(program, "python", strlen("python"));

    if (!python && strcmp(program, "sh") != 0 && strcmp(program, "bash") != 0)
        return command[0];
    for (size_t i = 1; command[i] && strcmp(command[i], "-c") != 0 && strcmp(command[i], "-m") != 0; i++)
        if (name_ends_with(command[i], python ? ".py" : ".sh"))
            return command[i];
    return command[0];
}

/* Makes the name of a job that has none from its file or its command. */
static char *name_of(const char *from)
{
    const char *base = strrchr(from, '/') ? strrchr(from, '/') + 1 : from;
    const char *dot = strrchr(base, '.');
    size_t len = dot && dot > base ? (size_t)(dot - base) : strlen(base);
    char *name = xstrdup("job");
    size_t kept = 0;

    name = xrealloc(name, len + sizeof("job"));
    for (size_t i = 0; i < len && kept < 64; i++) {
        bool plain = isalnum((unsigned char)base[i]);

        if (plain || kept)
            name[kept++] = plain || strchr("._-", base[i]) ? base[i] : '-';
    }
    if (kept)
        name[kept] = '\0';
    return name;
}

static bool is_yaml_file(const char *where)
{
    const char *dot = strrchr(where, '.');

    return dot && (!strcmp(dot, ".yaml") || !strcmp(dot, ".yml"));
}

/* Checks the shards if the world size is known before the job starts; the trainer checks them in any case. */
static enum err_code check_shards(const struct job_spec *spec, const struct conf_node *train, struct err *e)
{
    int64_t world = spec->nodes_min * spec->procs_per_node, shards = spec->train.shards;

    if (spec->kind != JOB_TRAIN || spec->train.reproducible != REPRODUCIBLE_WORLD ||
        spec->nodes_min != spec->nodes_max || spec->procs != JOB_PROCS_NUMBER || shards % world == 0)
        return ERR_OK;
    return conf_fail(
        job_either(train, "shards"), e,
        "reproducible: world with %lld shards needs a world size that divides the number of shards, got "
        "%lld",
        (long long)shards, (long long)world);
}

static enum err_code check_preload(const struct job_spec *spec, const struct conf_node *preload,
                                   struct err *e)
{
    struct job_python python;

    if (!strv_len(spec->preload))
        return ERR_OK;
    if (spec->kind != JOB_COMMAND)
        return conf_fail(preload, e,
                         "'preload' applies to commands only: ddp-trainer is not a Python program");
    if (job_python_find(spec->command, &python))
        return ERR_OK;
    return conf_fail(
        preload, e,
        "'preload' needs a command such as 'python3 -u train.py' or 'python3 -m pkg.train', got '%.128s': "
        "change the command, or remove 'preload'",
        spec->command[0]);
}

enum err_code job_read(struct job_spec *out, const struct conf_doc *doc, struct err *e)
{
    const struct conf_node *root = conf_root(doc);
    const struct conf_node *command = conf_get(root, "command"), *train = conf_get(root, "train");

    /* The defaults depend on the kind of the job, so they are set before the keys are read. */
    job_defaults(out, train ? JOB_TRAIN : JOB_COMMAND);
    if (conf_read(doc, job_fields, out, e))
        return e->code;
    if (command && train)
        return conf_fail(train, e, "'command' and 'train' exclude each other: give only one");
    if (!command && !train)
        return conf_fail(root, e, "a job needs one of the keys 'command' and 'train'");
    if (command && conf_get(root, "on_lost_snapshots"))
        return conf_fail(
            conf_get(root, "on_lost_snapshots"), e,
            "'on_lost_snapshots' applies to train jobs only: ddp does not know a command's snapshots");
    if (command && conf_get(root, "max_replacements"))
        return conf_fail(
            conf_get(root, "max_replacements"), e,
            "'max_replacements' applies to train jobs only: when a worker of a command is lost, the "
            "others cannot go on");
    if (train && conf_get(root, "store"))
        return conf_fail(conf_get(root, "store"), e,
                         "'store' applies to commands only: the ranks of a train job use no TCPStore");
    if (train && conf_get(root, "capture"))
        return conf_fail(conf_get(root, "capture"), e,
                         "'capture' applies to commands only: the ranks of a train job report their metrics");
    if (conf_get(root, "idle") && !out->idle.after_ms)
        out->idle.after_ms = JOB_IDLE_AFTER_MS;
    if (out->tell_as && !out->tell)
        return conf_fail(conf_get(root, "tell_as"), e, "'tell_as' needs 'tell', the URL of the messages");
    if (check_preload(out, conf_get(root, "preload"), e))
        return e->code;
    if (out->procs == JOB_PROCS_GPU && out->device == JOB_DEVICE_CPU)
        return conf_fail(conf_get(root, "procs_per_node"), e,
                         "'procs_per_node: gpu' and 'device: cpu' exclude each other: change one of them");
    if (check_shards(out, train, e) || job_sync_check_quorum(out, train, e))
        return e->code;
    if (!out->name)
        out->name = name_of(is_yaml_file(conf_where(root)) ? conf_where(root)
                            : command                      ? command_subject(out->command)
                                                           : "job");
    return ERR_OK;
}

enum err_code job_parse(struct job_spec *out, const char *text, size_t len, const char *where, struct err *e)
{
    struct conf_doc *doc;
    enum err_code code;

    *out = (struct job_spec){0};
    if (conf_open(&doc, text, len, where, e))
        return e->code;
    code = job_read(out, doc, e);
    conf_close(doc);
    return code;
}

void job_release(struct job_spec *spec)
{
    free(spec->name);
    strv_free(spec->env);
    free(spec->workdir);
    strv_free(spec->command);
    strv_free(spec->preload);
    strv_free(spec->only_nodes);
    job_capture_release(&spec->capture);
    free(spec->role);
    free(spec->run_id);
    free(spec->tell);
    job_train_release(&spec->train);
    *spec = (struct job_spec){0};
}
