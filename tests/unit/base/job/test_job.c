#include "tests/unit/base/job/job_texts.h"

#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/mem.h"

static void refuse_reserved(const char *name)
{
    CLEANUP(free_text) char *text = xasprintf("env: {%s: 3}\ncommand: [ls]\n", name);
    CLEANUP(free_text)
    char *message = xasprintf("job.yaml:1:%zu: ddp sets '%s' for each rank: remove it from 'env'",
                              strlen("env: {: ") + strlen(name) + 1, name);

    refuse_job(text, message);
}

static void command_defaults(void **state)
{
    CLEANUP(job_release) struct job_spec spec;

    (void)state;
    accept_job(&spec, "command: [python3, train.py, --epochs, 50]\n");
    assert_int_equal(spec.kind, JOB_COMMAND);
    assert_string_equal(spec.name, "job");
    assert_int_equal(spec.nodes_min, 1);
    assert_int_equal(spec.nodes_max, 1);
    assert_int_equal(spec.procs, JOB_PROCS_NUMBER);
    assert_int_equal(spec.procs_per_node, 1);
    assert_int_equal(spec.gpus_per_proc, 1);
    assert_int_equal(spec.max_restarts, 0);
    assert_int_equal(spec.restart_on, RESTART_ON_FAULT);
    assert_int_equal(spec.lease_ms, 60000);
    assert_int_equal(spec.join_timeout_ms, 60000);
    assert_int_equal(spec.grace_ms, 30000);
    assert_int_equal(spec.stall_timeout_ms, 0);
    assert_int_equal(spec.time_limit_ms, 0);
    assert_true(spec.idle.gpu == 0.05 && spec.idle.after_ms == 0);
    assert_string_equal(spec.command[3], "50");
}

static void train_defaults(void **state)
{
    CLEANUP(job_release) struct job_spec spec;
    const struct train_spec *t = &spec.train;

    (void)state;
    accept_job(&spec, TRAIN);
    assert_int_equal(spec.kind, JOB_TRAIN);
    assert_int_equal(spec.lease_ms, 600000);
    assert_int_equal(t->loss, LOSS_MSE);
    assert_int_equal(t->data.samples, 2048);
    assert_int_equal(t->data.in, 20);
    assert_int_equal(t->data.out, 1);
    assert_true(t->data.shuffle);
    assert_false(t->data.pad);
    assert_int_equal(t->optimizer.type, OPTIMIZER_SGD);
    assert_true(t->optimizer.lr == 1e-3);
    assert_int_equal(t->accumulate, 1);
    assert_int_equal(t->sync.type, SYNC_ALLREDUCE);
    assert_null(t->snapshot.dir);
    assert_int_equal(t->log_every, 10);
    assert_int_equal(t->eval.every.unit, EVERY_EPOCHS);
    assert_false(t->tutorial_lines);
    assert_true(t->pin);
    assert_int_equal(spec.max_replacements, 20);
}

static void muon_keys(void **state)
{
    CLEANUP(job_release) struct job_spec defaults, spec;
    const struct train_spec *t = &defaults.train;

    (void)state;
    accept_job(&defaults, MLP "  optimizer: {type: muon}\n");
    assert_int_equal(t->optimizer.type, OPTIMIZER_MUON);
    assert_true(t->optimizer.lr == 0.02 && t->optimizer.momentum == 0.95);
    assert_true(t->optimizer.weight_decay == 0.01 && t->optimizer.clip == 0.0);
    assert_true(t->optimizer.adamw_lr == 1e-3 && t->optimizer.eps == 1e-8);
    assert_true(t->optimizer.betas[0] == 0.9 && t->optimizer.betas[1] == 0.999);
    t = &spec.train;
    accept_job(&spec, MLP "  optimizer: {type: muon, lr: 0.05, momentum: 0.9, weight_decay: 0.1, clip: 1.0,\n"
                          "    adamw: {lr: 2.0e-3, betas: [0.9, 0.99], eps: 1.0e-9}}\n");
    assert_true(t->optimizer.lr == 0.05 && t->optimizer.momentum == 0.9);
    assert_true(t->optimizer.weight_decay == 0.1 && t->optimizer.clip == 1.0);
    assert_true(t->optimizer.adamw_lr == 2e-3 && t->optimizer.eps == 1e-9);
    assert_true(t->optimizer.betas[0] == 0.9 && t->optimizer.betas[1] == 0.99);
}

