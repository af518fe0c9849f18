/* Tests snapshots: a written snapshot reads back the same; damage of any kind is an error or a missing offer,
 * but never a crash or a wrong value; only committed snapshots are counted and kept; the saver does not delay
 * steps. */
#include <fcntl.h>
#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "trainer/snapshot/parts.h"
#include "trainer/snapshot/run.h"
#include "trainer/snapshot/safetensors.h"
#include "trainer/snapshot/saver.h"
#include "trainer/snapshot/snapshot.h"

static char dir[64];
static const int64_t shape_a[] = {2, 3}, shape_b[] = {2};
static const struct snapshot_tensor tensors[] = {{"weight", 2, shape_a, 0, 6}, {"bias", 1, shape_b, 16, 2}};
static const char *const moments[] = {"exp_avg", "exp_avg_sq"};
static const struct snapshot_layout layout = {
    .tensors = tensors, .tensor_count = 2, .count = 32, .moments = moments, .moment_count = 2};
#define FLOATS (32 * 3)

static int make_dir(void **state)
{
    (void)state;
    strcpy(dir, "/tmp/ddp-snapshot-XXXXXX");
    return mkdtemp(dir) ? 0 : -1;
}

static int remove_dir(void **state)
{
    struct err e;
    (void)state;
    return file_remove_tree(dir, &e) ? -1 : 0;
}

static void fill(float *state, float from)
{
    for (int i = 0; i < FLOATS; i++)
        state[i] = from + (float)i;
}

static struct snapshot_place place_at(int64_t step, int64_t generation)
{
    return (struct snapshot_place){.cluster = "here",
                                   .job = 7,
                                   .generation = generation,
                                   .step = step,
                                   .epoch = 2,
                                   .position = 40,
                                   .seed = 3,
                                   .updates = step};
}

static void write_one(const struct snapshot_place *place, bool commit, struct snapshot_files *out)
{
    float state[FLOATS];
    struct err e = {0};
    fill(state, (float)place->step);
    if (snapshot_write(dir, &layout, place, state, NULL, NULL, out, &e))
        fail_msg("%s", e.msg);
    if (commit && snapshot_mark_committed(out, place, &e))
        fail_msg("%s", e.msg);
}

static void same_place(const struct snapshot_place *a, const struct snapshot_place *b)
{
    assert_string_equal(a->cluster, b->cluster);
    assert_memory_equal(&a->job, &b->job,
                        offsetof(struct snapshot_place, judged) - offsetof(struct snapshot_place, job));
    assert_int_equal(a->judged, b->judged);
    assert_true(a->val_loss == b->val_loss && a->best_loss == b->best_loss);
    assert_int_equal(a->best_step, b->best_step);
    assert_int_equal(a->data_bytes, b->data_bytes);
}

/* Compares tensors only, because the gaps of the flat arrays are not stored. */
static void same_tensors(const float *a, const float *b)
{
    for (int array = 0; array < 3; array++)
        for (int t = 0; t < 2; t++)
            assert_memory_equal(a + 32 * array + tensors[t].offset, b + 32 * array + tensors[t].offset,
                                tensors[t].count * sizeof(float));
}

static void a_written_snapshot_reads_back_the_same(void **state)
{
    struct snapshot_files files = {0};
    struct snapshot_place place = place_at(12, 1), back;
    float want[FLOATS], got[FLOATS] = {0};
    struct err e = {0};
    (void)state;
    fill(want, 0.5f);
    assert_int_equal(snapshot_write(dir, &layout, &place, want, NULL, NULL, &files, &e), ERR_OK);
    assert_int_equal(snapshot_read_place(files.path, &back, &e), ERR_OK);
    same_place(&place, &back);
    assert_int_equal(snapshot_read(files.path, &layout, got, &e), ERR_OK);
    same_tensors(want, got);
    snapshot_files_release(&files);
}

/* The weight has the first moment only, the bias the second: neither file nor state has room for the others. */
static void a_tensor_may_lack_a_moment(void **state)
{
    enum { COUNT = 32 + 16 + 2 };
    const size_t places[] = {32, SNAPSHOT_NONE, SNAPSHOT_NONE, 48};
    struct snapshot_layout l = layout, whole = layout;
    struct snapshot_files files = {0};
    struct snapshot_place place = place_at(13, 1);
    float want[COUNT], got[COUNT] = {0}, all[FLOATS];
    struct err e = {0};
    (void)state;
    l.places = places;
    l.floats = COUNT;
    for (int i = 0; i < COUNT; i++)
        want[i] = (float)i;
    assert_int_equal(snapshot_floats(&l), COUNT);
    assert_int_equal(snapshot_write(dir, &l, &place, want, NULL, NULL, &files, &e), ERR_OK);
    assert_int_equal(snapshot_read(files.path, &l, got, &e), ERR_OK);
    for (int i = 0; i < COUNT; i++) {
        bool kept = i < 6 || (i >= 16 && i < 18) || (i >= 32 && i < 38) || i >= 48;
        assert_true(got[i] == (kept ? want[i] : 0.0f));
    }
    assert_int_equal(snapshot_read(files.path, &whole, all, &e), ERR_FAILED_PRECONDITION);
    assert_non_null(strstr(e.msg, "has 2 tensors, expected "));
    snapshot_files_release(&files);
}

