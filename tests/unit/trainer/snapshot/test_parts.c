/* Tests parts: what each rank has of its own in a snapshot, where ranks differ. */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "tests/unit/trainer/snapshot/snapshot_fixture.h"

static void a_part_holds_the_ranks_own_values(void **state)
{
    struct err e = {0};
    (void)state;
    for (int own_params = 0; own_params < 2; own_params++) {
        struct snapshot_place place = fixture_place_of_parts(12, 1, own_params), back;
        struct snapshot_files files = {0};
        struct snapshot_part *parts = NULL;
        float got[FLOATS] = {0}, want[FLOATS];
        int64_t samples = 0;
        struct snapshot_behind behind;
        fixture_write_with_parts(&place, 0, &files);
        assert_int_equal(snapshot_read_place(files.path, &back, &e), ERR_OK);
        fixture_same_place(&place, &back);
        assert_int_equal(snapshot_read(files.path, &fixture_apart, got, &e), ERR_OK);
        assert_true(got[1] == -1.0f);  /* the model, not this rank's parameters */
        assert_true(got[32] == 0.0f);  /* its own moment is in the parts */
        assert_true(got[64] == 64.0f); /* the shared one */
        assert_int_equal(snapshot_parts_read(files.path, &place, &parts, &e), ERR_OK);
        for (int r = 0; r < PARTS; r++) {
            assert_int_equal(snapshot_part_read(fixture_dir, &fixture_apart, &place, r, &parts[r], got,
                                                &samples, &behind, &e),
                             ERR_OK);
            assert_int_equal(behind.steps, 0);
            fixture_fill(want, (float)(100 * r));
            assert_int_equal(samples, 5 + r);
            assert_true(got[33] == want[33]);
            assert_true(got[64] == 64.0f);
            assert_true(own_params ? got[1] == want[1] : got[1] == -1.0f);
        }
        parts[1].digest ^= 1;
        assert_int_equal(
            snapshot_part_read(fixture_dir, &fixture_apart, &place, 1, &parts[1], got, &samples, &behind, &e),
            ERR_DATA_LOSS);
        assert_non_null(strstr(e.msg, "rank-00001.safetensors"));
        free(parts);
        snapshot_files_release(&files);
    }
}

/* The digest covers that place, so a part whose header was changed counts as damaged. */
static void a_part_holds_the_place_of_a_rank_that_is_behind(void **state)
{
    struct snapshot_place place = fixture_place_of_parts(12, 1, true);
    struct snapshot_behind behind = {0};
    struct snapshot_part part = {.node = "box"}, other = {.node = "box"};
    float all[FLOATS], got[FLOATS] = {0};
    int64_t samples = 0, bytes = 0;
    struct err e = {0};
    (void)state;
    fixture_fill(all, 7.0f);
    other.digest = snapshot_part_digest(&fixture_apart, &place, all, 5);
    place.behind = (struct snapshot_behind){.steps = 9, .epoch = 1, .position = 30, .samples = 130};
    part.digest = snapshot_part_digest(&fixture_apart, &place, all, 5);
    assert_int_equal(snapshot_part_write(fixture_dir, &fixture_apart, &place, 1, all, 5, &bytes, &e), ERR_OK);
    assert_int_equal(
        snapshot_part_read(fixture_dir, &fixture_apart, &place, 1, &part, got, &samples, &behind, &e),
        ERR_OK);
    assert_memory_equal(&behind, &place.behind, sizeof(behind));
    assert_int_equal(samples, 5);
    assert_int_equal(
        snapshot_part_read(fixture_dir, &fixture_apart, &place, 1, &other, got, &samples, &behind, &e),
        ERR_DATA_LOSS);
}

