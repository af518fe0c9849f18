#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>

#include <uv.h>

#include "base/buf.h"
#include "base/crypto/id.h"
#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "daemon/agent/session.h"
#include "proto/ddp.pb-c.h"
#include "proto/rpc_client.h"

/* agent_load TARGET TOKEN-FILE COUNT [redial] [first=N]: COUNT idle agents, each with a connection of its own. They
 * send Hello, and then heartbeats at the interval that the coordinator names. With `redial` a session that
 * ends is opened again after one to two seconds. first=N: the number of the first agent's name, so that two of
 * these programs can share a coordinator. Prints one JSON line about the sessions every second. Ends on
 * SIGTERM. */

#define OPENING 64 /* sessions that are being opened at the same time */

struct load;
struct agent {
    struct load *load;
    struct rpc_client *client;
    struct rpc_session *session;
    uv_timer_t timer;
    int64_t sequence, acked;
    int number;
    bool welcomed;
};
struct load {
    uv_loop_t loop;
    uv_timer_t report;
    uv_signal_t term;
    const char *target;
    struct rpc_channel_options options;
    struct agent *agents;
    int first, count, opened, welcomed, ended;
    bool redial;
    int64_t acks, wishes;
    struct err last;
};

static void send_up(struct agent *agent, const Ddp__V1__AgentUp *up)
{
    struct err e;

    if (agent->session && rpc_session_send(agent->session, up, &e))
        agent->load->last = e;
}

static void heartbeat_send(uv_timer_t *timer)
{
    struct agent *agent = timer->data;
    Ddp__V1__AgentUp up = DDP__V1__AGENT_UP__INIT;
    Ddp__V1__Heartbeat beat = DDP__V1__HEARTBEAT__INIT;

    beat.sequence = ++agent->sequence;
    beat.load = 0.1;
    beat.memory_free = INT64_C(8) << 30;
    up.body_case = DDP__V1__AGENT_UP__BODY_HEARTBEAT;
    up.heartbeat = &beat;
    send_up(agent, &up);
}

static void say_hello(struct agent *agent)
{
    Ddp__V1__AgentUp up = DDP__V1__AGENT_UP__INIT;
    Ddp__V1__Hello hello = DDP__V1__HELLO__INIT;
    char name[64], session[ID_TEXT];

    id_text(session);
    snprintf(name, sizeof(name), "load-%05d", agent->load->first + agent->number);
    hello.node = name;
    hello.instance = name;
    hello.session = session;
    hello.version = (char *)DDP_VERSION;
    hello.address = (char *)"127.0.0.1";
    hello.cpu_slots = 1;
    hello.cores = 1;
    hello.memory_bytes = INT64_C(16) << 30;
    hello.port_first = 29700;
    hello.port_last = 29739;
    hello.log_dir = (char *)"/nonexistent";
    up.body_case = DDP__V1__AGENT_UP__BODY_HELLO;
    up.hello = &hello;
    send_up(agent, &up);
}

static void open_more(struct load *load);
static void agent_redial(uv_timer_t *timer);

/* A real agent's answer to its first wish: no process runs here. */
static void say_facts(struct agent *agent, const Ddp__V1__Wish *wish)
{
    Ddp__V1__AgentUp up = DDP__V1__AGENT_UP__INIT;
    Ddp__V1__Facts facts = DDP__V1__FACTS__INIT;

    facts.epoch = wish->epoch;
    facts.revision = wish->revision;
    up.body_case = DDP__V1__AGENT_UP__BODY_FACTS;
    up.facts = &facts;
    send_up(agent, &up);
}

static void on_message(struct rpc_session *session, const void *message, void *user)
{
    const Ddp__V1__AgentDown *down = message;
    struct agent *agent = user;
    struct load *load = agent->load;

    (void)session;
    if (down->body_case == DDP__V1__AGENT_DOWN__BODY_WELCOME && !agent->welcomed) {
        uint64_t every = (uint64_t)down->welcome->heartbeat_ms;
        uint32_t jitter;

        id_random(&jitter, sizeof(jitter));
        agent->welcomed = true;
        load->welcomed++;
        uv_timer_start(&agent->timer, heartbeat_send, jitter % every, every);
        open_more(load);
    } else if (down->body_case == DDP__V1__AGENT_DOWN__BODY_ACK) {
        agent->acked = down->ack->sequence;
        if (down->ack->heartbeat_ms > 0)
            uv_timer_set_repeat(&agent->timer, (uint64_t)down->ack->heartbeat_ms);
        load->acks++;
    } else if (down->body_case == DDP__V1__AGENT_DOWN__BODY_WISH) {
        load->wishes++;
        say_facts(agent, down->wish);
    }
}

