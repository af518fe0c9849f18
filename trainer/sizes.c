/* What a worker's memory goes to, said before the first step. */
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include "base/log.h"
#include "base/mem.h"
#include "trainer/trainer.h"

size_t sizes_resident(void)
{
    char text[128] = {0};
    long long whole = 0, resident = 0;
    int fd = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return 0;
    if (read(fd, text, sizeof(text) - 1) <= 0 || sscanf(text, "%lld %lld", &whole, &resident) != 2)
        resident = 0;
    close(fd);
    return (size_t)resident * (size_t)sysconf(_SC_PAGESIZE);
}

/* Ranks of a node map each other's parameters, gradients and arrays of the strategy: resident in each, there
 * once. */
static size_t seen_of_peers(const struct trainer *t, size_t array)
{
    size_t mapped = 2 * array + sync_bytes(t->sync);
    return t->world_size > 1 && t->device->host ? mapped * (size_t)(t->config->local_world_size - 1) : 0;
}

void sizes_take(struct trainer *t)
{
    struct sizes *s = &t->sizes;
    size_t array = (t->model->count + TAIL_FLOATS) * sizeof(float);
    s->parameters = array;
    s->gradients = array * (size_t)(1 + t->spare_count);
    s->optimizer = t->optim->state_count * t->model->count * sizeof(float);
    s->activations = t->model->activation_bytes;
    s->workspace = t->device->workspace + sync_bytes(t->sync);
    s->batch = t->batch_bytes;
    s->data = t->train->bytes;
    s->snapshot = t->saver ? saver_bytes(t->saver) : 0;
    s->snapshot += t->scratch ? snapshot_floats(&t->layout) * sizeof(float) : 0;
    s->peers = seen_of_peers(t, array);
    s->sum = s->program + s->parameters + s->gradients + s->optimizer + s->activations + s->workspace +
             s->batch + s->data + s->snapshot + s->peers;
}

void sizes_log(const struct trainer *t)
{
    const struct sizes *s = &t->sizes;
    log_info("sizes",
             "rank=%d parameters=%zu parameter_bytes=%zu gradient_bytes=%zu optimizer_bytes=%zu "
             "activation_bytes=%zu workspace_bytes=%zu batch_bytes=%zu data_bytes=%zu snapshot_bytes=%zu "
             "peer_bytes=%zu program_bytes=%zu sum_bytes=%zu device=%s threads=%d",
             t->rank, t->model->parameters, s->parameters, s->gradients, s->optimizer, s->activations,
             s->workspace, s->batch, s->data, s->snapshot, s->peers, s->program, s->sum,
             LOG_Q(t->device->name), t->device->threads);
}
