#include "tests/unit/base/check.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "daemon/agent/environment.h"
#include "tests/unit/agent/wishes.h"

struct setup {
    struct settings settings;
    struct job_spec spec;
    struct environment_place place;
    Ddp__V1__SpawnWish a, b, *spawns[2];
    Ddp__V1__GroupWish group;
    struct spawn_order order;
};

static const char *const inherited[] = {"PATH=/bin",        "FOO=agent",      "BAR=agent",
                                        "NOTIFY_SOCKET=/x", "DDP_TOKEN_FD=9", NULL};

static void open_setup(struct setup *s, const char *job)
{
    struct err e;

    memset(s, 0, sizeof(*s));
    s->settings = (struct settings){.attach = ATTACH_NO_RANK,
                                    .log_dir = (char *)"/logs",
                                    .node = (char *)"box1",
                                    .coordinator = (char *)"c:29600"};
    assert_ok(job_parse(&s->spec, job, strlen(job), "job", &e), &e);
    s->place = (struct environment_place){.settings = &s->settings,
                                          .instance = "abc",
                                          .address = "10.0.0.1",
                                          .cluster = "c1c2",
                                          .run_dir = "/run/7/g1",
                                          .job_file = "/run/7/g1/job.yaml",
                                          .coordinator_file = "/run/coordinator",
                                          .trainer = "/bin/ddp-trainer",
                                          .inherited = (char *const *)inherited};
    s->a = spawn_wish(11, 4, 0);
    s->b = spawn_wish(12, 5, 0);
    s->a.local_rank = 0;
    s->b.local_rank = 1;
    s->spawns[0] = &s->b; /* not ordered by rank */
    s->spawns[1] = &s->a;
    s->group = group_wish(7, s->spawns, 2);
    s->group.world_size = 6;
    s->group.node_rank = 2;
    s->group.node_count = 3;
    s->group.master_addr = (char *)"10.0.0.9";
    s->group.master_port = 29701;
    s->group.restart_count = 1;
    s->group.max_restarts = 3;
    s->group.run_id = (char *)"ddp-7";
}

static void close_setup(struct setup *s)
{
    spawn_order_release(&s->order);
    job_release(&s->spec);
}

static void check_variable(const struct setup *s, const char *name, const char *value)
{
    const char *got = env_get(s->order.env, name);

    if (!value) {
        assert_null(got);
        return;
    }
    if (!got)
        fail_msg("%s is not set", name);
    assert_string_equal(got, value);
}

static void variables_are_those_of_torchrun(void **state)
{
    static const char *const expected[][2] = {
        {"RANK", "5"},
        {"LOCAL_RANK", "1"},
        {"WORLD_SIZE", "6"},
        {"LOCAL_WORLD_SIZE", "2"},
        {"GROUP_RANK", "2"},
        {"GROUP_WORLD_SIZE", "3"},
        {"ROLE_RANK", "5"},
        {"ROLE_WORLD_SIZE", "6"},
        {"ROLE_NAME", "default"},
        {"MASTER_ADDR", "10.0.0.9"},
        {"MASTER_PORT", "29701"},
        {"TORCHELASTIC_RESTART_COUNT", "1"},
        {"TORCHELASTIC_MAX_RESTARTS", "3"},
        {"TORCHELASTIC_RUN_ID", "ddp-7"},
        {"TORCHELASTIC_USE_AGENT_STORE", "False"},
        {"TORCH_NCCL_ASYNC_ERROR_HANDLING", "1"},
        {"TORCHELASTIC_ERROR_FILE", "/logs/7/generation_1/box1/1/error.json"},
        {"OMP_NUM_THREADS", "1"},
        {"PYTHONUNBUFFERED", "1"},
        {"DDP_JOB_ID", "7"},
        {"DDP_GENERATION", "1"},
        {"DDP_SPAWN_ID", "7.box1.12"},
        {"DDP_SPAWN", "12"},
        {"DDP_AGENT_ID", "abc"},
        {"DDP_RUN_DIR", "/run/7/g1"},
        {"DDP_NODE", "box1"},
        {"PATH", "/bin"},
        {"DDP_COORDINATOR", NULL},
        {"DDP_COORDINATOR_FILE", NULL},
        {"DDP_JOB_FILE", NULL},
        {"CUDA_VISIBLE_DEVICES", NULL},
        {"NOTIFY_SOCKET", NULL},
        {"DDP_TOKEN_FD", NULL},
    };
    struct setup s;

    (void)state;
    open_setup(&s, "command: [python3, train.py]\nworkdir: /work\n");
    environment_order(&s.order, &s.place, &s.spec, &s.group, &s.b);
    for (size_t i = 0; i < ARRAY_LEN(expected); i++)
        check_variable(&s, expected[i][0], expected[i][1]);
    assert_string_equal(s.order.argv[1], "train.py");
    assert_string_equal(s.order.workdir, "/work");
    assert_string_equal(s.order.log_dir, "/logs/7/generation_1/box1/1");
    assert_int_equal(s.order.master_port, 0); /* rank 0's node leases it */
    assert_null(s.order.token);
    assert_false(s.order.native);
    close_setup(&s);
}

