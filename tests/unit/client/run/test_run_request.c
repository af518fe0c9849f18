#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/mem.h"
#include "client/run/run_request.h"
#include "client/run/torchrun.h"
#include "client/run/worker_output.h"

/* Turns the words and environment variables of a `ddpctl run` into a run request and the text of a job. */
struct run_case {
    struct run_options options;
    struct option_arguments args;
    struct run_request launch;
    struct job_spec spec;
    struct buf talk, others;
    char *text;
    struct err e;
};

#define WORDS(...) ((const char *const[]){"run", __VA_ARGS__, NULL})
#define NONE ((const char *const[]){NULL})
#define VARIABLES(...) ((const char *const[]){__VA_ARGS__, NULL})

static void run_case_read(struct run_case *g, const char *const *words, const char *const *variables)
{
    static char *argv[32];
    int argc = 0;
    for (; words[argc]; argc++)
        argv[argc] = (char *)(uintptr_t)words[argc];
    argv[argc] = NULL;
    *g = (struct run_case){0};
    const struct option_rules rules = {.ends = command_words_begin, .abbreviations = true};
    const struct option_set sets[] = {
        {run_option_table, &g->options}, {job_flag_options, &g->options}, {NULL, NULL}};
    if (option_parse(sets, argc, argv, &rules, &g->args, &g->e) != ERR_OK ||
        torchrun_read(&g->launch, &g->options, g->args.tail, (char *const *)(uintptr_t)variables, &g->talk,
                      &g->e) != ERR_OK ||
        run_request_job_text(&g->launch, &g->options, g->args.list[0], &g->text, &g->others, &g->e) !=
            ERR_OK ||
        job_parse(&g->spec, g->text, strlen(g->text), "job file", &g->e) != ERR_OK ||
        run_request_complete(&g->launch, &g->spec, &g->e) != ERR_OK)
        return;
    g->e = (struct err){0};
}

static void run_case_release(struct run_case *g)
{
    run_request_release(&g->launch);
    job_release(&g->spec);
    option_arguments_release(&g->args);
    option_release(run_option_table, &g->options);
    option_release(job_flag_options, &g->options);
    buf_release(&g->talk);
    buf_release(&g->others);
    free(g->text);
}

static void accept_words(struct run_case *g, const char *const *words, const char *const *variables)
{
    run_case_read(g, words, variables);
    if (g->e.code != ERR_OK)
        fail_msg("%s", g->e.msg);
}

static void refuse_words(const char *const *words, const char *const *variables, const char *message)
{
    struct run_case g;
    run_case_read(&g, words, variables);
    assert_int_equal(g.e.code, ERR_INVALID_ARGUMENT);
    assert_string_equal(g.e.msg, message);
    run_case_release(&g);
}

static void check_command(const struct run_case *g, const char *wanted)
{
    CLEANUP(buf_release) struct buf line = {0};
    for (size_t i = 0; g->spec.command && g->spec.command[i]; i++)
        buf_printf(&line, "%s%s", i ? " " : "", g->spec.command[i]);
    assert_string_equal(line.data ? line.data : "", wanted);
}

