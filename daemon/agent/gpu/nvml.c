#include "daemon/agent/gpu/nvml.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

#define DEVICES_MOST 64
#define XIDS_MOST 7 /* most Xid errors between two readings */

/* Numbers of the driver's interface. */
enum { NVML_SUCCESS = 0, NVML_ERROR_TIMEOUT = 10, NVML_ERROR_FUNCTION_NOT_FOUND = 13 };
enum { NVML_ERROR_GPU_IS_LOST = 15, NVML_ERROR_RESET_REQUIRED = 16 };
enum { ECC_UNCORRECTED = 1, ECC_VOLATILE = 0, TEMPERATURE_GPU = 0 };
#define EVENT_XID_CRITICAL 0x8ull

struct device_handle; /* opaque; owned by the driver */
struct event_set;

struct memory_info {
    unsigned long long total, free, used;
};
struct utilization {
    unsigned gpu, memory; /* percent */
};
struct event_data {
    struct device_handle *device;
    unsigned long long type, data;
    unsigned gpu_instance, compute_instance;
};

/* Functions that this driver lacks are NULL; only the first five are necessary. */
struct calls {
    int (*init)(void);
    int (*shutdown)(void);
    int (*count)(unsigned *);
    int (*handle)(unsigned, struct device_handle **);
    int (*uuid)(struct device_handle *, char *, unsigned);
    int (*name)(struct device_handle *, char *, unsigned);
    int (*driver)(char *, unsigned);
    int (*memory)(struct device_handle *, struct memory_info *);
    int (*utilization)(struct device_handle *, struct utilization *);
    int (*temperature)(struct device_handle *, int, unsigned *);
    int (*power)(struct device_handle *, unsigned *);
    int (*ecc)(struct device_handle *, int, int, unsigned long long *);
    int (*throttle)(struct device_handle *, unsigned long long *);
    int (*mig)(struct device_handle *, unsigned *, unsigned *);
    int (*set_create)(struct event_set **);
    int (*set_register)(struct device_handle *, unsigned long long, struct event_set *);
    int (*set_wait)(struct event_set *, struct event_data *, unsigned);
    int (*set_free)(struct event_set *);
    const char *(*error)(int);
};

struct device {
    struct device_handle *handle;
    struct nvml_reading fixed; /* values that do not change: UUID, name, memory */
    int xids[XIDS_MOST + 1];
};

struct nvml {
    void *library;
    struct calls call;
    struct event_set *events; /* NULL: this driver reports none */
    char driver[80];
    size_t count;
    struct device devices[DEVICES_MOST];
};

static void symbols_load(struct nvml *n)
{
    struct calls *c = &n->call;
    const struct {
        void *at;
        const char *name;
    } table[] = {
        {&c->init, "nvmlInit_v2"},
        {&c->shutdown, "nvmlShutdown"},
        {&c->count, "nvmlDeviceGetCount_v2"},
        {&c->handle, "nvmlDeviceGetHandleByIndex_v2"},
        {&c->uuid, "nvmlDeviceGetUUID"},
        {&c->name, "nvmlDeviceGetName"},
        {&c->driver, "nvmlSystemGetDriverVersion"},
        {&c->memory, "nvmlDeviceGetMemoryInfo"},
        {&c->utilization, "nvmlDeviceGetUtilizationRates"},
        {&c->temperature, "nvmlDeviceGetTemperature"},
        {&c->power, "nvmlDeviceGetPowerUsage"},
        {&c->ecc, "nvmlDeviceGetTotalEccErrors"},
        {&c->throttle, "nvmlDeviceGetCurrentClocksThrottleReasons"}, /* the function's name up to CUDA 12 */
        {&c->throttle, "nvmlDeviceGetCurrentClocksEventReasons"},
        {&c->mig, "nvmlDeviceGetMigMode"},
        {&c->set_create, "nvmlEventSetCreate"},
        {&c->set_register, "nvmlDeviceRegisterEvents"},
        {&c->set_wait, "nvmlEventSetWait_v2"},
        {&c->set_free, "nvmlEventSetFree"},
        {&c->error, "nvmlErrorString"},
    };

    for (size_t i = 0; i < ARRAY_LEN(table); i++) {
        void *symbol = dlsym(n->library, table[i].name);
        if (symbol)
            memcpy(table[i].at, &symbol, sizeof(symbol)); /* POSIX: a function's address fits */
    }
    if (!c->set_create || !c->set_register || !c->set_free)
        c->set_wait = NULL;
}

static const char *error_text(const struct nvml *n, int rc)
{
    const char *text = n->call.error ? n->call.error(rc) : NULL;

    return text ? text : "unknown error";
}

static void device_find(struct nvml *n, unsigned index)
{
    struct device *d = &n->devices[n->count];
    struct memory_info memory;
    int rc = n->call.handle(index, &d->handle);

    n->count++; /* an unusable GPU counts, too, so that numbers are those of nvidia-smi */
    if (!rc)
        rc = n->call.uuid(d->handle, d->fixed.uuid, sizeof(d->fixed.uuid));
    if (rc) {
        d->handle = NULL; /* lost, or not accessible: without a UUID it cannot be leased */
        d->fixed.uuid[0] = '\0';
        snprintf(d->fixed.why, sizeof(d->fixed.why), "%s (%d)", error_text(n, rc), rc);
        return;
    }
    if (n->call.name)
        (void)n->call.name(d->handle, d->fixed.name, sizeof(d->fixed.name));
    if (n->call.memory && !n->call.memory(d->handle, &memory))
        d->fixed.memory_bytes = (int64_t)memory.total;
    d->fixed.uuid[sizeof(d->fixed.uuid) - 1] = d->fixed.name[sizeof(d->fixed.name) - 1] = '\0';
}

