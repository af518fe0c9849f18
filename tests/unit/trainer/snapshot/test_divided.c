/* Tests divided moments: each part holds a range of them, and ranks of another division find what they need. */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/random.h"
#include "tests/unit/trainer/snapshot/snapshot_fixture.h"
#include "trainer/snapshot/divided.h"

#define MOMENTS (2 * 32) /* floats of the moments of the fixture's layout, gaps included */

/* The moments of the parameters [first, end) of the flat array, as an optimizer of that part has them: one array after the other. */
static struct snapshot_ranges ranges_between(size_t first, size_t end)
{
    struct snapshot_ranges r = {.floats = 2 * (end - first)};
    for (size_t moment = 0; moment < 2; moment++)
        for (size_t i = 0; i < 2; i++) {
            const struct snapshot_tensor *t = &fixture_tensors[i];
            const size_t lo = first > t->offset ? first : t->offset,
                         hi = end < t->offset + t->count ? end : t->offset + t->count;
            const struct snapshot_range range = {.moment = moment,
                                                 .tensor = i,
                                                 .first = lo - t->offset,
                                                 .count = hi - lo,
                                                 .at = moment * (end - first) + lo - first};
            if (lo < hi)
                divided_add(&r, &range);
        }
    return r;
}

/* The moment of a parameter tells where it is. */
static void ranges_fill(const struct snapshot_ranges *r, float *moments)
{
    for (size_t i = 0; i < r->count; i++)
        for (size_t k = 0; k < r->list[i].count; k++)
            moments[r->list[i].at + k] =
                (float)(1000 * r->list[i].moment + 100 * r->list[i].tensor + r->list[i].first + k);
}

static struct snapshot_place divided_place(int parts)
{
    struct snapshot_place place = fixture_place_at(12, 1);
    place.world_size = place.parts = parts;
    place.divided = true;
    return place;
}

static void part_write(const struct snapshot_place *place, int part, size_t first, size_t end,
                       struct snapshot_part *out)
{
    struct snapshot_ranges ranges = ranges_between(first, end);
    float moments[MOMENTS] = {0};
    int64_t bytes = 0;
    struct err e = {0};
    ranges_fill(&ranges, moments);
    *out = (struct snapshot_part){.digest = snapshot_part_digest_divided(&ranges, moments),
                                  .node = "box",
                                  .first = (int64_t)divided_parameters_before(&fixture_layout, first),
                                  .count = (int64_t)(divided_parameters_before(&fixture_layout, end) -
                                                     divided_parameters_before(&fixture_layout, first))};
    if (snapshot_part_write_divided(fixture_dir, &fixture_layout, place, part, &ranges, moments, &bytes, &e))
        fail_msg("%s", e.msg);
    assert_true(bytes > 0);
    divided_release(&ranges);
}

/* Reads what `need` has of a part. */
static enum err_code part_take(const struct snapshot_place *place, int part, const struct snapshot_part *want,
                               const struct snapshot_ranges *need, float *moments, size_t *taken,
                               struct err *e)
{
    CLEANUP(free_text) char *path = snapshot_part_path(fixture_dir, place, part);
    CLEANUP(divided_close) struct divided_file file;
    const struct snapshot_range *range;
    float data[6];
    if (divided_open(&file, path, &fixture_layout, e))
        return e->code;
    do {
        if (divided_next(&file, want, &range, data, e))
            return e->code;
        *taken += range ? divided_take(need, range, data, moments) : 0;
    } while (range);
    return ERR_OK;
}

/* Where the arrays are cut for so many ranks: anywhere, also within a tensor; some ranks have nothing. */
static void cuts_draw(struct random *random, size_t world, size_t cuts[9])
{
    cuts[0] = 0;
    for (size_t r = 1; r < world; r++)
        cuts[r] = random_u64(random) % 33;
    cuts[world] = 32;
    for (size_t r = 1; r < world; r++) /* in rising order */
        for (size_t k = 1; k + 1 < world; k++)
            if (cuts[k] > cuts[k + 1]) {
                size_t other = cuts[k];
                cuts[k] = cuts[k + 1];
                cuts[k + 1] = other;
            }
}