static void all_keys_are_read(void **state)
{
    CLEANUP(job_release) struct job_spec spec;
    const struct train_spec *t = &spec.train;

    (void)state;
    accept_job(&spec,
               "name: fashion\n"
               "nodes: 1:4\n"
               "procs_per_node: gpu\n"
               "gpus_per_proc: all\n"
               "device: cuda\n"
               "time_limit: 2h\n"
               "env: {FOO: bar}\n"
               "workdir: .\n"
               "train:\n"
               "  model: {type: mlp, sizes: [784, 512, 10], activation: tanh}\n"
               "  data: {type: idx, dir: /data, pad: true}\n"
               "  optimizer: {type: adamw, lr: 3.0e-4, betas: [0.9, 0.95], weight_decay: 0.1, clip: 1.0}\n"
               "  schedule: {type: cosine, warmup: 100}\n"
               "  global_batch: 128\n"
               "  steps: 5000\n"
               "  precision: fp32\n"
               "  reproducible: layout\n"
               "  isa: avx2\n"
               "  pin: false\n"
               "  sync: {type: average, every: 16}\n"
               "  snapshot: {dir: out, every: 15m, keep: 5}\n"
               "  resume: continue\n"
               "  eval: {every: \"10 epochs\", batches: 50}\n");
    assert_string_equal(spec.name, "fashion");
    assert_int_equal(spec.nodes_max, 4);
    assert_int_equal(spec.procs, JOB_PROCS_GPU);
    assert_int_equal(spec.gpus_per_proc, JOB_GPUS_ALL);
    assert_int_equal(spec.device, JOB_DEVICE_CUDA);
    assert_string_equal(spec.env[0], "FOO=bar");
    assert_int_equal(t->model.size_count, 3);
    assert_int_equal(t->model.sizes[1], 512);
    assert_int_equal(t->model.activation, ACTIVATION_TANH);
    assert_int_equal(t->loss, LOSS_CROSS_ENTROPY);
    assert_true(t->data.pad);
    assert_false(t->pin);
    assert_true(t->optimizer.betas[1] == 0.95);
    assert_int_equal(t->schedule.type, SCHEDULE_COSINE);
    assert_int_equal(t->batch, 0);
    assert_int_equal(t->global_batch, 128);
    assert_int_equal(t->sync.every, 16);
    assert_int_equal(t->snapshot.every.unit, EVERY_MS);
    assert_int_equal(t->snapshot.every.count, 900000);
    assert_int_equal(t->eval.every.unit, EVERY_EPOCHS);
    assert_int_equal(t->eval.every.count, 10);
    assert_int_equal(t->eval.batches, 50);
    assert_int_equal(t->resume, RESUME_CONTINUE);
}

static void every_form(void **state)
{
    static const struct {
        const char *text;
        int64_t count;
        enum every_unit unit;
    } forms[] = {
        {"500", 500, EVERY_STEPS}, {"\"1 epoch\"", 1, EVERY_EPOCHS}, {"10 epochs", 10, EVERY_EPOCHS},
        {"90s", 90000, EVERY_MS},  {"never", 0, EVERY_STEPS},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(forms); i++) {
        CLEANUP(job_release) struct job_spec spec;
        CLEANUP(buf_release) struct buf text = {0};

        buf_printf(&text, "%s  eval: {every: %s}\n", TRAIN, forms[i].text);
        accept_job(&spec, text.data);
        assert_int_equal(spec.train.eval.every.count, forms[i].count);
        assert_int_equal(spec.train.eval.every.unit, forms[i].unit);
    }
    refuse_job(
        TRAIN "  eval: {every: 0}\n",
        "job.yaml:6:17: invalid value for 'every': expected a number from 1 to 1000000000000, got '0'");
    refuse_job(
        TRAIN "  eval: {every: 5 weeks}\n",
        "job.yaml:6:17: invalid value for 'every': expected steps, epochs or a time, such as 500, \"10 epochs\", \"15m\" or never, got '5 weeks'");
    refuse_job(
        TRAIN "  eval: {every: [5]}\n",
        "job.yaml:6:17: invalid value for 'every': expected steps, epochs or a time, such as 500, \"10 epochs\", \"15m\" or never, got a list of 1 value");
}

