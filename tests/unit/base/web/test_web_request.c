/* Request lines and bodies of the HTTP interface. */
#include "tests/unit/base/check.h"

#include <string.h>

#include "base/mem.h"
#include "base/web/web_request.h"

static void paths_become_routes(void **state)
{
    static const struct {
        const char *method, *uri;
        enum web_route route;
        int64_t job;
    } rows[] = {
        {"GET", "/", WEB_PAGE, 0},
        {"HEAD", "/", WEB_PAGE, 0},
        {"GET", "/api/watch?jobs=1,2&logs=1", WEB_WATCH, 0},
        {"GET", "/api/jobs", WEB_JOBS, 0},
        {"POST", "/api/jobs", WEB_SUBMIT, 0},
        {"GET", "/api/jobs/9", WEB_JOB, 9},
        {"GET", "/api/jobs/12/metrics?names=loss%2Cval_loss&from_step=-1", WEB_METRICS, 12},
        {"GET", "/api/jobs/9/why?", WEB_WHY, 9},
        {"POST", "/api/jobs/9/cancel", WEB_CANCEL, 9},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct web_request r;
        struct err e;
        assert_int_equal(web_request_parse(&r, rows[i].method, rows[i].uri, &e), ERR_OK);
        assert_int_equal(r.route, rows[i].route);
        assert_int_equal(r.job, rows[i].job);
        web_request_release(&r);
    }
}

static void wrong_requests_are_refused(void **state)
{
    static const struct {
        const char *method, *uri;
        enum err_code code;
        const char *says;
    } rows[] = {
        {"GET", "/nothing", ERR_NOT_FOUND, "/nothing"},
        {"GET", "", ERR_NOT_FOUND, "no such path"},
        {"GET", "/api/jobs/", ERR_NOT_FOUND, "/api/jobs/"},
        {"GET", "/api/jobs/9/", ERR_NOT_FOUND, "/api/jobs/9/"},
        {"GET", "/api/jobs/9/cancel", ERR_UNIMPLEMENTED, "GET"},
        {"PUT", "/api/jobs", ERR_UNIMPLEMENTED, "PUT"},
        {"GET", "/api/jobs/x9", ERR_INVALID_ARGUMENT, "number of a job"},
        {"GET", "/api/jobs/-1", ERR_INVALID_ARGUMENT, "number of a job"},
        {"GET", "/api/jobs/99999999999999999999", ERR_INVALID_ARGUMENT, "number of a job"},
        {"GET", "/api/jobs/9/logs?rnak=1", ERR_INVALID_ARGUMENT, "rank,tail,grep,generation"},
        {"GET", "/api/jobs/9/logs?rank=1&rank=2", ERR_INVALID_ARGUMENT, "twice"},
        {"GET", "/api/jobs/9/logs?grep=%zz", ERR_INVALID_ARGUMENT, "grep"},
        {"GET", "/api/jobs/9/logs?grep=%00", ERR_INVALID_ARGUMENT, "grep"},
        {"GET", "/api/jobs/9/logs?grep=%ff", ERR_INVALID_ARGUMENT, "grep"},
        {"GET", "/api/jobs/9/logs?grep=%4", ERR_INVALID_ARGUMENT, "grep"},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct web_request r;
        struct err e;
        if (web_request_parse(&r, rows[i].method, rows[i].uri, &e) != rows[i].code ||
            !strstr(e.msg, rows[i].says))
            fail_msg("row %zu: %d %s", i, e.code, e.msg);
    }
}

static void parameters_are_decoded_and_checked(void **state)
{
    struct web_request r;
    struct err e;
    int64_t number, jobs[2];
    size_t count;
    (void)state;
    assert_int_equal(web_request_parse(&r, "GET", "/api/jobs/9/logs?grep=a%26b+c&rank=7", &e), ERR_OK);
    assert_string_equal(web_request_text(&r, "grep"), "a&b c");
    assert_int_equal(web_request_int(&r, "rank", 0, 9, -1, &number, &e), ERR_OK);
    assert_int_equal(number, 7);
    assert_int_equal(web_request_int(&r, "rank", 0, 6, -1, &number, &e), ERR_INVALID_ARGUMENT);
    assert_int_equal(web_request_int(&r, "tail", 0, 6, -1, &number, &e), ERR_OK);
    assert_int_equal(number, -1);
    assert_int_equal(web_request_int(&r, "grep", 0, 6, -1, &number, &e), ERR_INVALID_ARGUMENT);
    web_request_release(&r);
    assert_int_equal(web_request_parse(&r, "GET", "/api/watch?jobs=3,4&logs=1,2,3", &e), ERR_OK);
    assert_int_equal(web_request_jobs(&r, "jobs", jobs, 2, &count, &e), ERR_OK);
    assert_int_equal(count, 2);
    assert_int_equal(jobs[1], 4);
    assert_int_equal(web_request_jobs(&r, "logs", jobs, 2, &count, &e), ERR_INVALID_ARGUMENT);
    web_request_release(&r);
}

static void a_body_is_an_object_of_known_keys(void **state)
{
    static const struct {
        const char *body;
        enum err_code code;
    } rows[] = {
        {"", ERR_OK},
        {"{}", ERR_OK},
        {"{\"kill\": true}", ERR_OK},
        {"{\"kil\": true}", ERR_INVALID_ARGUMENT},
        {"[]", ERR_INVALID_ARGUMENT},
        {"{", ERR_INVALID_ARGUMENT},
        {"{\"kill\": 1, \"kill\": 2}", ERR_INVALID_ARGUMENT},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        const struct web_request r = {.body = (char *)(uintptr_t)rows[i].body,
                                      .body_size = strlen(rows[i].body)};
        struct err e = {0};
        json_t *json = NULL;
        assert_int_equal(web_request_json(&r, "kill,set", &json, &e), rows[i].code);
        if (rows[i].code == ERR_OK)
            json_decref(json);
        else
            assert_null(json); /* the caller releases what it got */
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(paths_become_routes),
        cmocka_unit_test(wrong_requests_are_refused),
        cmocka_unit_test(parameters_are_decoded_and_checked),
        cmocka_unit_test(a_body_is_an_object_of_known_keys),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
