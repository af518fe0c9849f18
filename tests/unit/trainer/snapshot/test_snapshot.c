/* Tests snapshots: a written snapshot reads back the same, equal runs write equal files, and damage of any
 * kind is an error that names the file, but never a crash or a wrong value. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/buf.h"
#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "tests/unit/trainer/snapshot/snapshot_fixture.h"
#include "trainer/snapshot/run.h"

static void a_written_snapshot_reads_back_the_same(void **state)
{
    struct snapshot_files files = {0};
    struct snapshot_place place = fixture_place_at(12, 1), back;
    float want[FLOATS], got[FLOATS] = {0};
    struct err e = {0};
    (void)state;
    fixture_fill(want, 0.5f);
    assert_int_equal(snapshot_write(fixture_dir, &fixture_layout, &place, want, NULL, NULL, &files, &e),
                     ERR_OK);
    assert_int_equal(snapshot_read_place(files.path, &back, &e), ERR_OK);
    fixture_same_place(&place, &back);
    assert_int_equal(snapshot_read(files.path, &fixture_layout, got, &e), ERR_OK);
    fixture_same_tensors(want, got);
    snapshot_files_release(&files);
}

/* The weight has the first moment only, the bias the second: neither file nor state has room for the others.
 * */
static void a_tensor_may_lack_a_moment(void **state)
{
    enum { COUNT = 32 + 16 + 2 };
    const size_t places[] = {32, SNAPSHOT_NONE, SNAPSHOT_NONE, 48};
    struct snapshot_layout l = fixture_layout, whole = fixture_layout;
    struct snapshot_files files = {0};
    struct snapshot_place place = fixture_place_at(13, 1);
    float want[COUNT], got[COUNT] = {0}, all[FLOATS];
    struct err e = {0};
    (void)state;
    l.places = places;
    l.floats = COUNT;
    for (int i = 0; i < COUNT; i++)
        want[i] = (float)i;
    assert_int_equal(snapshot_floats(&l), COUNT);
    assert_int_equal(snapshot_write(fixture_dir, &l, &place, want, NULL, NULL, &files, &e), ERR_OK);
    assert_int_equal(snapshot_read(files.path, &l, got, &e), ERR_OK);
    for (int i = 0; i < COUNT; i++) {
        bool kept = i < 6 || (i >= 16 && i < 18) || (i >= 32 && i < 38) || i >= 48;
        assert_true(got[i] == (kept ? want[i] : 0.0f));
    }
    assert_int_equal(snapshot_read(files.path, &whole, all, &e), ERR_FAILED_PRECONDITION);
    assert_non_null(strstr(e.msg, " tensors for the job's model and optimizer, got 2"));
    snapshot_files_release(&files);
}

static void values_that_are_not_finite_are_refused(void **state)
{
    static const float bad[] = {NAN, -NAN, INFINITY, -INFINITY};
    struct snapshot_files files = {0};
    struct snapshot_place place = fixture_place_at(12, 1);
    struct snapshot_list list;
    float values[FLOATS];
    struct err e = {0};
    (void)state;
    for (size_t i = 0; i < 8; i++) {
        fixture_fill(values, 0.5f);
        values[i < 4 ? 3 : 32 + 17] = bad[i % 4]; /* in a parameter, or in a moment */
        assert_int_equal(snapshot_write(fixture_dir, &fixture_layout, &place, values, NULL, NULL, &files, &e),
                         ERR_OUT_OF_RANGE);
        assert_non_null(strstr(e.msg, "after step 12"));
    }
    assert_int_equal(snapshot_scan(fixture_dir, &list, &e), ERR_OK);
    assert_int_equal(list.count, 0);
    snapshot_list_release(&list);
    fixture_fill(values, 3.4e38f); /* the largest float */
    values[3] = 1e-45f;
    assert_int_equal(snapshot_write(fixture_dir, &fixture_layout, &place, values, NULL, NULL, &files, &e),
                     ERR_OK);
    snapshot_files_release(&files);
}

static void equal_contents_have_equal_digests(void **state)
{
    struct snapshot_files a = {0}, b = {0};
    struct snapshot_place place = fixture_place_at(10, 1);
    (void)state;
    fixture_write(&place, true, &a);
    fixture_write(&place, false, &b); /* written again over the committed snapshot, as another node's copy */
    assert_string_equal(a.digest, b.digest);
    snapshot_files_release(&a);
    snapshot_files_release(&b);
}