/* ---- parts: moment 0 is each rank's own, moment 1 is shared */

static const bool own_moments[] = {true, false};
static const struct snapshot_layout apart = {.tensors = tensors,
                                             .tensor_count = 2,
                                             .count = 32,
                                             .moments = moments,
                                             .own = own_moments,
                                             .moment_count = 2};
enum { PARTS = 3 };

/* Ranks 0 and 1 share a node, rank 2 has its own. */
static void describe_parts(const struct snapshot_place *place, struct snapshot_part parts[PARTS])
{
    float state[FLOATS];
    for (int r = 0; r < PARTS; r++) {
        fill(state, (float)(100 * r));
        parts[r] = (struct snapshot_part){
            .digest = snapshot_part_digest(&apart, place, state, 5 + r), .home = r / 2 * 2, .node = "box"};
    }
}

static struct snapshot_place place_of_parts(int64_t step, int64_t generation, bool own_params)
{
    struct snapshot_place place = place_at(step, generation);
    place.world_size = place.parts = PARTS;
    place.own_params = own_params;
    return place;
}

static void write_part(const struct snapshot_place *place, int rank)
{
    float state[FLOATS];
    int64_t bytes = 0;
    struct err e = {0};
    fill(state, (float)(100 * rank));
    if (snapshot_part_write(dir, &apart, place, rank, state, 5 + rank, &bytes, &e))
        fail_msg("%s", e.msg);
    assert_true(bytes > 0);
}

/* The shared files, and the parts of ranks `from` and up. */
static void write_with_parts(const struct snapshot_place *place, int from, struct snapshot_files *out)
{
    struct snapshot_part parts[PARTS];
    float state[FLOATS], model[32];
    struct err e = {0};
    describe_parts(place, parts);
    fill(state, 0.0f);
    for (int i = 0; i < 32; i++)
        model[i] = -(float)i;
    for (int r = from; r < PARTS; r++)
        write_part(place, r);
    if (snapshot_write(dir, &apart, place, state, model, parts, out, &e) ||
        snapshot_mark_committed(out, place, &e))
        fail_msg("%s", e.msg);
}

static void a_part_holds_what_is_the_ranks_own(void **state)
{
    struct err e = {0};
    (void)state;
    for (int own_params = 0; own_params < 2; own_params++) {
        struct snapshot_place place = place_of_parts(12, 1, own_params), back;
        struct snapshot_files files = {0};
        struct snapshot_part *parts = NULL;
        float got[FLOATS] = {0}, want[FLOATS];
        int64_t samples = 0;
        write_with_parts(&place, 0, &files);
        assert_int_equal(snapshot_read_place(files.path, &back, &e), ERR_OK);
        same_place(&place, &back);
        assert_int_equal(snapshot_read(files.path, &apart, got, &e), ERR_OK);
        assert_true(got[1] == -1.0f);  /* the model, not this rank's parameters */
        assert_true(got[32] == 0.0f);  /* its own moment is in the parts */
        assert_true(got[64] == 64.0f); /* the shared one */
        assert_int_equal(snapshot_parts_read(files.path, &place, &parts, &e), ERR_OK);
        for (int r = 0; r < PARTS; r++) {
            assert_int_equal(snapshot_part_read(dir, &apart, &place, r, &parts[r], got, &samples, &e),
                             ERR_OK);
            fill(want, (float)(100 * r));
            assert_int_equal(samples, 5 + r);
            assert_true(got[33] == want[33]);
            assert_true(got[64] == 64.0f);
            assert_true(own_params ? got[1] == want[1] : got[1] == -1.0f);
        }
        parts[1].digest ^= 1;
        assert_int_equal(snapshot_part_read(dir, &apart, &place, 1, &parts[1], got, &samples, &e),
                         ERR_DATA_LOSS);
        assert_non_null(strstr(e.msg, "rank-00001.safetensors"));
        free(parts);
        snapshot_files_release(&files);
    }
}

/* A snapshot of an earlier version: all that a rank has lies in the snapshot's directory. */
static void parts_of_earlier_versions_can_be_read(void **state)
{
    struct snapshot_place place = place_of_parts(12, 1, true);
    struct snapshot_files files = {0};
    struct snapshot_part *parts = NULL;
    float all[FLOATS], got[FLOATS] = {0};
    int64_t samples = 0;
    struct err e = {0};
    (void)state;
    fill(all, 7.0f);
    assert_int_equal(snapshot_write(dir, &layout, &place, all, NULL, NULL, &files, &e), ERR_OK);
    assert_int_equal(snapshot_part_write(dir, &layout, &place, 2, all, 9, &samples, &e), ERR_OK);
    CLEANUP(free_text) char *parts_dir = snapshot_parts_dir(dir, &place);
    CLEANUP(free_text) char *from = xasprintf("%s/rank-00002.safetensors", parts_dir);
    CLEANUP(free_text) char *to = xasprintf("%s/rank-00002.safetensors", files.path);
    assert_int_equal(rename(from, to), 0);
    assert_int_equal(snapshot_parts_read(files.path, &place, &parts, &e), ERR_OK);
    assert_null(parts);
    assert_int_equal(snapshot_read(files.path, &apart, got, &e), ERR_OK);
    same_tensors(all, got);
    memset(got, 0, sizeof(got));
    assert_int_equal(snapshot_read_part(files.path, &apart, 2, got, &samples, &e), ERR_OK);
    same_tensors(all, got);
    assert_int_equal(samples, 9);
    snapshot_files_release(&files);
}