static void later_sources_replace_earlier_ones(void **state)
{
    char *carried[] = {(char *)"FOO=submitter", (char *)"OMP_NUM_THREADS=4", (char *)"RANK=99",
                       (char *)"BAZ=submitter"};
    struct setup s;

    (void)state;
    open_setup(&s,
               "command: [x]\nenv: {BAZ: job, PYTHONUNBUFFERED: '', TORCH_NCCL_ASYNC_ERROR_HANDLING: '0'}\n");
    s.group.env = carried;
    s.group.n_env = 4;
    environment_order(&s.order, &s.place, &s.spec, &s.group, &s.a);
    check_variable(&s, "FOO", "submitter");
    check_variable(&s, "BAR", "agent");
    check_variable(&s, "BAZ", "job");
    check_variable(&s, "OMP_NUM_THREADS", "4");
    check_variable(&s, "PYTHONUNBUFFERED", "");
    check_variable(&s, "TORCH_NCCL_ASYNC_ERROR_HANDLING", "0");
    check_variable(&s, "RANK", "4"); /* the job cannot replace it */
    close_setup(&s);
}

/* As under systemd, with secrets of the administrator in the environment. */
static void jobs_of_a_daemon_do_not_see_its_environment(void **state)
{
    static const char *const kept[] = {"PATH",    "LANG",  "HOME",      "USER",
                                       "LOGNAME", "SHELL", "NODE_WIDE", "PYTHONUNBUFFERED"};
    char *node[] = {(char *)"NODE_WIDE=1", (char *)"FOO=node", NULL};
    char *carried[] = {(char *)"FOO=submitter"};
    const struct account root = {
        .name = (char *)"root", .home = (char *)"/root", .shell = (char *)"/bin/sh", .uid = 0};
    struct setup s;

    (void)state;
    open_setup(&s, "command: [x]\n");
    setenv("AWS_SECRET_ACCESS_KEY", "secret", 1);
    setenv("NOTIFY_SOCKET", "/run/systemd/notify", 1);
    s.place.inherited = NULL;
    s.settings.env = node;
    s.place.account = &root;
    s.group.env = carried;
    s.group.n_env = 1;
    environment_order(&s.order, &s.place, &s.spec, &s.group, &s.a);
    check_variable(&s, "PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin");
    check_variable(&s, "LANG", "C.UTF-8");
    check_variable(&s, "USER", "root");
    check_variable(&s, "LOGNAME", "root");
    check_variable(&s, "NODE_WIDE", "1");
    check_variable(&s, "FOO", "submitter");
    for (char **at = s.order.env; *at; at++) {
        static const char *const prefixes[] = {"DDP_",   "TORCH", "ROLE_", "GROUP_", "MASTER_",
                                               "LOCAL_", "RANK=", "WORLD", "OMP_",   "FOO="};
        bool known = false;
        for (size_t i = 0; i < ARRAY_LEN(prefixes); i++)
            known |= !strncmp(*at, prefixes[i], strlen(prefixes[i]));
        for (size_t i = 0; i < ARRAY_LEN(kept); i++)
            known |= !strncmp(*at, kept[i], strlen(kept[i])) && (*at)[strlen(kept[i])] == '=';
        if (!known)
            fail_msg("a job sees %s", *at);
    }
    close_setup(&s);
}

static void a_single_rank_keeps_its_threads(void **state)
{
    struct setup s;

    (void)state;
    open_setup(&s, "command: [x]\n");
    s.group.local_world_size = 1;
    environment_order(&s.order, &s.place, &s.spec, &s.group, &s.a);
    check_variable(&s, "OMP_NUM_THREADS", NULL);
    close_setup(&s);
}

/* It starts as a member of generation 3, but was formed for generation 1: that happens if generation 1 ended
 * before its node could start it. */
