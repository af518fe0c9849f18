#include "trainer/device/cuda/cudnn/cudnn_load.h"

#include <dlfcn.h>
#include <string.h>

/* Sets *function to the symbol's address, by memcpy: C has no cast from an object to a function pointer. */
static bool library_symbol(void *library, const char *name, void *function)
{
    void *at = dlsym(library, name);
    memcpy(function, &at, sizeof(at));
    return at;
}

enum err_code cudnn_load(struct cudnn *lib, struct err *e)
{
    void *library = dlopen("libcudnn.so.9", RTLD_NOW | RTLD_LOCAL);
    if (!library)
        return err_set(e, ERR_UNAVAILABLE, "cuDNN: %s", dlerror());
    /* The plugin does not link cuDNN, so that it loads on machines without it. */
    const struct {
        const char *name;
        void *function;
    } wanted[] = {
        {"cudnnGetVersion", &lib->version},
        {"cudnnGetErrorString", &lib->status_text},
        {"cudnnGetLastErrorString", &lib->last_error},
        {"cudnnCreate", &lib->create},
        {"cudnnDestroy", &lib->destroy},
        {"cudnnSetStream", &lib->set_stream},
        {"cudnnBackendCreateDescriptor", &lib->make},
        {"cudnnBackendDestroyDescriptor", &lib->unmake},
        {"cudnnBackendFinalize", &lib->finalize},
        {"cudnnBackendSetAttribute", &lib->set},
        {"cudnnBackendGetAttribute", &lib->get},
        {"cudnnBackendExecute", &lib->execute},
    };
    for (size_t i = 0; i < sizeof(wanted) / sizeof(wanted[0]); i++)
        if (!library_symbol(library, wanted[i].name, wanted[i].function))
            return err_set(e, ERR_UNAVAILABLE, "cuDNN: libcudnn.so.9 has no \"%s\"", wanted[i].name);
    size_t version = lib->version();
    if (version / 10000 != 9 || version < 90100)
        return err_set(e, ERR_UNAVAILABLE, "cuDNN: version %zu, expected 9.1 or a later 9.x", version);
    return ERR_OK;
}
