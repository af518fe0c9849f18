#include "daemon/agent/preflight/check_process.h"

#include <errno.h>
#include <grp.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/file.h"
#include "base/mem.h"
#include "daemon/agent/account.h"
#include "daemon/agent/preflight/check_link.h"
#include "daemon/agent/preflight/check_place.h"
#include "proto/rpc_codec.h"
#include "proto/rpc_resolve.h"

#define ASK_MAX (4u << 20)
#define LIFE_S 20 /* the longest life of a process that does not listen */
#define HOLD_MOST_MS 60000
#define RESOLVE_MS 5000 /* the whole answer is due after ten seconds */

/* With run_as: submitter the check runs under the account of the user who asks, if it may have jobs here. root may not,
 * but a check of ports and clocks by the coordinator's administrator must work: it runs as nobody. */
static enum err_code check_submitter_find(const char *name, const char *node, struct account *out,
                                          struct err *e)
{
    enum err_code code = account_look_up(name, out, e);

    if (code && code != ERR_NOT_FOUND)
        return code;
    code = account_check_submitter(code ? NULL : out, name, node, e);
    if (code != ERR_PERMISSION_DENIED)
        return code;
    account_release(out);
    return account_look_up("nobody", out, e);
}

/* The environment lacks the account's login variables; the node's `env` wins over them. */
static void login_variables_set(const struct account *account)
{
    setenv("HOME", account->home, 0);
    setenv("USER", account->name, 0);
    setenv("LOGNAME", account->name, 0);
    setenv("SHELL", account->shell, 0);
}

static enum err_code check_become_user(const char *name, const char *node, struct err *e)
{
    CLEANUP(account_release) struct account account = {0};
    bool submitter = strcmp(node, "-") != 0;

    if (!submitter && !strcmp(name, "-"))
        return ERR_OK;
    if (submitter ? check_submitter_find(name, node, &account, e) : account_look_up(name, &account, e))
        return e->code;
    login_variables_set(&account);
    if (account.uid == geteuid())
        return ERR_OK;
    if (initgroups(account.name, account.gid) || setgid(account.gid) || setuid(account.uid))
        return err_sys(e, errno, "cannot become user %s", name);
    return ERR_OK;
}

static enum err_code ask_read(Ddp__V1__CheckAsk **ask, struct err *e)
{
    CLEANUP(buf_release) struct buf text = {0};
    char piece[16384];
    ssize_t n;

    while ((n = read(STDIN_FILENO, piece, sizeof(piece))) > 0 && text.len < ASK_MAX)
        buf_append(&text, piece, (size_t)n);
    if (n < 0)
        return err_sys(e, errno, "stdin");
    return rpc_unpack(&ddp__v1__check_ask__descriptor, text.data, text.len, (void **)ask, e);
}

/* Closes stdout: the agent reads up to the end of file. */
static enum err_code answer_write(const Ddp__V1__CheckAnswer *answer, struct err *e)
{
    CLEANUP(buf_release) struct buf packed = {0};

    if (rpc_pack(answer, &packed, e) || fd_write_all(STDOUT_FILENO, packed.data, packed.len, e))
        return e->code;
    close(STDOUT_FILENO);
    return ERR_OK;
}

static enum err_code answer_write_error(const char *why, struct err *e)
{
    Ddp__V1__CheckAnswer answer = DDP__V1__CHECK_ANSWER__INIT;
    CLEANUP(free_text) char *text = rpc_utf8_clean(xstrdup(why));

    answer.error = text;
    return answer_write(&answer, e);
}

static enum err_code ask_answer(const Ddp__V1__CheckAsk *ask, const struct check_ports *ports,
                                const char *coordinator, struct err *e)
{
    Ddp__V1__CheckAnswer answer = DDP__V1__CHECK_ANSWER__INIT;
    Ddp__V1__CheckPlaceResult place_result;
    Ddp__V1__CheckListenResult listen_result;
    struct check_place *place = NULL;
    int fds[2] = {-1, -1};
    struct err name = {0};
    enum err_code code;

    if (ask->place) {
        place = check_place_look(ask->place, &place_result);
        answer.place = &place_result;
        if (rpc_resolve(coordinator, RESOLVE_MS, &name))
            place_result.name_problem = name.msg;
    }
    if (ask->connect)
        check_connect(ask->connect, &answer.links, &answer.n_links);
    if (ask->listen) {
        check_listen_open(ports, fds, &listen_result);
        answer.listen = &listen_result;
    }
    code = answer_write(&answer, e);
    /* other nodes call only after the coordinator has told them the ports of this answer */
    if (!code && ask->listen && ask->listen->key.len == CHECK_KEY)
        (void)check_listen_serve(fds, ask->listen->key.data, ask->listen->hold_ms, ask->listen->calls);
    check_links_free(answer.links, answer.n_links);
    check_place_free(place);
    return code;
}

/* How many seconds the process may live. The kernel ends it by SIGALRM, whatever hangs. */
static unsigned check_lifetime(const Ddp__V1__CheckAsk *ask)
{
    int64_t hold = ask->listen ? ask->listen->hold_ms : 0;

    if (hold > HOLD_MOST_MS)
        hold = HOLD_MOST_MS;
    return LIFE_S + (hold > 0 ? (unsigned)(hold / 1000) : 0);
}

int check_process_main(int argc, char **argv)
{
    CLEANUP(rpc_release) Ddp__V1__CheckAsk *ask = NULL;
    struct check_ports ports;
    struct err e;

    alarm(LIFE_S);
    if (argc != 6) {
        fputs("ddp-agent check: only ddp-agent itself starts this command\n", stderr);
        return 2;
    }
    ports = (struct check_ports){atoi(argv[3]), atoi(argv[4])};
    if (check_become_user(argv[1], argv[2], &e)) {
        if (answer_write_error(e.msg, &e))
            fprintf(stderr, "ddp-agent check: %s\n", e.msg);
        return 1;
    }
    if (ask_read(&ask, &e)) {
        fprintf(stderr, "ddp-agent check: %s\n", e.msg);
        return 1;
    }
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* after setuid, which clears it */
    alarm(check_lifetime(ask));
    if (ask_answer(ask, &ports, argv[5], &e)) {
        fprintf(stderr, "ddp-agent check: %s\n", e.msg);
        return 1;
    }
    return 0;
}
