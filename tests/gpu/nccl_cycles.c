/* nccl_cycles N: opens and closes N communicators of one rank, one after the other, on the plugin's device. Each sums
 * once, and every second one is aborted with the sum in flight. At the end, file descriptors, threads, free GPU
 * memory and memory of the process must be about the same as after the tenth cycle. (A communicator that is not freed
 * keeps megabytes.) Exit 77: there is no such device, or no NCCL. */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "trainer/device/comm.h"
#include "trainer/device/device.h"

enum { COUNT = 1 << 20, WARM = 10, SLACK_MIB = 32, SLACK_KB = 65536 };

struct held {
    int files, threads;
    long kb, free_mib;
};

static int directory_entries(const char *path)
{
    DIR *d = opendir(path);
    int n = 0;
    if (!d)
        return -1;
    while (readdir(d))
        n++;
    closedir(d);
    return n;
}

static long resident_kb(void)
{
    char line[256];
    long kb = 0;
    FILE *f = fopen("/proc/self/status", "re");
    while (f && fgets(line, sizeof(line), f))
        if (sscanf(line, "VmRSS: %ld", &kb) == 1)
            break;
    if (f)
        fclose(f);
    return kb;
}

/* Returns the free memory of the device. Asks for more memory than there is, because only that error message contains
 * it. */
static long free_mib(struct device *d)
{
    void *all = NULL;
    struct err e = {0};
    long wanted = 0, left = 0;
    const char *said;
    if (device_alloc(d, (size_t)1 << 50, "more than there is", &all, &e) != ERR_RESOURCE_EXHAUSTED)
        return -1;
    said = strstr(e.msg, "memory: ");
    return said && sscanf(said, "memory: %ld MiB needed, %ld of", &wanted, &left) == 2 ? left : -1;
}

static struct held usage_now(struct device *d)
{
    return (struct held){directory_entries("/proc/self/fd"), directory_entries("/proc/self/task"),
                         resident_kb(), free_mib(d)};
}

static enum err_code comm_use(struct device *d, struct comm *c, float *data, bool aborts, struct err *e)
{
    if (d->comm->allreduce(c, data, COUNT, e))
        return e->code;
    if (aborts) {
        d->comm->abort(c);
        return ERR_OK;
    }
    return d->comm->join(c, e) ? e->code : d->ops->wait(d, e);
}

static enum err_code comm_cycle(struct device *d, float *data, bool aborts, struct err *e)
{
    uint8_t id[256];
    struct comm *_Atomic comm = NULL;
    struct comm_config config = {.id = id, .world_size = 1, .timeout_ms = 60000};
    struct err ignored;
    if (d->comm->make_id(1, id, sizeof(id), &config.id_size, e))
        return e->code;
    enum err_code code = d->comm->open(&comm, d, &config, e);
    if (code == ERR_OK)
        code = comm_use(d, comm, data, aborts, e);
    if (comm && d->comm->close(comm, 10000, code ? &ignored : e) && code == ERR_OK)
        code = e->code;
    if (aborts && d->ops->wait(d, &ignored) && ignored.code != ERR_ABORTED && code == ERR_OK)
        return err_set(e, ignored.code, "after an abort: %s", ignored.msg);
    return code;
}

static int cycles_run(struct device *d, int cycles, struct err *e)
{
    void *data;
    struct held warm = {0}, now;
    if (device_alloc(d, COUNT * sizeof(float), "what is summed", &data, e))
        return 1;
    for (int i = 1; i <= cycles; i++) {
        if (comm_cycle(d, data, i % 2 == 0, e)) {
            fprintf(stderr, "nccl_cycles: cycle %d: %s\n", i, e->msg);
            return 1;
        }
        if (i == WARM || (i == cycles && cycles < WARM))
            warm = usage_now(d);
    }
    now = usage_now(d);
    printf("cycles=%d more_files=%d more_threads=%d more_kb=%ld less_free_mib=%ld\n", cycles,
           now.files - warm.files, now.threads - warm.threads, now.kb - warm.kb,
           warm.free_mib - now.free_mib);
    d->ops->free(d, data);
    if (now.free_mib < 0) {
        fprintf(stderr, "nccl_cycles: the device does not say how much of its memory is free\n");
        return 1;
    }
    return now.files > warm.files || now.threads > warm.threads || now.kb - warm.kb > SLACK_KB ||
           warm.free_mib - now.free_mib > SLACK_MIB;
}

int main(int argc, char **argv)
{
    struct device *d;
    struct err e = {0};
    int cycles = argc > 1 ? atoi(argv[1]) : 100;
    if (device_open(&d, DEVICE_CUDA, 0, 1, 0, &e)) {
        fprintf(stderr, "nccl_cycles: %s\n", e.msg);
        return 77;
    }
    int code = 77;
    if (d->comm)
        code = cycles_run(d, cycles, &e);
    else
        fprintf(stderr, "nccl_cycles: the plugin is built without NCCL\n");
    device_close(d);
    return code;
}