static size_t count_usable(void)
{
    struct snapshot_list list = {0};
    struct err e = {0};
    assert_int_equal(snapshot_scan(dir, &list, &e), ERR_OK);
    size_t count = list.count;
    snapshot_list_release(&list);
    return count;
}

static void a_directory_without_its_parts_offers_nothing(void **state)
{
    struct snapshot_place place = place_of_parts(12, 1, false);
    struct snapshot_files files = {0};
    struct err e = {0};
    struct stat st;
    (void)state;
    CLEANUP(free_text) char *parts_dir = snapshot_parts_dir(dir, &place);
    CLEANUP(free_text) char *second = xasprintf("%s/rank-00001.safetensors", parts_dir);
    write_with_parts(&place, PARTS, &files);
    assert_int_equal(count_usable(), 0); /* none at all */
    write_part(&place, 2);
    assert_int_equal(count_usable(), 1); /* the other node: it has the parts of its ranks */
    assert_int_equal(file_remove_tree(parts_dir, &e), ERR_OK);
    write_part(&place, 0);
    assert_int_equal(count_usable(), 0); /* rank 1 has written into the same directory */
    write_part(&place, 1);
    assert_int_equal(count_usable(), 1);
    CLEANUP(close_fd) int fd = open(second, O_WRONLY | O_CLOEXEC);
    assert_int_equal(fstat(fd, &st), 0);
    assert_int_equal(pwrite(fd, "\x55", 1, st.st_size - 1), 1);
    assert_int_equal(count_usable(), 0);
    snapshot_files_release(&files);
}

static bool parts_exist(const struct snapshot_place *place)
{
    return snapshot_part_exists(dir, place, 2);
}

static void parts_go_with_their_snapshot(void **state)
{
    struct snapshot_place place[4];
    struct snapshot_files files = {0};
    struct err e = {0};
    (void)state;
    for (int i = 0; i < 4; i++) {
        place[i] = place_of_parts(10 * (i + 1), i < 3 ? 1 : 2, false);
        write_with_parts(&place[i], 0, &files);
        snapshot_files_release(&files);
    }
    struct snapshot_place lone = place_of_parts(35, 1, false), other = lone,
                          busy = place_of_parts(50, 2, false);
    other.job = 8;
    write_part(&lone, 2);
    write_part(&other, 2);
    write_part(&busy, 2);
    assert_int_equal(snapshot_prune(dir, &place[3], 0, 2, 0, &e), ERR_OK);
    assert_true(parts_exist(&place[3]) && parts_exist(&place[2]));
    assert_false(parts_exist(&place[0]) || parts_exist(&place[1]));
    assert_false(parts_exist(&lone)); /* its shared files were never written, and its generation is over */
    assert_true(parts_exist(&busy));  /* this generation's */
    assert_true(parts_exist(&other)); /* another job's */
    assert_int_equal(snapshot_set_aside(dir, &place[3], 1, &e), ERR_OK);
    assert_true(parts_exist(&place[3]));
    assert_false(parts_exist(&place[2]) || parts_exist(&other));
    CLEANUP(free_text) char *aside = xasprintf("%s/set-aside-g1", dir);
    assert_true(snapshot_part_exists(aside, &place[2], 2));
}

static void values_that_are_not_finite_are_refused(void **state)
{
    static const float bad[] = {NAN, -NAN, INFINITY, -INFINITY};
    struct snapshot_files files = {0};
    struct snapshot_place place = place_at(12, 1);
    struct snapshot_list list;
    float values[FLOATS];
    struct err e = {0};
    (void)state;
    for (size_t i = 0; i < 8; i++) {
        fill(values, 0.5f);
        values[i < 4 ? 3 : 32 + 17] = bad[i % 4]; /* in a parameter, or in a moment */
        assert_int_equal(snapshot_write(dir, &layout, &place, values, NULL, NULL, &files, &e),
                         ERR_OUT_OF_RANGE);
        assert_non_null(strstr(e.msg, "after step 12"));
    }
    assert_int_equal(snapshot_scan(dir, &list, &e), ERR_OK);
    assert_int_equal(list.count, 0);
    snapshot_list_release(&list);
    fill(values, 3.4e38f); /* the largest float */
    values[3] = 1e-45f;
    assert_int_equal(snapshot_write(dir, &layout, &place, values, NULL, NULL, &files, &e), ERR_OK);
    snapshot_files_release(&files);
}

