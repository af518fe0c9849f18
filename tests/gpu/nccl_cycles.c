/* nccl_cycles N: N communicators of one rank, one after the other in this process, on the plugin's device;
 * each sums, and every second one is aborted with the sum in flight. Descriptors, threads and device memory
 * are then what they were after the tenth. Exit 77: no such device, or no NCCL. */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "trainer/device/comm.h"
#include "trainer/device/device.h"

enum { COUNT = 1 << 20, WARM = 10 };

static int entries(const char *path)
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

static enum err_code use(struct device *d, struct comm *c, float *data, bool aborts, struct err *e)
{
    if (d->comm->allreduce(c, data, COUNT, e))
        return e->code;
    if (aborts) {
        d->comm->abort(c);
        return ERR_OK;
    }
    return d->comm->join(c, e) ? e->code : d->ops->wait(d, e);
}

static enum err_code cycle(struct device *d, float *data, bool aborts, struct err *e)
{
    uint8_t id[256];
    struct comm *_Atomic comm = NULL;
    struct comm_config config = {.id = id, .world_size = 1, .timeout_ms = 60000};
    struct err ignored;
    if (d->comm->make_id(id, sizeof(id), &config.id_size, e))
        return e->code;
    enum err_code code = d->comm->open(&comm, d, &config, e);
    if (code == ERR_OK)
        code = use(d, comm, data, aborts, e);
    if (comm && d->comm->close(comm, 10000, code ? &ignored : e) && code == ERR_OK)
        code = e->code;
    if (aborts && d->ops->wait(d, &ignored) && ignored.code != ERR_ABORTED && code == ERR_OK)
        return err_set(e, ignored.code, "after an abort: %s", ignored.msg);
    return code;
}

static int run(struct device *d, int cycles, struct err *e)
{
    void *data;
    int files = 0, threads = 0;
    long kb = 0;
    if (device_alloc(d, COUNT * sizeof(float), "what is summed", &data, e))
        return 1;
    for (int i = 1; i <= cycles; i++) {
        if (cycle(d, data, i % 2 == 0, e)) {
            fprintf(stderr, "nccl_cycles: cycle %d: %s\n", i, e->msg);
            return 1;
        }
        if (i != WARM && (i != cycles || cycles > WARM))
            continue;
        files = entries("/proc/self/fd");
        threads = entries("/proc/self/task");
        kb = resident_kb();
    }
    int more_files = entries("/proc/self/fd") - files, more_threads = entries("/proc/self/task") - threads;
    printf("cycles=%d more_files=%d more_threads=%d more_kb=%ld\n", cycles, more_files, more_threads,
           resident_kb() - kb);
    d->ops->free(d, data);
    return more_files > 0 || more_threads > 0;
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
        code = run(d, cycles, &e);
    else
        fprintf(stderr, "nccl_cycles: the plugin is built without NCCL\n");
    device_close(d);
    return code;
}
