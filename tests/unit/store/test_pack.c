#include "tests/unit/base/check.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "store/pack.h"
#include "tests/unit/store/store_test.h"

static void fill_records(struct records *r)
{
    struct job_record job = sample_job(7);
    struct generation_record g = sample_generation(7, 2);
    struct rank_record rank = sample_rank(7, 2, 0);
    struct spawn_record spawn = sample_spawn(7, 5);
    char *env[] = {T("A=1"), T("B="), NULL};

    *r = (struct records){0};
    job.env = env;
    job.reason = NULL;
    job.started_ms = -5;
    job.state = JOB_STOPPING;
    r->jobs = xcalloc(1, sizeof *r->jobs);
    r->generations = xcalloc(1, sizeof *r->generations);
    r->ranks = xcalloc(1, sizeof *r->ranks);
    r->spawns = xcalloc(1, sizeof *r->spawns);
    job_record_copy(&r->jobs[r->job_count++], &job);
    generation_record_copy(&r->generations[r->generation_count++], &g);
    rank_record_copy(&r->ranks[r->rank_count++], &rank);
    spawn_record_copy(&r->spawns[r->spawn_count++], &spawn);
}

static void records_survive_a_round_trip(void **state)
{
    CLEANUP(records_release) struct records r = {0}, back = {0};
    CLEANUP(buf_release) struct buf packed = {0}, again = {0};
    struct err e;

    (void)state;
    fill_records(&r);
    pack_records(&packed, &r);
    assert_ok(pack_read(&back, packed.data, packed.len, &e), &e);
    assert_int_equal(back.job_count, 1);
    assert_int_equal(back.jobs[0].id, 7);
    assert_int_equal(back.jobs[0].started_ms, -5);
    assert_int_equal(back.jobs[0].state, JOB_STOPPING);
    assert_null(back.jobs[0].reason);
    assert_string_equal(back.jobs[0].env[1], "B=");
    assert_null(back.jobs[0].env[2]);
    assert_memory_equal(back.spawns[0].token, r.spawns[0].token, 32);
    pack_records(&again, &back);
    assert_int_equal(again.len, packed.len);
    assert_memory_equal(again.data, packed.data, packed.len);
}

static void unknown_columns_are_skipped(void **state)
{
    CLEANUP(records_release) struct records r = {0}, back = {0};
    CLEANUP(buf_release) struct buf packed = {0};
    struct err e;

    (void)state;
    fill_records(&r);
    pack_records(&packed, &r);
    char *name = memmem(packed.data, packed.len, "restarts_used", 13);
    assert_non_null(name);
    memcpy(name, "restarts_uzed", 13);
    r.jobs[0].restarts_used = 3;
    assert_ok(pack_read(&back, packed.data, packed.len, &e), &e);
    assert_int_equal(back.jobs[0].restarts_used, 0);
    assert_string_equal(back.jobs[0].job_file, r.jobs[0].job_file);
}

static void truncated_and_damaged_packs_are_refused(void **state)
{
    CLEANUP(records_release) struct records r = {0};
    CLEANUP(buf_release) struct buf packed = {0};
    struct err e;

    (void)state;
    fill_records(&r);
    pack_records(&packed, &r);
    for (size_t i = 0; i < packed.len; i++) {
        CLEANUP(records_release) struct records back = {0};
        char *cut =
            xmemdup(packed.data, i + 1); /* its own allocation: AddressSanitizer sees reads past the end */
        assert_int_equal(pack_read(&back, cut, i, &e), ERR_DATA_LOSS);
        free(cut);
    }
    /* A changed byte may still give valid records, so only AddressSanitizer judges these reads. */
    for (size_t i = 0; i < packed.len; i++) {
        CLEANUP(records_release) struct records back = {0};
        packed.data[i] ^= 0x55;
        (void)!pack_read(&back, packed.data, packed.len, &e);
        packed.data[i] ^= 0x55;
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(records_survive_a_round_trip),
        cmocka_unit_test(unknown_columns_are_skipped),
        cmocka_unit_test(truncated_and_damaged_packs_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
