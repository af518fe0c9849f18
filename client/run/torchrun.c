#include "client/run/torchrun.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/mem.h"
#include "client/run/batch/nodelist.h"

/* torchrun's options and PET_* variables with torchrun's meaning. Its times are in seconds. */

enum { C10D_PORT = 29400, STATIC_PORT = 29500 };

static enum err_code torchrun_read_number(const char *option, const char *text, int64_t most, int64_t *out,
                                          struct err *e)
{
    char *end;
    errno = 0;
    long long value = strtoll(text, &end, 10);
    if (!isdigit((unsigned char)*text) || *end || errno || value > most) {
        char expected[64];
        snprintf(expected, sizeof expected, "a number from 0 to %" PRId64, most);
        return option_refuse(option, expected, text, e);
    }
    *out = value;
    return ERR_OK;
}

static enum err_code torchrun_read_seconds(const char *option, const char *text, int64_t *ms, struct err *e)
{
    char *end;
    double value = strtod(text, &end);
    if (!isdigit((unsigned char)*text) || *end || !(value <= 1e9))
        return option_refuse(option, "a number of seconds", text, e);
    *ms = llround(value * 1000);
    return ERR_OK;
}

/* "2" or "1:4" */
static enum err_code torchrun_read_nodes(const char *text, struct run_request *r, struct err *e)
{
    const char *colon = strchr(text, ':');
    CLEANUP(free_text) char *low = xasprintf("%.*s", (int)strcspn(text, ":"), text);
    int64_t least = 0, most = 0;
    if (torchrun_read_number("nnodes", low, 10000, &least, e) != ERR_OK)
        return option_refuse("nnodes", "N or MIN:MAX", text, e);
    most = least;
    if (colon && torchrun_read_number("nnodes", colon + 1, 10000, &most, e) != ERR_OK)
        return option_refuse("nnodes", "N or MIN:MAX", text, e);
    if (least < 1 || least > most)
        return option_refuse("nnodes", "N or MIN:MAX with 1 <= MIN <= MAX", text, e);
    r->nodes_min = least;
    r->nodes_max = most;
    return ERR_OK;
}

static enum err_code torchrun_read_procs(const char *text, struct run_request *r, struct err *e)
{
    static const char *const words[] = {"gpu", "cpu", "auto"};
    int64_t number = 0;
    for (size_t i = 0; i < ARRAY_LEN(words); i++)
        if (strcmp(text, words[i]) == 0) {
            r->procs = xstrdup(text);
            return ERR_OK;
        }
    if (strcmp(text, "xpu") == 0)
        return err_set(
            e, ERR_INVALID_ARGUMENT,
            "option '--nproc-per-node': xpu is not supported, only NVIDIA GPUs are counted; give a number");
    if (torchrun_read_number("nproc-per-node", text, 1024, &number, e) != ERR_OK || number < 1)
        return option_refuse("nproc-per-node", "a number from 1 to 1024, gpu, cpu or auto", text, e);
    r->procs = xasprintf("%lld", (long long)number);
    return ERR_OK;
}

/* host, host:port, [v6], [v6]:port, or v6 */
static enum err_code torchrun_read_endpoint(const char *text, int64_t standard, struct run_request *r,
                                            struct err *e)
{
    const char *host = text, *end = NULL;
    r->port = standard;
    if (*text == '[') { /* brackets separate the colons of an IPv6 address from the port's */
        host = text + 1;
        end = strchr(host, ']');
        if (!end || (end[1] && end[1] != ':'))
            return option_refuse("rdzv-endpoint", "HOST:PORT or [IPv6]:PORT", text, e);
        if (end[1] && torchrun_read_number("rdzv-endpoint", end + 2, 65535, &r->port, e) != ERR_OK)
            return option_refuse("rdzv-endpoint", "HOST:PORT or [IPv6]:PORT", text, e);
    } else {
        end = strchr(text, ':');
        if (end && strchr(end + 1, ':'))
            end = text + strlen(text); /* an IPv6 address alone */
        else if (end && torchrun_read_number("rdzv-endpoint", end + 1, 65535, &r->port, e) != ERR_OK)
            return option_refuse("rdzv-endpoint", "HOST:PORT or [IPv6]:PORT", text, e);
        else if (!end)
            end = text + strlen(text);
    }
    if (end == host)
        return option_refuse("rdzv-endpoint", "HOST:PORT or [IPv6]:PORT", text, e);
    r->host = xasprintf("%.*s", (int)(end - host), host);
    return ERR_OK;
}

