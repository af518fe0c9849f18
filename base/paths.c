#include "base/paths.h"

#include <errno.h>
#include <limits.h>
#include <pwd.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"

static char *home_dir(void)
{
    const char *name = getenv("HOME");
    if (name && *name)
        return xstrdup(name);
    const struct passwd *user = getpwuid(geteuid());
    return xstrdup(user && user->pw_dir ? user->pw_dir : "/");
}

static char *user_dir(const char *variable, const char *below_home)
{
    const char *base = getenv(variable);
    if (base && base[0] == '/')
        return paths_join(base, "ddp");
    CLEANUP(free_text) char *at = home_dir();
    return xasprintf("%s/%s/ddp", at, below_home);
}

char *paths_state(void)
{
    return geteuid() == 0 ? xstrdup("/var/lib/ddp") : user_dir("XDG_STATE_HOME", ".local/state");
}

char *paths_log(void)
{
    if (geteuid() == 0)
        return xstrdup("/var/log/ddp");
    CLEANUP(free_text) char *state = paths_state();
    return paths_join(state, "log");
}

char *paths_user_config(const char *file)
{
    CLEANUP(free_text) char *dir = user_dir("XDG_CONFIG_HOME", ".config");
    return paths_join(dir, file);
}

char *paths_config(const char *file)
{
    return geteuid() == 0 ? paths_join("/etc/ddp", file) : paths_user_config(file);
}

char *paths_join(const char *dir, const char *name)
{
    size_t len = strlen(dir);
    if (name[0] == '/')
        return xstrdup(name);
    return xasprintf("%s%s%s", dir, len && dir[len - 1] == '/' ? "" : "/", name);
}

enum err_code paths_program(const char *name, char **out, struct err *e)
{
    char self[PATH_MAX];
    ssize_t len = readlink("/proc/self/exe", self, sizeof(self) - 1);
    if (len < 0)
        return err_sys(e, errno, "/proc/self/exe");
    self[len] = 0;
    *strrchr(self, '/') = 0;
    CLEANUP(free_text) char *path = paths_join(self, name);
    if (access(path, X_OK) != 0)
        return err_sys(e, errno, "%s", path);
    *out = steal(path);
    return ERR_OK;
}

bool paths_finds_program(const char *name)
{
    const char *path = getenv("PATH");
    CLEANUP(free_text) char *copy = xstrdup(path ? path : "/usr/bin:/bin");
    char *rest = copy;
    for (char *dir; (dir = strsep(&rest, ":"));) {
        CLEANUP(free_text) char *file = xasprintf("%s/%s", *dir ? dir : ".", name);
        if (access(file, X_OK) == 0)
            return true;
    }
    return false;
}