static void ranks_of_any_number_find_their_moments(void **state)
{
    struct random random = random_stream(4711, 0);
    (void)state;
    for (int run = 0; run < 50; run++) {
        const size_t old = 1 + random_u64(&random) % 8, world = 1 + random_u64(&random) % 8;
        const struct snapshot_place place = divided_place((int)old);
        struct snapshot_part parts[8];
        size_t cuts[9], new_cuts[9];
        struct err e = {0};
        cuts_draw(&random, old, cuts);
        cuts_draw(&random, world, new_cuts);
        for (size_t p = 0; p < old; p++)
            part_write(&place, (int)p, cuts[p], cuts[p + 1], &parts[p]);
        for (size_t r = 0; r < world; r++) {
            struct snapshot_ranges need = ranges_between(new_cuts[r], new_cuts[r + 1]);
            float want[MOMENTS] = {0}, got[MOMENTS] = {0};
            size_t taken = 0;
            ranges_fill(&need, want);
            for (size_t p = 0; p < old; p++)
                assert_int_equal(part_take(&place, (int)p, &parts[p], &need, got, &taken, &e), ERR_OK);
            assert_int_equal(taken, divided_floats(&need));
            assert_memory_equal(want, got, sizeof(want));
            divided_release(&need);
        }
    }
}

static void names_tell_which_floats_a_part_has(void **state)
{
    const struct snapshot_place place = divided_place(2);
    struct safetensors *f = NULL;
    struct snapshot_part parts[2];
    struct err e = {0};
    (void)state;
    part_write(&place, 0, 0, 4, &parts[0]);
    part_write(&place, 1, 4, 32, &parts[1]);
    CLEANUP(free_text) char *path = snapshot_part_path(fixture_dir, &place, 1);
    assert_int_equal(safetensors_open(&f, path, &e), ERR_OK);
    assert_int_equal(f->count, 4);
    assert_non_null(safetensors_find(f, "weight.exp_avg[4:6]"));
    assert_non_null(safetensors_find(f, "bias.exp_avg_sq"));
    safetensors_close(f);
    /* parameters, without the gap behind the first tensor */
    assert_int_equal(parts[0].first, 0);
    assert_int_equal(parts[0].count, 4);
    assert_int_equal(parts[1].first, 4);
    assert_int_equal(parts[1].count, 4);
}

static void a_damaged_part_is_refused(void **state)
{
    const struct snapshot_place place = divided_place(2);
    struct snapshot_ranges need = ranges_between(0, 32);
    struct snapshot_part part;
    float moments[MOMENTS];
    size_t taken = 0;
    struct err e = {0};
    struct stat st;
    (void)state;
    part_write(&place, 1, 4, 32, &part);
    assert_int_equal(part_take(&place, 1, &part, &need, moments, &taken, &e), ERR_OK);
    CLEANUP(free_text) char *path = snapshot_part_path(fixture_dir, &place, 1);
    CLEANUP(close_fd) int fd = open(path, O_WRONLY | O_CLOEXEC);
    assert_int_equal(fstat(fd, &st), 0);
    assert_int_equal(pwrite(fd, "\x55", 1, st.st_size - 2), 1);
    assert_int_equal(part_take(&place, 1, &part, &need, moments, &taken, &e), ERR_DATA_LOSS);
    assert_non_null(strstr(e.msg, "rank-00001.safetensors: not the part that was committed: damaged"));
    divided_release(&need);
}

static const struct {
    const char *header, *says;
    enum err_code code;
} strangers[] = {
    {"\"weight.momentum\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[0,24]}",
     "'weight.momentum' is no moment of the job's model and optimizer", ERR_FAILED_PRECONDITION},
    {"\"other.exp_avg\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[0,24]}",
     "'other.exp_avg' is no moment", ERR_FAILED_PRECONDITION},
    {"\"weight.exp_avg\":{\"dtype\":\"F32\",\"shape\":[3,2],\"data_offsets\":[0,24]}",
     "'weight.exp_avg' is no moment", ERR_FAILED_PRECONDITION},
    {"\"weight.exp_avg[1:7]\":{\"dtype\":\"F32\",\"shape\":[6],\"data_offsets\":[0,24]}",
     "'weight.exp_avg[1:7]' is no moment", ERR_FAILED_PRECONDITION},
    {"\"weight.exp_avg[6:0]\":{\"dtype\":\"F32\",\"shape\":[6],\"data_offsets\":[0,24]}",
     "'weight.exp_avg[6:0]' is no moment", ERR_FAILED_PRECONDITION},
    {"\"weight.exp_avg[0:5]\":{\"dtype\":\"F32\",\"shape\":[6],\"data_offsets\":[0,24]}",
     "'weight.exp_avg[0:5]' is no moment", ERR_FAILED_PRECONDITION},
    {"\"weight.exp_avg[0:6]x\":{\"dtype\":\"F32\",\"shape\":[6],\"data_offsets\":[0,24]}",
     "'weight.exp_avg[0:6]x' is no moment", ERR_FAILED_PRECONDITION},
    {"\"weight.exp_avg[18446744073709551613:3]\":{\"dtype\":\"F32\",\"shape\":[6],\"data_offsets\":[0,24]}",
     ":3]' is no moment", ERR_FAILED_PRECONDITION},
    {"\"weight.exp_avg\":{\"dtype\":\"I32\",\"shape\":[2,3],\"data_offsets\":[0,24]}",
     "'weight.exp_avg' is not of type F32", ERR_DATA_LOSS},
};

