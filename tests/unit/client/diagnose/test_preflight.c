#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "client/diagnose/preflight.h"
#include "client/screen/screen_check.h"
#include "tests/unit/client/golden.h"

/* Tests which problems ddpctl check derives from the nodes' answers. */

#define TEXT(s) ((char *)(uintptr_t)(s))
#define NODES 3

struct fixture {
    Ddp__V1__NodeStatus nodes[NODES];
    Ddp__V1__CheckAnswer places[NODES], listens[NODES], links[NODES];
    Ddp__V1__CheckPlaceResult results[NODES];
    Ddp__V1__CheckPath paths[NODES], *path_list[NODES];
    Ddp__V1__CheckLink between[NODES][2 * NODES], *link_list[NODES][2 * NODES];
    const Ddp__V1__NodeStatus *node_list[NODES];
    const Ddp__V1__CheckAnswer *place_list[NODES], *listen_list[NODES], *answer_list[NODES];
    struct preflight preflight;
    struct findings found;
};

static void build_node(struct fixture *f, size_t i)
{
    static const char *const names[] = {"box1", "box2", "box3"}, *const addresses[] = {"10.0.0.1", "10.0.0.2",
                                                                                       "10.0.0.3"};
    Ddp__V1__CheckPlaceResult *p = &f->results[i];
    ddp__v1__node_status__init(&f->nodes[i]);
    ddp__v1__check_answer__init(&f->places[i]);
    ddp__v1__check_answer__init(&f->listens[i]);
    ddp__v1__check_answer__init(&f->links[i]);
    ddp__v1__check_place_result__init(p);
    ddp__v1__check_path__init(&f->paths[i]);
    f->nodes[i].name = TEXT(names[i]);
    f->nodes[i].address = TEXT(addresses[i]);
    f->paths[i].path = TEXT("/data/train.bin");
    f->paths[i].bytes = 1200000000;
    f->paths[i].files = 1;
    f->paths[i].digest = TEXT("aa");
    f->path_list[i] = &f->paths[i];
    p->user = TEXT("ana");
    p->paths = &f->path_list[i];
    p->n_paths = 1;
    p->interpreter = TEXT("/usr/bin/python3");
    p->interpreter_version = TEXT("Python 3.11.2");
    p->memory_bytes = 16000000000;
    p->memory_free = 12100000000;
    p->disk_free = 120000000000;
    f->places[i].version = TEXT("0.3.0");
    f->places[i].trip_ms = 3;
    f->places[i].place = p;
    f->node_list[i] = &f->nodes[i];
    f->place_list[i] = &f->places[i];
    f->listen_list[i] = &f->listens[i];
    f->answer_list[i] = &f->links[i];
}

static void build_links(struct fixture *f, size_t from)
{
    Ddp__V1__CheckAnswer *a = &f->links[from];
    a->links = f->link_list[from];
    for (size_t to = 0; to < NODES; to++)
        for (int port = 0; to != from && port < 2; port++) {
            Ddp__V1__CheckLink *link = f->link_list[from][a->n_links] = &f->between[from][a->n_links];
            ddp__v1__check_link__init(link);
            link->node = f->nodes[to].name;
            link->port = port ? 41000 + (int32_t)to : 30699;
            link->connect_ms = 0.3;
            if (!port && to == (from + 1) % NODES)
                link->bytes_per_s = 1.18e9;
            a->n_links++;
        }
}

static int survey_setup(void **state)
{
    struct fixture *f = xcalloc(1, sizeof(*f));
    for (size_t i = 0; i < NODES; i++)
        build_node(f, i);
    for (size_t i = 0; i < NODES; i++)
        build_links(f, i);
    f->preflight = (struct preflight){.nodes = f->node_list,
                                      .places = f->place_list,
                                      .listens = f->listen_list,
                                      .links = f->answer_list,
                                      .count = NODES,
                                      .version = "0.3.0"};
    *state = f;
    return 0;
}

static int survey_teardown(void **state)
{
    struct fixture *f = *state;
    findings_release(&f->found);
    free_text((char **)state);
    return 0;
}

/* Expects exactly one finding. */
static void expect_finding(struct fixture *f, const char *node, const char *what)
{
    preflight_check(&f->preflight, &f->found);
    if (f->found.count != 1)
        fail_msg("%zu findings, the first: %s", f->found.count,
                 f->found.count ? f->found.items[0].what : "none");
    assert_string_equal(f->found.items[0].node, node);
    assert_string_equal(f->found.items[0].what, what);
    assert_non_null(f->found.items[0].fix);
}