static void kinds_exclude_each_other(void **state)
{
    (void)state;
    refuse_job("name: x\n", "job.yaml:1:1: a job needs one of the keys 'command' and 'train'");
    refuse_job("", "job.yaml:1:1: a job needs one of the keys 'command' and 'train'");
    refuse_job("command: [ls]\n" TRAIN,
               "job.yaml:3:3: 'command' and 'train' exclude each other: give only one");
    refuse_job(TRAIN_HEAD "  data: {type: synthetic}\n  batch: 32\n",
               "job.yaml:2:3: 'train' needs 'epochs' or 'steps': add one of them");
    refuse_job(TRAIN "  steps: 3\n", "job.yaml:6:10: 'epochs' and 'steps' exclude each other: give only one");
    refuse_job(TRAIN "  global_batch: 3\n",
               "job.yaml:6:17: 'batch' and 'global_batch' exclude each other: give only one");
    refuse_job(TRAIN_HEAD "  data: {type: synthetic}\n  epochs: 2\n",
               "job.yaml:2:3: 'train' needs 'batch' or 'global_batch': add one of them");
    refuse_job(
        "procs_per_node: gpu\ndevice: cpu\ncommand: [ls]\n",
        "job.yaml:1:17: 'procs_per_node: gpu' and 'device: cpu' exclude each other: change one of them");
    refuse_job(IDX "  loss: mse\n",
               "job.yaml:6:9: 'loss: mse' needs real targets, but data of type idx has labels");
    refuse_job(TRAIN "  loss: cross_entropy\n",
               "job.yaml:6:9: 'loss: cross_entropy' needs labels, but synthetic data has real targets");
    refuse_job(TRAIN "  resume: continue\n",
               "job.yaml:6:11: 'resume: continue' needs a snapshot directory: add 'snapshot.dir'");
}

