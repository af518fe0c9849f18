/* Models and their data in a job file. */
#include "tests/unit/base/job/job_texts.h"

#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/mem.h"

static void models_and_data_of_other_shapes_are_refused(void **state)
{
    (void)state;
    refuse_job(
        "train:\n  model: {type: mlp, sizes: [5]}\n",
        "job.yaml:2:29: invalid value for 'sizes': expected a list of 2 to 64 widths, input first, such as [784, 512, 10], got a list of 1 value");
    refuse_job("train:\n  model: {type: mlp, sizes: [5, 0]}\n",
               "job.yaml:2:33: invalid value for 'sizes': expected a number from 1 to 16777216, got '0'");
    refuse_job("train:\n  model: {type: mlp, sizes: [5, a]}\n",
               "job.yaml:2:33: invalid value for 'sizes': expected a whole number, got 'a'");
    refuse_job("train:\n  model: {type: linear, in: 5}\n",
               "job.yaml:2:10: 'model' has no key 'out', which is required");
    refuse_job("train:\n  model: {in: 5}\n",
               "job.yaml:2:10: 'model' has no key 'type', which is required: linear, mlp or gpt");
    refuse_job(
        "train:\n  model: linear\n",
        "job.yaml:2:10: invalid value for 'model': expected a map such as {type: linear}, got 'linear'");
    refuse_job("train:\n  model: {type: cnn}\n",
               "job.yaml:2:17: invalid model type: expected linear, mlp or gpt, got 'cnn'");
    refuse_job("train:\n  model: {type: linear, in: 5, out: 1, activation: relu}\n",
               "job.yaml:2:52: 'activation' is a key of model type mlp and gpt; linear has type, in, out");
    refuse_job("train:\n  model: {type: linear, in: 5, out: 1}\n",
               "job.yaml:2:3: 'train' has no key 'data', which is required");
    refuse_job(TRAIN_HEAD "  data: {type: synthetic, in: 7}\n  batch: 1\n  epochs: 1\n",
               "job.yaml:3:31: the data has 7 inputs, but the model takes 20");
    refuse_job(TRAIN_HEAD "  data: {type: synthetic, out: 7}\n  batch: 1\n  epochs: 1\n",
               "job.yaml:3:32: the data has 7 outputs, but the model gives 1");
}

static void language_model(void **state)
{
    CLEANUP(job_release) struct job_spec s;

    (void)state;
    accept_job(&s, GPT "  data: {type: text, path: in.txt}\n" RUN);
    assert_int_equal(s.train.model.type, MODEL_GPT);
    assert_int_equal(s.train.model.layers, 2);
    assert_int_equal(s.train.model.heads, 4);
    assert_int_equal(s.train.model.width, 64);
    assert_int_equal(s.train.model.context, 32);
    assert_int_equal(s.train.model.vocab, 0);
    assert_int_equal(s.train.model.activation, ACTIVATION_GELU_TANH);
    assert_true(s.train.model.tied);
    assert_true(s.train.model.dropout == 0.0);
    assert_string_equal(s.train.data.path, "in.txt");
    assert_true(s.train.data.split == 0.9);
    assert_int_equal(s.train.data.symbols, SYMBOL_CHARACTER);
    assert_int_equal(s.train.loss, LOSS_CROSS_ENTROPY);
    assert_int_equal(s.train.precision, PRECISION_FP32);
    assert_int_equal(s.train.reproducible, REPRODUCIBLE_LAYOUT);
    assert_int_equal(s.train.threads, 0);
}

static void language_model_keys(void **state)
{
    CLEANUP(job_release) struct job_spec s;

    (void)state;
    accept_job(&s, "train:\n  model: {type: gpt, layers: 2, heads: 4, width: 64, context: 32, vocab: 300, "
                   "dropout: 0.1, activation: gelu, tied: false}\n"
                   "  data: {type: text, path: in.txt, val_path: val.txt, symbols: byte}\n"
                   "  global_batch: 8\n  steps: 3\n  precision: bf16\n  reproducible: world\n  shards: 8\n"
                   "  recompute: block\n  init_from: gpt2\n  snapshot: {dir: out, keep_best: 2}\n");
    assert_int_equal(s.train.model.vocab, 300);
    assert_int_equal(s.train.model.activation, ACTIVATION_GELU);
    assert_false(s.train.model.tied);
    assert_true(s.train.model.dropout == 0.1);
    assert_int_equal(s.train.data.symbols, SYMBOL_BYTE);
    assert_string_equal(s.train.data.val_path, "val.txt");
    assert_int_equal(s.train.precision, PRECISION_BF16);
    assert_int_equal(s.train.recompute, RECOMPUTE_BLOCK);
    assert_int_equal(s.train.reproducible, REPRODUCIBLE_WORLD);
    assert_int_equal(s.train.shards, 8);
    assert_int_equal(s.train.threads, 1); /* because of `reproducible: world` */
    assert_string_equal(s.train.init_from, "gpt2");
    assert_int_equal(s.train.snapshot.keep_best, 2);
}

