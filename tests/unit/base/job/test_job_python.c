#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/job/job_python.h"
#include "base/mem.h"

#define WORDS(...) ((char *const *)(const char *const[]){__VA_ARGS__, NULL})

static void check_found(char *const *command, size_t options, size_t program, bool module)
{
    struct job_python found;

    assert_true(job_python_find(command, &found));
    assert_int_equal(found.options, options);
    assert_int_equal(found.program, program);
    assert_int_equal(found.module, module);
}

static void scripts_and_modules_are_found(void **state)
{
    (void)state;
    check_found(WORDS("python3", "x.py", "-m"), 1, 1, false);
    check_found(WORDS("/opt/venv/bin/python3.12", "-u", "-X", "dev", "-Wignore", "x.py"), 5, 5, false);
    check_found(WORDS("python", "-uB", "-m", "pkg.train", "--lr"), 2, 3, true);
}

static void other_commands_are_not(void **state)
{
    struct job_python found;

    (void)state;
    assert_false(job_python_find(NULL, &found));
    assert_false(job_python_find(WORDS("sh", "x.py"), &found));
    assert_false(job_python_find(WORDS("python3"), &found));
    assert_false(job_python_find(WORDS("python3", "-u"), &found));
    assert_false(job_python_find(WORDS("python3", "-m"), &found));
    assert_false(job_python_find(WORDS("python3", "-X"), &found));
    assert_false(job_python_find(WORDS("python3", "-c", "pass"), &found));
    assert_false(job_python_find(WORDS("python3", "-i", "x.py"), &found));
    assert_false(job_python_find(WORDS("python3", "-", "x"), &found));
    assert_false(job_python_find(WORDS("python3", "--version"), &found));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(scripts_and_modules_are_found),
        cmocka_unit_test(other_commands_are_not),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