static void same_file(const char *a, const char *b, const char *name)
{
    CLEANUP(buf_release) struct buf one = {0}, other = {0};
    CLEANUP(free_text) char *at_one = xasprintf("%s/%s", a, name);
    CLEANUP(free_text) char *at_other = xasprintf("%s/%s", b, name);
    struct err e = {0};
    assert_int_equal(file_read(at_one, 1 << 20, &one, &e), ERR_OK);
    assert_int_equal(file_read(at_other, 1 << 20, &other, &e), ERR_OK);
    assert_int_equal(one.len, other.len);
    assert_memory_equal(one.data, other.data, one.len);
}

/* Cluster, job and generation differ; the digests that are committed must differ, too. */
static void equal_runs_write_equal_tensors(void **state)
{
    static const struct snapshot_place runs[] = {{.cluster = "here", .job = 7, .generation = 1},
                                                 {.cluster = "there", .job = 7, .generation = 2},
                                                 {.cluster = "here", .job = 123, .generation = 3},
                                                 {.cluster = "here", .job = 7, .generation = 45}};
    struct snapshot_files whole[ARRAY_LEN(runs)] = {0}, shared[ARRAY_LEN(runs)] = {0};
    char *parts[ARRAY_LEN(runs)];
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(runs); i++) {
        struct snapshot_place alike = fixture_place_at(10, runs[i].generation),
                              ranks = fixture_place_of_parts(20, runs[i].generation, true), back;
        struct err e = {0};
        alike.job = ranks.job = runs[i].job;
        memcpy(alike.cluster, runs[i].cluster, sizeof(alike.cluster));
        memcpy(ranks.cluster, runs[i].cluster, sizeof(ranks.cluster));
        fixture_write(&alike, true, &whole[i]);
        fixture_write_with_parts(&ranks, 0, &shared[i]);
        parts[i] = snapshot_parts_dir(fixture_dir, &ranks);
        assert_int_equal(snapshot_read_place(shared[i].path, &back, &e), ERR_OK);
        fixture_same_place(&ranks, &back);
        same_file(whole[0].path, whole[i].path, "model.safetensors");
        same_file(whole[0].path, whole[i].path, "optimizer.safetensors");
        same_file(shared[0].path, shared[i].path, "model.safetensors");
        same_file(shared[0].path, shared[i].path, "shared.safetensors");
        same_file(parts[0], parts[i], "rank-00001.safetensors");
        for (size_t j = 0; j < i; j++) {
            assert_string_not_equal(whole[i].digest, whole[j].digest);
            assert_string_not_equal(shared[i].digest, shared[j].digest);
        }
    }
    for (size_t i = 0; i < ARRAY_LEN(runs); i++) {
        free(parts[i]);
        snapshot_files_release(&whole[i]);
        snapshot_files_release(&shared[i]);
    }
}

/* Of an earlier version: the header of model.safetensors names the run. `run` is inserted into its metadata.
 * */
static void snapshot_make_old(const char *path, const char *run)
{
    static const char after[] = "\"format\":\"pt\",";
    CLEANUP(buf_release) struct buf old = {0}, text = {0};
    CLEANUP(free_text) char *model = xasprintf("%s/model.safetensors", path);
    CLEANUP(free_text) char *run_file = xasprintf("%s/" SNAPSHOT_RUN_FILE, path);
    struct err e = {0};
    uint64_t length;
    assert_int_equal(file_read(model, 1 << 20, &text, &e), ERR_OK);
    memcpy(&length, text.data, sizeof(length));
    char *at = memmem(text.data, text.len, after, strlen(after));
    assert_non_null(at);
    size_t head = (size_t)(at - text.data) + strlen(after);
    length += strlen(run);
    buf_append(&old, &length, sizeof(length));
    buf_append(&old, text.data + sizeof(length), head - sizeof(length));
    buf_append(&old, run, strlen(run));
    buf_append(&old, text.data + head, text.len - head);
    assert_int_equal(file_write_atomic(model, old.data, old.len, 0644, &e), ERR_OK);
    assert_int_equal(unlink(run_file), 0);
}