static void logs_are_where_the_spawn_was_formed_for(void **state)
{
    struct setup s;

    (void)state;
    open_setup(&s, "command: [x]\n");
    s.a.generation = 3;
    s.a.first_generation = 1;
    s.a.first_local_rank = 6;
    environment_order(&s.order, &s.place, &s.spec, &s.group, &s.a);
    assert_string_equal(s.order.log_dir, "/logs/7/generation_1/box1/6");
    assert_int_equal(s.order.first_generation, 1);
    assert_int_equal(s.order.first_local_rank, 6);
    assert_string_equal(env_get(s.order.env, "DDP_GENERATION"), "3");
    assert_string_equal(env_get(s.order.env, "RANK"), "4");
    assert_string_equal(env_get(s.order.env, "LOCAL_RANK"), "0");
    close_setup(&s);
}

/* An older coordinator does not send the first membership: its spawns have only one. */
static void without_a_first_membership_the_only_one_counts(void **state)
{
    struct setup s;

    (void)state;
    open_setup(&s, "command: [x]\n");
    environment_order(&s.order, &s.place, &s.spec, &s.group, &s.b);
    assert_string_equal(s.order.log_dir, "/logs/7/generation_1/box1/1");
    assert_int_equal(s.order.first_generation, 1);
    assert_int_equal(s.order.first_local_rank, 1);
    close_setup(&s);
}

static void rank_0_leases_the_port(void **state)
{
    struct setup s;

    (void)state;
    open_setup(&s, "command: [x]\n");
    s.a.rank = 0;
    environment_order(&s.order, &s.place, &s.spec, &s.group, &s.a);
    assert_int_equal(s.order.master_port, 29701);
    close_setup(&s);
}

static void a_native_worker_gets_its_token_and_the_coordinator(void **state)
{
    uint8_t token[] = {0xab, 0x01};
    struct setup s;

    (void)state;
    open_setup(&s, "train:\n  model: {type: linear, in: 20, out: 1}\n  data: {type: synthetic, samples: 64}\n"
                   "  batch: 32\n  epochs: 1\n");
    s.settings.tls.ca = (char *)"/ca";
    s.settings.tls.cert = (char *)"/cert";
    s.settings.tls.key = (char *)"/key";
    s.a.token.data = token;
    s.a.token.len = sizeof(token);
    environment_order(&s.order, &s.place, &s.spec, &s.group, &s.a);
    assert_true(s.order.native);
    assert_string_equal(s.order.token, "ab01");
    assert_string_equal(s.order.argv[0], "/bin/ddp-trainer");
    assert_null(s.order.argv[1]);
    check_variable(&s, "DDP_COORDINATOR", "c:29600");
    check_variable(&s, "DDP_COORDINATOR_FILE", "/run/coordinator");
    check_variable(&s, "DDP_JOB_FILE", "/run/7/g1/job.yaml");
    check_variable(&s, "DDP_NODE_ADDRESS", "10.0.0.1");
    check_variable(&s, "DDP_CLUSTER_ID", "c1c2");
    check_variable(&s, "DDP_TLS_CERT", "/cert");
    close_setup(&s);
}

static void commands_see_the_nodes_gpus_in_local_rank_order(void **state)
{
    char *gpu_a[] = {(char *)"GPU-a"}, *gpu_b[] = {(char *)"GPU-b"};
    struct setup s;

    (void)state;
    open_setup(&s, "command: [x]\n");
    s.a.gpu_uuids = gpu_a;
    s.b.gpu_uuids = gpu_b;
    s.a.n_gpu_uuids = s.b.n_gpu_uuids = 1;
    environment_order(&s.order, &s.place, &s.spec, &s.group, &s.b);
    check_variable(&s, "CUDA_VISIBLE_DEVICES", "GPU-a,GPU-b");
    /* The command sees both GPUs, but the spawn locks only its own. */
    assert_string_equal(s.order.gpu_uuids[0], "GPU-b");
    assert_null(s.order.gpu_uuids[1]);
    close_setup(&s);
}

static void the_job_file_sets_role_and_run_id(void **state)
{
    struct setup s;

    (void)state;
    open_setup(&s, "command: [x, \"--dir=${local_rank}/${local_rank}\", $$]\nrole: trainer\nrun_id: r1\n");
    environment_order(&s.order, &s.place, &s.spec, &s.group, &s.b);
    check_variable(&s, "ROLE_NAME", "trainer");
    check_variable(&s, "TORCHELASTIC_RUN_ID", "r1");
    check_variable(&s, "TORCHELASTIC_SIGNALS_TO_HANDLE", "SIGTERM,SIGINT,SIGHUP,SIGQUIT");
    assert_string_equal(s.order.argv[1], "--dir=1/1");
    assert_string_equal(s.order.argv[2], "$$");
    close_setup(&s);
}