static void values_out_of_range_are_refused(void **state)
{
    (void)state;
    refuse_job("nodes: 0\ncommand: [ls]\n",
               "job.yaml:1:8: invalid value for 'nodes': expected numbers from 1 to 10000, got '0'");
    refuse_job("nodes: 4:2\ncommand: [ls]\n",
               "job.yaml:1:8: invalid value for 'nodes': expected MIN:MAX with MIN <= MAX, got '4:2'");
    refuse_job(
        "nodes: two\ncommand: [ls]\n",
        "job.yaml:1:8: invalid value for 'nodes': expected N or MIN:MAX, such as 2 or \"1:4\", got 'two'");
    refuse_job("nodes: 1:\ncommand: [ls]\n", "job.yaml:1:9: mapping values are not allowed in this context");
    refuse_job(
        "nodes: \"1:\"\ncommand: [ls]\n",
        "job.yaml:1:8: invalid value for 'nodes': expected N or MIN:MAX, such as 2 or \"1:4\", got the text \"1:\"");
    refuse_job(
        "procs_per_node: 0\ncommand: [ls]\n",
        "job.yaml:1:17: invalid value for 'procs_per_node': expected a number from 1 to 1024, got '0'");
    refuse_job(
        "procs_per_node: many\ncommand: [ls]\n",
        "job.yaml:1:17: invalid value for 'procs_per_node': expected a number, gpu, cpu or auto, got 'many'");
    refuse_job(
        "max_restarts: -1\ncommand: [ls]\n",
        "job.yaml:1:15: invalid value for 'max_restarts': expected a number from 0 to 1000000, got '-1'");
    refuse_job(
        TRAIN_HEAD "  data: {type: synthetic}\n  batch: 32\n  epochs: 1000000001\n",
        "job.yaml:5:11: invalid value for 'epochs': expected a number from 1 to 1000000000, got '1000000001'");
    refuse_job(TRAIN_HEAD "  data: {type: synthetic}\n  batch: 32\n  steps: 1000000000001\n",
               "job.yaml:5:10: invalid value for 'steps': expected a number from 1 to 1000000000000, got "
               "'1000000000001'");
    refuse_job(TRAIN "  eval: {every: 1000000000001}\n",
               "job.yaml:6:17: invalid value for 'every': expected a number from 1 to 1000000000000, got "
               "'1000000000001'");
    refuse_job(TRAIN "  sync: {type: average, every: 1000000000001}\n",
               "job.yaml:6:32: invalid value for 'every': expected a number from 1 to 1000000000000, got "
               "'1000000000001'");
    refuse_job("restart_on: always\ncommand: [ls]\n",
               "job.yaml:1:13: invalid value for 'restart_on': expected fault or any, got 'always'");
    refuse_job(
        "max_replacements: 1\ncommand: [ls]\n",
        "job.yaml:1:19: 'max_replacements' applies to train jobs only: when a worker of a command is lost, the "
        "others cannot go on");
    refuse_job(TRAIN "  optimizer: {lr: 0}\n",
               "job.yaml:6:19: invalid value for 'lr': expected a number above 0, got '0'");
    refuse_job(
        TRAIN "  optimizer: {momentum: 1}\n",
        "job.yaml:6:25: invalid value for 'momentum': expected a number of at least 0 and below 1, got '1'");
    refuse_job(TRAIN "  optimizer: {nesterov: true}\n", "job.yaml:6:14: 'nesterov' needs 'momentum' above 0");
    refuse_job(
        TRAIN "  optimizer: {type: adamw, betas: [0.9, 1]}\n",
        "job.yaml:6:41: invalid value for 'betas': expected a number of at least 0 and below 1, got '1'");
    refuse_job(TRAIN "  optimizer: {type: sgd, momentum: 0.99999999}\n",
               "job.yaml:6:36: invalid value for 'momentum': 0.99999999 is 1 in single precision, in which the "
               "job computes");
    refuse_job(TRAIN "  optimizer: {type: adamw, betas: [0.9, 0.99999999]}\n",
               "job.yaml:6:41: invalid value for 'betas': 0.99999999 is 1 in single precision, in which the "
               "job computes");
    refuse_job(TRAIN "  optimizer: {type: adamw, eps: 1e-46}\n",
               "job.yaml:6:33: invalid value for 'eps': 1e-46 is 0 in single precision, in which the job "
               "computes");
    refuse_job(MLP "  optimizer: {type: muon, adamw: {eps: 1e-46}}\n",
               "job.yaml:6:40: invalid value for 'eps': 1e-46 is 0 in single precision, in which the job "
               "computes");
    refuse_job(
        TRAIN "  optimizer: {type: adamw, betas: 0.9}\n",
        "job.yaml:6:35: invalid value for 'betas': expected two numbers, such as [0.9, 0.999], got '0.9'");
    refuse_job(MLP "  optimizer: {type: muon, adamw: {lr: 0}}\n",
               "job.yaml:6:39: invalid value for 'lr': expected a number above 0, got '0'");
    refuse_job(
        MLP "  optimizer: {type: muon, momentum: 1}\n",
        "job.yaml:6:37: invalid value for 'momentum': expected a number of at least 0 and below 1, got '1'");
    refuse_job(
        MLP "  optimizer: {type: muon, betas: [0.9, 0.99]}\n",
        "job.yaml:6:34: 'betas' is a key of optimizer type adamw; muon has type, lr, weight_decay, clip, momentum, adamw");
    refuse_job(MLP "  optimizer: {type: muon, adamw: {beta: 1}}\n",
               "job.yaml:6:35: unknown key 'beta', did you mean 'betas'?");
    refuse_job(
        TRAIN "  optimizer: {type: muon}\n",
        "job.yaml:6:21: optimizer muon needs a model with hidden layers: a gpt, or an mlp of three or more "
        "sizes; use adamw");
    refuse_job(
        IDX "  optimizer: {type: muon}\n",
        "job.yaml:6:21: optimizer muon needs a model with hidden layers: a gpt, or an mlp of three or more "
        "sizes; use adamw");
    refuse_job(TRAIN "  optimizer: {type: lion}\n",
               "job.yaml:6:21: invalid optimizer type: expected sgd, adamw or muon, got 'lion'");
    refuse_job(TRAIN "  schedule: {min_lr: 1}\n",
               "job.yaml:6:13: 'min_lr' must not be above the learning rate 'optimizer.lr'");
    refuse_job(TRAIN "  accumulate: 0\n",
               "job.yaml:6:15: invalid value for 'accumulate': expected a number from 1 to 65536, got '0'");
    refuse_job(TRAIN "  snapshot: {dir: out, keep: 0}\n",
               "job.yaml:6:30: invalid value for 'keep': expected a number of at least 1, got '0'");
    refuse_job(TRAIN "  snapshot: {every: 5}\n",
               "job.yaml:6:13: 'snapshot' has no key 'dir', which is required");
    refuse_job(
        "grace: forever\ncommand: [ls]\n",
        "job.yaml:1:8: invalid value for 'grace': expected a duration such as 90s, 15m, 2h or 1d, got 'forever'");
    refuse_job(
        "name: ../etc\ncommand: [ls]\n",
        "job.yaml:1:7: invalid value for 'name': expected 1 to 64 letters, digits, '.', '_' or '-', beginning with a letter or digit, got '../etc'");
    refuse_job(
        "name: a b\ncommand: [ls]\n",
        "job.yaml:1:7: invalid value for 'name': expected only letters, digits, '.', '_' and '-', got 'a b'");
    refuse_job("command: []\n", "job.yaml:1:10: 'command' is empty: give the program and its arguments");
    refuse_job(
        "command: ls -l\n",
        "job.yaml:1:10: invalid value for 'command': expected a list such as [first, second], got 'ls -l'");
    refuse_job("env: {RANK: 3}\ncommand: [ls]\n",
               "job.yaml:1:13: ddp sets 'RANK' for each rank: remove it from 'env'");
    refuse_reserved("DDP_NODE");
    refuse_reserved("DDP_SPAWN");
    refuse_reserved("DDP_RUN_DIR");
    refuse_reserved("DDP_SLOTS_PER_GPU");
    refuse_reserved("DDP_AGENT_ID");
    refuse_reserved("TORCHELASTIC_RUN_ID");
    refuse_reserved("TORCHELASTIC_RESTART_COUNT");
    refuse_reserved("TORCHELASTIC_MAX_RESTARTS");
}

