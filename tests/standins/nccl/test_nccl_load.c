/* Tests how NCCL is opened at run time: with small libraries that have its functions, lack some, or have a version that
 * does not fit. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "trainer/device/cuda/nccl/nccl_load.h"

static char *library_beside(const char *name)
{
    char self[4096];
    ssize_t len = readlink("/proc/self/exe", self, sizeof(self) - 1);
    assert_true(len > 0);
    self[len] = '\0';
    *strrchr(self, '/') = '\0';
    return xasprintf("%s/%s", self, name);
}

static void the_functions_are_found(void **state)
{
    CLEANUP(free_text) char *file = library_beside("nccl_good.so");
    struct nccl_library lib;
    ncclUniqueId id = {{0}};
    struct err e = {0};
    int version = 0;
    (void)state;
    assert_int_equal(nccl_load_file(&lib, file, &e), ERR_OK);
    assert_int_equal(lib.version(&version), ncclSuccess);
    assert_int_equal(version, 22809);
    assert_int_equal(lib.make_id(&id), ncclSuccess);
    assert_int_equal(id.internal[0], 'x');
    assert_non_null(lib.init_scalable);
}

static void an_early_version_lacks_what_is_not_needed(void **state)
{
    CLEANUP(free_text) char *file = library_beside("nccl_early.so");
    struct nccl_library lib;
    struct err e = {0};
    (void)state;
    assert_int_equal(nccl_load_file(&lib, file, &e), ERR_OK);
    assert_null(lib.init_scalable);
}

static void a_library_that_does_not_fit_is_refused(void **state)
{
    static const struct {
        const char *name, *why;
    } rows[] = {
        {"nccl_oldest.so", "is version 2.8.4, expected 2.17 or later, below 3.0"},
        {"nccl_old.so", "is version 2.16.5, expected 2.17 or later, below 3.0"},
        {"nccl_newer.so", "is version 3.0.0, expected 2.17 or later, below 3.0"},
        {"nccl_bare.so", "has no \"ncclGetUniqueId\""},
        {"nccl_absent.so", "nccl_absent.so: cannot open shared object file"},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        CLEANUP(free_text) char *file = library_beside(rows[i].name);
        struct nccl_library lib;
        struct err e = {0};
        assert_int_equal(nccl_load_file(&lib, file, &e), ERR_UNAVAILABLE);
        assert_memory_equal(e.msg, "NCCL: ", 6);
        assert_non_null(strstr(e.msg, rows[i].why));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_functions_are_found),
        cmocka_unit_test(an_early_version_lacks_what_is_not_needed),
        cmocka_unit_test(a_library_that_does_not_fit_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
