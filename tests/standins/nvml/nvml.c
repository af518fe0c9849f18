/* A stand-in for libnvidia-ml.so.1 with the calls that ddp-agent makes, for machines without a GPU. Each line of the
 * file that STANDIN_NVML names is a GPU. The file is read at every call, so a test can change it while an agent runs. A
 * line has words such as:
 *
 *   uuid=GPU-1 name=NVIDIA_H200 memory=141 used=3 temperature=61 power=540 load=71 ecc=0 slowed=0 mig=0
 *   xids=79@1,63@2
 *
 * memory, used: in GiB.
 * xids: a list of NUMBER@EVENT. Each entry is reported once, so another EVENT reports the same Xid again.
 * lost=1: calls for this GPU fail as if it had fallen off the bus.
 * stuck=1: calls for this GPU fail as if it needed a reset.
 * bare=1: the driver supports none of the calls that are optional.
 * In the first line only: uncounted=1: counting the GPUs fails; slow=400: nvmlInit takes 400 ms.
 *
 * If there is no such file, there is no driver. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define GPUS_MOST 16
#define TOLD_MOST 64
#define EXPORT __attribute__((visibility("default")))

enum {
    OK = 0,
    NOT_SUPPORTED = 3,
    NOT_FOUND = 6,
    DRIVER_NOT_LOADED = 9,
    TIMED_OUT = 10,
    LOST = 15,
    STUCK = 16,
    UNKNOWN = 999
};

struct gpu {
    int index;
};
struct set {
    int unused;
};
struct event {
    struct gpu *device;
    unsigned long long type, data;
    unsigned gpu_instance, compute_instance;
};
struct memory {
    unsigned long long total, free, used;
};
struct rates {
    unsigned gpu, memory;
};

static struct gpu gpus[GPUS_MOST];
static struct set the_set;
static char told[TOLD_MOST][64]; /* reported Xids, such as "0:79@1" for GPU 0 */
static size_t told_count;

/* Reads the value of a key from the GPU's line. Returns false if the line has no such key. */
static bool value_get(int index, const char *key, char out[128])
{
    const char *path = getenv("STANDIN_NVML");
    FILE *f = path ? fopen(path, "re") : NULL;
    char line[512];
    bool found = false;

    for (int i = 0; f && i <= index && fgets(line, sizeof(line), f); i++)
        for (char *rest = line, *word; i == index && !found && (word = strsep(&rest, " \n"));) {
            size_t len = strlen(key);
            if (strncmp(word, key, len) || word[len] != '=')
                continue;
            snprintf(out, 128, "%s", word + len + 1);
            found = true;
        }
    if (f)
        fclose(f);
    return found;
}

static long value_number(int index, const char *key)
{
    char text[128];

    return value_get(index, key, text) ? strtol(text, NULL, 10) : 0;
}

static int state_of(const struct gpu *g)
{
    return value_number(g->index, "lost")    ? LOST
           : value_number(g->index, "stuck") ? STUCK
           : value_number(g->index, "bare")  ? NOT_SUPPORTED
                                             : OK;
}

EXPORT int nvmlInit_v2(void);
EXPORT int nvmlShutdown(void);
EXPORT int nvmlDeviceGetCount_v2(unsigned *count);
EXPORT int nvmlDeviceGetHandleByIndex_v2(unsigned index, struct gpu **out);
EXPORT int nvmlDeviceGetUUID(struct gpu *g, char *out, unsigned size);
EXPORT int nvmlDeviceGetName(struct gpu *g, char *out, unsigned size);
EXPORT int nvmlSystemGetDriverVersion(char *out, unsigned size);
EXPORT int nvmlDeviceGetMemoryInfo(struct gpu *g, struct memory *out);
EXPORT int nvmlDeviceGetUtilizationRates(struct gpu *g, struct rates *out);
EXPORT int nvmlDeviceGetTemperature(struct gpu *g, int sensor, unsigned *out);
EXPORT int nvmlDeviceGetPowerUsage(struct gpu *g, unsigned *out);
EXPORT int nvmlDeviceGetTotalEccErrors(struct gpu *g, int type, int counter, unsigned long long *out);
EXPORT int nvmlDeviceGetCurrentClocksThrottleReasons(struct gpu *g, unsigned long long *out);
EXPORT int nvmlDeviceGetMigMode(struct gpu *g, unsigned *current, unsigned *pending);
EXPORT int nvmlEventSetCreate(struct set **out);
EXPORT int nvmlDeviceRegisterEvents(struct gpu *g, unsigned long long types, struct set *set);
EXPORT int nvmlEventSetWait_v2(struct set *set, struct event *out, unsigned timeout_ms);
EXPORT int nvmlEventSetFree(struct set *set);
EXPORT const char *nvmlErrorString(int code);

int nvmlInit_v2(void)
{
    const char *path = getenv("STANDIN_NVML");

    for (int i = 0; i < GPUS_MOST; i++)
        gpus[i].index = i;
    for (long left = value_number(0, "slow"); left > 0; left -= 10)
        nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
    return path && !access(path, R_OK) ? OK : DRIVER_NOT_LOADED;
}