static void scan_finds_which_snapshots_are_committed(void **state)
{
    struct snapshot_files a = {0}, b = {0}, c = {0};
    struct snapshot_place first = place_at(10, 1), second = place_at(20, 1), third = place_at(15, 2);
    struct snapshot_list list = {0};
    struct err e = {0};
    (void)state;
    write_one(&first, true, &a);
    write_one(&second, false, &b);
    write_one(&third, true, &c);
    assert_int_equal(snapshot_scan(dir, &list, &e), ERR_OK);
    assert_int_equal(list.count, 2); /* nobody would choose the first snapshot */
    assert_int_equal(list.items[0].step, 20);
    assert_false(list.items[0].committed);
    assert_string_equal(list.items[0].digest, b.digest);
    assert_int_equal(list.items[1].step, 15);
    assert_true(list.items[1].committed);
    assert_string_equal(list.items[1].cluster, "here");
    assert_int_equal(list.items[1].job, 7);
    snapshot_list_release(&list);
    assert_int_equal(snapshot_scan("/nonexistent/directory", &list, &e), ERR_OK);
    assert_int_equal(list.count, 0);
    snapshot_files_release(&a);
    snapshot_files_release(&b);
    snapshot_files_release(&c);
}

static void one_more(const char *cluster, int64_t job, int64_t step, int64_t generation)
{
    struct snapshot_files files = {0};
    struct snapshot_place place = place_at(step, generation);
    place.job = job;
    snprintf(place.cluster, sizeof(place.cluster), "%s", cluster);
    write_one(&place, true, &files);
    snapshot_files_release(&files);
}

/* The newest snapshots of each job, by step and by generation, are read; if they are damaged, the next
 * ones. */
static void scan_reads_only_snapshots_that_could_be_chosen(void **state)
{
    static const int64_t steps[2][4] = {{50, 40, 35, 30}, {49, 40, 35, 30}};
    CLEANUP(free_text) char *newest = xasprintf("%s/step-50-g3/model.safetensors", dir);
    struct snapshot_list list = {0};
    struct err e = {0};
    struct stat st;
    (void)state;
    one_more("here", 7, 10, 2);
    one_more("here", 7, 20, 4);
    one_more("here", 7, 40, 4);
    one_more("here", 7, 49, 3);
    one_more("here", 7, 50, 3);
    one_more("here", 8, 30, 2); /* another job */
    one_more("there", 7, 35, 1);
    for (int damaged = 0; damaged < 2; damaged++) {
        assert_int_equal(snapshot_scan(dir, &list, &e), ERR_OK);
        assert_int_equal(list.count, 4);
        for (size_t i = 0; i < list.count; i++)
            assert_int_equal(list.items[i].step, steps[damaged][i]);
        snapshot_list_release(&list);
        CLEANUP(close_fd) int fd = open(newest, O_WRONLY | O_CLOEXEC);
        assert_int_equal(fstat(fd, &st), 0);
        assert_int_equal(pwrite(fd, "\x55", 1, st.st_size - 1), 1);
    }
}

/* A file that changed after it was written is not the committed file. */
static void committed_json_names_the_written_bytes(void **state)
{
    struct snapshot_files files = {0};
    struct snapshot_place place = place_at(10, 1);
    struct snapshot_list list = {0};
    struct err e = {0};
    struct stat st;
    (void)state;
    write_one(&place, false, &files);
    CLEANUP(free_text) char *path = xasprintf("%s/model.safetensors", files.path);
    CLEANUP(close_fd) int fd = open(path, O_WRONLY | O_CLOEXEC);
    assert_int_equal(fstat(fd, &st), 0);
    assert_int_equal(pwrite(fd, "\x55", 1, st.st_size - 1), 1);
    assert_int_equal(snapshot_mark_committed(&files, &place, &e), ERR_OK);
    assert_int_equal(snapshot_scan(dir, &list, &e), ERR_OK);
    assert_int_equal(list.count, 0);
    snapshot_list_release(&list);
    snapshot_files_release(&files);
}