static enum err_code torchrun_read_backend(const struct run_options *o, bool *c10d, struct err *e)
{
    const char *name = o->rdzv_backend ? o->rdzv_backend : "static";
    *c10d = strcmp(name, "c10d") == 0;
    if (*c10d || strcmp(name, "static") == 0)
        return ERR_OK;
    if (strncmp(name, "etcd", 4) == 0)
        return err_set(
            e, ERR_INVALID_ARGUMENT,
            "option '--rdzv-backend': %s is not needed; give c10d and an endpoint on one of the nodes", name);
    return option_refuse("rdzv-backend", "c10d or static", name, e);
}

/* Where the nodes meet, and which of them hosts the run. --master-addr names the machine of node rank 0, so
 * the rank decides; --rdzv-endpoint names any machine, so the owner of the address hosts. */
static enum err_code torchrun_read_place(const struct run_options *o, struct run_request *r, struct err *e)
{
    bool c10d;
    int64_t port = STATIC_PORT;
    if (torchrun_read_backend(o, &c10d, e) != ERR_OK)
        return e->code;
    if (o->node_rank && torchrun_read_number("node-rank", o->node_rank, 10000, &r->node_rank, e) != ERR_OK)
        return e->code;
    if (o->master_port && torchrun_read_number("master-port", o->master_port, 65535, &port, e) != ERR_OK)
        return e->code;
    r->master_port = o->master_port ? port : 0;
    if (o->rdzv_endpoint)
        return torchrun_read_endpoint(o->rdzv_endpoint, c10d ? C10D_PORT : port, r, e);
    if (!o->master_addr && r->node_rank < 0)
        return ERR_OK; /* no place was given: one machine, or the batch system knows */
    if (torchrun_read_endpoint(o->master_addr ? o->master_addr : "127.0.0.1", port, r, e) != ERR_OK)
        return e->code;
    if (r->node_rank >= 0)
        r->is_host = r->node_rank == 0;
    return ERR_OK;
}

static enum err_code torchrun_read_bool(const char *text, int *out, struct err *e)
{
    static const char *const yes[] = {"1", "true", "t", "yes", "y"}, *const no[] = {"0", "false", "f", "no",
                                                                                    "n"};
    for (size_t i = 0; i < ARRAY_LEN(yes); i++) {
        if (strcasecmp(text, yes[i]) == 0 || strcasecmp(text, no[i]) == 0) {
            *out = strcasecmp(text, yes[i]) == 0;
            return ERR_OK;
        }
    }
    return option_refuse("rdzv-conf is_host", "1 or 0", text, e);
}

/* Keys of torchrun that are accepted but have no effect, since ddp does these things another way. */
static bool torchrun_is_known_key(const char *key)
{
    static const char *const known[] = {"close_timeout",
                                        "read_timeout",
                                        "keep_alive_interval",
                                        "keep_alive_max_attempt",
                                        "heartbeat_timeout",
                                        "store_type",
                                        "protocol",
                                        "ttl",
                                        "use_agent_store"};
    for (size_t i = 0; i < ARRAY_LEN(known); i++)
        if (strcmp(key, known[i]) == 0)
            return true;
    return false;
}

static enum err_code torchrun_read_conf_pair(char *pair, struct run_request *r, struct buf *talk,
                                             struct err *e)
{
    char *value = strchr(pair, '=');
    int64_t rank = 0;
    if (!value || value == pair)
        return option_refuse("rdzv-conf", "KEY=VALUE,...", pair, e);
    *value++ = 0;
    if (strcmp(pair, "join_timeout") == 0)
        return torchrun_read_seconds("rdzv-conf join_timeout", value, &r->join_timeout_ms, e);
    if (strcmp(pair, "timeout") == 0)
        return r->join_timeout_ms ? ERR_OK /* join_timeout wins over the general timeout */
                                  : torchrun_read_seconds("rdzv-conf timeout", value, &r->join_timeout_ms, e);
    if (strcmp(pair, "last_call_timeout") == 0)
        return torchrun_read_seconds("rdzv-conf last_call_timeout", value, &r->last_call_ms, e);
    if (strcmp(pair, "is_host") == 0)
        return torchrun_read_bool(value, &r->is_host, e);
    if (strcmp(pair, "rank") == 0) {
        if (torchrun_read_number("rdzv-conf rank", value, 10000, &rank, e) != ERR_OK)
            return e->code;
        r->node_rank = r->node_rank < 0 ? rank : r->node_rank; /* --node-rank wins */
    } else if (!torchrun_is_known_key(pair)) {
        buf_printf(talk, "ddpctl: warning: --rdzv-conf: unknown key '%s' has no effect\n", pair);
    }
    return ERR_OK;
}