static void the_launcher_serves_the_store_where_rank_0_is(void **state)
{
    struct setup s;

    (void)state;
    open_setup(&s, "command: [x]\nstore: launcher\n");
    environment_order(&s.order, &s.place, &s.spec, &s.group, &s.b); /* rank 5 */
    check_variable(&s, "TORCHELASTIC_USE_AGENT_STORE", "True");
    assert_false(s.order.store);
    spawn_order_release(&s.order);
    s.a.rank = 0;
    environment_order(&s.order, &s.place, &s.spec, &s.group, &s.a);
    assert_true(s.order.store);
    assert_int_equal(s.order.master_port, 29701);
    spawn_order_release(&s.order);
    s.group.master_port = 0; /* the node offers no range */
    environment_order(&s.order, &s.place, &s.spec, &s.group, &s.a);
    check_variable(&s, "TORCHELASTIC_USE_AGENT_STORE", "False");
    assert_false(s.order.store);
    close_setup(&s);
}

static void a_virtual_local_rank_sees_its_own_gpu(void **state)
{
    char *gpu_a[] = {(char *)"GPU-a"}, *gpu_b[] = {(char *)"GPU-b"};
    struct setup s;

    (void)state;
    open_setup(&s, "command: [x, \"${local_rank}\"]\nvirtual_local_rank: true\n");
    s.a.gpu_uuids = gpu_a;
    s.b.gpu_uuids = gpu_b;
    s.a.n_gpu_uuids = s.b.n_gpu_uuids = 1;
    environment_order(&s.order, &s.place, &s.spec, &s.group, &s.b);
    check_variable(&s, "CUDA_VISIBLE_DEVICES", "GPU-b");
    check_variable(&s, "LOCAL_RANK", "0");
    check_variable(&s, "LOCAL_WORLD_SIZE", "2");
    assert_string_equal(s.order.argv[1], "1"); /* the real local rank */
    close_setup(&s);
}

static void workers_that_share_a_gpu_see_it_once(void **state)
{
    char *gpu[] = {(char *)"GPU-a"};
    struct setup s;

    (void)state;
    open_setup(&s, "command: [x]\n");
    s.settings.slots_per_gpu = 2;
    s.a.gpu_uuids = s.b.gpu_uuids = gpu;
    s.a.n_gpu_uuids = s.b.n_gpu_uuids = 1;
    environment_order(&s.order, &s.place, &s.spec, &s.group, &s.b);
    check_variable(&s, "CUDA_VISIBLE_DEVICES", "GPU-a");
    check_variable(&s, "LOCAL_RANK", "0");
    check_variable(&s, "NCCL_HOSTID", "abc-7.box1.12");
    check_variable(&s, "DDP_SLOTS_PER_GPU", "2");
    assert_int_equal(s.order.gpu_slots, 2);
    close_setup(&s);
}

static void gpus_that_are_not_leased_are_hidden(void **state)
{
    struct setup s;

    (void)state;
    open_setup(&s, "command: [x]\n");
    s.place.has_gpus = true;
    environment_order(&s.order, &s.place, &s.spec, &s.group, &s.b);
    check_variable(&s, "CUDA_VISIBLE_DEVICES", "");
    check_variable(&s, "NCCL_HOSTID", NULL);
    check_variable(&s, "DDP_SLOTS_PER_GPU", NULL);
    close_setup(&s);
    open_setup(&s, "command: [x]\nenv: {CUDA_VISIBLE_DEVICES: '3'}\n");
    s.place.has_gpus = true;
    environment_order(&s.order, &s.place, &s.spec, &s.group, &s.b);
    check_variable(&s, "CUDA_VISIBLE_DEVICES", "3"); /* the job file sets it */
    close_setup(&s);
}

static bool foreground_of(struct setup *s, const Ddp__V1__SpawnWish *spawn, int64_t attach, int world)
{
    s->settings.attach = attach;
    s->group.world_size = world;
    environment_order(&s->order, &s->place, &s->spec, &s->group, spawn);
    bool foreground = s->order.foreground;
    spawn_order_release(&s->order);
    return foreground;
}