static void equal_contents_have_equal_digests(void **state)
{
    struct snapshot_files a = {0}, b = {0};
    struct snapshot_place place = place_at(10, 1);
    (void)state;
    write_one(&place, true, &a);
    write_one(&place, false, &b); /* written again over the committed snapshot, as another node's copy */
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
        struct snapshot_place alike = place_at(10, runs[i].generation),
                              ranks = place_of_parts(20, runs[i].generation, true), back;
        struct err e = {0};
        alike.job = ranks.job = runs[i].job;
        memcpy(alike.cluster, runs[i].cluster, sizeof(alike.cluster));
        memcpy(ranks.cluster, runs[i].cluster, sizeof(ranks.cluster));
        write_one(&alike, true, &whole[i]);
        write_with_parts(&ranks, 0, &shared[i]);
        parts[i] = snapshot_parts_dir(dir, &ranks);
        assert_int_equal(snapshot_read_place(shared[i].path, &back, &e), ERR_OK);
        same_place(&ranks, &back);
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

/* Of an earlier version: the header of model.safetensors names the run. `run` is inserted into its metadata. */
static void make_old_form(const char *path, const char *run)
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
    struct snapshot_place place = place_at(12, 3), back;
    struct snapshot_list list = {0};
    float want[FLOATS], got[FLOATS] = {0};
    struct err e = {0};
    (void)state;
    write_one(&place, false, &files);
    make_old_form(files.path, "\"ddp.cluster\":\"here\",\"ddp.job\":\"7\",\"ddp.generation\":\"3\",");
    assert_int_equal(snapshot_sum(files.path, &old, &e), ERR_OK);
    assert_null(strstr(old.sums, SNAPSHOT_RUN_FILE));
    assert_int_equal(snapshot_mark_committed(&old, &place, &e), ERR_OK);
    assert_int_equal(snapshot_read_place(files.path, &back, &e), ERR_OK);
    same_place(&place, &back);
    assert_int_equal(snapshot_scan(dir, &list, &e), ERR_OK);
    assert_int_equal(list.count, 1);
    assert_true(list.items[0].committed);
    assert_string_equal(list.items[0].cluster, "here");
    assert_true(list.items[0].job == 7 && list.items[0].generation == 3 && list.items[0].step == 12);
    fill(want, (float)place.step);
    assert_int_equal(snapshot_read(files.path, &layout, got, &e), ERR_OK);
    same_tensors(want, got);
    snapshot_list_release(&list);
    snapshot_files_release(&files);
    snapshot_files_release(&old);
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
    struct snapshot_place place = place_at(10, 1), back;
    struct snapshot_files files = {0};
    struct snapshot_list list = {0};
    struct err e = {0};
    (void)state;
    write_one(&place, true, &files);
    CLEANUP(free_text) char *path = xasprintf("%s/" SNAPSHOT_RUN_FILE, files.path);
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        assert_int_equal(file_write_atomic(path, rows[i], strlen(rows[i]), 0644, &e), ERR_OK);
        assert_int_equal(snapshot_read_place(files.path, &back, &e), ERR_DATA_LOSS);
        assert_non_null(strstr(e.msg, path));
    }
    /* It is well-formed, but names another job than was committed. */
    static const char other[] = "{\"cluster\":\"here\",\"job\":8,\"generation\":1}\n";
    assert_int_equal(file_write_atomic(path, other, strlen(other), 0644, &e), ERR_OK);
    assert_int_equal(snapshot_scan(dir, &list, &e), ERR_OK);
    assert_int_equal(list.count, 0);
    snapshot_list_release(&list);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(snapshot_read_place(files.path, &back, &e), ERR_NOT_FOUND);
    assert_non_null(strstr(e.msg, path));
    assert_int_equal(snapshot_scan(dir, &list, &e), ERR_OK);
    assert_int_equal(list.count, 0);
    assert_non_null(strstr(list.unusable[0], path));
    snapshot_list_release(&list);
    snapshot_files_release(&files);
}

/* Flips each bit of each file. The committed snapshot is then no longer offered. A direct read is an error
 * or, if the bit is in the data, gives another value. */
static void every_flipped_bit_is_noticed(void **state)
{
    struct snapshot_files files = {0};
    struct snapshot_place place = place_at(10, 1);
    struct snapshot_list list = {0};
    struct stat st;
    struct err e = {0};
    float got[FLOATS];
    (void)state;
    write_one(&place, true, &files);
    CLEANUP(free_text) char *path = xasprintf("%s/model.safetensors", files.path);
    CLEANUP(buf_release) struct buf whole = {0};
    assert_int_equal(file_read(path, 1 << 20, &whole, &e), ERR_OK);
    assert_int_equal(stat(path, &st), 0);
    CLEANUP(close_fd) int fd = open(path, O_WRONLY | O_CLOEXEC);
    for (size_t at = 0; at < whole.len; at++) {
        char flipped = (char)(whole.data[at] ^ (1 << at % 8));
        assert_int_equal(pwrite(fd, &flipped, 1, (off_t)at), 1);
        assert_int_equal(snapshot_scan(dir, &list, &e), ERR_OK);
        assert_int_equal(list.count, 0);
        snapshot_list_release(&list);
        if (snapshot_read(files.path, &layout, got, &e))
            assert_non_null(strstr(e.msg, path));
        assert_int_equal(pwrite(fd, &whole.data[at], 1, (off_t)at), 1);
    }
    snapshot_files_release(&files);
}

static void every_truncation_names_the_file(void **state)
{
    struct snapshot_files files = {0};
    struct snapshot_place place = place_at(10, 1);
    struct err e = {0};
    float got[FLOATS];
    (void)state;
    write_one(&place, true, &files);
    CLEANUP(free_text) char *path = xasprintf("%s/optimizer.safetensors", files.path);
    CLEANUP(buf_release) struct buf whole = {0};
    assert_int_equal(file_read(path, 1 << 20, &whole, &e), ERR_OK);
    for (size_t size = whole.len; size-- > 0;) {
        assert_int_equal(truncate(path, (off_t)size), 0);
        assert_int_equal(snapshot_read(files.path, &layout, got, &e), ERR_DATA_LOSS);
        assert_non_null(strstr(e.msg, path));
    }
    snapshot_files_release(&files);
}