static void test_command_lines_of_the_tutorials(void **state)
{
    (void)state;
    struct run_case g;
    accept_words(&g, WORDS("--standalone", "--nproc_per_node=gpu", "multigpu_torchrun.py", "50", "10"), NONE);
    check_command(&g, "python3 -u multigpu_torchrun.py 50 10");
    assert_int_equal(g.spec.procs, JOB_PROCS_GPU);
    assert_int_equal(g.spec.max_restarts, 0);
    assert_int_equal(g.spec.restart_on, RESTART_ON_FAULT);
    assert_int_equal(strlen(g.spec.run_id), 36);
    assert_null(g.launch.host);
    run_case_release(&g);

    accept_words(&g,
                 WORDS("--nproc_per_node=2", "--nnodes=2", "--node_rank=1", "--rdzv_id=456",
                       "--rdzv_backend=c10d", "--rdzv_endpoint=172.31.43.139:29603", "multinode_torchrun.py",
                       "--batch_size=32", "-m"),
                 NONE);
    check_command(&g, "python3 -u multinode_torchrun.py --batch_size=32 -m");
    assert_int_equal(g.launch.nodes_min, 2);
    assert_int_equal(g.launch.nodes_max, 2);
    assert_int_equal(g.launch.node_rank, 1);
    assert_string_equal(g.launch.host, "172.31.43.139");
    assert_int_equal(g.launch.port, 29603);
    assert_int_equal(g.launch.is_host, -1);
    assert_string_equal(g.launch.id, "456");
    assert_string_equal(g.spec.run_id, "456");
    assert_int_equal(g.launch.join_timeout_ms, 600000);
    assert_int_equal(g.launch.last_call_ms, 30000);
    assert_int_equal(g.talk.len, 0);
    run_case_release(&g);

    accept_words(
        &g,
        WORDS("--nnodes=1:4", "--max-restarts=3", "--rdzv-endpoint=[fd00::1]", "--rdzv-backend=c10d", "t.py"),
        NONE);
    assert_string_equal(g.launch.host, "fd00::1");
    assert_int_equal(g.launch.port, 29400);
    assert_int_equal(g.spec.nodes_min, 1);
    assert_int_equal(g.spec.nodes_max, 4);
    assert_int_equal(g.spec.max_restarts, 3);
    assert_int_equal(g.spec.restart_on, RESTART_ON_ANY); /* as in torchrun */
    run_case_release(&g);

    accept_words(&g, WORDS("--max-restarts=3", "--restart-on=fault", "t.py"), NONE);
    assert_int_equal(g.spec.max_restarts, 3);
    assert_int_equal(g.spec.restart_on, RESTART_ON_FAULT);
    run_case_release(&g);
}

static void test_static_rendezvous(void **state)
{
    (void)state;
    struct run_case g;
    accept_words(
        &g, WORDS("--nnodes", "2", "--node-rank", "0", "--master-addr", "box1", "--master-port", "1234", "x"),
        NONE);
    assert_string_equal(g.launch.host, "box1");
    assert_int_equal(g.launch.port, 1234);
    assert_int_equal(g.launch.is_host, 1);
    run_case_release(&g);
    accept_words(&g, WORDS("--nnodes", "2", "--node-rank", "1", "x"), NONE);
    assert_string_equal(g.launch.host, "127.0.0.1");
    assert_int_equal(g.launch.port, 29500);
    assert_int_equal(g.launch.is_host, 0);
    run_case_release(&g);
    accept_words(&g, WORDS("--rdzv-endpoint=localhost:0", "--rdzv-backend=c10d", "x"), NONE);
    assert_null(g.launch.host);
    run_case_release(&g);
    accept_words(&g, WORDS("--master-addr", "box1", "x"), NONE); /* one node needs no endpoint */
    assert_null(g.launch.host);
    run_case_release(&g);
}