static void snapshots_of_earlier_versions_name_the_run_in_the_header(void **state)
{
    struct snapshot_files files = {0}, old = {0};
    struct snapshot_place place = fixture_place_at(12, 3), back;
    struct snapshot_list list = {0};
    float want[FLOATS], got[FLOATS] = {0};
    struct err e = {0};
    (void)state;
    fixture_write(&place, false, &files);
    snapshot_make_old(files.path, "\"ddp.cluster\":\"here\",\"ddp.job\":\"7\",\"ddp.generation\":\"3\",");
    assert_int_equal(snapshot_sum(files.path, &old, &e), ERR_OK);
    assert_null(strstr(old.sums, SNAPSHOT_RUN_FILE));
    assert_int_equal(snapshot_mark_committed(&old, &place, &e), ERR_OK);
    assert_int_equal(snapshot_read_place(files.path, &back, &e), ERR_OK);
    fixture_same_place(&place, &back);
    assert_int_equal(snapshot_scan(fixture_dir, &list, &e), ERR_OK);
    assert_int_equal(list.count, 1);
    assert_true(list.items[0].committed);
    assert_string_equal(list.items[0].cluster, "here");
    assert_true(list.items[0].job == 7 && list.items[0].generation == 3 && list.items[0].step == 12);
    fixture_fill(want, (float)place.step);
    assert_int_equal(snapshot_read(files.path, &fixture_layout, got, &e), ERR_OK);
    fixture_same_tensors(want, got);
    snapshot_list_release(&list);
    snapshot_files_release(&files);
    snapshot_files_release(&old);
}

static void samples_that_were_given_back_are_kept(void **state)
{
    struct snapshot_place place = fixture_place_at(12, 3), back;
    struct snapshot_files files = {0};
    struct err e = {0};
    (void)state;
    place.epoch_samples = 2 * SNAPSHOT_PIECES;
    place.dealt = true;
    place.step_samples = 17;
    place.dealt_epoch = 3;
    place.dealt_position = 20;
    fixture_write(&place, true, &files);
    assert_int_equal(snapshot_read_place(files.path, &back, &e), ERR_OK);
    fixture_same_place(&place, &back);
    for (; place.piece_count < SNAPSHOT_PIECES; place.piece_count++)
        place.pieces[place.piece_count] =
            (struct snapshot_piece){2, place.piece_count, 1 + place.piece_count % 3};
    snapshot_files_release(&files);
    fixture_write(&place, true, &files);
    assert_int_equal(snapshot_read_place(files.path, &back, &e), ERR_OK);
    fixture_same_place(&place, &back);
    place.pieces[1].count = place.epoch_samples; /* beyond the epoch */
    snapshot_files_release(&files);
    fixture_write(&place, true, &files);
    assert_int_equal(snapshot_read_place(files.path, &back, &e), ERR_DATA_LOSS);
    assert_non_null(strstr(e.msg, "'ddp.dealt' is damaged"));
    snapshot_files_release(&files);
}

static void a_damaged_run_file_is_noticed(void **state)
{
    static const char *const rows[] = {
        "",
        "{",
        "[]",
        "{\"cluster\":\"here\",\"job\":7}",
        "{\"job\":7,\"generation\":1}",
        "{\"cluster\":\"here\",\"job\":-7,\"generation\":1}",
        ("{\"cluster\":\"0123456789012345678901234567890123456789012345678901234567890123\",\"job\":7,"
         "\"generation\":1}")};
    struct snapshot_place place = fixture_place_at(10, 1), back;
    struct snapshot_files files = {0};
    struct snapshot_list list = {0};
    struct err e = {0};
    (void)state;
    fixture_write(&place, true, &files);
    CLEANUP(free_text) char *path = xasprintf("%s/" SNAPSHOT_RUN_FILE, files.path);
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        assert_int_equal(file_write_atomic(path, rows[i], strlen(rows[i]), 0644, &e), ERR_OK);
        assert_int_equal(snapshot_read_place(files.path, &back, &e), ERR_DATA_LOSS);
        assert_non_null(strstr(e.msg, path));
    }
    /* It is well-formed, but names another job than was committed. */
    static const char other[] = "{\"cluster\":\"here\",\"job\":8,\"generation\":1}\n";
    assert_int_equal(file_write_atomic(path, other, strlen(other), 0644, &e), ERR_OK);
    assert_int_equal(snapshot_scan(fixture_dir, &list, &e), ERR_OK);
    assert_int_equal(list.count, 0);
    snapshot_list_release(&list);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(snapshot_read_place(files.path, &back, &e), ERR_NOT_FOUND);
    assert_non_null(strstr(e.msg, path));
    assert_int_equal(snapshot_scan(fixture_dir, &list, &e), ERR_OK);
    assert_int_equal(list.count, 0);
    assert_non_null(strstr(list.unusable[0], path));
    snapshot_list_release(&list);
    snapshot_files_release(&files);
}