static void one_rank_of_a_command_is_in_the_foreground(void **state)
{
    struct setup s;

    (void)state;
    open_setup(&s, "command: [x]\n");
    assert_false(foreground_of(&s, &s.a, ATTACH_NO_RANK, 1));
    assert_true(foreground_of(&s, &s.a, ATTACH_ONLY_RANK, 1));
    assert_false(foreground_of(&s, &s.a, ATTACH_ONLY_RANK, 6));
    assert_true(foreground_of(&s, &s.b, 5, 6)); /* rank 5 */
    assert_false(foreground_of(&s, &s.a, 5, 6));
    close_setup(&s);
    open_setup(
        &s,
        "train: {model: {type: linear, in: 1, out: 1}, data: {type: synthetic, samples: 8}, batch: 4, epochs: 1}\n");
    assert_false(foreground_of(&s, &s.a, ATTACH_ONLY_RANK, 1));
    close_setup(&s);
}

static void a_command_finds_the_python_module_and_its_snapshot(void **state)
{
    static const char *const users[] = {"PYTHONPATH=/mine", "DDP_RESUME_PATH=/foreign", "DDP_CONTROL_FD=7",
                                        "DDP_FROM_SCRATCH=1", NULL};
    static const char *const nested[] = {"PYTHONPATH=/share/ddp/python:/share/ddp/python2", NULL};
    struct setup s;

    (void)state;
    open_setup(&s, "command: [a]\n");
    s.place.python = "/share/ddp/python";
    s.group.resume_path = (char *)"/data/step-500";
    environment_order(&s.order, &s.place, &s.spec, &s.group, &s.b);
    check_variable(&s, "PYTHONPATH", "/share/ddp/python");
    check_variable(&s, "DDP_RESUME_PATH", "/data/step-500");
    spawn_order_release(&s.order);
    s.place.inherited = (char *const *)users;
    s.group.resume_path = (char *)"";
    environment_order(&s.order, &s.place, &s.spec, &s.group, &s.b);
    check_variable(&s, "PYTHONPATH", "/mine:/share/ddp/python");
    check_variable(&s, "DDP_RESUME_PATH", NULL);
    check_variable(&s, "DDP_CONTROL_FD", NULL);
    check_variable(&s, "DDP_FROM_SCRATCH", NULL);
    spawn_order_release(&s.order);
    s.group.from_scratch = true;
    environment_order(&s.order, &s.place, &s.spec, &s.group, &s.b);
    check_variable(&s, "DDP_FROM_SCRATCH", "1");
    spawn_order_release(&s.order);
    s.place.inherited = (char *const *)nested;
    environment_order(&s.order, &s.place, &s.spec, &s.group, &s.b);
    check_variable(&s, "PYTHONPATH", "/share/ddp/python:/share/ddp/python2");
    close_setup(&s);
}

static void entries_are_set_and_unset(void **state)
{
    char **env = NULL;

    (void)state;
    env = env_set(env, "A", "%d", 1);
    env = env_set(env, "AB", "2");
    env = env_set(env, "A", "3");
    assert_string_equal(env_get(env, "A"), "3");
    assert_string_equal(env_get(env, "AB"), "2");
    env = env_unset(env, "A");
    assert_null(env_get(env, "A"));
    assert_int_equal(strv_len(env), 1);
    strv_free(env);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(variables_are_those_of_torchrun),
        cmocka_unit_test(later_sources_replace_earlier_ones),
        cmocka_unit_test(jobs_of_a_daemon_do_not_see_its_environment),
        cmocka_unit_test(a_single_rank_keeps_its_threads),
        cmocka_unit_test(logs_are_where_the_spawn_was_formed_for),
        cmocka_unit_test(without_a_first_membership_the_only_one_counts),
        cmocka_unit_test(rank_0_leases_the_port),
        cmocka_unit_test(a_native_worker_gets_its_token_and_the_coordinator),
        cmocka_unit_test(commands_see_the_nodes_gpus_in_local_rank_order),
        cmocka_unit_test(the_job_file_sets_role_and_run_id),
        cmocka_unit_test(the_launcher_serves_the_store_where_rank_0_is),
        cmocka_unit_test(a_virtual_local_rank_sees_its_own_gpu),
        cmocka_unit_test(workers_that_share_a_gpu_see_it_once),
        cmocka_unit_test(gpus_that_are_not_leased_are_hidden),
        cmocka_unit_test(one_rank_of_a_command_is_in_the_foreground),
        cmocka_unit_test(a_command_finds_the_python_module_and_its_snapshot),
        cmocka_unit_test(entries_are_set_and_unset),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
