#include "trainer/device/cuda/nccl/nccl_load.h"

#include <dlfcn.h>
#include <stdbool.h>
#include <string.h>

#include "base/mem.h"

enum {
    NCCL_OLDEST = 21700 /* the first version whose ncclConfig_t sets the number of thread blocks */
};

/* Sets *function to the symbol's address, by memcpy: C has no cast from an object to a function pointer. */
static bool nccl_symbol(void *library, const char *name, void *function)
{
    void *at = dlsym(library, name);
    memcpy(function, &at, sizeof(at));
    return at;
}

enum err_code nccl_load_file(struct nccl_library *out, const char *file, struct err *e)
{
    struct nccl_library lib;
    int version = 0;
    const struct {
        const char *name;
        void *function;
    } wanted[] = {
        {"ncclGetVersion", &lib.version},
        {"ncclGetUniqueId", &lib.make_id},
        {"ncclGetErrorString", &lib.error_text},
        {"ncclGetLastError", &lib.last_error},
        {"ncclCommInitRankConfig", &lib.init},
        {"ncclCommGetAsyncError", &lib.async_error},
        {"ncclAllReduce", &lib.allreduce},
        {"ncclBroadcast", &lib.broadcast},
        {"ncclReduceScatter", &lib.reduce_scatter},
        {"ncclAllGather", &lib.gather},
        {"ncclReduce", &lib.reduce},
        {"ncclGroupStart", &lib.group_start},
        {"ncclGroupEnd", &lib.group_end},
        {"ncclCommFinalize", &lib.finalize},
        {"ncclCommDestroy", &lib.destroy},
        {"ncclCommAbort", &lib.abort},
    };
    void *library = dlopen(file, RTLD_NOW | RTLD_LOCAL);
    if (!library)
        return err_set(e, ERR_UNAVAILABLE, "NCCL: %s", dlerror());
    for (size_t i = 0; i < ARRAY_LEN(wanted); i++)
        if (!nccl_symbol(library, wanted[i].name, wanted[i].function))
            return err_set(e, ERR_UNAVAILABLE, "NCCL: %s has no \"%s\"", file, wanted[i].name);
    if (lib.version(&version) != ncclSuccess || version < NCCL_OLDEST || version >= 30000) {
        int major = version < 10000 ? 1000 : 10000; /* until 2.8.4, which is 2804; 2.9.6 is 20906 */
        return err_set(e, ERR_UNAVAILABLE, "NCCL: %s is version %d.%d.%d, expected 2.17 or later, below 3.0",
                       file, version / major, version % major / 100, version % 100);
    }
    (void)nccl_symbol(library, "ncclCommInitRankScalable", &lib.init_scalable); /* NULL if there is none */
    *out = lib;
    return ERR_OK;
}

enum err_code nccl_load(struct nccl_library *out, struct err *e)
{
    return nccl_load_file(out, "libnccl.so.2", e);
}