static void hostile_headers(void **state)
{
    static const struct {
        const char *json, *says;
        uint64_t data;
    } rows[] = {
        {"", "no JSON header", 0},
        {"[1]", "no JSON header", 0},
        {"{\"a\":", "damaged header", 0},
        {"{\"a\":1}", "'a': not an object", 0},
        {"{\"a\":{\"dtype\":\"F16\",\"shape\":[1],\"data_offsets\":[0,4]}}", "not as long as its shape", 4},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[-1],\"data_offsets\":[0,4]}}", "'a': its shape cannot be", 4},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[4294967296,4294967296],\"data_offsets\":[0,4]}}",
         "shape cannot be", 4},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1,1,1,1,1],\"data_offsets\":[0,4]}}", "at most 4 numbers", 4},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,0]}}", "not two rising numbers", 4},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0]}}", "not two rising numbers", 4},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4.5]}}", "not two rising numbers", 4},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}", "past the end", 4},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,4]}}", "not as long as its shape", 4},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},"
         "\"b\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}",
         "overlaps", 4},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,8]}}", "leaves a hole", 8},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}",
         "describes 4 bytes of data, the file has 9", 9},
        {"{\"__metadata__\":{\"a\":1}}", "'a' is not a text", 0},
        {"{\"__metadata__\":[]}", "not an object", 0},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        CLEANUP(free_text) char *path = xasprintf("%s/x.safetensors", dir);
        CLEANUP(buf_release) struct buf file = {0};
        struct safetensors *f = NULL;
        struct err e = {0};
        uint64_t length = strlen(rows[i].json);
        buf_append(&file, &length, 8);
        buf_puts(&file, rows[i].json);
        for (uint64_t j = 0; j < rows[i].data; j++)
            buf_putc(&file, 0);
        assert_int_equal(file_write_atomic(path, file.data, file.len, 0600, &e), ERR_OK);
        assert_int_equal(safetensors_open(&f, path, &e), ERR_DATA_LOSS);
        if (!strstr(e.msg, rows[i].says) || !strstr(e.msg, path))
            fail_msg("row %zu: '%s' does not say '%s'", i, e.msg, rows[i].says);
    }
}

static void a_header_longer_than_the_file(void **state)
{
    static const uint64_t lengths[] = {9, 1 << 20, (uint64_t)1 << 40, UINT64_MAX, UINT64_MAX - 7};
    CLEANUP(free_text) char *path = xasprintf("%s/x.safetensors", dir);
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(lengths); i++) {
        char bytes[16] = {0};
        struct safetensors *f = NULL;
        struct err e = {0};
        memcpy(bytes, &lengths[i], 8);
        assert_int_equal(file_write_atomic(path, bytes, sizeof(bytes), 0600, &e), ERR_OK);
        assert_int_equal(safetensors_open(&f, path, &e), ERR_DATA_LOSS);
        assert_non_null(strstr(e.msg, path));
    }
}

static void another_shape_names_file_and_tensor(void **state)
{
    static const int64_t other[] = {3, 2};
    static const struct snapshot_tensor swapped[] = {{"weight", 2, other, 0, 6}, {"bias", 1, shape_b, 16, 2}};
    static const struct snapshot_tensor renamed[] = {{"weight", 2, shape_a, 0, 6},
                                                     {"offset", 1, shape_b, 16, 2}};
    struct snapshot_layout l = layout;
    struct snapshot_files files = {0};
    struct snapshot_place place = place_at(10, 1);
    struct err e = {0};
    float got[FLOATS];
    (void)state;
    write_one(&place, true, &files);
    l.tensors = swapped;
    assert_int_equal(snapshot_read(files.path, &l, got, &e), ERR_FAILED_PRECONDITION);
    assert_non_null(strstr(e.msg, "model.safetensors: tensor 'weight' has shape (2,3), expected (3,2)"));
    l.tensors = renamed;
    assert_int_equal(snapshot_read(files.path, &l, got, &e), ERR_NOT_FOUND);
    assert_non_null(strstr(e.msg, "model.safetensors: tensor 'offset' is missing"));
    l = layout;
    l.moment_count = 1; /* another optimizer */
    assert_int_equal(snapshot_read(files.path, &l, got, &e), ERR_FAILED_PRECONDITION);
    assert_non_null(strstr(e.msg, "optimizer.safetensors: has 4 tensors"));
    snapshot_files_release(&files);
}

static bool exists(const char *name)
{
    CLEANUP(free_text) char *path = xasprintf("%s/%s", dir, name);
    return file_exists(path);
}

static void prune_counts_committed_ones_of_this_job(void **state)
{
    struct snapshot_files f = {0};
    struct err e = {0};
    (void)state;
    for (int64_t step = 10; step <= 50; step += 10) {
        struct snapshot_place place = place_at(step, 1);
        write_one(&place, step != 40, &f);
        snapshot_files_release(&f);
    }
    struct snapshot_place other = place_at(5, 1), newer = place_at(30, 2);
    other.job = 6;
    write_one(&other, true, &f);
    snapshot_files_release(&f);
    other = place_at(6, 1);
    strcpy(other.cluster, "elsewhere");
    write_one(&other, true, &f);
    snapshot_files_release(&f);
    write_one(&newer, true, &f);
    snapshot_files_release(&f);
    CLEANUP(free_text) char *half = xasprintf("%s/.tmp-step-44-g1-j7", dir);
    CLEANUP(free_text) char *busy = xasprintf("%s/.tmp-step-44-g2-j7", dir);
    assert_int_equal(file_mkdirs(half, 0700, &e), ERR_OK);
    assert_int_equal(file_mkdirs(busy, 0700, &e), ERR_OK);
    assert_int_equal(snapshot_prune(dir, &newer, 0, 2, 0, &e), ERR_OK);
    assert_true(exists("step-30-g2") && exists("step-50-g1")); /* the two newest */
    assert_false(exists("step-10-g1") || exists("step-20-g1") || exists("step-30-g1"));
    assert_false(exists("step-40-g1")); /* never committed, of a generation that is over */
    assert_true(exists("step-5-g1"));   /* of another job */
    assert_true(exists("step-6-g1"));   /* of job 7 of another cluster */
    assert_false(exists(".tmp-step-44-g1-j7"));
    assert_true(exists(".tmp-step-44-g2-j7")); /* of this generation: it may still be written */
}

