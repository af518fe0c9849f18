#include "tests/unit/client/samples.h"

#include "base/mem.h"

#define TEXT(s) ((char *)(uintptr_t)(s)) /* protobuf-c's strings are not const */

static Ddp__V1__Progress progress_sample;
static Ddp__V1__Metric *metrics_sample[24];
static double history_sample[] = {4.1, 3.2, 2.5, 2.0, 1.7, 1.6, 1.5, 1.412};
static Ddp__V1__RankStatus rank_samples[4];
static Ddp__V1__RankStatus *ranks_sample[4];
static char *nodes_sample[] = {TEXT("box1"), TEXT("box2")};
static Ddp__V1__SnapshotStatus snapshot_sample;
static Ddp__V1__Failure failure_sample;
static char *restart_sample[] = {TEXT("rank 2 killed by signal 9, 4m ago, cost 0.4 s")};
static char *stderr_sample[] = {
    TEXT("Traceback (most recent call last):"),
    TEXT("  File \"train.py\", line 80, in <module>"),
    TEXT("    main()"),
    TEXT("  File \"train.py\", line 61, in main"),
    TEXT("    loss = step(batch)"),
    TEXT("  File \"train.py\", line 40, in step"),
    TEXT("FloatingPointError: \033[31mloss is nan\033[0m"),
};

static void add_metric(const char *name, double value)
{
    static Ddp__V1__Metric memory[24];
    size_t i = progress_sample.n_metrics++;
    memory[i] = (Ddp__V1__Metric)DDP__V1__METRIC__INIT;
    memory[i].name = TEXT(name);
    memory[i].value = value;
    metrics_sample[i] = &memory[i];
}

static void new_progress(Ddp__V1__JobStatus *job, int64_t step, int64_t steps)
{
    progress_sample = (Ddp__V1__Progress)DDP__V1__PROGRESS__INIT;
    progress_sample.step = step;
    progress_sample.steps = steps;
    progress_sample.metrics = metrics_sample;
    job->progress = &progress_sample;
}

static void new_job(Ddp__V1__JobStatus *job, int64_t id, const char *name, const char *state, int64_t age_s)
{
    *job = (Ddp__V1__JobStatus)DDP__V1__JOB_STATUS__INIT;
    job->job = id;
    job->name = TEXT(name);
    job->state = TEXT(state);
    job->user = TEXT("ana");
    job->kind = TEXT("train");
    job->created_ms = NOW - age_s * 1000;
    job->max_restarts = 3;
}

static void new_snapshot(Ddp__V1__JobStatus *job, int64_t step, const char *path)
{
    snapshot_sample = (Ddp__V1__SnapshotStatus)DDP__V1__SNAPSHOT_STATUS__INIT;
    snapshot_sample.step = step;
    snapshot_sample.path = TEXT(path);
    snapshot_sample.bytes = 3300000;
    snapshot_sample.committed_ms = NOW - 40000;
    job->snapshot = &snapshot_sample;
}

static void new_ranks(Ddp__V1__JobStatus *job)
{
    for (int i = 0; i < 4; i++) {
        Ddp__V1__RankStatus *r = &rank_samples[i];
        *r = (Ddp__V1__RankStatus)DDP__V1__RANK_STATUS__INIT;
        r->rank = i;
        r->node = nodes_sample[i / 2];
        r->local_rank = i % 2;
        r->device = i % 2 ? TEXT("gpu1 H200") : TEXT("gpu0 H200");
        r->pid = 4121 + i * 1932;
        r->state = TEXT("training");
        r->step = 3540;
        r->ms_per_step = i == 2 ? 50 : 47;
        r->wait_ms = i == 2 ? 0.1 : 1.2;
        r->memory_bytes = INT64_C(11200000000);
        ranks_sample[i] = r;
    }
    job->ranks = ranks_sample;
    job->n_ranks = 4;
    job->nodes = nodes_sample;
    job->n_nodes = 2;
    job->world_size = 4;
}