/* A snapshot of an earlier version: all that a rank has lies in the snapshot's directory. */
static void parts_of_earlier_versions_can_be_read(void **state)
{
    struct snapshot_place place = fixture_place_of_parts(12, 1, true);
    struct snapshot_files files = {0};
    struct snapshot_part *parts = NULL;
    float all[FLOATS], got[FLOATS] = {0};
    int64_t samples = 0;
    struct err e = {0};
    (void)state;
    fixture_fill(all, 7.0f);
    assert_int_equal(snapshot_write(fixture_dir, &fixture_layout, &place, all, NULL, NULL, &files, &e),
                     ERR_OK);
    assert_int_equal(snapshot_part_write(fixture_dir, &fixture_layout, &place, 2, all, 9, &samples, &e),
                     ERR_OK);
    CLEANUP(free_text) char *parts_dir = snapshot_parts_dir(fixture_dir, &place);
    CLEANUP(free_text) char *from = xasprintf("%s/rank-00002.safetensors", parts_dir);
    CLEANUP(free_text) char *to = xasprintf("%s/rank-00002.safetensors", files.path);
    assert_int_equal(rename(from, to), 0);
    assert_int_equal(snapshot_parts_read(files.path, &place, &parts, &e), ERR_OK);
    assert_null(parts);
    assert_int_equal(snapshot_read(files.path, &fixture_apart, got, &e), ERR_OK);
    fixture_same_tensors(all, got);
    memset(got, 0, sizeof(got));
    assert_int_equal(snapshot_read_part(files.path, &fixture_apart, 2, got, &samples, &e), ERR_OK);
    fixture_same_tensors(all, got);
    assert_int_equal(samples, 9);
    snapshot_files_release(&files);
}

static size_t count_usable(void)
{
    struct snapshot_list list = {0};
    struct err e = {0};
    assert_int_equal(snapshot_scan(fixture_dir, &list, &e), ERR_OK);
    size_t count = list.count;
    snapshot_list_release(&list);
    return count;
}

static void a_directory_without_its_parts_offers_nothing(void **state)
{
    struct snapshot_place place = fixture_place_of_parts(12, 1, false);
    struct snapshot_files files = {0};
    struct err e = {0};
    struct stat st;
    (void)state;
    CLEANUP(free_text) char *parts_dir = snapshot_parts_dir(fixture_dir, &place);
    CLEANUP(free_text) char *second = xasprintf("%s/rank-00001.safetensors", parts_dir);
    fixture_write_with_parts(&place, PARTS, &files);
    assert_int_equal(count_usable(), 0); /* none at all */
    fixture_write_part(&place, 2);
    assert_int_equal(count_usable(), 1); /* the other node: it has the parts of its ranks */
    assert_int_equal(file_remove_tree(parts_dir, &e), ERR_OK);
    fixture_write_part(&place, 0);
    assert_int_equal(count_usable(), 0); /* rank 1 has written into the same directory */
    fixture_write_part(&place, 1);
    assert_int_equal(count_usable(), 1);
    CLEANUP(close_fd) int fd = open(second, O_WRONLY | O_CLOEXEC);
    assert_int_equal(fstat(fd, &st), 0);
    assert_int_equal(pwrite(fd, "\x55", 1, st.st_size - 1), 1);
    assert_int_equal(count_usable(), 0);
    snapshot_files_release(&files);
}

/* Trainers write floats only: no other type may reach the check of the digest, whose buffer has no room for it. */
static void parts_of_other_types_are_refused(void **state)
{
    static const char *const types[] = {"F16", "BF16", "I32"};
    struct snapshot_place place = fixture_place_of_parts(12, 1, false);
    struct snapshot_files files = {0};
    (void)state;
    fixture_write_with_parts(&place, 0, &files);
    CLEANUP(free_text) char *at = snapshot_parts_dir(fixture_dir, &place);
    CLEANUP(free_text) char *path = xasprintf("%s/rank-00001.safetensors", at);
    for (size_t i = 0; i < ARRAY_LEN(types); i++) {
        struct snapshot_list list = {0};
        struct err e = {0};
        CLEANUP(buf_release) struct buf file = {0};
        CLEANUP(free_text)
        char *header =
            xasprintf("{\"__metadata__\":{\"ddp.part_samples\":\"6\"},\"bias.exp_avg\":{\"dtype\":\"%s\","
                      "\"shape\":[2],\"data_offsets\":[0,%d]}}",
                      types[i], i < 2 ? 4 : 8);
        uint64_t length = strlen(header);
        buf_append(&file, &length, sizeof(length));
        buf_puts(&file, header);
        buf_append(&file, "\0\0\0\0\0\0\0", i < 2 ? 4 : 8);
        assert_int_equal(file_write_atomic(path, file.data, file.len, 0600, &e), ERR_OK);
        assert_int_equal(snapshot_scan(fixture_dir, &list, &e), ERR_OK);
        assert_int_equal(list.count, 0);
        assert_non_null(
            strstr(list.unusable[0], "rank-00001.safetensors: tensor 'bias.exp_avg' is not of type F32"));
        snapshot_list_release(&list);
    }
    snapshot_files_release(&files);
}