/* Cuts off blanks at both ends. */
static char *torchrun_trim(char *text)
{
    text += strspn(text, " \t");
    for (size_t len = strlen(text); len && strchr(" \t", text[len - 1]); len--)
        text[len - 1] = 0;
    return text;
}

/* Without the quotes that a configuration file or a second shell has left around the whole value. */
static char *torchrun_unquote(char *text)
{
    text = torchrun_trim(text);
    size_t len = strlen(text);
    if (len < 2 || !strchr("'\"", *text) || text[len - 1] != *text)
        return text;
    text[len - 1] = 0;
    return torchrun_trim(text + 1);
}

static enum err_code torchrun_read_conf(const char *text, struct run_request *r, struct buf *talk,
                                        struct err *e)
{
    CLEANUP(free_text) char *copy = xstrdup(text);
    char *rest, *pair = strtok_r(torchrun_unquote(copy), ",", &rest);
    for (; pair; pair = strtok_r(NULL, ",", &rest))
        if (torchrun_read_conf_pair(torchrun_trim(pair), r, talk, e) != ERR_OK)
            return e->code;
    return ERR_OK;
}

static int torchrun_signal_number(const char *name)
{
    static const struct {
        const char *name;
        int number;
    } table[] = {{"TERM", SIGTERM}, {"INT", SIGINT},   {"HUP", SIGHUP},   {"QUIT", SIGQUIT},
                 {"USR1", SIGUSR1}, {"USR2", SIGUSR2}, {"ALRM", SIGALRM}, {"XCPU", SIGXCPU}};
    if (strncasecmp(name, "SIG", 3) == 0)
        name += 3;
    for (size_t i = 0; i < ARRAY_LEN(table); i++)
        if (strcasecmp(name, table[i].name) == 0)
            return table[i].number;
    return 0;
}

static enum err_code torchrun_read_signals(const char *text, struct run_request *r, struct err *e)
{
    CLEANUP(free_text) char *copy = xstrdup(text ? text : "SIGTERM,SIGINT,SIGHUP,SIGQUIT");
    char *rest, *name = strtok_r(copy, ", ", &rest);
    size_t count = 0;
    for (; name; name = strtok_r(NULL, ", ", &rest)) {
        int number = torchrun_signal_number(name);
        if (!number || count + 1 >= RUN_SIGNALS_MAX)
            return option_refuse("signals-to-handle", "signals such as SIGTERM, SIGINT or SIGUSR1", text, e);
        r->signals[count++] = number;
    }
    return ERR_OK;
}

static const char *torchrun_variable(char *const *env, const char *name)
{
    size_t len = strlen(name);
    for (; *env; env++)
        if (strncmp(*env, name, len) == 0 && (*env)[len] == '=' && (*env)[len + 1])
            return *env + len + 1;
    return NULL;
}

static enum err_code torchrun_read_grace(const char *text, char *const *env, struct run_request *r,
                                         struct err *e)
{
    if (!text)
        text = torchrun_variable(env, "TORCH_ELASTIC_SHUTDOWN_TIMEOUT");
    return text ? torchrun_read_seconds("shutdown-timeout", text, &r->grace_ms, e) : ERR_OK;
}

static enum err_code torchrun_read_local_ranks(const char *text, struct run_request *r, struct err *e)
{
    size_t good = strspn(text, "0123456789, ");
    if (text[good] || !strpbrk(text, "0123456789"))
        return option_refuse("local-ranks-filter", "local ranks, such as 0,2", text, e);
    r->local_ranks = xstrdup(text);
    return ERR_OK;
}