static void language_model_errors(void **state)
{
    (void)state;
    refuse_job("train:\n  model: {type: gpt, layers: 8}\n",
               "job.yaml:2:10: 'model' has no key 'heads', which is required");
    refuse_job("train:\n  model: {type: gpt, layers: 1, heads: 3, width: 64, context: 8}\n",
               "job.yaml:2:50: invalid value for 'width': expected a multiple of 'heads' (3), got 64");
    refuse_job("train:\n  model: {type: gpt, layers: 1, heads: 1, width: 64, context: 8, activation: relu}\n",
               "job.yaml:2:78: invalid value for 'activation': expected gelu_tanh or gelu, got 'relu'");
    refuse_job(
        "train:\n  model: {type: gpt, layers: 1, heads: 1, width: 64, context: 8, dropout: 1}\n",
        "job.yaml:2:75: invalid value for 'dropout': expected a number of at least 0 and below 1, got '1'");
    refuse_job(
        "train:\n  model: {type: gpt, layers: 1, heads: 1, width: 64, context: 8, dropout: 0.99999999}\n",
        "job.yaml:2:75: invalid value for 'dropout': 0.99999999 is 1 in single precision, in which the job "
        "computes");
    refuse_job(GPT "  data: {type: synthetic}\n" RUN,
               "job.yaml:3:16: a gpt model needs data of type text or tokens");
    refuse_job(TRAIN_HEAD "  data: {type: text, path: x}\n" RUN,
               "job.yaml:2:17: data of type text needs a gpt model");
    refuse_job(
        GPT "  data: {type: tokens, path: x.bin}\n" RUN,
        "job.yaml:2:10: a file of tokens does not contain the size of its vocabulary: add 'vocab' (50257 for GPT-2's tokens)");
    refuse_job(GPT "  data: {type: text}\n" RUN, "job.yaml:3:9: 'data' has no key 'path', which is required");
    refuse_job(GPT "  data: {type: text, path: x, split: 1}\n" RUN,
               "job.yaml:3:38: invalid value for 'split': expected a number above 0 and below 1, got '1'");
    refuse_job(GPT "  data: {type: text, path: x, val_path: y, split: 0.5}\n" RUN,
               "job.yaml:3:51: 'val_path' and 'split' exclude each other: give only one");
    refuse_job(GPT "  data: {type: text, path: x}\n  loss: mse\n" RUN,
               "job.yaml:4:9: 'loss: mse' needs real targets, but data of type text has labels");
    refuse_job(TRAIN "  precision: bf16\n", "job.yaml:6:14: 'precision: bf16' needs a gpt model");
    refuse_job(TRAIN "  recompute: block\n", "job.yaml:6:14: 'recompute: block' needs a gpt model");
    refuse_job(TRAIN "  init_from: dir\n", "job.yaml:6:14: 'init_from' needs a gpt model");
    refuse_job(TRAIN "  precision: fp16\n",
               "job.yaml:6:14: invalid value for 'precision': expected fp32 or bf16, got 'fp16'");
    refuse_job(
        TRAIN "  reproducible: world\n",
        "job.yaml:6:17: 'reproducible: world' needs 'global_batch' in place of 'batch', because the batch must be "
        "the same at every world size");
    refuse_job(
        "nodes: 3\n" GPT
        "  data: {type: text, path: x}\n  global_batch: 8\n  steps: 3\n  reproducible: world\n",
        "job.yaml:3:3: reproducible: world with 4 shards needs a world size that divides the number of shards, got 3");
    refuse_job(TRAIN "  balance: fast\n",
               "job.yaml:6:12: invalid value for 'balance': expected equal or speed, got 'fast'");
    refuse_job(
        TRAIN "  balance: speed\n  sync: {type: average, every: 4}\n",
        "job.yaml:6:12: 'balance: speed' needs 'sync: {type: allreduce}': ranks of different speeds can average with "
        "'sync.every' as a time, such as 30s");
    refuse_job(
        GPT
        "  data: {type: text, path: x}\n  global_batch: 8\n  steps: 3\n  reproducible: world\n  balance: speed\n",
        "job.yaml:7:12: 'balance: speed' and 'reproducible: world' exclude each other: the measured speeds choose which "
        "samples are summed first");
    refuse_job(
        "train:\n  model: {type: linear, in: 20, out: 1}\n  data: {type: synthetic, pad: true}\n  batch: 32\n  steps: 8\n"
        "  balance: speed\n",
        "job.yaml:6:12: 'balance: speed' and 'data.pad' exclude each other: pad gives all ranks equally many samples");
    refuse_job(
        TRAIN "  shard: optimizer\n  sync: {type: diloco, every: 4}\n",
        "job.yaml:6:10: 'shard: optimizer' needs 'sync: {type: allreduce}': with other types each rank has an "
        "optimizer of its own, which cannot be divided");
    refuse_job(
        TRAIN "  shard: optimizer\n  sync: auto\n",
        "job.yaml:6:10: 'shard: optimizer' needs 'sync: {type: allreduce}': with other types each rank has an "
        "optimizer of its own, which cannot be divided");
    refuse_job(TRAIN "  shards: 4\n", "job.yaml:6:11: 'shards' applies to 'reproducible: world' only");
    refuse_job(TRAIN "  shards: 6\n",
               "job.yaml:6:11: invalid value for 'shards': expected a power of two, got '6'");
    refuse_job(TRAIN "  snapshot: {dir: out, keep_best: 1}\n  eval: {every: never}\n",
               "job.yaml:6:35: 'keep_best' needs validation losses: set 'eval.every'");
    refuse_job(TRAIN "  snapshot: {dir: out, moments: whole}\n",
               "job.yaml:6:33: 'snapshot.moments' applies to 'shard: optimizer' only");
    refuse_job(TRAIN "  shard: optimizer\n  snapshot: {dir: out, moments: half}\n",
               "job.yaml:7:33: invalid value for 'moments': expected auto, parts or whole, got 'half'");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(models_and_data_of_other_shapes_are_refused),
        cmocka_unit_test(language_model),
        cmocka_unit_test(language_model_keys),
        cmocka_unit_test(language_model_errors),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