/* Steps 10, 20 and so on. Ranks 0 and 1 wrote their parts on another node. */
static void write_apart(int64_t last)
{
    struct snapshot_files files = {0};
    for (int64_t step = 10; step <= last; step += 10) {
        struct snapshot_place place = fixture_place_of_parts(step, 1, false);
        fixture_write_with_parts(&place, 2, &files);
        snapshot_files_release(&files);
    }
}

/* Another node may have lost its parts of the newest snapshots, so all older ones are offered, too. Four of them are read. */
static void a_snapshot_with_parts_elsewhere_hides_no_older_one(void **state)
{
    struct snapshot_list list = {0};
    struct err e = {0};
    (void)state;
    write_apart(60);
    assert_int_equal(snapshot_scan(fixture_dir, &list, &e), ERR_OK);
    assert_int_equal(list.count, 6);
    for (int i = 0; i < 6; i++) {
        CLEANUP(snapshot_files_release) struct snapshot_files sums = {0};
        assert_int_equal(snapshot_sum(list.items[i].path, &sums, &e), ERR_OK);
        assert_string_equal(list.items[i].digest, sums.digest);
        assert_true(list.items[i].committed);
        assert_int_equal(list.items[i].read, i < SNAPSHOT_READ_MOST);
        assert_int_equal(list.items[i].step, 60 - 10 * i);
        assert_int_equal(list.items[i].parts, PARTS);
        assert_int_equal(strv_len(list.items[i].elsewhere), 1);
        assert_string_equal(list.items[i].elsewhere[0], "box");
    }
    snapshot_list_release(&list);
    struct snapshot_place place = fixture_place_of_parts(40, 1, false);
    fixture_write_part(&place, 0);
    fixture_write_part(&place, 1); /* all parts of step 40 are here: nothing older is needed */
    assert_int_equal(snapshot_scan(fixture_dir, &list, &e), ERR_OK);
    assert_int_equal(list.count, 3);
    assert_int_equal(list.items[2].step, 40);
    assert_null(list.items[2].elsewhere);
    snapshot_list_release(&list);
}

static void at_most_64_snapshots_are_listed(void **state)
{
    struct snapshot_list list = {0};
    struct err e = {0};
    (void)state;
    write_apart(10 * (SNAPSHOT_LIST_MOST + 3));
    assert_int_equal(snapshot_scan(fixture_dir, &list, &e), ERR_OK);
    assert_int_equal(list.count, SNAPSHOT_LIST_MOST);
    assert_int_equal(list.items[SNAPSHOT_LIST_MOST - 1].step, 40);
    snapshot_list_release(&list);
}

/* A snapshot of 1,000 ranks on as many nodes, with names of 60 characters. The part of rank 0 is here. */
static void write_of_many_nodes(int64_t step)
{
    enum { RANKS = 1000 };
    static struct snapshot_part parts[RANKS];
    struct snapshot_files files = {0};
    struct snapshot_place place = fixture_place_of_parts(step, 1, false);
    float all[FLOATS];
    int64_t bytes;
    struct err e = {0};
    place.world_size = place.parts = RANKS;
    fixture_fill(all, 0.0f);
    for (int i = 0; i < RANKS; i++) {
        parts[i] = (struct snapshot_part){.digest = 1, .home = i};
        snprintf(parts[i].node, sizeof(parts[i].node), "n%059d", i);
    }
    parts[0].digest = snapshot_part_digest(&fixture_apart, &place, all, 5);
    assert_int_equal(snapshot_write(fixture_dir, &fixture_apart, &place, all, all, parts, &files, &e),
                     ERR_OK);
    assert_int_equal(snapshot_part_write(fixture_dir, &fixture_apart, &place, 0, all, 5, &bytes, &e), ERR_OK);
    assert_int_equal(snapshot_mark_committed(&files, &place, &e), ERR_OK);
    snapshot_files_release(&files);
}

/* Each names 999 nodes, 60 KB. The four newest are always offered, and others until there are 128 KB of names. */
static void many_names_mean_fewer_snapshots(void **state)
{
    struct snapshot_list list = {0};
    struct err e = {0};
    (void)state;
    write_apart(30);
    for (int64_t step = 40; step <= 60; step += 10)
        write_of_many_nodes(step);
    assert_int_equal(snapshot_scan(fixture_dir, &list, &e), ERR_OK);
    assert_int_equal(list.count, 4);
    assert_int_equal(strv_len(list.items[2].elsewhere), 999);
    assert_int_equal(list.items[3].step, 30);
    snapshot_list_release(&list);
    for (int64_t step = 50; step <= 60; step += 10) {
        CLEANUP(free_text) char *path = xasprintf("%s/step-%d-g1", fixture_dir, (int)step);
        assert_int_equal(file_remove_tree(path, &e), ERR_OK);
    }
    write_of_many_nodes(5);
    write_of_many_nodes(4);
    write_of_many_nodes(3);
    assert_int_equal(snapshot_scan(fixture_dir, &list, &e), ERR_OK);
    assert_int_equal(list.count, 6); /* steps 40 to 10, 5 and 4 */
    assert_int_equal(list.items[5].step, 4);
    snapshot_list_release(&list);
}