static enum err_code torchrun_read_output(const struct run_options *o, char *const *env,
                                          struct run_request *r, struct err *e)
{
    const char *expected = "0 to 3, or one for each local rank, such as 0:3,1:2";
    if (o->redirects && !run_streams_fit(o->redirects))
        return option_refuse("redirects", expected, o->redirects, e);
    if (o->tee && !run_streams_fit(o->tee))
        return option_refuse("tee", expected, o->tee, e);
    if (o->attach && torchrun_read_number("attach", o->attach, 1 << 20, &r->attach, e) != ERR_OK)
        return e->code;
    r->raw = o->raw;
    r->terminal = o->terminal;
    if (o->local_ranks && torchrun_read_local_ranks(o->local_ranks, r, e) != ERR_OK)
        return e->code;
    r->redirects = xstrdup(o->redirects);
    r->tee = xstrdup(o->tee);
    r->prefix =
        xstrdup(o->prefix ? o->prefix : torchrun_variable(env, "TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE"));
    /* As in torchrun, /dev/null means no logs, and an empty name, such as that of an unset variable, none given. */
    if (o->log_dir && *o->log_dir && strcmp(o->log_dir, "/dev/null") != 0)
        r->log_dir = xstrdup(o->log_dir);
    return ERR_OK;
}

static void torchrun_warn_ignored(const struct run_options *o, struct buf *talk)
{
    const struct {
        const char *name, *value, *default_value, *why; /* torchrun's default value asks for nothing */
    } given[] = {
        {"start-method", o->start_method, "spawn", "workers are separate programs, never forked from Python"},
        {"event-log-handler", o->event_log_handler, "null", "the coordinator keeps the events"},
        {"logs-specs", o->logs_specs, "default",
         "ddpctl runs no Python; --log-dir, -r and -t choose where logs go"},
        {"duplicate-stdout-filters", o->stdout_filters, "", "the log files hold every line; use grep"},
        {"duplicate-stderr-filters", o->stderr_filters, "", "the log files hold every line; use grep"},
        {"numa-binding", o->numa_binding, "",
         "workers are not bound to NUMA nodes; put numactl before the command"},
    };
    for (size_t i = 0; i < ARRAY_LEN(given); i++)
        if (given[i].value && strcmp(given[i].value, given[i].default_value) != 0)
            buf_printf(talk, "ddpctl: warning: --%s has no effect: %s\n", given[i].name, given[i].why);
}

static enum err_code torchrun_read_all(struct run_request *r, const struct run_options *o, char *const *tail,
                                       char *const *env, struct buf *talk, struct err *e)
{
    if (o->job.nodes && torchrun_read_nodes(o->job.nodes, r, e) != ERR_OK)
        return e->code;
    if (o->job.procs && torchrun_read_procs(o->job.procs, r, e) != ERR_OK)
        return e->code;
    /* --standalone ignores the endpoint, as in torchrun, where PET_RDZV_ENDPOINT may be set for all jobs */
    if (!r->standalone && torchrun_read_place(o, r, e) != ERR_OK)
        return e->code;
    if (o->rdzv_conf && torchrun_read_conf(o->rdzv_conf, r, talk, e) != ERR_OK)
        return e->code;
    if (torchrun_read_grace(o->shutdown_timeout, env, r, e) != ERR_OK)
        return e->code;
    if (torchrun_read_output(o, env, r, e) != ERR_OK || torchrun_read_signals(o->signals, r, e) != ERR_OK)
        return e->code;
    if (!tail)
        return ERR_OK;
    if (command_words_make(&o->form, tail, torchrun_variable(env, "PYTHON_EXEC"), &r->command, e) != ERR_OK)
        return e->code;
    r->python = command_words_are_python(&o->form, tail[0]);
    return ERR_OK;
}

enum err_code torchrun_read(struct run_request *r, struct run_options *o, char *const *tail, char *const *env,
                            struct buf *talk, struct err *e)
{
    *r = (struct run_request){
        .node_rank = -1, .is_host = -1, .last_call_ms = -1, .grace_ms = -1, .attach = RUN_ATTACH_ONLY};
    if (option_environment(run_option_table, o, "PET_", env, e) != ERR_OK)
        return e->code;
    r->standalone = o->job.standalone;
    r->id = r->standalone ? NULL : xstrdup(o->rdzv_id);
    r->role = xstrdup(o->role);
    r->launcher = xstrdup(o->launcher);
    if (o->hosts && nodelist_expand(o->hosts, &r->hosts, e) != ERR_OK)
        return err_wrap(e, "--hosts");
    r->local_addr = xstrdup(o->local_addr);
    if (o->signals) { /* torchrun passes them on to the workers, and some scripts read them there */
        CLEANUP(free_text) char *entry = xasprintf("TORCHELASTIC_SIGNALS_TO_HANDLE=%s", o->signals);
        o->job.env = strv_append(o->job.env, entry);
    }
    torchrun_warn_ignored(o, talk);
    return torchrun_read_all(r, o, tail, env, talk, e);
}