static void on_end(struct rpc_session *session, const struct err *status, void *user)
{
    struct agent *agent = user;

    (void)session;
    agent->session = NULL;
    agent->load->ended++;
    agent->load->last = *status;
    uv_timer_stop(&agent->timer);
    if (agent->load->redial) {
        uint32_t jitter;

        id_random(&jitter, sizeof(jitter));
        agent->load->welcomed -= agent->welcomed;
        agent->welcomed = false;
        uv_timer_start(&agent->timer, agent_redial, 1000 + jitter % 1000, 0);
    }
}

static const struct rpc_session_events events = {.on_message = on_message, .on_end = on_end};

static void agent_redial(uv_timer_t *timer)
{
    struct agent *agent = timer->data;

    agent->sequence = agent->acked = 0;
    agent->session =
        rpc_session_start(agent->client, &ddp__v1__agent__descriptor, "Session", 0, &events, agent);
    say_hello(agent);
}

static void agent_open(struct load *load, int number)
{
    struct agent *agent = &load->agents[number];
    enum err_code code;
    struct err e;

    agent->load = load;
    agent->number = number;
    uv_timer_init(&load->loop, &agent->timer);
    agent->timer.data = agent;
    code = number ? rpc_client_open_beside(&agent->client, load->agents[0].client, load->target,
                                           &load->options, &e)
                  : rpc_client_open(&agent->client, &load->loop, load->target, &load->options, &e);
    if (code) {
        fprintf(stderr, "agent_load: %s\n", e.msg);
        exit(1);
    }
    agent->session =
        rpc_session_start(agent->client, &ddp__v1__agent__descriptor, "Session", 0, &events, agent);
    say_hello(agent);
}

static void open_more(struct load *load)
{
    while (load->opened < load->count && load->opened - load->welcomed - load->ended < OPENING)
        agent_open(load, load->opened++);
}

static void sessions_print(uv_timer_t *timer)
{
    struct load *load = timer->data;
    int64_t late = 0;

    for (int i = 0; i < load->opened; i++)
        late += load->agents[i].sequence - load->agents[i].acked > 1;
    printf("{\"opened\": %d, \"welcomed\": %d, \"ended\": %d, \"acks\": %lld, \"wishes\": %lld, \"late\": "
           "%lld}\n",
           load->opened, load->welcomed, load->ended, (long long)load->acks, (long long)load->wishes,
           (long long)late);
    if (load->ended && !load->redial)
        fprintf(stderr, "agent_load: a session ended: %s\n", load->last.msg);
    fflush(stdout);
}

static void on_term(uv_signal_t *signal, int number)
{
    (void)signal;
    (void)number;
    exit(0);
}

int main(int argc, char **argv)
{
    static struct load load;
    CLEANUP(buf_release) struct buf token = {0};
    struct rlimit files;
    struct err e;

    bool good = argc >= 4 && (load.count = atoi(argv[3])) > 0;
    for (int i = 4; i < argc && good; i++) {
        if (strcmp(argv[i], "redial") == 0)
            load.redial = true;
        else if (strncmp(argv[i], "first=", 6) == 0)
            load.first = atoi(argv[i] + 6);
        else
            good = false;
    }
    if (!good) {
        fprintf(stderr, "usage: agent_load TARGET TOKEN-FILE COUNT [redial] [first=N]\n");
        return 2;
    }
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    log_init("agent_load", LOG_ERROR);
    getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
    if (file_read(argv[2], 4096, &token, &e)) {
        fprintf(stderr, "agent_load: %s\n", e.msg);
        return 1;
    }
    token.data[strcspn(token.data, "\n")] = '\0';
    load.target = argv[1];
    load.options.token = token.data;
    load.options.keepalive_ms = SESSION_KEEPALIVE_MS;
    load.agents = xcalloc((size_t)load.count, sizeof(*load.agents));
    uv_loop_init(&load.loop);
    uv_timer_init(&load.loop, &load.report);
    load.report.data = &load;
    uv_timer_start(&load.report, sessions_print, 1000, 1000);
    uv_signal_init(&load.loop, &load.term);
    uv_signal_start(&load.term, on_term, SIGTERM);
    open_more(&load);
    uv_run(&load.loop, UV_RUN_DEFAULT);
    return 0;
}