/* Returns whether step 10, the oldest of six snapshots, is listed; else *why has what the scan says about it. */
static bool oldest_is_listed(char *why, size_t size)
{
    struct snapshot_list list = {0};
    struct err e = {0};
    assert_int_equal(snapshot_scan(fixture_dir, &list, &e), ERR_OK);
    bool listed = list.count == 6;
    assert_int_equal(list.count, listed ? 6 : 5);
    snprintf(why, size, "%s", list.unusable ? list.unusable[0] : "");
    snapshot_list_release(&list);
    return listed;
}

static void write_bytes(const char *path, const char *bytes, size_t size)
{
    struct err e = {0};
    assert_int_equal(file_write_atomic(path, bytes, size, 0644, &e), ERR_OK);
}

/* An old snapshot is not read, but each of its files must be there, and as long as its header says. */
static void old_snapshots_that_lack_something_are_not_listed(void **state)
{
    static const char *const files[] = {"step-10-g1/model.safetensors", "step-10-g1/shared.safetensors",
                                        "step-10-g1/parts.json", "step-10-g1/run.json",
                                        "parts-step-10-g1-j7/rank-00002.safetensors"};
    struct err e = {0};
    char why[512];
    (void)state;
    write_apart(60);
    for (size_t i = 0; i < ARRAY_LEN(files); i++) {
        CLEANUP(free_text) char *path = xasprintf("%s/%s", fixture_dir, files[i]);
        CLEANUP(free_text) char *away = xasprintf("%s/away", fixture_dir);
        CLEANUP(buf_release) struct buf whole = {0};
        assert_int_equal(rename(path, away), 0);
        assert_false(oldest_is_listed(why, sizeof(why)));
        assert_non_null(strstr(why, "step-10-g1"));
        assert_int_equal(rename(away, path), 0);
        assert_int_equal(file_read(path, 1 << 20, &whole, &e), ERR_OK);
        write_bytes(path, whole.data, whole.len - 1);
        if (strstr(path, ".safetensors"))
            assert_false(oldest_is_listed(why, sizeof(why)));
        write_bytes(path, whole.data, whole.len);
        assert_true(oldest_is_listed(why, sizeof(why)));
    }
    CLEANUP(free_text) char *more = xasprintf("%s/step-10-g1/more.safetensors", fixture_dir);
    write_bytes(more, "", 0);
    assert_false(oldest_is_listed(why, sizeof(why)));
    assert_int_equal(unlink(more), 0);
    CLEANUP(free_text) char *mark = xasprintf("%s/step-10-g1/COMMITTED.json", fixture_dir);
    write_bytes(mark, "{\"files\": {}}", 13);
    assert_false(oldest_is_listed(why, sizeof(why)));
    assert_int_equal(unlink(mark), 0);
    assert_false(oldest_is_listed(why, sizeof(why))); /* it is not committed, and too old to find out more */
    assert_string_equal(why, "");
}

