/* How many secrets the search for a token compares. Anybody can make the coordinator search. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "daemon/coordinator/core/model.h"
#include "tests/unit/coordinator/core/core_fixture.h"

#define SPAWNS 10000
#define SEARCHES 1000

static size_t compared; /* secrets so far */

bool __real_secret_equal(const void *a, const void *b, size_t size);
bool __wrap_secret_equal(const void *a, const void *b, size_t size);

bool __wrap_secret_equal(const void *a, const void *b, size_t size)
{
    compared++;
    return __real_secret_equal(a, b, size);
}

static void make_token(uint8_t token[32], int64_t number)
{
    memset(token, 0, 32);
    memcpy(token, &number, sizeof(number));
}

/* A finished job with this number of dead workers: a coordinator remembers them for days. */
static struct job *add_old_job(struct core *core, int64_t id, int64_t spawns)
{
    const struct job_record record = {.id = id, .state = JOB_SUCCEEDED, .request_id = (char *)"r"};
    struct job *job = core_add_job(core, &record);

    for (int64_t i = 1; i <= spawns; i++) {
        struct spawn_record spawn = {
            .job = id, .spawn = i, .node = (char *)"box1", .dead = true, .revoked = true};
        make_token(spawn.token, id << 32 | i);
        digest_sha256(spawn.token_hash, spawn.token, sizeof(spawn.token));
        job_add_spawn(core, job, &spawn);
    }
    return job;
}

static const struct spawn_record *find_token(const struct core *core, int64_t number)
{
    uint8_t token[32];

    make_token(token, number);
    return core_find_token(core, token, sizeof(token));
}

static void the_search_for_a_token_compares_few_secrets(void **state)
{
    struct core_fixture *f = *state;

    add_old_job(f->core, 1, SPAWNS);
    compared = 0;
    for (int64_t i = 0; i < SEARCHES; i++)
        assert_null(find_token(f->core, -1 - i));
    assert_in_range(compared, 0, 3 * SEARCHES);
    compared = 0;
    for (int64_t i = 1; i <= SEARCHES; i++)
        assert_int_equal(find_token(f->core, INT64_C(1) << 32 | i)->spawn, i);
    assert_in_range(compared, SEARCHES, 3 * SEARCHES);
}

static void the_tokens_of_a_removed_job_are_unknown(void **state)
{
    struct core_fixture *f = *state;
    struct job *first = add_old_job(f->core, 1, 200);

    assert_null(find_token(f->core, INT64_C(2) << 32 | 1));
    add_old_job(f->core, 2, 200);
    core_remove_job(f->core, first);
    for (int64_t i = 1; i <= 200; i++) {
        assert_null(find_token(f->core, INT64_C(1) << 32 | i));
        assert_int_equal(find_token(f->core, INT64_C(2) << 32 | i)->job, 2);
    }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, fixture_setup, fixture_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(the_search_for_a_token_compares_few_secrets),
        TEST(the_tokens_of_a_removed_job_are_unknown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