static void test_no_problems(void **state)
{
    struct fixture *f = *state;
    f->places[1].skew_ms = -900; /* below the limit */
    preflight_check(&f->preflight, &f->found);
    assert_int_equal(f->found.count, 0);
}

/* The size of the nodes, no matter what is busy: slots, or GPUs if the job needs them. */
static void test_size(void **state)
{
    struct fixture *f = *state;
    Ddp__V1__Gpu gpu[2] = {DDP__V1__GPU__INIT, DDP__V1__GPU__INIT}, *gpus[2] = {&gpu[0], &gpu[1]};
    struct job_spec spec = {
        .nodes_min = 2, .procs = JOB_PROCS_NUMBER, .procs_per_node = 4, .gpus_per_proc = 1};
    for (size_t i = 0; i < NODES; i++)
        f->nodes[i].slots = 4;
    preflight_check_size(&f->preflight, &spec, &f->found);
    spec.procs = JOB_PROCS_AUTO;
    preflight_check_size(&f->preflight, &spec, &f->found);
    assert_int_equal(f->found.count, 0);

    spec.procs = JOB_PROCS_NUMBER;
    spec.procs_per_node = 8;
    preflight_check_size(&f->preflight, &spec, &f->found);
    assert_int_equal(f->found.count, 1);
    assert_string_equal(f->found.items[0].what,
                        "the job needs 2 nodes with 8 slots each, but only 0 of 3 have them");
    spec.procs_per_node = 2;
    spec.device = JOB_DEVICE_CUDA;
    gpu[0].healthy = gpu[1].healthy = true;
    f->nodes[1].gpus = gpus;
    f->nodes[1].n_gpus = 2;
    preflight_check_size(&f->preflight, &spec, &f->found);
    assert_int_equal(f->found.count, 2);
    assert_string_equal(f->found.items[1].what,
                        "the job needs 2 nodes with 2 GPUs each, but only 1 of 3 have them");
    spec.nodes_min = 4;
    spec.device = JOB_DEVICE_CPU;
    preflight_check_size(&f->preflight, &spec, &f->found);
    assert_int_equal(f->found.count, 3);
    assert_string_equal(f->found.items[2].what, "the job needs 4 nodes, but only 3 can take work");
}

/* GPUs that the coordinator would not assign do not count: a sick GPU, one GPU twice for the same worker, and
 * any GPU of a node whose trainer has no plugin. */
static void test_usable_gpus(void **state)
{
    struct fixture *f = *state;
    Ddp__V1__Gpu gpu = DDP__V1__GPU__INIT, *gpus[1] = {&gpu};
    struct job_spec spec = {.kind = JOB_TRAIN,
                            .nodes_min = 1,
                            .procs = JOB_PROCS_NUMBER,
                            .procs_per_node = 1,
                            .device = JOB_DEVICE_CUDA,
                            .gpus_per_proc = 1};
    f->nodes[1].gpus = gpus;
    f->nodes[1].n_gpus = 1;
    f->nodes[1].slots_per_gpu = 2;
    preflight_check_size(&f->preflight, &spec, &f->found);
    assert_int_equal(f->found.count, 1); /* it is sick */
    gpu.healthy = true;
    preflight_check_size(&f->preflight, &spec, &f->found);
    spec.procs_per_node = 2;
    preflight_check_size(&f->preflight, &spec, &f->found);
    assert_int_equal(f->found.count, 1);
    spec.procs_per_node = 1;
    spec.gpus_per_proc = 2;
    preflight_check_size(&f->preflight, &spec, &f->found);
    assert_int_equal(f->found.count, 2); /* a GPU with two slots is not two GPUs */
    spec.gpus_per_proc = 1;
    f->nodes[1].nccl_version = TEXT("none");
    preflight_check_size(&f->preflight, &spec, &f->found);
    assert_int_equal(f->found.count, 3);
    f->nodes[1].nccl_version = TEXT("missing"); /* enough for one worker, not for two */
    preflight_check_size(&f->preflight, &spec, &f->found);
    assert_int_equal(f->found.count, 3);
    spec.procs_per_node = 2;
    preflight_check_size(&f->preflight, &spec, &f->found);
    assert_int_equal(f->found.count, 4);
    f->nodes[1].nccl_version = TEXT("2.28.9");
    preflight_check_size(&f->preflight, &spec, &f->found);
    assert_int_equal(f->found.count, 4);
    spec.procs_per_node = 1;
    f->nodes[1].nccl_version = TEXT("none");
    spec.kind = JOB_COMMAND;
    preflight_check_size(&f->preflight, &spec, &f->found);
    assert_int_equal(f->found.count, 4);
}

