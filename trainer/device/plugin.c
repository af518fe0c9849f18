/* Finds and loads a plugin. A plugin is never unloaded, because its libraries start threads of their own. */
#include "trainer/device/plugin.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/paths.h"

#define FILE_NAME "libddp_cuda.so"

/* Sets *out to the directory of this program, without a slash at the end. */
static enum err_code program_dir(char **out, struct err *e)
{
    char self[PATH_MAX];
    ssize_t len = readlink("/proc/self/exe", self, sizeof(self) - 1);
    if (len < 0)
        return err_set(e, ERR_UNAVAILABLE, "no plugin: /proc/self/exe cannot be read");
    self[len] = 0;
    *strrchr(self, '/') = 0;
    *out = xstrdup(self);
    return ERR_OK;
}

/* Finds the plugin's file. If DDP_CUDA_PLUGIN is set, no other file is tried. */
static enum err_code plugin_find(char **out, struct err *e)
{
    const char *asked = getenv("DDP_CUDA_PLUGIN");
    CLEANUP(free_text) char *dir = NULL;
    if (asked && *asked) {
        *out = xstrdup(asked);
        return ERR_OK;
    }
    if (program_dir(&dir, e))
        return e->code;
    CLEANUP(free_text) char *beside = xasprintf("%s/" FILE_NAME, dir);
    CLEANUP(free_text) char *installed = xasprintf("%s/../lib/ddp/" FILE_NAME, dir);
    if (!file_exists(beside) && !file_exists(installed))
        return err_set(e, ERR_UNAVAILABLE, "no plugin: neither %s nor %s exists", beside, installed);
    *out = file_exists(beside) ? steal(beside) : steal(installed);
    return ERR_OK;
}

/* ISO C has no conversion from an object pointer to a function pointer. */
static plugin_entry entry_of(void *library)
{
    plugin_entry entry = NULL;
    void *symbol = dlsym(library, PLUGIN_ENTRY);
    _Static_assert(sizeof(entry) == sizeof(symbol), "POSIX: functions have addresses like any other");
    memcpy(&entry, &symbol, sizeof(entry));
    return entry;
}

enum err_code plugin_load(const struct plugin **out, struct err *e)
{
    CLEANUP(free_text) char *path = NULL;
    if (plugin_find(&path, e))
        return e->code;
    if (!strchr(path, '/') || !file_exists(path))
        return err_set(e, ERR_UNAVAILABLE, "no plugin: %s does not exist", path);
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library)
        return err_set(e, ERR_UNAVAILABLE, "the plugin cannot be loaded: %s", dlerror());
    plugin_entry entry = entry_of(library);
    if (!entry)
        return err_set(e, ERR_UNAVAILABLE, "%s is not a plugin: it has no " PLUGIN_ENTRY, path);
    const struct plugin *found = entry(PLUGIN_ABI);
    if (!found || found->abi != PLUGIN_ABI || found->size != sizeof(*found))
        return err_set(e, ERR_UNAVAILABLE, "%s has another version than this program (plugin ABI %u)", path,
                       PLUGIN_ABI);
    *out = found;
    return ERR_OK;
}