static void every_truncation_names_the_file(void **state)
{
    struct snapshot_files files = {0};
    struct snapshot_place place = fixture_place_at(10, 1);
    struct err e = {0};
    float got[FLOATS];
    (void)state;
    fixture_write(&place, true, &files);
    CLEANUP(free_text) char *path = xasprintf("%s/optimizer.safetensors", files.path);
    CLEANUP(buf_release) struct buf whole = {0};
    assert_int_equal(file_read(path, 1 << 20, &whole, &e), ERR_OK);
    for (size_t size = whole.len; size-- > 0;) {
        assert_int_equal(truncate(path, (off_t)size), 0);
        assert_int_equal(snapshot_read(files.path, &fixture_layout, got, &e), ERR_DATA_LOSS);
        assert_non_null(strstr(e.msg, path));
    }
    snapshot_files_release(&files);
}

static void another_shape_names_file_and_tensor(void **state)
{
    static const int64_t other[] = {3, 2};
    const struct snapshot_tensor swapped[] = {{"weight", 2, other, 0, 6}, fixture_tensors[1]};
    const struct snapshot_tensor renamed[] = {fixture_tensors[0],
                                              {"offset", 1, fixture_tensors[1].shape, 16, 2}};
    struct snapshot_layout l = fixture_layout;
    struct snapshot_files files = {0};
    struct snapshot_place place = fixture_place_at(10, 1);
    struct err e = {0};
    float got[FLOATS];
    (void)state;
    fixture_write(&place, true, &files);
    l.tensors = swapped;
    assert_int_equal(snapshot_read(files.path, &l, got, &e), ERR_FAILED_PRECONDITION);
    assert_non_null(strstr(e.msg, "model.safetensors: tensor 'weight': expected shape (3,2), got (2,3)"));
    l.tensors = renamed;
    assert_int_equal(snapshot_read(files.path, &l, got, &e), ERR_NOT_FOUND);
    assert_non_null(strstr(e.msg, "model.safetensors: tensor 'offset' is missing"));
    l = fixture_layout;
    l.moment_count = 1; /* another optimizer */
    assert_int_equal(snapshot_read(files.path, &l, got, &e), ERR_FAILED_PRECONDITION);
    assert_non_null(strstr(e.msg, "for the job's model and optimizer, got 4"));
    snapshot_files_release(&files);
}

/* Writes as `from` and reads as `to`. Returns the error's message. */
static const char *write_and_read(const struct snapshot_layout *from, const struct snapshot_layout *to,
                                  float got[FLOATS])
{
    static struct err e;
    static int64_t step;
    struct snapshot_files files = {0};
    struct snapshot_place place = fixture_place_at(++step, 1);
    float state[FLOATS];
    e = (struct err){0};
    fixture_fill(state, 1.0f);
    fixture_fill(got, 1000.0f);
    assert_int_equal(snapshot_write(fixture_dir, from, &place, state, NULL, NULL, &files, &e), ERR_OK);
    enum err_code code = snapshot_read(files.path, to, got, &e);
    assert_int_equal(code, e.code);
    snapshot_files_release(&files);
    return e.msg;
}

