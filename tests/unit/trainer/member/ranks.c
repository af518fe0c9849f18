#include "tests/unit/trainer/member/ranks.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "base/file.h"
#include "tests/unit/base/check.h"

#define LIMIT_S 60

uint64_t ranks_hash(const void *data, size_t size)
{
    const unsigned char *p = data;
    uint64_t h = 1469598103934665603u;

    for (size_t i = 0; i < size; i++)
        h = (h ^ p[i]) * 1099511628211u;
    return h;
}

void ranks_config(const struct ranks *r, int rank, struct coll_config *out)
{
    *out = (struct coll_config){
        .job = 7,
        .generation = 3,
        .rank = rank,
        .world_size = r->world,
        .peers = r->peers,
        .pairs = r->pairs,
        .timeout_ms = r->timeout_ms ? r->timeout_ms : 30000 * test_slow(),
    };
    memset(out->key, 0x5a, sizeof(out->key));
}

struct coll_group *ranks_open(const struct ranks *r, int rank)
{
    struct coll_config config;
    struct coll_group *g;
    struct err e = {0};

    ranks_config(r, rank, &config);
    RANK_OK(coll_open(&g, r->listeners[rank], &config, &e), &e);
    return g;
}

static void rank_die(const char *what)
{
    perror(what);
    abort();
}

void ranks_prepare(struct ranks *r)
{
    struct err e = {0};
    char node[96];

    strcpy(r->directory, "/tmp/ddp-ranks-XXXXXX");
    if (!mkdtemp(r->directory))
        rank_die("mkdtemp");
    r->shared = mmap(NULL, sizeof(*r->shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (r->shared == MAP_FAILED)
        rank_die("mmap");
    for (int i = 0; i < r->world; i++) {
        snprintf(node, sizeof(node), "%s/%d", r->directory, r->node_of[i]);
        mkdir(node, 0700);
        if (coll_listen(&r->listeners[i], r->host, r->no_directory ? NULL : node, &e)) {
            fprintf(stderr, "%s\n", e.msg);
            abort();
        }
        r->peers[i] = (struct coll_peer){
            .rank = i,
            .node_rank = r->node_of[i],
            .address = r->addresses[i],
            .address_size = coll_listener_address(r->listeners[i], r->addresses[i], sizeof(r->addresses[i])),
        };
    }
}

void ranks_start(struct ranks *r, ranks_fn fn)
{
    fflush(NULL);
    for (int i = 0; i < r->world; i++) {
        r->pids[i] = fork();
        if (r->pids[i] < 0)
            rank_die("fork");
        if (r->pids[i] == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            alarm((unsigned)(LIMIT_S * test_slow()));
            fn(r, i);
            fflush(NULL);
            _exit(0);
        }
    }
}

bool ranks_finish(struct ranks *r, int victim)
{
    struct err e = {0};
    bool good = true;

    for (int i = 0; i < r->world; i++) {
        int status = 0;

        if (!r->pids[i])
            continue; /* never started */
        waitpid(r->pids[i], &status, 0);
        if (i == victim ? !(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) : status != 0) {
            fprintf(stderr, "rank %d of %d ended with status %#x\n", i, r->world, (unsigned)status);
            good = false;
        }
    }
    for (int i = 0; i < r->world; i++)
        coll_listener_free(r->listeners[i]);
    if (file_remove_tree(r->directory, &e))
        fprintf(stderr, "%s\n", e.msg);
    return good;
}

bool ranks_run(struct ranks *r, ranks_fn fn)
{
    ranks_prepare(r);
    ranks_start(r, fn);
    return ranks_finish(r, -1);
}

void ranks_release(struct ranks *r)
{
    munmap(r->shared, sizeof(*r->shared));
}