static void test_instruction_sets(void **state)
{
    struct fixture *f = *state;
    struct job_spec spec = {.kind = JOB_TRAIN, .device = JOB_DEVICE_CPU};
    f->results[0].isa = TEXT("avx512");
    f->results[2].isa = TEXT("avx512"); /* the older agent of box2 does not report it */
    preflight_check_isa(&f->preflight, &spec, &f->found);
    assert_int_equal(f->found.count, 0);
    f->results[1].isa = TEXT("avx2");
    preflight_check_isa(&f->preflight, &spec, &f->found);
    assert_int_equal(f->found.count, 1);
    assert_string_equal(f->found.items[0].what,
                        "the nodes would use different instruction sets (avx2 to avx512), so the "
                        "result of a run would depend on its nodes");
    assert_string_equal(f->found.items[0].fix, "set train.isa to avx2, which all nodes support");
    spec.train.isa = ISA_AVX2;
    preflight_check_isa(&f->preflight, &spec, &f->found);
    assert_int_equal(f->found.count, 1);
    spec.train.isa = ISA_AVX512;
    preflight_check_isa(&f->preflight, &spec, &f->found);
    assert_int_equal(f->found.count, 2);
    assert_string_equal(f->found.items[1].node, "box2");
    assert_string_equal(f->found.items[1].what, "its CPU has no more than avx2, but the job needs avx512");
    spec.kind = JOB_COMMAND;
    preflight_check_isa(&f->preflight, &spec, &f->found);
    assert_int_equal(f->found.count, 2);
}

/* All CPUs have bf16 instructions. One CPU's are slow, so it uses them only if the job asks for them. */
static void test_sets_of_auto_differ(void **state)
{
    struct fixture *f = *state;
    struct job_spec spec = {.kind = JOB_TRAIN, .device = JOB_DEVICE_CPU};
    for (int i = 0; i < 3; i++)
        f->results[i].isa = f->results[i].isa_auto = TEXT("avx512_bf16");
    preflight_check_isa(&f->preflight, &spec, &f->found);
    assert_int_equal(f->found.count, 0);
    f->results[1].isa_auto = TEXT("avx512");
    spec.train.isa = ISA_AVX512_BF16;
    preflight_check_isa(&f->preflight, &spec, &f->found);
    assert_int_equal(f->found.count, 0);
    spec.train.isa = ISA_AUTO;
    preflight_check_isa(&f->preflight, &spec, &f->found);
    assert_int_equal(f->found.count, 1);
    assert_string_equal(f->found.items[0].fix, "set train.isa to avx512, which all nodes support");
}

/* Two nodes agree, so the other one is reported, although it comes first. */
static void test_minority_differs(void **state)
{
    struct fixture *f = *state;
    f->paths[0].digest = TEXT("bb");
    expect_finding(f, "box1", "/data/train.bin differs from box2's in content (1.2 GB in 1 file)");
}

static void test_different_size(void **state)
{
    struct fixture *f = *state;
    f->paths[2].bytes = 900000000;
    f->paths[2].digest = TEXT("cc");
    expect_finding(f, "box3",
                   "/data/train.bin differs from box1's: 900 MB in 1 file here, 1.2 GB in 1 file there");
}

static void test_file_that_only_others_have(void **state)
{
    struct fixture *f = *state;
    f->results[1].n_paths = 0;
    expect_finding(f, "box2", "/data/train.bin: does not exist");
}

static void test_versions(void **state)
{
    struct fixture *f = *state;
    f->places[1].version = TEXT("0.2.0");
    expect_finding(f, "box2", "its agent is version 0.2.0, the coordinator 0.3.0");
}

static void test_interpreters(void **state)
{
    struct fixture *f = *state;
    f->results[2].interpreter_version = TEXT("Python 3.9.2");
    expect_finding(f, "box3", "/usr/bin/python3 is Python 3.9.2 here, Python 3.11.2 on box1");
}

