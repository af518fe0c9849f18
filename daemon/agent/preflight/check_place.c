#include "daemon/agent/preflight/check_place.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <pwd.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/crypto/id.h"
#include "base/host_memory.h"
#include "base/isa.h"
#include "base/mem.h"
#include "proto/rpc_codec.h"

#define FILES_MAX 20000     /* most files of one path; further files are left out */
#define WHOLE_MAX (8 << 20) /* bytes; of larger files only the first, middle and last block are read */
#define BLOCK (1 << 20)
#define READ_MAX (128 << 20) /* most bytes read for one path; of further files only the sizes count */
#define QUICK_MAX                                                                                            \
    (16 << 20) /* most bytes read for all arguments of the command if contents are not asked for */
#define VERSION_MS 3000

struct check_place {
    char **texts; /* all texts that the answer borrows */
    char **problems;
    Ddp__V1__CheckPath *paths, **list;
    size_t path_count;
};

static char *place_keep_text(struct check_place *p, const char *text)
{
    p->texts = strv_append(p->texts, text);
    return rpc_utf8_clean(p->texts[strv_len(p->texts) - 1]);
}

/* ---- data */

struct tree {
    char **files; /* relative names */
    size_t count, cap;
    bool cut;
};

static int files_by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static int entries_by_name(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

static void tree_list_files(struct tree *t, const char *dir, const char *below, int depth);

static void tree_list_entry(struct tree *t, const char *dir, const char *below, const char *entry, int depth)
{
    CLEANUP(free_text) char *name = xasprintf("%s%s%s", below, *below ? "/" : "", entry);
    CLEANUP(free_text) char *whole = xasprintf("%s/%s", dir, name);
    struct stat st;

    if (!strcmp(entry, ".") || !strcmp(entry, "..") || stat(whole, &st))
        return;
    if (S_ISDIR(st.st_mode) && depth < 16)
        tree_list_files(t, dir, name, depth + 1);
    if (!S_ISREG(st.st_mode))
        return;
    t->cut = t->count == FILES_MAX;
    if (t->cut)
        return;
    t->files = array_grow(t->files, t->count, &t->cap, sizeof(char *));
    t->files[t->count++] = steal(name);
}

/* In the order of names, so that a list that is cut ends with the same file on every node. */
static void tree_list_files(struct tree *t, const char *dir, const char *below, int depth)
{
    CLEANUP(free_text) char *path = *below ? xasprintf("%s/%s", dir, below) : xstrdup(dir);
    struct dirent **entries = NULL;
    int count = scandir(path, &entries, NULL, entries_by_name);

    for (int i = 0; i < count; i++) {
        if (!t->cut)
            tree_list_entry(t, dir, below, entries[i]->d_name, depth);
        free(entries[i]);
    }
    free(entries);
}

static void tree_release(struct tree *t)
{
    for (size_t i = 0; i < t->count; i++)
        free(t->files[i]);
    free(t->files);
}

static bool content_add_block(struct buf *out, int fd, int64_t offset, size_t size)
{
    CLEANUP(free_text) char *block = xmalloc(size);
    uint8_t digest[DIGEST_BYTES];
    char hex[DIGEST_TEXT];
    ssize_t n;
    size_t got = 0;

    while (got < size && (n = pread(fd, block + got, size - got, offset + (int64_t)got)) > 0)
        got += (size_t)n;
    digest_sha256(digest, block, got);
    hex_encode(hex, digest, sizeof(digest));
    buf_printf(out, " %s", hex);
    return got == size;
}

/* *left is the number of bytes that may still be read; equal copies use it up at the same file. */
static void content_add(struct buf *out, int fd, int64_t size, Ddp__V1__CheckPath *result, int64_t *left)
{
    int64_t wanted = size <= WHOLE_MAX ? size : 3 * BLOCK;

    result->sampled = result->sampled || size > WHOLE_MAX || *left < wanted;
    if (*left < wanted) {
        *left = 0;
        return;
    }
    *left -= wanted;
    if (size <= WHOLE_MAX) {
        (void)content_add_block(out, fd, 0, (size_t)size);
        return;
    }
    (void)content_add_block(out, fd, 0, BLOCK);
    (void)content_add_block(out, fd, size / 2, BLOCK);
    (void)content_add_block(out, fd, size - BLOCK, BLOCK);
}

/* Adds one line: the file's name, size and digests of its content (without them if *left < 0), or that it
 * cannot be read. */
static void file_add_line(struct buf *out, const char *path, const char *name, Ddp__V1__CheckPath *result,
                          int64_t *left)
{
    CLEANUP(close_fd) int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    struct stat st;

    if (fd < 0 || fstat(fd, &st)) {
        buf_printf(out, "%s unreadable\n", name);
        return;
    }
    result->files++;
    result->bytes += st.st_size;
    buf_printf(out, "%s %lld", name, (long long)st.st_size);
    if (*left >= 0)
        content_add(out, fd, st.st_size, result, left);
    buf_putc(out, '\n');
}

static void path_check_dir(struct buf *lines, const char *path, Ddp__V1__CheckPath *out, int64_t left)
{
    CLEANUP(tree_release) struct tree tree = {0};

    tree_list_files(&tree, path, "", 0);
    if (tree.count)
        qsort(tree.files, tree.count, sizeof(char *), files_by_name);
    for (size_t i = 0; i < tree.count; i++) {
        CLEANUP(free_text) char *file = xasprintf("%s/%s", path, tree.files[i]);
        file_add_line(lines, file, tree.files[i], out, &left);
    }
    out->sampled = out->sampled || tree.cut;
}

static void path_check(struct check_place *p, const char *path, bool hash, Ddp__V1__CheckPath *out)
{
    CLEANUP(buf_release) struct buf lines = {0};
    uint8_t digest[DIGEST_BYTES];
    char hex[DIGEST_TEXT];
    int64_t left = hash ? READ_MAX : -1;
    struct stat st;

    ddp__v1__check_path__init(out);
    out->path = place_keep_text(p, path);
    if (stat(path, &st) || access(path, S_ISDIR(st.st_mode) ? R_OK | X_OK : R_OK)) {
        out->problem = place_keep_text(p, errno == ENOENT ? "does not exist" : strerror(errno));
        return;
    }
    if (S_ISDIR(st.st_mode))
        path_check_dir(&lines, path, out, left);
    else
        file_add_line(&lines, path, "", out, &left);
    if (!hash)
        return;
    digest_sha256(digest, lines.data ? lines.data : "", lines.len);
    hex_encode(hex, digest, sizeof(digest));
    out->digest = place_keep_text(p, hex);
}

/* ---- the command */

static bool text_ends_in(const char *text, const char *end)
{
    size_t a = strlen(text), b = strlen(end);

    return a > b && !strcmp(text + a - b, end);
}

static char *program_find(const char *name, const char *workdir)
{
    CLEANUP(free_text) char *copy = NULL;
    char *dir, *rest;

    if (strchr(name, '/'))
        return *name == '/' ? xstrdup(name) : xasprintf("%s/%s", workdir, name);
    rest = copy = xstrdup(getenv("PATH") ? getenv("PATH") : "/usr/local/bin:/usr/bin:/bin");
    while ((dir = strsep(&rest, ":"))) {
        CLEANUP(free_text) char *path = xasprintf("%s/%s", *dir ? dir : workdir, name);
        struct stat st;

        if (!access(path, X_OK) && !stat(path, &st) && S_ISREG(st.st_mode))
            return steal(path);
    }
    return NULL;
}

/* The first line that the program prints within three seconds; empty: there was none. */
static void program_ask_version(const char *program, char *out, size_t size)
{
    int fds[2];
    pid_t pid;
    ssize_t n = 0;

    out[0] = '\0';
    if (pipe2(fds, O_CLOEXEC))
        return;
    pid = fork(); /* the check process has only one thread */
    if (!pid) {
        dup2(fds[1], STDOUT_FILENO);
        dup2(fds[1], STDERR_FILENO);
        execl(program, program, "--version", (char *)NULL);
        _exit(127);
    }
    close(fds[1]);
    struct pollfd set = {.fd = fds[0], .events = POLLIN};
    if (pid > 0 && poll(&set, 1, VERSION_MS) == 1)
        n = read(fds[0], out, size - 1);
    out[n > 0 ? n : 0] = '\0';
    out[strcspn(out, "\r\n")] = '\0';
    close(fds[0]);
    if (pid > 0) {
        kill(pid, SIGKILL);
        waitpid(pid, NULL, 0);
    }
}

static void interpreter_check(struct check_place *p, const Ddp__V1__CheckPlace *ask,
                              Ddp__V1__CheckPlaceResult *out)
{
    CLEANUP(free_text) char *path = program_find(ask->command[0], ask->workdir);
    const char *base;
    char version[128];

    if (!path || access(path, X_OK)) {
        CLEANUP(free_text)
        char *why = xasprintf("%s: %s", ask->command[0], path ? strerror(errno) : "not found in PATH");
        out->interpreter_problem = place_keep_text(p, why);
        return;
    }
    out->interpreter = place_keep_text(p, path);
    base = strrchr(path, '/') + 1;
    if (!ask->hash || strncmp(base, "python", 6))
        return; /* starting Python takes a moment: only when copies are compared */
    program_ask_version(path, version, sizeof(version));
    out->interpreter_version = place_keep_text(p, version);
}

/* True, with the whole path: the argument names a plain file, or looks like a script. */
static bool argument_is_file(const char *workdir, const char *argument, char **path)
{
    CLEANUP(free_text)
    char *whole = *argument == '/' ? xstrdup(argument) : xasprintf("%s/%s", workdir, argument);
    struct stat st;

    if (*argument == '-' || (!text_ends_in(argument, ".py") && !text_ends_in(argument, ".sh") &&
                             (stat(whole, &st) || !S_ISREG(st.st_mode))))
        return false;
    *path = steal(whole);
    return true;
}

/* ---- memory and disk */

static void memory_check(Ddp__V1__CheckPlaceResult *out)
{
    struct host_memory memory;

    host_memory_read(&memory);
    out->memory_bytes = memory.total;
    out->memory_free = memory.available;
}

/* Whether the directory can be written, or can be made: then the nearest existing directory above it must be
 * writable. */
static void writable_check(struct check_place *p, const char *path)
{
    CLEANUP(free_text) char *at = xstrdup(path);
    char *slash;

    while (access(at, F_OK) && errno == ENOENT && (slash = strrchr(at, '/')) && slash != at)
        *slash = '\0';
    if (!access(at, W_OK | X_OK))
        return;
    CLEANUP(free_text) char *text = xasprintf("%s cannot be written (%s: %s)", path, at, strerror(errno));
    p->problems = strv_append(p->problems, rpc_utf8_clean(text));
}

static void workdir_check(struct check_place *p, const char *workdir, Ddp__V1__CheckPlaceResult *out)
{
    struct statvfs fs;

    if (*workdir && chdir(workdir)) {
        CLEANUP(free_text)
        char *why = xasprintf("%s: %s", workdir, errno == ENOENT ? "does not exist" : strerror(errno));
        out->workdir_problem = place_keep_text(p, why);
    }
    if (!statvfs(*workdir && !*out->workdir_problem ? workdir : "/", &fs))
        out->disk_free = (int64_t)fs.f_bavail * (int64_t)fs.f_frsize;
}

/* ---- the whole answer */

/* A script that was changed on one node only often has the same size. Reading a few small files takes no time.
 * Returns whether to read this one, and takes its size from *left. */
static bool file_is_small(const char *path, int64_t *left)
{
    struct stat st;

    if (stat(path, &st) || !S_ISREG(st.st_mode) || st.st_size > BLOCK || st.st_size > *left)
        return false;
    *left -= st.st_size;
    return true;
}

static void environment_apply(const Ddp__V1__CheckPlace *ask)
{
    for (size_t i = 0; i < ask->n_env; i++)
        if (strchr(ask->env[i], '='))
            putenv(ask->env[i]);
}

static void paths_check(struct check_place *p, const Ddp__V1__CheckPlace *ask, Ddp__V1__CheckPlaceResult *out)
{
    int64_t left = QUICK_MAX;

    p->paths = xcalloc(ask->n_paths + ask->n_command + 1, sizeof(*p->paths));
    for (size_t i = 0; i < ask->n_paths; i++)
        path_check(p, ask->paths[i], ask->hash, &p->paths[p->path_count++]);
    for (size_t i = 1; i < ask->n_command; i++) {
        CLEANUP(free_text) char *path = NULL;

        if (argument_is_file(ask->workdir, ask->command[i], &path))
            path_check(p, path, ask->hash || file_is_small(path, &left), &p->paths[p->path_count++]);
    }
    out->n_paths = p->path_count;
    p->list = out->paths = xcalloc(p->path_count + 1, sizeof(Ddp__V1__CheckPath *));
    for (size_t i = 0; i < p->path_count; i++)
        out->paths[i] = &p->paths[i];
}

struct check_place *check_place_look(const Ddp__V1__CheckPlace *ask, Ddp__V1__CheckPlaceResult *out)
{
    struct check_place *p = xcalloc(1, sizeof(*p));
    const struct passwd *user = getpwuid(geteuid());

    ddp__v1__check_place_result__init(out);
    environment_apply(ask);
    out->user = place_keep_text(p, user ? user->pw_name : "?");
    out->user_number = (int64_t)geteuid() + 1;
    workdir_check(p, ask->workdir, out);
    if (ask->n_command)
        interpreter_check(p, ask, out);
    paths_check(p, ask, out);
    memory_check(out);
    out->isa = (char *)(uintptr_t)isa_names[isa_of_cpu()];
    out->isa_auto = (char *)(uintptr_t)isa_names[isa_auto()];
    for (size_t i = 0; i < ask->n_writable; i++)
        writable_check(p, ask->writable[i]);
    out->problems = p->problems;
    out->n_problems = strv_len(p->problems);
    return p;
}

void check_place_free(struct check_place *p)
{
    if (!p)
        return;
    strv_free(p->texts);
    strv_free(p->problems);
    free(p->list);
    free(p->paths);
    free(p);
}