static void prune_keeps_the_best(void **state)
{
    static const double losses[] = {3.0, 1.5, 1.5, 1.0, 2.0, 4.0, 5.0};
    struct snapshot_files f = {0};
    struct err e = {0};
    struct snapshot_place place = {0};
    (void)state;
    for (int64_t i = 0; i < 7; i++) {
        place = place_at(10 * (i + 1), 1);
        place.judged = i != 3; /* the lowest loss was not measured at this snapshot */
        place.val_loss = losses[i];
        write_one(&place, true, &f);
        snapshot_files_release(&f);
    }
    assert_int_equal(snapshot_prune(dir, &place, 0, 1, 2, &e), ERR_OK);
    assert_true(exists("step-70-g1"));                         /* the newest */
    assert_true(exists("step-20-g1") && exists("step-30-g1")); /* the best */
    assert_false(exists("step-10-g1") || exists("step-40-g1") || exists("step-50-g1"));
    assert_int_equal(snapshot_prune(dir, &place, 0, 1, 1, &e), ERR_OK);
    assert_true(exists("step-30-g1")); /* of equal losses, the newer snapshot stays */
    assert_false(exists("step-20-g1"));
}

/* For a run that starts from scratch after generation 2. */
static void snapshots_from_before_a_start_from_scratch_are_set_aside(void **state)
{
    struct snapshot_files f = {0};
    struct err e = {0};
    struct snapshot_place own = place_at(10, 3), other = place_at(30, 3);
    (void)state;
    for (int64_t generation = 1; generation <= 3; generation++) {
        struct snapshot_place place = place_at(10 * generation, generation);
        write_one(&place, true, &f);
        snapshot_files_release(&f);
    }
    assert_int_equal(snapshot_prune(dir, &own, 2, 1, 0, &e), ERR_OK);
    /* Prune must not remove these. */
    assert_true(exists("step-10-g1") && exists("step-20-g2") && exists("step-30-g3"));
    other.step = 7;
    other.job = 6;
    write_one(&other, true, &f);
    snapshot_files_release(&f);
    assert_int_equal(snapshot_set_aside(dir, &own, 2, &e), ERR_OK);
    assert_true(exists("step-30-g3"));
    assert_false(exists("step-10-g1") || exists("step-20-g2") || exists("step-7-g3"));
    assert_true(exists("set-aside-g2/step-10-g1/COMMITTED.json") && exists("set-aside-g2/step-20-g2"));
    /* The snapshots that it continued do not count any more, either. */
    assert_true(exists("set-aside-g2/step-7-g3"));
    assert_int_equal(snapshot_set_aside(dir, &own, 2, &e), ERR_OK);
}

static void validation_loss_and_data_digest_are_kept(void **state)
{
    struct snapshot_place place = place_at(12, 1), back;
    struct snapshot_files f = {0};
    struct err e = {0};
    (void)state;
    place.judged = true;
    place.val_loss = 1.0 / 3.0;
    place.best_step = 7;
    place.best_loss = 0.1;
    place.data_bytes = 4404412;
    place.data_digest = UINT64_MAX - 5;
    write_one(&place, true, &f);
    assert_int_equal(snapshot_read_place(f.path, &back, &e), ERR_OK);
    assert_true(back.judged && back.val_loss == place.val_loss);
    assert_true(back.best_step == 7 && back.best_loss == 0.1);
    assert_true(back.data_bytes == 4404412 && back.data_digest == UINT64_MAX - 5);
    snapshot_files_release(&f);
}

/* ---- the saver */

struct gate {
    pthread_mutex_t lock;
    pthread_cond_t moved;
    bool open;
    enum err_code answer;
};

static enum err_code commit_when_open(void *arg, const struct snapshot_place *place,
                                      const struct snapshot_files *files, struct err *e)
{
    struct gate *g = arg;
    (void)place, (void)files;
    pthread_mutex_lock(&g->lock);
    while (!g->open)
        pthread_cond_wait(&g->moved, &g->lock);
    pthread_mutex_unlock(&g->lock);
    return g->answer ? err_set(e, g->answer, "another generation is current") : ERR_OK;
}

static void open_gate(struct gate *g)
{
    pthread_mutex_lock(&g->lock);
    g->open = true;
    pthread_cond_broadcast(&g->moved);
    pthread_mutex_unlock(&g->lock);
}

static struct saver *start(struct gate *g, enum err_code answer)
{
    struct saver *s = NULL;
    struct err e = {0};
    *g =
        (struct gate){.lock = PTHREAD_MUTEX_INITIALIZER, .moved = PTHREAD_COND_INITIALIZER, .answer = answer};
    struct saver_config config = {
        .dir = dir, .keep = 2, .writer = true, .layout = &layout, .commit = commit_when_open, .arg = g};
    assert_int_equal(saver_open(&s, &config, &e), ERR_OK);
    return s;
}