/* exp_avg_sq is optional. */
static void optional_moments_may_be_missing_or_surplus(void **state)
{
    static const char *const optional[] = {"momentum", "exp_avg_sq", NULL};
    static const bool second[] = {false, true}, first[] = {true, false};
    struct snapshot_layout both = fixture_layout, one = fixture_layout, none = fixture_layout,
                           unused = fixture_layout, other = fixture_layout;
    const struct snapshot_layout *with[] = {&both}, *without[] = {&one, &unused};
    const size_t half[] = {32, 48, 64, SNAPSHOT_NONE};
    float got[FLOATS];
    (void)state;
    both.optional = one.optional = none.optional = unused.optional = other.optional = optional;
    one.moment_count = 1;
    none.moment_count = 0;
    unused.unused = second;
    other.unused = first;
    for (size_t i = 0; i < ARRAY_LEN(without); i++) {
        assert_string_equal(write_and_read(without[i], with[0], got), "");
        for (int k = 0; k < 6; k++)
            assert_true(got[k] == 1.0f + (float)k && got[32 + k] == 33.0f + (float)k && got[64 + k] == 0.0f);
        assert_string_equal(write_and_read(with[0], without[i], got), "");
        assert_true(got[33] == 34.0f && got[65] == 1065.0f);
    }
    assert_string_equal(write_and_read(&both, &both, got), "");
    assert_true(got[65] == 66.0f);

    /* Any other difference is an error. */
    assert_non_null(
        strstr(write_and_read(&both, &other, got),
               "optimizer.safetensors: expected 0 tensors for the job's model and optimizer, got 2"));
    assert_non_null(strstr(write_and_read(&other, &both, got), "expected 2 tensors"));
    assert_non_null(strstr(write_and_read(&none, &both, got), "optimizer.safetensors"));
    other = both;
    other.places = half; /* of the weight alone */
    other.floats = FLOATS;
    assert_non_null(strstr(write_and_read(&other, &both, got), "expected 2 tensors"));
}

static void a_file_of_optional_moments_may_be_missing(void **state)
{
    static const char *const optional[] = {"exp_avg", "exp_avg_sq", NULL};
    struct snapshot_layout both = fixture_layout, none = fixture_layout;
    float got[FLOATS];
    (void)state;
    both.optional = none.optional = optional;
    none.moment_count = 0;
    assert_string_equal(write_and_read(&none, &both, got), "");
    assert_true(got[1] == 2.0f && got[33] == 0.0f && got[65] == 0.0f);
    assert_string_equal(write_and_read(&both, &none, got), "");
}

static void validation_loss_and_data_digest_are_kept(void **state)
{
    struct snapshot_place place = fixture_place_at(12, 1), back;
    struct snapshot_files f = {0};
    struct err e = {0};
    (void)state;
    place.judged = true;
    place.val_loss = 1.0 / 3.0;
    place.best_step = 7;
    place.best_loss = 0.1;
    place.data_bytes = 4404412;
    place.data_digest = UINT64_MAX - 5;
    fixture_write(&place, true, &f);
    assert_int_equal(snapshot_read_place(f.path, &back, &e), ERR_OK);
    assert_true(back.judged && back.val_loss == place.val_loss);
    assert_true(back.best_step == 7 && back.best_loss == 0.1);
    assert_true(back.data_bytes == 4404412 && back.data_digest == UINT64_MAX - 5);
    snapshot_files_release(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SNAPSHOT_TEST(a_written_snapshot_reads_back_the_same),
        SNAPSHOT_TEST(a_tensor_may_lack_a_moment),
        SNAPSHOT_TEST(optional_moments_may_be_missing_or_surplus),
        SNAPSHOT_TEST(a_file_of_optional_moments_may_be_missing),
        SNAPSHOT_TEST(values_that_are_not_finite_are_refused),
        SNAPSHOT_TEST(equal_contents_have_equal_digests),
        SNAPSHOT_TEST(equal_runs_write_equal_tensors),
        SNAPSHOT_TEST(snapshots_of_earlier_versions_name_the_run_in_the_header),
        SNAPSHOT_TEST(samples_that_were_given_back_are_kept),
        SNAPSHOT_TEST(a_damaged_run_file_is_noticed),
        SNAPSHOT_TEST(every_truncation_names_the_file),
        SNAPSHOT_TEST(another_shape_names_file_and_tensor),
        SNAPSHOT_TEST(validation_loss_and_data_digest_are_kept),
    };
    log_init("test_snapshot", LOG_ERROR);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