void sample_running(Ddp__V1__JobStatus *job)
{
    new_job(job, 9, "kjv-gpt", "running", 430);
    new_ranks(job);
    job->started_ms = NOW - 420000;
    job->generation = 2;
    job->restarts_used = 1;
    job->last_restart = restart_sample;
    job->n_last_restart = 1;
    job->log_dir = TEXT("/var/log/ddp/9/generation_2/");
    new_progress(job, 3540, 5000);
    progress_sample.epoch = 2.1;
    progress_sample.steps_per_s = 8.54;
    progress_sample.loss_history = history_sample;
    progress_sample.n_loss_history = ARRAY_LEN(history_sample);
    progress_sample.best_val = 1.46;
    progress_sample.best_val_step = 3500;
    progress_sample.has_best_val = 1;
    add_metric("loss", 1.412);
    add_metric("val_loss", 1.46);
    add_metric("lr", 4.1e-4);
    add_metric("grad_norm", 0.83);
    add_metric("tokens_per_s", 21430);
    add_metric("gflops", 106);
    add_metric("peak_share", 0.46);
    add_metric("exposed", 0.03);
    add_metric("parameters", 820000);
    add_metric("parameter_bytes", 3.3e6);
    add_metric("gradient_bytes", 3.3e6);
    add_metric("optimizer_bytes", 6.6e6);
    add_metric("activation_bytes", 32e6);
    add_metric("bytes", 61e6);
    add_metric("bytes_per_parameter", 16);
    add_metric("digest_high", 3851201857);
    add_metric("bits_per_char", 2.106);
    add_metric("sync_every", 50);
    add_metric("sync_bits", 4);
    new_snapshot(job, 3500, "out/step-3500");
}

void sample_queued(Ddp__V1__JobStatus *job)
{
    static Ddp__V1__StartEstimate start;
    ddp__v1__start_estimate__init(&start);
    start.position = 3;
    start.start_ms = NOW + 45 * 60000;
    start.after_job = 9;
    start.why = TEXT("when job 9 ends on box2");
    start.at_once = TEXT("--nodes 1");
    new_job(job, 10, "resnet", "queued", 60);
    job->start_estimate = &start;
    job->user = TEXT("bo");
    job->reason = TEXT("waits for 4 GPUs on box2: job 9, about 3 min");
    job->asks = TEXT("2×4");
}

void sample_failed(Ddp__V1__JobStatus *job)
{
    new_job(job, 8, "sweep-2", "failed", 3700);
    job->started_ms = NOW - 3690000;
    job->ended_ms = NOW - 600000;
    job->reason = TEXT("rank 3 exited with code 1, all 3 restarts used");
    job->generation = 4;
    job->restarts_used = 3;
    job->exit_code = 1;
    job->nodes = nodes_sample;
    job->n_nodes = 1;
    job->log_dir = TEXT("/var/log/ddp/8/generation_4/");
    new_progress(job, 812, 5000);
    failure_sample = (Ddp__V1__Failure)DDP__V1__FAILURE__INIT;
    failure_sample.rank = 3;
    failure_sample.node = TEXT("box1");
    failure_sample.code = 1;
    failure_sample.message = TEXT("FloatingPointError: loss is nan");
    failure_sample.stderr_tail = stderr_sample;
    failure_sample.n_stderr_tail = ARRAY_LEN(stderr_sample);
    failure_sample.generation = 4;
    job->failure = &failure_sample;
    new_snapshot(job, 800, "/home/ana/out/step-800");
}

void sample_succeeded(Ddp__V1__JobStatus *job)
{
    new_job(job, 7, "fashion", "succeeded", 600);
    new_ranks(job);
    job->n_ranks = 0;
    job->started_ms = NOW - 581000;
    job->ended_ms = NOW;
    job->generation = 2;
    job->restarts_used = 1;
    new_progress(job, 5000, 5000);
    add_metric("loss", 0.2113);
    add_metric("val_loss", 0.31);
    add_metric("val_acc", 0.8914);
    add_metric("samples_per_s", 25300);
    new_snapshot(job, 5000, "out/step-5000");
}