static void test_command_that_is_executed(void **state)
{
    (void)state;
    const struct {
        const char *const *words;
        const char *command;
    } cases[] = {
        {WORDS("train.py", "--epochs", "3"), "python3 -u train.py --epochs 3"},
        {WORDS("--", "train.py"), "python3 -u train.py"},
        {WORDS("--no-python", "./train.py"), "./train.py"},
        {WORDS("--no_python", "bash", "-c", "x"), "bash -c x"},
        {WORDS("-m", "pkg.train", "-m"), "python3 -u -m pkg.train -m"},
        {WORDS("--module", "pkg.train"), "python3 -u -m pkg.train"},
        {WORDS("--run-path", "archive.zip"), "python3 -u archive.zip"},
        {WORDS("--run-path", "--no-python", "t"), "python3 -u t"},
        {WORDS("python3", "train.py"), "python3 train.py"},
        {WORDS("./bench", "--nnodes=3"), "./bench --nnodes=3"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct run_case g;
        accept_words(&g, cases[i].words, NONE);
        check_command(&g, cases[i].command);
        run_case_release(&g);
    }
    struct run_case g;
    accept_words(
        &g, WORDS("spawn.py"),
        NONE); /* the command is one process, which may start ranks of its own, so it gets all GPUs */
    assert_int_equal(g.spec.gpus_per_proc, JOB_GPUS_ALL);
    run_case_release(&g);
    accept_words(&g, WORDS("--nproc-per-node=1", "train.py"), NONE);
    assert_int_equal(g.spec.gpus_per_proc, 1);
    run_case_release(&g);
    accept_words(&g, WORDS("train.py"), VARIABLES("PYTHON_EXEC=/venv/bin/python"));
    check_command(&g, "/venv/bin/python -u train.py");
    run_case_release(&g);
}

/* The command line wins over PET_*, and PET_* over the defaults. */
static void test_pet_variables(void **state)
{
    (void)state;
    struct run_case g;
    const char *const *variables =
        VARIABLES("PET_NNODES=2", "PET_NPROC_PER_NODE=8", "PET_RDZV_ENDPOINT=h:1", "PET_NODE_RANK=1",
                  "PET_MAX_RESTARTS=5", "PET_ROLE=worker", "PET_RDZV_ID=", "PET_STANDALONE=0", "PET_MODULE=1",
                  "PET_LOG_DIR=/l", "PET_TEE=3", "PETS=1");
    accept_words(&g, WORDS("--nproc-per-node=4", "mod"), variables);
    check_command(&g, "python3 -u -m mod");
    assert_int_equal(g.spec.procs_per_node, 4);
    assert_int_equal(g.spec.nodes_min, 2);
    assert_int_equal(g.spec.max_restarts, 5);
    assert_int_equal(g.spec.restart_on, RESTART_ON_ANY);
    assert_string_equal(g.spec.role, "worker");
    assert_int_equal(g.launch.node_rank, 1);
    assert_string_equal(g.launch.host, "h");
    assert_string_equal(g.launch.log_dir, "/l");
    assert_string_equal(g.launch.tee, "3");
    assert_string_equal(g.launch.id, "none");
    run_case_release(&g);
    for (int i = 0; i < 2; i++) {
        accept_words(&g, WORDS(i ? "--log-dir=" : "--log-dir=/dev/null", "x"), NONE);
        assert_null(g.launch.log_dir);
        run_case_release(&g);
    }
    refuse_words(WORDS("x"), VARIABLES("PET_NNODES=two"),
                 "invalid value for option '--nnodes': expected N or MIN:MAX, got 'two'");
}

/* The launcher serves the store for what was typed as for torchrun. A program that starts ranks of its own, and one
 * that is not Python, serve MASTER_PORT themselves. */
static void test_store(void **state)
{
    (void)state;
    struct run_case g;
    static const struct {
        const char *words[6], *variable;
        enum job_store store;
    } cases[] = {
        {{"run", "--nproc-per-node=1", "x.py"}, NULL, JOB_STORE_LAUNCHER},
        {{"run", "--nproc-per-node=gpu", "-m", "mod"}, NULL, JOB_STORE_LAUNCHER},
        {{"run", "x.py"}, "PET_NPROC_PER_NODE=2", JOB_STORE_LAUNCHER},
        {{"run", "--nproc-per-node=2", "--store=program", "x.py"}, NULL, JOB_STORE_PROGRAM},
        {{"run", "x.py"}, NULL, JOB_STORE_PROGRAM},
        {{"run", "--nproc-per-node=2", "./x"}, NULL, JOB_STORE_PROGRAM},
        {{"run", "--nproc-per-node=2", "--no-python", "x.py"}, NULL, JOB_STORE_PROGRAM},
        {{"run", "--store=launcher", "./x"}, NULL, JOB_STORE_LAUNCHER},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        accept_words(&g, cases[i].words, VARIABLES(cases[i].variable));
        assert_int_equal(g.spec.store, cases[i].store);
        run_case_release(&g);
    }
    refuse_words(WORDS("--store=me", "x.py"), NONE,
                 "--store: invalid value for 'store': expected program or launcher, got 'me'");
}

/* torchrun accepts the beginning of an option's name, because Python's argparse does. */
static void test_abbreviated_options(void **state)
{
    (void)state;
    struct run_case g;
    accept_words(&g,
                 WORDS("--nproc", "2", "--nn=2", "--rdzv-end", "h:1", "--rdzv_i=7", "--max", "1", "--tee",
                       "x.py", "--nproc", "3"),
                 NONE);
    check_command(&g, "python3 -u x.py --nproc 3");
    assert_string_equal(g.launch.procs, "2");
    assert_int_equal(g.launch.nodes_min, 2);
    assert_string_equal(g.launch.host, "h");
    assert_string_equal(g.launch.id, "7");
    assert_string_equal(g.launch.tee, "3");
    assert_int_equal(g.spec.max_restarts, 1);
    run_case_release(&g);
    refuse_words(WORDS("--rdzv", "x", "x.py"), NONE,
                 "option '--rdzv' is ambiguous: it may mean --rdzv-endpoint, --rdzv-id, --rdzv-backend or "
                 "--rdzv-conf");
    refuse_words(
        WORDS("--launche", "ssh,", "x.py"), NONE, /* nobody types --launched */
        "invalid value for option '--launcher': expected one of auto|srun|pbsdsh|ssh|mpirun, got 'ssh,'");
}

static void test_rdzv_conf(void **state)
{
    (void)state;
    struct run_case g;
    accept_words(
        &g,
        WORDS("--nnodes=2", "--rdzv-endpoint=h:1", "--shutdown-timeout=1.5", "--rdzv-conf",
              "join_timeout=60,timeout=900,last_call_timeout=5,is_host=true,read_timeout=60,colour=red", "x"),
        NONE);
    assert_int_equal(g.launch.join_timeout_ms, 60000);
    assert_int_equal(g.launch.last_call_ms, 5000);
    assert_int_equal(g.launch.is_host, 1);
    assert_int_equal(g.spec.grace_ms, 1500);
    assert_string_equal(g.talk.data, "ddpctl: warning: --rdzv-conf: unknown key 'colour' has no effect\n");
    run_case_release(&g);
    for (int i = 0; i < 3; i++) { /* quotes that a second shell or a configuration file has left */
        static const char *const quoted[] = {"'join_timeout=5,last_call_timeout=1'",
                                             "\"join_timeout=5, last_call_timeout=1\"",
                                             " join_timeout=5,last_call_timeout=1 "};
        struct run_case q;
        accept_words(&q, WORDS("--nnodes=2", "--rdzv-endpoint=h:1", "--rdzv-conf", quoted[i], "x"), NONE);
        assert_int_equal(q.launch.join_timeout_ms, 5000);
        assert_int_equal(q.launch.last_call_ms, 1000);
        assert_int_equal(q.talk.len, 0);
        run_case_release(&q);
    }
    refuse_words(WORDS("--rdzv-conf", "is_host=maybe", "x"), NONE,
                 "invalid value for option '--rdzv-conf is_host': expected 1 or 0, got 'maybe'");
    refuse_words(WORDS("--rdzv-conf", "join_timeout", "x"), NONE,
                 "invalid value for option '--rdzv-conf': expected KEY=VALUE,..., got 'join_timeout'");
    accept_words(&g, WORDS("x"), VARIABLES("TORCH_ELASTIC_SHUTDOWN_TIMEOUT=7"));
    assert_int_equal(g.spec.grace_ms, 7000);
    run_case_release(&g);
}

static void test_attach(void **state)
{
    (void)state;
    struct run_case g;
    accept_words(&g, WORDS("x"), NONE);
    assert_int_equal(g.launch.attach, RUN_ATTACH_ONLY);
    run_case_release(&g);
    accept_words(&g, WORDS("--attach=2", "x"), NONE);
    assert_int_equal(g.launch.attach, 2);
    run_case_release(&g);
    refuse_words(WORDS("--attach", "-1", "x"), NONE,
                 "invalid value for option '--attach': expected a number from 0 to 1048576, got '-1'");
}

static void test_signals(void **state)
{
    (void)state;
    struct run_case g;
    accept_words(&g, WORDS("x"), NONE);
    assert_int_equal(g.launch.signals[0], SIGTERM);
    assert_int_equal(g.launch.signals[3], SIGQUIT);
    assert_int_equal(g.launch.signals[4], 0);
    assert_null(g.spec.env);
    run_case_release(&g);
    accept_words(&g, WORDS("--signals-to-handle", "SIGUSR1,TERM", "x"), NONE);
    assert_int_equal(g.launch.signals[0], SIGUSR1);
    assert_int_equal(g.launch.signals[1], SIGTERM);
    assert_int_equal(g.launch.signals[2], 0);
    assert_string_equal(g.spec.env[0], "TORCHELASTIC_SIGNALS_TO_HANDLE=SIGUSR1,TERM");
    run_case_release(&g);
}

static void test_options_without_effect_are_reported(void **state)
{
    (void)state;
    struct run_case g;
    accept_words(&g, WORDS("--start-method=fork", "--numa-binding", "node", "--monitor-interval=5", "x"),
                 NONE);
    assert_string_equal(g.talk.data,
                        "ddpctl: warning: --start-method has no effect: workers are separate programs, "
                        "never forked from Python\n"
                        "ddpctl: warning: --numa-binding has no effect: workers are not bound to NUMA nodes; "
                        "put numactl before the command\n");
    run_case_release(&g);
    accept_words(&g, WORDS("--start-method=spawn", "--logs-specs=default", "--event-log-handler=null", "x"),
                 NONE);
    assert_int_equal(g.talk.len, 0); /* torchrun's defaults */
    run_case_release(&g);
}

static void test_misuse(void **state)
{
    (void)state;
    refuse_words(WORDS("--nproc-pre-node=2", "x"), NONE,
                 "unknown option '--nproc-pre-node', did you mean '--nproc-per-node'?");
    refuse_words(WORDS("--master-port=99999", "x"), NONE,
                 "invalid value for option '--master-port': expected a number from 0 to 65535, got '99999'");
    refuse_words(
        WORDS("--nproc-per-node=xpu", "x"), NONE,
        "option '--nproc-per-node': xpu is not supported, only NVIDIA GPUs are counted; give a number");
    refuse_words(
        WORDS("--nproc-per-node=0", "x"), NONE,
        "invalid value for option '--nproc-per-node': expected a number from 1 to 1024, gpu, cpu or auto, got '0'");
    refuse_words(
        WORDS("--nnodes=3:2", "x"), NONE,
        "invalid value for option '--nnodes': expected N or MIN:MAX with 1 <= MIN <= MAX, got '3:2'");
    refuse_words(
        WORDS("--rdzv-backend=etcd-v2", "x"), NONE,
        "option '--rdzv-backend': etcd-v2 is not needed; give c10d and an endpoint on one of the nodes");
    refuse_words(WORDS("--rdzv-backend=zeus", "x"), NONE,
                 "invalid value for option '--rdzv-backend': expected c10d or static, got 'zeus'");
    refuse_words(
        WORDS("--rdzv-endpoint=h:99999", "x"), NONE,
        "invalid value for option '--rdzv-endpoint': expected HOST:PORT or [IPv6]:PORT, got 'h:99999'");
    refuse_words(WORDS("--rdzv-endpoint=[::1", "x"), NONE,
                 "invalid value for option '--rdzv-endpoint': expected HOST:PORT or [IPv6]:PORT, got '[::1'");
    refuse_words(
        WORDS("-r", "4", "x"), NONE,
        "invalid value for option '--redirects': expected 0 to 3, or one for each local rank, such as 0:3,1:2, got '4'");
    refuse_words(
        WORDS("--local-ranks-filter=a", "x"), NONE,
        "invalid value for option '--local-ranks-filter': expected local ranks, such as 0,2, got 'a'");
    refuse_words(
        WORDS("--nnodes=2", "x"), NONE,
        "2 nodes need a place to meet: give --rdzv-endpoint HOST:PORT, the same on each, or --hosts, or "
        "--nodes 1");
    refuse_words(WORDS("--standalone", "--nnodes=2", "x"), NONE,
                 "option '--standalone' runs the job on this machine only, but the job needs 2 nodes");
    refuse_words(WORDS("--nnodes=2", "--node-rank=2", "--master-addr=h", "x"), NONE,
                 "--node-rank 2: there are 2 nodes, counted from 0");
    refuse_words(WORDS("--nnodes=2", "--rdzv-endpoint=h:0", "x"), NONE,
                 "--rdzv-endpoint h:0: give a port; the other nodes cannot know one that is chosen here");
    refuse_words(WORDS("-m", "--no-python", "x"), NONE, "--no-python and --module contradict each other");
    refuse_words(
        WORDS("--signals-to-handle=SIGKILL", "x"), NONE,
        "invalid value for option '--signals-to-handle': expected signals such as SIGTERM, SIGINT or SIGUSR1, got 'SIGKILL'");
    refuse_words(WORDS("--"), NONE, "a COMMAND is missing after --");
    refuse_words((const char *const[]){"run", NULL}, NONE,
                 "nothing to run: give JOB.yaml, SCRIPT.py or a COMMAND");
}

static void test_tee_with_and_without_a_value(void **state)
{
    (void)state;
    const struct {
        const char *const *words;
        const char *tee, *command;
    } cases[] = {
        {WORDS("--tee", "--", "x"), "3", "x"},
        {WORDS("-t", "3", "x"), "3", "x"},
        {WORDS("-t3", "x"), "3", "x"},
        {WORDS("--tee", "x", "1"), "3", "x 1"},
        {WORDS("--tee=0:1,1:3", "x"), "0:1,1:3", "x"},
        {WORDS("--tee", "0:1", "x"), "0:1", "x"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct run_case g;
        accept_words(&g, cases[i].words, NONE);
        assert_string_equal(g.launch.tee, cases[i].tee);
        check_command(&g, cases[i].command);
        run_case_release(&g);
    }
}

/* `wanted` has a character each for stdout and stderr of local ranks 0, 1 and 2: "o" for shown, "O" for shown with
 * a label, "-" for not shown. */
static void check_shown(const char *redirects, const char *tee, const char *ranks, const char *wanted)
{
    struct run_request l = {
        .redirects = xstrdup(redirects), .tee = xstrdup(tee), .local_ranks = xstrdup(ranks)};
    char got[7] = {0};
    for (int rank = 0; rank < 3; rank++)
        for (int stream = 0; stream < 2; stream++) {
            bool teed;
            bool shown = worker_output_shown(&l, rank, stream, &teed);
            got[2 * rank + stream] = !shown ? '-' : teed ? 'O' : 'o';
        }
    assert_string_equal(got, wanted);
    run_request_release(&l);
}

static void test_which_output_is_shown(void **state)
{
    (void)state;
    check_shown(NULL, NULL, NULL, "oooooo");
    check_shown("3", NULL, NULL, "------");
    check_shown("1", NULL, NULL, "-o-o-o");
    check_shown("2", NULL, NULL, "o-o-o-");
    check_shown(NULL, "3", NULL, "OOOOOO");
    check_shown("3", "1", NULL, "O-O-O-");
    check_shown("0:3,1:2", NULL, NULL, "--o-oo");
    check_shown(NULL, "0:3,2:1", NULL, "OOooOo");
    check_shown(NULL, NULL, "0,2", "oo--oo");
    check_shown(NULL, "3", "1", "--OO--");
    check_shown("0", "0", NULL, "oooooo");
}

static void test_labels(void **state)
{
    (void)state;
    CLEANUP(free_text) char *usual = worker_output_label("trainer", 5, 1, NULL);
    CLEANUP(free_text)
    char *own = worker_output_label("trainer", 5, 1, "<${role_name} ${rank}/${local_rank} $x> ");
    CLEANUP(free_text)
    char *bare = worker_output_label("trainer", 5, 1, "$role_name$rank/$local_rank $$rank ${rank $ranks $");
    assert_string_equal(bare, "trainer5/1 $rank ${rank $ranks $");
    assert_string_equal(usual, "[trainer1]:");
    assert_string_equal(own, "<trainer 5/1 $x> ");
}

static void test_job_file_keeps_its_keys(void **state)
{
    (void)state;
    struct run_case g;
    char path[] = "/tmp/ddp-test-XXXXXX.yaml";
    int fd = mkstemps(path, 5);
    const char *text = "command: [x]\nrole: filed\nrun_id: r7\nmax_restarts: 2\nprocs_per_node: 3\n";
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
    close(fd);
    accept_words(&g, WORDS("--nproc-per-node=2", "--max-restarts=4", path), NONE);
    assert_int_equal(g.spec.max_restarts, 4);
    assert_int_equal(g.spec.restart_on, RESTART_ON_FAULT); /* the file's own default */
    run_case_release(&g);
    accept_words(&g, WORDS("--nproc-per-node=2", path, "--tee"), NONE);
    assert_string_equal(g.spec.run_id, "r7");
    assert_string_equal(g.launch.role, "filed");
    assert_int_equal(g.spec.max_restarts, 2);
    assert_int_equal(g.spec.procs_per_node, 2);
    run_case_release(&g);
    unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_command_lines_of_the_tutorials),
        cmocka_unit_test(test_static_rendezvous),
        cmocka_unit_test(test_command_that_is_executed),
        cmocka_unit_test(test_pet_variables),
        cmocka_unit_test(test_store),
        cmocka_unit_test(test_abbreviated_options),
        cmocka_unit_test(test_rdzv_conf),
        cmocka_unit_test(test_attach),
        cmocka_unit_test(test_signals),
        cmocka_unit_test(test_options_without_effect_are_reported),
        cmocka_unit_test(test_misuse),
        cmocka_unit_test(test_tee_with_and_without_a_value),
        cmocka_unit_test(test_which_output_is_shown),
        cmocka_unit_test(test_labels),
        cmocka_unit_test(test_job_file_keeps_its_keys),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
