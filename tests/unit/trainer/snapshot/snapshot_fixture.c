#include "tests/unit/trainer/snapshot/snapshot_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/file.h"
#include "base/mem.h"

char fixture_dir[64];

static const int64_t shape_a[] = {2, 3}, shape_b[] = {2};
const struct snapshot_tensor fixture_tensors[2] = {{"weight", 2, shape_a, 0, 6}, {"bias", 1, shape_b, 16, 2}};
static const char *const moments[] = {"exp_avg", "exp_avg_sq"};
const struct snapshot_layout fixture_layout = {
    .tensors = fixture_tensors, .tensor_count = 2, .count = 32, .moments = moments, .moment_count = 2};

static const bool own_moments[] = {true, false};
const struct snapshot_layout fixture_apart = {.tensors = fixture_tensors,
                                              .tensor_count = 2,
                                              .count = 32,
                                              .moments = moments,
                                              .own = own_moments,
                                              .moment_count = 2};

int fixture_dir_make(void **state)
{
    (void)state;
    strcpy(fixture_dir, "/tmp/ddp-snapshot-XXXXXX");
    return mkdtemp(fixture_dir) ? 0 : -1;
}

int fixture_dir_remove(void **state)
{
    struct err e;
    (void)state;
    return file_remove_tree(fixture_dir, &e) ? -1 : 0;
}

void fixture_fill(float *state, float from)
{
    for (int i = 0; i < FLOATS; i++)
        state[i] = from + (float)i;
}

struct snapshot_place fixture_place_at(int64_t step, int64_t generation)
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

void fixture_write(const struct snapshot_place *place, bool commit, struct snapshot_files *out)
{
    float state[FLOATS];
    struct err e = {0};
    fixture_fill(state, (float)place->step);
    if (snapshot_write(fixture_dir, &fixture_layout, place, state, NULL, NULL, out, &e))
        fail_msg("%s", e.msg);
    if (commit && snapshot_mark_committed(out, place, &e))
        fail_msg("%s", e.msg);
}

void fixture_same_place(const struct snapshot_place *a, const struct snapshot_place *b)
{
    assert_string_equal(a->cluster, b->cluster);
    assert_memory_equal(&a->job, &b->job,
                        offsetof(struct snapshot_place, judged) - offsetof(struct snapshot_place, job));
    assert_int_equal(a->judged, b->judged);
    assert_true(a->val_loss == b->val_loss && a->best_loss == b->best_loss);
    assert_int_equal(a->best_step, b->best_step);
    assert_int_equal(a->data_bytes, b->data_bytes);
    assert_int_equal(a->dealt, b->dealt);
    assert_true(a->step_samples == b->step_samples && a->dealt_epoch == b->dealt_epoch &&
                a->dealt_position == b->dealt_position && a->piece_count == b->piece_count);
    assert_memory_equal(a->pieces, b->pieces, sizeof(a->pieces));
}

void fixture_same_tensors(const float *a, const float *b)
{
    for (int array = 0; array < 3; array++)
        for (int t = 0; t < 2; t++)
            assert_memory_equal(a + 32 * array + fixture_tensors[t].offset,
                                b + 32 * array + fixture_tensors[t].offset,
                                fixture_tensors[t].count * sizeof(float));
}

bool fixture_file_exists(const char *name)
{
    CLEANUP(free_text) char *path = xasprintf("%s/%s", fixture_dir, name);
    return file_exists(path);
}

static void parts_describe(const struct snapshot_place *place, struct snapshot_part parts[PARTS])
{
    float state[FLOATS];
    for (int r = 0; r < PARTS; r++) {
        fixture_fill(state, (float)(100 * r));
        parts[r] = (struct snapshot_part){.digest = snapshot_part_digest(&fixture_apart, place, state, 5 + r),
                                          .home = r / 2 * 2,
                                          .node = "box"};
    }
}

struct snapshot_place fixture_place_of_parts(int64_t step, int64_t generation, bool own_params)
{
    struct snapshot_place place = fixture_place_at(step, generation);
    place.world_size = place.parts = PARTS;
    place.own_params = own_params;
    place.turn = own_params ? 3 : 0;
    place.turn_steps = own_params ? 11 : 0;
    place.fragments = own_params ? 4 : 0;
    return place;
}

void fixture_write_part(const struct snapshot_place *place, int rank)
{
    float state[FLOATS];
    int64_t bytes = 0;
    struct err e = {0};
    fixture_fill(state, (float)(100 * rank));
    if (snapshot_part_write(fixture_dir, &fixture_apart, place, rank, state, 5 + rank, &bytes, &e))
        fail_msg("%s", e.msg);
    assert_true(bytes > 0);
}

void fixture_write_with_parts(const struct snapshot_place *place, int from, struct snapshot_files *out)
{
    struct snapshot_part parts[PARTS];
    float state[FLOATS], model[32];
    struct err e = {0};
    parts_describe(place, parts);
    fixture_fill(state, 0.0f);
    for (int i = 0; i < 32; i++)
        model[i] = -(float)i;
    for (int r = from; r < PARTS; r++)
        fixture_write_part(place, r);
    if (snapshot_write(fixture_dir, &fixture_apart, place, state, model, parts, out, &e) ||
        snapshot_mark_committed(out, place, &e))
        fail_msg("%s", e.msg);
}