static void keys_are_checked(void **state)
{
    (void)state;
    refuse_job(
        "slotz: 2\ncommand: [ls]\n",
        "job.yaml:1:1: unknown key 'slotz', expected one of name, nodes, procs_per_node, gpus_per_proc, device, only_nodes, "
        "max_restarts, restart_on, max_replacements, priority, hold, time_limit, lease, join_timeout, grace, stall_timeout, idle, on_lost_snapshots, "
        "env, workdir, "
        "command, preload, capture, role, "
        "run_id, "
        "logs, store, tell, tell_as, virtual_local_rank, train");
    refuse_job("role: \"\"\ncommand: [ls]\n",
               "job.yaml:1:7: invalid value for 'role': expected text of 1 to 128 bytes, got the text \"\"");
    refuse_job("run_id: \"a\\nb\"\ncommand: [ls]\n",
               "job.yaml:1:9: invalid value for 'run_id': it contains a control character");
    refuse_job(
        "idle: {gpu: 150%}\ncommand: [ls]\n",
        "job.yaml:1:13: invalid value for 'gpu': expected a share above 0 and up to 1, such as 5% or 0.05, "
        "got '150%'");
    refuse_job("idle: {after: 30m, then: kill}\ncommand: [ls]\n",
               "job.yaml:1:26: invalid value for 'then': expected tell or stop, got 'kill'");
    refuse_job("store: me\ncommand: [ls]\n",
               "job.yaml:1:8: invalid value for 'store': expected program or launcher, got 'me'");
    refuse_job(TRAIN "store: launcher\n",
               "job.yaml:6:8: 'store' applies to commands only: the ranks of a train job use no TCPStore");
    refuse_job(
        "capture: stdout\ncommand: [ls]\n",
        "job.yaml:1:10: invalid value for 'capture': expected none, auto, {pattern: EXPRESSION} or {tensorboard: DIR}, "
        "got 'stdout'");
    refuse_job("capture: {pattern: a, tensorboard: b}\ncommand: [ls]\n",
               "job.yaml:1:10: 'capture' needs one of the keys 'pattern' and 'tensorboard'");
    refuse_job("capture: {tensorboard: \"\"}\ncommand: [ls]\n",
               "job.yaml:1:10: the value in 'capture' is empty");
    refuse_job(
        "capture: {pattern: loss}\ncommand: [ls]\n",
        "job.yaml:1:10: 'pattern' in 'capture' has no named group, so no metric: write 'loss (?<loss>\\S+)'");
    refuse_job(
        TRAIN "capture: none\n",
        "job.yaml:6:10: 'capture' applies to commands only: the ranks of a train job report their metrics");
    refuse_job("preload: [torch, 1x]\ncommand: [python3, x.py]\n",
               "job.yaml:1:10: invalid value for 'preload': '1x' is not the name of a Python module");
    refuse_job(
        "preload: [torch]\ncommand: [ls]\n",
        "job.yaml:1:10: 'preload' needs a command such as 'python3 -u train.py' or 'python3 -m pkg.train', got "
        "'ls': change the command, or remove 'preload'");
    refuse_job(TRAIN "preload: [torch]\n",
               "job.yaml:6:10: 'preload' applies to commands only: ddp-trainer is not a Python program");
    refuse_job("procs_per_nodes: 2\ncommand: [ls]\n",
               "job.yaml:1:1: unknown key 'procs_per_nodes', did you mean 'procs_per_node'?");
    refuse_job(TRAIN "  optimiser: {lr: 1}\n",
               "job.yaml:6:3: unknown key 'optimiser', did you mean 'optimizer'?");
    /* the last key is right, and the path is not */
    refuse_job("optimizer: {lr: 1}\ncommand: [ls]\n",
               "job.yaml:1:1: unknown key 'optimizer', did you mean 'train.optimizer'?");
    refuse_job("model: {}\ncommand: [ls]\n",
               "job.yaml:1:1: unknown key 'model', did you mean 'train.model'?");
    refuse_job("lr: 1\ncommand: [ls]\n",
               "job.yaml:1:1: unknown key 'lr', did you mean 'train.optimizer.lr'?");
    refuse_job("keep: 1\ncommand: [ls]\n",
               "job.yaml:1:1: unknown key 'keep', did you mean 'train.snapshot.keep'?");
    refuse_job(TRAIN "  momentum: 0.9\n",
               "job.yaml:6:3: unknown key 'momentum', did you mean 'train.optimizer.momentum'?");
    refuse_job(TRAIN "  optimizer: {learning: 1}\n",
               "job.yaml:6:15: unknown key 'learning', expected one of type, "
               "lr, weight_decay, clip, momentum, nesterov");
}

