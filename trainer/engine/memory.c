#include "trainer/engine/memory.h"

#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include "base/log.h"
#include "base/mem.h"

size_t memory_resident(void)
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

static double memory_per_parameter(const struct engine *n)
{
    const double moments = (double)n->optim->floats / (double)n->model->count;
    return model_state_bytes(engine_arrays(n, moments) + n->spare_count, n->model->narrowed);
}

static size_t memory_state(const struct engine *n)
{
    size_t bytes =
        n->params.bytes + n->grads.bytes + n->spare_bytes + n->optim->state_bytes + n->model->narrowed_bytes;
    for (size_t i = 0; i < n->extra_count; i++)
        bytes += n->extra[i].bytes;
    return bytes;
}

void memory_take(struct memory_sizes *s, const struct engine *n, size_t snapshot, int mapped_peers)
{
    size_t array = (n->model->count + TAIL_FLOATS) * sizeof(float);
    *s = (struct memory_sizes){
        .parameters = array,
        .gradients = array * (size_t)(1 + n->spare_count),
        .optimizer = n->optim->floats * sizeof(float) + n->optim->room_bytes,
        .activations = n->model->activation_bytes,
        .workspace = n->device->workspace + n->extra_count * array +
                     (n->model->narrowed ? n->model->count * device_size(DEVICE_BF16) : 0),
        .batch = n->batch_bytes,
        .data = n->train->bytes,
        .snapshot = snapshot,
        /* Arrays in shared memory exist once, but are resident in each process that maps them. */
        .peers = n->device->host ? (2 + n->extra_count) * array * (size_t)mapped_peers : 0,
        .per_parameter = memory_per_parameter(n),
        .state = memory_state(n),
        .program = n->program_bytes,
    };
    s->sum = s->program + s->parameters + s->gradients + s->optimizer + s->activations + s->workspace +
             s->batch + s->data + s->snapshot + s->peers;
}

/* Other kernels than expected cost speed and give other bits, and nothing else shows which ones are used. */
void attention_log(struct engine *n)
{
    struct device_attention_text text = {{0}, {0}};
    if (n->device->ops->attention_says)
        n->device->ops->attention_says(n->device, &text);
    if (text.values[0] && !n->told_attention)
        log_info("attention", "%s", text.values);
    n->told_attention = true;
}

void memory_log(const struct memory_sizes *s, const struct engine *n, int rank)
{
    struct device_attention_text text = {{0}, {0}};
    char device[192];
    if (n->device->ops->attention_says)
        n->device->ops->attention_says(n->device, &text);
    snprintf(device, sizeof(device), "%s%s%s", n->device->name, text.brief[0] ? ", attention by " : "",
             text.brief);
    log_info(
        "sizes",
        "rank=%d parameters=%zu parameter_bytes=%zu gradient_bytes=%zu optimizer_bytes=%zu "
        "activation_bytes=%zu workspace_bytes=%zu batch_bytes=%zu data_bytes=%zu snapshot_bytes=%zu "
        "peer_bytes=%zu program_bytes=%zu sum_bytes=%zu bytes_per_parameter=%.6g state_bytes=%zu device=%s "
        "threads=%d cores=%s numa_nodes=%s",
        rank, n->model->parameters, s->parameters, s->gradients, s->optimizer, s->activations, s->workspace,
        s->batch, s->data, s->snapshot, s->peers, s->program, s->sum, s->per_parameter, s->state,
        LOG_Q(device), n->device->threads, n->device->cores[0] ? n->device->cores : "any",
        n->device->numa_nodes[0] ? n->device->numa_nodes : "any");
}