void sample_command(Ddp__V1__JobStatus *job)
{
    new_job(job, 11, "train.py", "running", 5);
    new_ranks(job);
    job->kind = TEXT("command");
    job->started_ms = NOW - 4000;
    job->generation = 1;
    job->log_dir = TEXT("/var/log/ddp/11/generation_1/");
    job->job_file = TEXT("workdir: /home/ana\ntime_limit: 2h\nmax_restarts: 3\n"
                         "command: [python3, train.py, --tag, \"it's new\"]\n");
    for (int i = 0; i < 4; i++) {
        rank_samples[i].ms_per_step = rank_samples[i].wait_ms = 0;
        rank_samples[i].step = rank_samples[i].memory_bytes = 0;
        rank_samples[i].device = TEXT("cpu");
        rank_samples[i].state = TEXT("spawned");
    }
    rank_samples[3].state = TEXT("exited");
    rank_samples[3].detail = TEXT("killed by signal 9");
}

void sample_nodes(Ddp__V1__ListNodesReply *reply)
{
    static Ddp__V1__NodeStatus memory[3];
    static Ddp__V1__NodeStatus *list[3];
    static Ddp__V1__Gpu gpu_memory[16];
    static Ddp__V1__Gpu *gpus[16];
    static int64_t jobs[] = {9, 11};
    for (int i = 0; i < 16; i++) {
        gpu_memory[i] = (Ddp__V1__Gpu)DDP__V1__GPU__INIT;
        gpu_memory[i].name = TEXT("H200");
        gpu_memory[i].memory_bytes = INT64_C(139) << 30;
        gpu_memory[i].index = i % 8;
        gpu_memory[i].healthy = i != 9;
        gpu_memory[i].problem =
            i == 9 ? TEXT("Xid 79 at 14:02: power-cycle, then run ddpctl undrain") : TEXT("");
        gpu_memory[i].temperature = i < 8 ? 54 + i : 0;
        gpu_memory[i].power_watts = i < 8 ? 540 : 0;
        gpu_memory[i].utilisation = i < 8 ? 0.9 : 0;
        gpus[i] = &gpu_memory[i];
    }
    for (int i = 0; i < 3; i++) {
        memory[i] = (Ddp__V1__NodeStatus)DDP__V1__NODE_STATUS__INIT;
        memory[i].slots = 32;
        memory[i].slots_free = 12;
        memory[i].memory_bytes = INT64_C(256000000000);
        memory[i].memory_free = INT64_C(200000000000);
        memory[i].version = TEXT("0.3.0");
        memory[i].seen_ms = NOW - 1000 - i * 1000;
        list[i] = &memory[i];
    }
    memory[0].name = TEXT("box1");
    memory[0].state = TEXT("alive");
    memory[0].gpus = gpus;
    memory[0].n_gpus = 8;
    memory[0].gpus_free = 4;
    memory[0].jobs = jobs;
    memory[0].n_jobs = 2;
    memory[0].load = 0.71;
    memory[1].name = TEXT("box2");
    memory[1].state = TEXT("drained");
    memory[1].gpus = gpus + 8;
    memory[1].n_gpus = 8;
    memory[2].name = TEXT("laptop");
    memory[2].state = TEXT("lost");
    memory[2].slots = 4;
    memory[2].seen_ms = NOW - 3 * 86400 * INT64_C(1000);
    memory[2].note = TEXT("ana takes it home");
    *reply = (Ddp__V1__ListNodesReply)DDP__V1__LIST_NODES_REPLY__INIT;
    reply->nodes = list;
    reply->n_nodes = 3;
}
