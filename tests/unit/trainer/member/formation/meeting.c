#include "tests/unit/trainer/member/formation/meeting.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/mem.h"
#include "trainer/device/comm.h"
#include "trainer/engine/state.h"
#include "trainer/step.h"

#define JOB                                                                                                  \
    "name: formations\n"                                                                                     \
    "device: %s\n"                                                                                           \
    "train:\n"                                                                                               \
    "  model: {type: mlp, sizes: [%s]}\n"                                                                    \
    "  data: {type: synthetic, samples: 512}\n"                                                              \
    "  optimizer: {type: adamw, lr: 0.01}\n"                                                                 \
    "  batch: 4\n"                                                                                           \
    "  steps: 1000\n"                                                                                        \
    "  threads: 1\n"

void meeting_open_trainer(struct trainer *t, struct trainer_config *config, const char *sync,
                          const char *more)
{
    meeting_open_sizes(t, config, "20, 24, 1", sync, more);
}

void meeting_open_sizes(struct trainer *t, struct trainer_config *config, const char *sizes, const char *sync,
                        const char *more)
{
    const char *device = getenv("DDP_TEST_DEVICE");
    CLEANUP(free_text)
    char *text = xasprintf(JOB "  sync: %s\n%s", device ? device : "cpu", sizes, sync, more);
    meeting_open_job(t, config, text);
}

void meeting_open_job(struct trainer *t, struct trainer_config *config, const char *text)
{
    struct link *link;
    struct err e = {0};

    *config = (struct trainer_config){.standalone = true, .local_world_size = 1};
    RANK_OK(job_parse(&config->job, text, strlen(text), "job", &e), &e);
    RANK_OK(link_open(&link, true, &e), &e);
    RANK_OK(trainer_open(t, config, link, &e), &e);
}

static int meeting_node(const struct meeting_place *at, int rank)
{
    return at->node_of ? at->node_of[rank] : at->apart ? rank : 0;
}

enum err_code meeting_form(struct ranks *r, struct meeting *m, struct trainer *t,
                           const struct meeting_place *at, struct err *e)
{
    const int odd = at->round % 2;
    struct link_group info = {.generation = at->generation,
                              .rank = at->rank,
                              .world_size = at->world,
                              .source_rank = at->live ? at->source : -1,
                              .live = at->live};
    CLEANUP(free_text) char *node = xasprintf("%s/%d", r->directory, meeting_node(at, at->rank));

    RANK_OK(formation_listen(&t->formation, NULL, node, e), e);
    m->size[odd][at->rank] =
        coll_listener_address(t->formation.listener, m->address[odd][at->rank], sizeof(m->address[0][0]));
    const struct comm_ops *comm = t->engine.device->comm;
    if (comm && at->rank == 0 && at->world > 1)
        RANK_OK(comm->make_id(at->world, m->id[odd], sizeof(m->id[odd]), &m->id_size[odd], e), e);
    atomic_fetch_add(&m->here[at->round], 1);
    for (int64_t end = clock_boot_ms() + 20000; atomic_load(&m->here[at->round]) < at->world;) {
        RANK_CHECK(clock_boot_ms() < end);
        nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
    }
    info.peers = xcalloc((size_t)at->world, sizeof(*info.peers));
    for (int i = 0; i < at->world; i++)
        info.peers[i] = (struct link_peer){
            .rank = i,
            .node_rank = meeting_node(at, i),
            .local_rank = at->local_of ? at->local_of[i] : 0,
            .address = xmemdup(m->address[odd][i], m->size[odd][i]),
            .address_size = m->size[odd][i],
        };
    for (int i = 0; at->upgraded && i < at->world; i++)
        if ((i == at->world - 1) != (at->rank == at->world - 1))
            ((uint8_t *)(uintptr_t)info.peers[i].address)[0]++; /* the version comes first */
    memset(info.key, (int)at->generation, sizeof(info.key));
    if (comm && at->world > 1) {
        info.bootstrap = xmemdup(m->id[odd], m->id_size[odd]);
        info.bootstrap_size = m->id_size[odd];
    }
    info.committed = xcalloc(1, sizeof(*info.committed));
    info.committed[0].step = at->committed;
    info.committed_count = at->committed > 0;
    if (at->job_file && at->rank == 0)
        info.job_file = xstrdup(at->job_file);
    formation_be_told(&t->formation, &info);
    return trainer_form(t, false, e);
}

void meeting_close_trainer(struct trainer *t, struct trainer_config *config)
{
    RANK_CHECK(trainer_leave(t));
    trainer_close(t);
    job_release(&config->job);
}

uint64_t meeting_hash(const struct trainer *t)
{
    static float state[MEETING_FLOATS];

    RANK_CHECK(state_bytes(&t->engine) <= sizeof(state));
    state_out(&t->engine, state);
    return ranks_hash(state, state_bytes(&t->engine));
}

void meeting_train(struct trainer *t, int64_t steps)
{
    struct err e = {0};

    for (int64_t i = 0; i < steps; i++) {
        struct step s;
        bool epoch_ended;

        RANK_OK(trainer_step(t, &s, &epoch_ended, &e), &e);
        RANK_CHECK(isfinite(t->engine.loss));
        t->served_step = t->engine.step;
    }
}