static void a_snapshot_counts_only_once_it_is_committed(void **state)
{
    struct gate g;
    struct saver *s = start(&g, ERR_OK);
    struct snapshot_place place = place_at(10, 1), done;
    struct err e = {0};
    (void)state;
    fill(saver_state(s), 1.0f);
    saver_submit(s, &place, 0);
    assert_true(saver_busy(s));
    assert_false(exists("step-10-g1/COMMITTED.json"));
    assert_false(saver_take_result(s, &done, &e));
    open_gate(&g);
    assert_int_equal(saver_wait(s, &e), ERR_OK);
    assert_true(exists("step-10-g1/COMMITTED.json"));
    assert_true(saver_take_result(s, &done, &e));
    assert_int_equal(done.step, 10);
    assert_int_equal(e.code, ERR_OK);
    assert_false(saver_take_result(s, &done, &e));
    saver_close(s);
}

static void a_refused_snapshot_does_not_count(void **state)
{
    struct gate g;
    struct saver *s = start(&g, ERR_ABORTED);
    struct snapshot_place place = place_at(10, 1);
    struct snapshot_list list = {0};
    struct err e = {0};
    (void)state;
    open_gate(&g);
    saver_submit(s, &place, 0);
    assert_int_equal(saver_wait(s, &e), ERR_ABORTED);
    saver_close(s);
    assert_false(exists("step-10-g1/COMMITTED.json"));
    assert_int_equal(snapshot_scan(dir, &list, &e), ERR_OK);
    assert_int_equal(list.count, 1);
    assert_false(list.items[0].committed);
    snapshot_list_release(&list);
}

static void a_directory_that_cannot_be_written_is_an_error(void **state)
{
    struct gate g;
    struct err e = {0};
    struct saver *s;
    struct snapshot_place place = place_at(10, 1);
    char whole[64];
    (void)state;
    strcpy(whole, dir);
    strcat(dir, "/file");
    assert_int_equal(file_write_atomic(dir, "", 0, 0600, &e), ERR_OK);
    s = start(&g, ERR_OK);
    open_gate(&g);
    saver_submit(s, &place, 0);
    assert_int_not_equal(saver_wait(s, &e), ERR_OK);
    assert_non_null(strstr(e.msg, dir));
    saver_close(s);
    strcpy(dir, whole);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_written_snapshot_reads_back_the_same, make_dir, remove_dir),
        cmocka_unit_test_setup_teardown(a_tensor_may_lack_a_moment, make_dir, remove_dir),
        cmocka_unit_test_setup_teardown(values_that_are_not_finite_are_refused, make_dir, remove_dir),
        cmocka_unit_test_setup_teardown(scan_finds_which_snapshots_are_committed, make_dir, remove_dir),
        cmocka_unit_test_setup_teardown(scan_reads_only_snapshots_that_could_be_chosen, make_dir, remove_dir),
        cmocka_unit_test_setup_teardown(committed_json_names_the_written_bytes, make_dir, remove_dir),
        cmocka_unit_test_setup_teardown(a_part_holds_what_is_the_ranks_own, make_dir, remove_dir),
        cmocka_unit_test_setup_teardown(parts_of_earlier_versions_can_be_read, make_dir, remove_dir),
        cmocka_unit_test_setup_teardown(a_directory_without_its_parts_offers_nothing, make_dir, remove_dir),
        cmocka_unit_test_setup_teardown(parts_go_with_their_snapshot, make_dir, remove_dir),
        cmocka_unit_test_setup_teardown(equal_contents_have_equal_digests, make_dir, remove_dir),
        cmocka_unit_test_setup_teardown(equal_runs_write_equal_tensors, make_dir, remove_dir),
        cmocka_unit_test_setup_teardown(snapshots_of_earlier_versions_name_the_run_in_the_header, make_dir,
                                        remove_dir),
        cmocka_unit_test_setup_teardown(a_damaged_run_file_is_noticed, make_dir, remove_dir),
        cmocka_unit_test_setup_teardown(every_flipped_bit_is_noticed, make_dir, remove_dir),
        cmocka_unit_test_setup_teardown(every_truncation_names_the_file, make_dir, remove_dir),
        cmocka_unit_test_setup_teardown(hostile_headers, make_dir, remove_dir),
        cmocka_unit_test_setup_teardown(a_header_longer_than_the_file, make_dir, remove_dir),
        cmocka_unit_test_setup_teardown(another_shape_names_file_and_tensor, make_dir, remove_dir),
        cmocka_unit_test_setup_teardown(prune_counts_committed_ones_of_this_job, make_dir, remove_dir),
        cmocka_unit_test_setup_teardown(prune_keeps_the_best, make_dir, remove_dir),
        cmocka_unit_test_setup_teardown(snapshots_from_before_a_start_from_scratch_are_set_aside, make_dir,
                                        remove_dir),
        cmocka_unit_test_setup_teardown(validation_loss_and_data_digest_are_kept, make_dir, remove_dir),
        cmocka_unit_test_setup_teardown(a_snapshot_counts_only_once_it_is_committed, make_dir, remove_dir),
        cmocka_unit_test_setup_teardown(a_refused_snapshot_does_not_count, make_dir, remove_dir),
        cmocka_unit_test_setup_teardown(a_directory_that_cannot_be_written_is_an_error, make_dir, remove_dir),
    };
    log_init("test_snapshot", LOG_ERROR);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