static void test_virtual_environment_on_some_nodes(void **state)
{
    struct fixture *f = *state;
    f->results[2].interpreter = TEXT("/home/ana/venv/bin/python3");
    expect_finding(f, "box3", "the command is /home/ana/venv/bin/python3 here, /usr/bin/python3 on box1");
}

/* Python on a cold file system may not name its version in time. */
static void test_interpreters_without_a_version(void **state)
{
    struct fixture *f = *state;
    f->results[2].interpreter = TEXT("/home/ana/venv/bin/python3");
    f->results[2].interpreter_version = TEXT("");
    expect_finding(f, "box3", "the command is /home/ana/venv/bin/python3 here, /usr/bin/python3 on box1");
    assert_string_equal(f->found.items[0].fix,
                        "make the virtual environment on each node, under the same path");
}

static void test_programs_under_different_paths(void **state)
{
    struct fixture *f = *state;
    for (size_t i = 0; i < NODES; i++) {
        f->results[i].interpreter = TEXT(i == 1 ? "/opt/python/train" : "/usr/bin/train");
        f->results[i].interpreter_version = TEXT("");
    }
    expect_finding(f, "box2", "the command is /opt/python/train here, /usr/bin/train on box1");
    assert_string_equal(f->found.items[0].fix, "install it on each node, under the same path");
}

static void test_a_copy_without_digest_is_no_reference(void **state)
{
    struct fixture *f = *state;
    f->paths[0].digest = TEXT("");
    f->paths[2].digest = TEXT("bb");
    expect_finding(f, "box3", "/data/train.bin differs from box2's in content (1.2 GB in 1 file)");
}

static void test_sizes_of_agents_without_digests(void **state)
{
    struct fixture *f = *state;
    f->paths[1].digest = TEXT("");
    preflight_check(&f->preflight, &f->found);
    assert_int_equal(f->found.count, 0);
}

static void test_uids(void **state)
{
    struct fixture *f = *state;
    f->results[0].user = f->results[1].user = f->results[2].user = TEXT("trainer");
    f->results[0].user_number = 0; /* an older agent */
    f->results[1].user_number = 1001;
    f->results[2].user_number = 10001;
    expect_finding(f, "box3", "jobs run as trainer with uid 10000 here, as trainer with uid 1000 on box2");
}

static void test_clock(void **state)
{
    struct fixture *f = *state;
    f->places[1].skew_ms = 3200;
    expect_finding(f, "box2", "its clock is 3.2 s ahead of the coordinator's");
}

/* After a slow answer the clock's difference is uncertain. */
static void test_clock_behind_a_slow_answer(void **state)
{
    struct fixture *f = *state;
    f->places[1].skew_ms = 3200;
    f->places[1].trip_ms = 2500;
    preflight_check(&f->preflight, &f->found);
    assert_int_equal(f->found.count, 0);
}

static void test_low_disk_space(void **state)
{
    struct fixture *f = *state;
    f->results[0].disk_free = 100000000;
    expect_finding(f, "box1", "only 100 MB of disk space are free where jobs run");
}

static void test_low_memory(void **state)
{
    struct fixture *f = *state;
    f->results[0].memory_free = 300000000;
    expect_finding(f, "box1", "only 300 MB of 16.0 GB of memory are free");
}

static void test_one_port(void **state)
{
    struct fixture *f = *state;
    f->between[0][1].problem = TEXT("refused");
    expect_finding(f, "box1", "cannot reach port 41001 of box2 at 10.0.0.2: refused");
}

static void test_all_ports(void **state)
{
    struct fixture *f = *state;
    f->between[0][0].problem = f->between[0][1].problem = TEXT("no route to it");
    expect_finding(f, "box1", "cannot reach box2 at 10.0.0.2: no route to it");
}

static void test_no_answer(void **state)
{
    struct fixture *f = *state;
    f->places[2].error = TEXT("the check hangs, does a file system there?");
    f->places[2].place = NULL;
    f->preflight.links = f->preflight.listens = NULL;
    expect_finding(f, "box3", "no answer: the check hangs, does a file system there?");
}