/* A printed job is read and printed again: both texts are equal. */
static void print_round_trip(void **state)
{
    static const char *const texts[] = {
        TRAIN,
        IDX "  snapshot: {dir: \"a \\\"b\\\"\", every: 15m, keep: 7}\n  sync: {type: average, every: 4}\n",
        TRAIN
        "  sync: {type: diloco, every: 30, outer_lr: 0.7, wire: int8, warm: 9, fragments: 3, overlap: 2}\n",
        TRAIN "  sync: {type: allreduce, wire: bf16}\n",
        TRAIN "  sync: {type: average, every: 30s}\n",
        "nodes: 4\n" TRAIN "  sync: {type: diloco, quorum: 3, grace: 1500ms}\n",
        "nodes: 4\n" TRAIN "  sync: {type: diloco, quorum: 3}\n",
        "max_replacements: 0\n" TRAIN,
        TRAIN "  sync: auto\n",
        "preload: [torch, torch.distributed]\ncommand: [python3, -u, x.py]\n",
        "only_nodes: [box1, box3]\ncommand: [ls]\n",
        "capture: none\ncommand: [ls]\n",
        "capture: {tensorboard: runs}\ncommand: [ls]\n",
        "capture: {pattern: \"loss (?<loss>\\\\S+)\"}\ncommand: [ls]\n",
        TRAIN "  balance: speed\n",
        TRAIN "  shard: optimizer\n",
        TRAIN "  shard: optimizer\n  snapshot: {dir: o, moments: parts}\n",
        TRAIN "  measure: 4s\n",
        TRAIN "  reproducible: none\n  sync: auto\n",
        IDX "  optimizer: {type: adamw, lr: 0.1, eps: 1e-6}\n  eval: {every: never, batches: 3}\n",
        MLP "  optimizer: {type: muon, clip: 1.0, adamw: {lr: 2.0e-3, betas: [0.9, 0.99]}}\n",
        GPT "  data: {type: text, path: a b, split: 0.8, symbols: byte}\n" RUN,
        GPT "  data: {type: text, path: a, val_path: b}\n  epochs: 2\n  global_batch: 8\n"
            "  reproducible: world\n  shards: 16\n  init_from: x\n  precision: bf16\n  recompute: block\n"
            "  snapshot: {dir: o, keep_best: 1}\n",
        "name: n\nnodes: 1:3\nprocs_per_node: auto\ngpus_per_proc: all\ndevice: cuda\nmax_restarts: 7\nrestart_on: any\n"
        "idle: {gpu: 7 %, after: 20m, then: stop}\n"
        "priority: -2\ntime_limit: 1h\nlease: 5s\ngrace: 0s\nstall_timeout: 90s\nworkdir: /tmp\nrole: \"a "
        "\\\"b\\\"\"\n"
        "run_id: x/1\nlogs: private\nstore: launcher\nvirtual_local_rank: true\n"
        "env: {A: \"x y\", B: \"\"}\ncommand: [sh, -c, \"echo \\\"$RANK\\\"; # é\\n\\N\\L\", \"\"]\n",
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
        CLEANUP(job_release) struct job_spec one, two;
        CLEANUP(free_text) char *first = NULL;
        CLEANUP(free_text) char *second = NULL;

        accept_job(&one, texts[i]);
        first = job_print(&one);
        accept_job(&two, first);
        second = job_print(&two);
        assert_string_equal(first, second);
        assert_int_equal(two.stall_timeout_ms, one.stall_timeout_ms);
        assert_int_equal(two.store, one.store);
        assert_int_equal(two.train.recompute, one.train.recompute);
        assert_int_equal(two.train.snapshot.moments, one.train.snapshot.moments);
        assert_true(two.idle.gpu == one.idle.gpu && two.idle.after_ms == one.idle.after_ms &&
                    two.idle.then == one.idle.then);
        assert_int_equal(two.max_restarts, one.max_restarts);
        assert_int_equal(two.restart_on, one.restart_on);
    }
}