static void tensors_of_other_runs_are_refused(void **state)
{
    CLEANUP(free_text) char *path = xasprintf("%s/part.safetensors", fixture_dir);
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(strangers); i++) {
        CLEANUP(buf_release) struct buf file = {0};
        CLEANUP(free_text) char *header = xasprintf("{%s}", strangers[i].header);
        CLEANUP(divided_close) struct divided_file d;
        const uint64_t length = strlen(header);
        const float zeros[6] = {0};
        struct err e = {0};
        buf_append(&file, &length, sizeof(length));
        buf_puts(&file, header);
        buf_append(&file, zeros, sizeof(zeros));
        assert_int_equal(file_write_atomic(path, file.data, file.len, 0600, &e), ERR_OK);
        assert_int_equal(divided_open(&d, path, &fixture_layout, &e), strangers[i].code);
        if (!strstr(e.msg, strangers[i].says))
            fail_msg("expected %s, got %s", strangers[i].says, e.msg);
    }
}

static void write_snapshot(const struct snapshot_place *place, const struct snapshot_part *parts,
                           struct snapshot_files *out)
{
    float model[32] = {1.0f};
    struct err e = {0};
    if (snapshot_write(fixture_dir, &fixture_layout, place, NULL, model, parts, out, &e) ||
        snapshot_mark_committed(out, place, &e))
        fail_msg("%s", e.msg);
}

static void a_divided_snapshot_is_offered_as_such(void **state)
{
    const struct snapshot_place place = divided_place(3);
    CLEANUP(snapshot_files_release) struct snapshot_files files = {0};
    struct snapshot_list list = {0};
    struct snapshot_part parts[3], *read = NULL;
    struct err e = {0};
    (void)state;
    part_write(&place, 0, 0, 4, &parts[0]);
    part_write(&place, 1, 4, 32, &parts[1]);
    part_write(&place, 2, 32, 32, &parts[2]); /* a small model leaves ranks without moments */
    write_snapshot(&place, parts, &files);
    assert_false(fixture_file_exists("step-12-g1/optimizer.safetensors"));
    assert_int_equal(snapshot_parts_read(files.path, &place, &read, &e), ERR_OK);
    for (int r = 0; r < 3; r++) {
        assert_int_equal(read[r].first, parts[r].first);
        assert_int_equal(read[r].count, parts[r].count);
    }
    free(read);
    assert_int_equal(snapshot_scan(fixture_dir, &list, &e), ERR_OK);
    assert_int_equal(list.count, 1);
    assert_true(list.items[0].divided);
    assert_null(list.items[0].elsewhere);
    snapshot_list_release(&list);
    assert_int_equal(snapshot_part_remove(fixture_dir, &place, 1, &e), ERR_OK);
    assert_int_equal(snapshot_scan(fixture_dir, &list, &e), ERR_OK);
    assert_int_equal(list.count, 0);
    snapshot_list_release(&list);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SNAPSHOT_TEST(ranks_of_any_number_find_their_moments),
        SNAPSHOT_TEST(names_tell_which_floats_a_part_has),
        SNAPSHOT_TEST(a_damaged_part_is_refused),
        SNAPSHOT_TEST(tensors_of_other_runs_are_refused),
        SNAPSHOT_TEST(a_divided_snapshot_is_offered_as_such),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