static void events_register(struct nvml *n)
{
    bool any = false;

    if (!n->call.set_wait || n->call.set_create(&n->events))
        return;
    for (size_t i = 0; i < n->count; i++)
        if (n->devices[i].handle)
            any |= !n->call.set_register(n->devices[i].handle, EVENT_XID_CRITICAL, n->events);
    if (any)
        return;
    (void)n->call.set_free(n->events);
    n->events = NULL;
}

/* After an error the library stays loaded: unloading a driver's library is a common cause of crashes. */
static enum err_code library_start(struct nvml *n, unsigned *count, struct err *e)
{
    const struct calls *c = &n->call;
    bool whole = c->init && c->count && c->handle && c->uuid && c->shutdown;
    int rc = whole ? c->init() : NVML_ERROR_FUNCTION_NOT_FOUND;

    if (rc)
        return err_set(e, ERR_UNAVAILABLE, "NVML does not start: %s (%d)", error_text(n, rc), rc);
    rc = c->count(count);
    if (rc)
        err_set(e, ERR_UNAVAILABLE, "NVML does not count the GPUs: %s (%d)", error_text(n, rc), rc);
    else if (!*count)
        err_set(e, ERR_UNAVAILABLE, "the driver lists no GPU");
    else
        return ERR_OK;
    (void)c->shutdown();
    return e->code;
}

enum err_code nvml_open(struct nvml **out, struct err *e)
{
    struct nvml *n = xcalloc(1, sizeof(*n));
    unsigned count = 0;

    n->library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!n->library) {
        const char *why = dlerror();
        err_set(e, ERR_NOT_FOUND, "%s", why ? why : "libnvidia-ml.so.1 does not load");
        free(n);
        return e->code;
    }
    symbols_load(n);
    if (library_start(n, &count, e)) {
        free(n);
        return e->code;
    }
    /* optional: GPUs are offered even if the driver does not tell its version */
    if (n->call.driver && n->call.driver(n->driver, sizeof(n->driver)))
        n->driver[0] = '\0';
    for (unsigned i = 0; i < count && n->count < DEVICES_MOST; i++)
        device_find(n, i);
    events_register(n);
    *out = n;
    return ERR_OK;
}

void nvml_close(struct nvml *n)
{
    if (!n)
        return;
    if (n->events)
        (void)n->call.set_free(n->events);
    (void)n->call.shutdown();
    free(n);
}

size_t nvml_count(const struct nvml *n)
{
    return n->count;
}

const char *nvml_driver(const struct nvml *n)
{
    return n->driver;
}

/* Returns true if the call gave a value. Records an error that says that the GPU is lost or stuck. */
static bool call_succeeded(int rc, struct nvml_reading *out)
{
    out->lost |= rc == NVML_ERROR_GPU_IS_LOST;
    out->stuck |= rc == NVML_ERROR_RESET_REQUIRED;
    return rc == NVML_SUCCESS;
}

void nvml_read(struct nvml *n, size_t index, struct nvml_reading *out)
{
    struct device *d = &n->devices[index];
    const struct calls *c = &n->call;
    struct memory_info memory;
    struct utilization used;
    unsigned value, pending;
    unsigned long long big;

    *out = d->fixed;
    if (!d->handle)
        return;
    /* each Xid is reported once */
    memcpy(out->xids, d->xids, sizeof(d->xids));
    memset(d->xids, 0, sizeof(d->xids));
    if (c->memory && call_succeeded(c->memory(d->handle, &memory), out))
        out->memory_used = (int64_t)memory.used;
    out->measured = c->utilization && call_succeeded(c->utilization(d->handle, &used), out);
    if (out->measured)
        out->utilisation = (double)used.gpu / 100;
    if (c->temperature && call_succeeded(c->temperature(d->handle, TEMPERATURE_GPU, &value), out))
        out->temperature = (int)value;
    if (c->power && call_succeeded(c->power(d->handle, &value), out))
        out->power_watts = (int)((value + 500) / 1000);
    if (c->ecc && call_succeeded(c->ecc(d->handle, ECC_UNCORRECTED, ECC_VOLATILE, &big), out))
        out->ecc_errors = (int64_t)big;
    if (c->throttle && call_succeeded(c->throttle(d->handle, &big), out))
        out->slowed_by = big;
    if (c->mig && call_succeeded(c->mig(d->handle, &value, &pending), out))
        out->mig = value != 0;
}

static void xid_note(struct nvml *n, const struct event_data *event)
{
    for (size_t i = 0; i < n->count; i++) {
        int *xids = n->devices[i].xids;
        size_t at = 0;

        if (n->devices[i].handle != event->device)
            continue;
        while (at < XIDS_MOST && xids[at] && xids[at] != (int)event->data)
            at++;
        if (at < XIDS_MOST)
            xids[at] = (int)event->data;
    }
}

enum nvml_news nvml_wait(struct nvml *n, unsigned timeout_ms)
{
    enum nvml_news news = NVML_QUIET;
    struct event_data event;
    int rc;

    if (!n->events)
        return NVML_DEAF;
    rc = n->call.set_wait(n->events, &event, timeout_ms);
    while (rc == NVML_SUCCESS) { /* takes all events that are there already */
        if (event.type & EVENT_XID_CRITICAL)
            xid_note(n, &event);
        news = NVML_NEWS;
        rc = n->call.set_wait(n->events, &event, 0);
    }
    /* after a GPU was lost the event set may fail for good: then the readings tell of the loss */
    return rc == NVML_ERROR_TIMEOUT ? news : news == NVML_NEWS ? NVML_NEWS : NVML_DEAF;
}