static void printed_command_is_short(void **state)
{
    CLEANUP(job_release) struct job_spec spec;
    CLEANUP(free_text) char *text = NULL;

    (void)state;
    job_defaults(&spec, JOB_COMMAND);
    spec.command = strv_append(NULL, "true");
    spec.nodes_min = spec.nodes_max = 2;
    text = job_print(&spec);
    assert_string_equal(text, "nodes: 2\ncommand:\n  - \"true\"\n");
}

static void names_come_from_the_file_or_the_command(void **state)
{
    static const char text[] = "command: [/usr/bin/my tool.py, x]\n";
    CLEANUP(job_release) struct job_spec spec;
    struct err e = {0};

    (void)state;
    assert_ok(job_parse(&spec, text, strlen(text), "a/kjv.gpt.yaml", &e), &e);
    assert_string_equal(spec.name, "kjv.gpt");
    job_release(&spec);
    assert_ok(job_parse(&spec, text, strlen(text), "job file", &e), &e);
    assert_string_equal(spec.name, "my-tool");
}

/* DDP_EXAMPLES is the folder of the job files that users start from. */
static void examples_parse(void **state)
{
    static const char *const names[] = {"single",  "multi",      "multinode", "fashion-mnist",
                                        "kjv-gpt", "mingpt-ddp", "gpt2-124m"};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        CLEANUP(job_release) struct job_spec spec = {0};
        CLEANUP(free_text) char *path = xasprintf("%s/%s.yaml", DDP_EXAMPLES, names[i]);
        struct conf_doc *doc;
        struct err e = {0};

        assert_ok(conf_open_file(&doc, path, &e), &e);
        assert_ok(job_read(&spec, doc, &e), &e);
        conf_close(doc);
        assert_string_equal(spec.name, names[i]);
        assert_int_equal(spec.kind, JOB_TRAIN);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(command_defaults),
        cmocka_unit_test(train_defaults),
        cmocka_unit_test(muon_keys),
        cmocka_unit_test(all_keys_are_read),
        cmocka_unit_test(every_form),
        cmocka_unit_test(kinds_exclude_each_other),
        cmocka_unit_test(values_out_of_range_are_refused),
        cmocka_unit_test(keys_are_checked),
        cmocka_unit_test(print_round_trip),
        cmocka_unit_test(printed_command_is_short),
        cmocka_unit_test(names_come_from_the_file_or_the_command),
        cmocka_unit_test(examples_parse),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