/* A look cannot see a flipped bit. The run that is to load the snapshot finds it, and the next scan reads all files. */
static void an_old_snapshot_that_could_not_be_loaded_is_read(void **state)
{
    static const char *const files[] = {"step-10-g1/model.safetensors",
                                        "parts-step-10-g1-j7/rank-00002.safetensors"};
    struct err e = {0};
    char why[512];
    (void)state;
    write_apart(60);
    for (size_t i = 0; i < ARRAY_LEN(files); i++) {
        CLEANUP(free_text) char *path = xasprintf("%s/%s", fixture_dir, files[i]);
        CLEANUP(buf_release) struct buf whole = {0};
        assert_int_equal(file_read(path, 1 << 20, &whole, &e), ERR_OK);
        whole.data[whole.len - 1] ^= 1;
        write_bytes(path, whole.data, whole.len);
        assert_true(oldest_is_listed(why, sizeof(why)));
        snapshot_note_failure(fixture_dir, "/on/another/node/step-10-g1", "damaged");
        assert_true(fixture_file_exists("step-10-g1/LOAD_FAILED"));
        assert_false(oldest_is_listed(why, sizeof(why)));
        assert_non_null(strstr(why, "damaged"));
        assert_false(oldest_is_listed(why, sizeof(why)));
        whole.data[whole.len - 1] ^= 1; /* it is repaired */
        write_bytes(path, whole.data, whole.len);
        assert_true(oldest_is_listed(why, sizeof(why)));
        assert_false(fixture_file_exists("step-10-g1/LOAD_FAILED"));
    }
    snapshot_note_failure(fixture_dir, "/on/another/node/step-70-g1", "damaged");
    snapshot_note_failure(fixture_dir, NULL, "damaged");
    assert_false(fixture_file_exists("step-70-g1"));
    CLEANUP(free_text) char *path = xasprintf("%s/step-10-g1", fixture_dir);
    struct snapshot_files sums = {0};
    assert_int_equal(snapshot_sum(path, &sums, &e), ERR_OK);
    assert_int_equal(snapshot_check_digest(path, sums.digest, &e), ERR_OK);
    sums.digest[0] ^= 1;
    assert_int_equal(snapshot_check_digest(path, sums.digest, &e), ERR_DATA_LOSS);
    snapshot_files_release(&sums);
}

static bool parts_exist(const struct snapshot_place *place)
{
    return snapshot_part_exists(fixture_dir, place, 2);
}

static void parts_go_with_their_snapshot(void **state)
{
    struct snapshot_place place[4];
    struct snapshot_files files = {0};
    struct err e = {0};
    (void)state;
    for (int i = 0; i < 4; i++) {
        place[i] = fixture_place_of_parts(10 * (i + 1), i < 3 ? 1 : 2, false);
        fixture_write_with_parts(&place[i], 0, &files);
        snapshot_files_release(&files);
    }
    struct snapshot_place lone = fixture_place_of_parts(35, 1, false), other = lone,
                          busy = fixture_place_of_parts(50, 2, false);
    other.job = 8;
    fixture_write_part(&lone, 2);
    fixture_write_part(&other, 2);
    fixture_write_part(&busy, 2);
    assert_int_equal(snapshot_prune(fixture_dir, &place[3], 0, 2, 0, &e), ERR_OK);
    assert_true(parts_exist(&place[3]) && parts_exist(&place[2]));
    assert_false(parts_exist(&place[0]) || parts_exist(&place[1]));
    assert_false(parts_exist(&lone)); /* its shared files were never written, and its generation is over */
    assert_true(parts_exist(&busy));  /* this generation's */
    assert_true(parts_exist(&other)); /* another job's */
    /* Parts stay if an error (here ELOOP) hides whether their shared files are there. */
    CLEANUP(free_text) char *shared = xasprintf("%s/step-35-g1", fixture_dir);
    fixture_write_part(&lone, 2);
    assert_int_equal(symlink(shared, shared), 0);
    assert_int_equal(snapshot_prune(fixture_dir, &place[3], 0, 2, 0, &e), ERR_OK);
    assert_true(parts_exist(&lone));
    assert_int_equal(unlink(shared), 0);
    assert_int_equal(snapshot_set_aside(fixture_dir, &place[3], 1, &e), ERR_OK);
    assert_true(parts_exist(&place[3]));
    assert_false(parts_exist(&place[2]) || parts_exist(&other));
    CLEANUP(free_text) char *aside = xasprintf("%s/set-aside-g1", fixture_dir);
    assert_true(snapshot_part_exists(aside, &place[2], 2));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SNAPSHOT_TEST(a_part_holds_the_ranks_own_values),
        SNAPSHOT_TEST(a_part_holds_the_place_of_a_rank_that_is_behind),
        SNAPSHOT_TEST(parts_of_earlier_versions_can_be_read),
        SNAPSHOT_TEST(a_directory_without_its_parts_offers_nothing),
        SNAPSHOT_TEST(a_snapshot_with_parts_elsewhere_hides_no_older_one),
        SNAPSHOT_TEST(at_most_64_snapshots_are_listed),
        SNAPSHOT_TEST(many_names_mean_fewer_snapshots),
        SNAPSHOT_TEST(old_snapshots_that_lack_something_are_not_listed),
        SNAPSHOT_TEST(an_old_snapshot_that_could_not_be_loaded_is_read),
        SNAPSHOT_TEST(parts_of_other_types_are_refused),
        SNAPSHOT_TEST(parts_go_with_their_snapshot),
    };
    log_init("test_parts", LOG_ERROR);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