static void test_screen(void **state)
{
    struct fixture *f = *state;
    const struct term terminal = {.live = true, .colour = true, .columns = 140}, plain = {0};
    CLEANUP(buf_release) struct buf out = {0};
    screen_check(&f->preflight, &f->found, &plain, &out);
    golden_check("check-well.pipe", &out);
    f->results[1].workdir_problem = TEXT("/home/ana/x: does not exist");
    f->paths[1].problem = TEXT("does not exist\033[2J");
    f->places[1].skew_ms = -4000;
    f->between[2][0].problem = f->between[2][1].problem = TEXT("no route to it");
    preflight_check(&f->preflight, &f->found);
    screen_check(&f->preflight, &f->found, &plain, &out);
    golden_check("check-ill.pipe", &out);
    screen_check(&f->preflight, &f->found, &terminal, &out);
    golden_check("check-ill.term", &out);
}

/* The request that is sent to a node. */
static void test_screen_without_a_job(void **state)
{
    struct fixture *f = *state;
    const struct term plain = {0};
    CLEANUP(buf_release) struct buf with = {0}, without = {0};
    screen_check(&f->preflight, &f->found, &plain, &with);
    assert_non_null(strstr(with.data, "120 GB  ok "));
    f->preflight.nodes_only = true;
    screen_check(&f->preflight, &f->found, &plain, &without);
    assert_non_null(strstr(without.data, "120 GB  - "));
}

static void test_request_for_a_job(void **state)
{
    static const char train[] =
        "env: {A: b}\nworkdir: /w\ntrain:\n  model: {type: linear, in: 2, out: 1}\n"
        "  data: {type: idx, dir: /d}\n  batch: 1\n  steps: 1\n  snapshot: {dir: /s}\n";
    static const char command[] = "workdir: /w\ncommand: [python3, x.py]\n";
    char *const carried[] = {TEXT("PATH=/p"), NULL};
    CLEANUP(job_release) struct job_spec spec = {0}, other = {0};
    Ddp__V1__CheckPlace place;
    struct err e;
    (void)state;
    assert_int_equal(job_parse(&spec, train, sizeof(train) - 1, "job.yaml", &e), ERR_OK);
    preflight_place_init(&spec, carried, true, &place);
    assert_string_equal(place.workdir, "/w");
    assert_int_equal(place.n_env, 2);
    assert_string_equal(place.env[0], "PATH=/p");
    assert_string_equal(place.env[1], "A=b"); /* the job's value wins: it is set later */
    assert_int_equal(place.n_paths, 1);
    assert_string_equal(place.paths[0], "/d");
    assert_int_equal(place.n_writable, 1);
    assert_string_equal(place.writable[0], "/s");
    assert_int_equal(place.n_command, 0);
    preflight_place_release(&place);
    assert_int_equal(job_parse(&other, command, sizeof(command) - 1, "job.yaml", &e), ERR_OK);
    preflight_place_init(&other, NULL, false, &place);
    assert_int_equal(place.n_command, 2);
    assert_int_equal(place.n_paths, 0);
    assert_false(place.hash);
    preflight_place_release(&place);
}

/* Without nodes there is no table, not even its headings. */
static void test_no_nodes(void **state)
{
    struct fixture *f = *state;
    CLEANUP(buf_release) struct buf out = {0};
    const struct term plain = {0};
    f->preflight.count = 0;
    findings_add(&f->found, "", xstrdup("no node can take work"), NULL);
    screen_check(&f->preflight, &f->found, &plain, &out);
    assert_string_equal(out.data, "no node can take work\n1 problem\n");
}

int main(void)
{
#define TEST(test) cmocka_unit_test_setup_teardown(test, survey_setup, survey_teardown)
    const struct CMUnitTest tests[] = {
        TEST(test_no_problems),
        TEST(test_size),
        TEST(test_usable_gpus),
        TEST(test_instruction_sets),
        TEST(test_sets_of_auto_differ),
        TEST(test_no_nodes),
        TEST(test_minority_differs),
        TEST(test_different_size),
        TEST(test_file_that_only_others_have),
        TEST(test_versions),
        TEST(test_interpreters),
        TEST(test_screen_without_a_job),
        TEST(test_virtual_environment_on_some_nodes),
        TEST(test_interpreters_without_a_version),
        TEST(test_programs_under_different_paths),
        TEST(test_a_copy_without_digest_is_no_reference),
        TEST(test_sizes_of_agents_without_digests),
        TEST(test_uids),
        TEST(test_clock),
        TEST(test_clock_behind_a_slow_answer),
        TEST(test_low_disk_space),
        TEST(test_low_memory),
        TEST(test_one_port),
        TEST(test_all_ports),
        TEST(test_no_answer),
        TEST(test_screen),
        cmocka_unit_test(test_request_for_a_job),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