int nvmlShutdown(void)
{
    return OK;
}

int nvmlDeviceGetCount_v2(unsigned *count)
{
    char text[128];

    for (*count = 0; *count < GPUS_MOST && value_get((int)*count, "uuid", text);)
        ++*count;
    return value_get(0, "uncounted", text) ? UNKNOWN : OK;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, struct gpu **out)
{
    char text[128];

    if (index >= GPUS_MOST || !value_get((int)index, "uuid", text))
        return NOT_FOUND;
    *out = &gpus[index];
    return OK;
}

int nvmlDeviceGetUUID(struct gpu *g, char *out, unsigned size)
{
    char text[128];

    if (value_number(g->index, "lost"))
        return LOST;
    if (!value_get(g->index, "uuid", text))
        return NOT_FOUND;
    snprintf(out, size, "%s", text);
    return OK;
}

int nvmlDeviceGetName(struct gpu *g, char *out, unsigned size)
{
    char text[128];

    if (state_of(g) || !value_get(g->index, "name", text))
        return NOT_SUPPORTED;
    for (char *at = text; (at = strchr(at, '_'));)
        *at = ' ';
    snprintf(out, size, "%s", text);
    return OK;
}

int nvmlSystemGetDriverVersion(char *out, unsigned size)
{
    snprintf(out, size, "580.65.06");
    return OK;
}

int nvmlDeviceGetMemoryInfo(struct gpu *g, struct memory *out)
{
    out->total = (unsigned long long)value_number(g->index, "memory") << 30;
    out->used = (unsigned long long)value_number(g->index, "used") << 30;
    out->free = out->total - out->used;
    return state_of(g);
}

int nvmlDeviceGetUtilizationRates(struct gpu *g, struct rates *out)
{
    out->gpu = (unsigned)value_number(g->index, "load");
    out->memory = 0;
    return state_of(g);
}

int nvmlDeviceGetTemperature(struct gpu *g, int sensor, unsigned *out)
{
    *out = (unsigned)value_number(g->index, "temperature");
    return sensor ? NOT_SUPPORTED : state_of(g);
}

int nvmlDeviceGetPowerUsage(struct gpu *g, unsigned *out)
{
    *out = (unsigned)value_number(g->index, "power") * 1000;
    return state_of(g);
}

int nvmlDeviceGetTotalEccErrors(struct gpu *g, int type, int counter, unsigned long long *out)
{
    *out = (unsigned long long)value_number(g->index, "ecc");
    return type == 1 && counter == 0 ? state_of(g) : NOT_SUPPORTED;
}

int nvmlDeviceGetCurrentClocksThrottleReasons(struct gpu *g, unsigned long long *out)
{
    *out = (unsigned long long)value_number(g->index, "slowed");
    return state_of(g);
}

int nvmlDeviceGetMigMode(struct gpu *g, unsigned *current, unsigned *pending)
{
    *current = *pending = (unsigned)value_number(g->index, "mig");
    return state_of(g);
}

int nvmlEventSetCreate(struct set **out)
{
    *out = &the_set;
    return value_number(0, "bare") ? NOT_SUPPORTED : OK;
}

int nvmlDeviceRegisterEvents(struct gpu *g, unsigned long long types, struct set *set)
{
    (void)g;
    return types == 8 && set == &the_set ? OK : NOT_SUPPORTED;
}

/* Returns whether this Xid was not reported before, and remembers it. */
static bool is_new(int index, const char *word)
{
    char key[64];

    snprintf(key, sizeof(key), "%d:%s", index, word);
    for (size_t i = 0; i < told_count; i++)
        if (!strcmp(told[i], key))
            return false;
    if (told_count < TOLD_MOST)
        snprintf(told[told_count++], sizeof(told[0]), "%s", key);
    return true;
}

static bool next_event(struct event *out)
{
    for (int i = 0; i < GPUS_MOST; i++) {
        char text[128], *rest = text, *word;

        if (!value_get(i, "xids", text))
            continue;
        while ((word = strsep(&rest, ",")))
            if (*word && is_new(i, word)) {
                *out = (struct event){.device = &gpus[i], .type = 8, .data = strtoull(word, NULL, 10)};
                return true;
            }
    }
    return false;
}

int nvmlEventSetWait_v2(struct set *set, struct event *out, unsigned timeout_ms)
{
    const struct timespec pause = {.tv_nsec = 10000000};

    (void)set;
    for (unsigned waited = 0;; waited += 10) {
        if (next_event(out))
            return OK;
        if (waited >= timeout_ms)
            return TIMED_OUT;
        nanosleep(&pause, NULL);
    }
}

int nvmlEventSetFree(struct set *set)
{
    (void)set;
    return OK;
}

const char *nvmlErrorString(int code)
{
    return code == DRIVER_NOT_LOADED ? "Driver Not Loaded" : "Unknown Error";
}
