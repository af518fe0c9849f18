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
        fixture_write_with_parts(&place, 0, &files);
        assert_int_equal(snapshot_read_place(files.path, &back, &e), ERR_OK);
        fixture_same_place(&place, &back);
        assert_int_equal(snapshot_read(files.path, &fixture_apart, got, &e), ERR_OK);
        assert_true(got[1] == -1.0f);  /* the model, not this rank's parameters */
        assert_true(got[32] == 0.0f);  /* its own moment is in the parts */
        assert_true(got[64] == 64.0f); /* the shared one */
        assert_int_equal(snapshot_parts_read(files.path, &place, &parts, &e), ERR_OK);
        for (int r = 0; r < PARTS; r++) {
            assert_int_equal(
                snapshot_part_read(fixture_dir, &fixture_apart, &place, r, &parts[r], got, &samples, &e),
                ERR_OK);
            fixture_fill(want, (float)(100 * r));
            assert_int_equal(samples, 5 + r);
            assert_true(got[33] == want[33]);
            assert_true(got[64] == 64.0f);
            assert_true(own_params ? got[1] == want[1] : got[1] == -1.0f);
        }
        parts[1].digest ^= 1;
        assert_int_equal(
            snapshot_part_read(fixture_dir, &fixture_apart, &place, 1, &parts[1], got, &samples, &e),
            ERR_DATA_LOSS);
        assert_non_null(strstr(e.msg, "rank-00001.safetensors"));
        free(parts);
        snapshot_files_release(&files);
    }
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

/* Another node may have lost its parts of the newest snapshot, so older ones are offered, too: four of them
 * are read. */
static void a_snapshot_with_parts_elsewhere_hides_no_older_one(void **state)
{
    struct snapshot_files files = {0};
    struct snapshot_list list = {0};
    struct err e = {0};
    (void)state;
    for (int64_t step = 10; step <= 60; step += 10) {
        struct snapshot_place place = fixture_place_of_parts(step, 1, false);
        fixture_write_with_parts(&place, 2, &files); /* ranks 0 and 1 wrote their parts on another node */
        snapshot_files_release(&files);
    }
    assert_int_equal(snapshot_scan(fixture_dir, &list, &e), ERR_OK);
    assert_int_equal(list.count, 4);
    for (int i = 0; i < 4; i++) {
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
        SNAPSHOT_TEST(parts_of_earlier_versions_can_be_read),
        SNAPSHOT_TEST(a_directory_without_its_parts_offers_nothing),
        SNAPSHOT_TEST(a_snapshot_with_parts_elsewhere_hides_no_older_one),
        SNAPSHOT_TEST(parts_of_other_types_are_refused),
        SNAPSHOT_TEST(parts_go_with_their_snapshot),
    };
    log_init("test_parts", LOG_ERROR);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
