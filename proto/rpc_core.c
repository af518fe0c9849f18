#include "proto/rpc_core.h"

#include <dlfcn.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <grpc/byte_buffer_reader.h>
#include <grpc/support/log.h>
#include <grpc/support/time.h>

#include "base/log.h"
#include "base/mem.h"
#include "proto/rpc_codec.h"

#define ABSEIL_MOST 9 /* Debian 12 has Abseil "debian3" */

void rpc_tag_arm(struct rpc_tag *tag)
{
    atomic_fetch_add_explicit(&tag->order, 1, memory_order_release);
}

void rpc_tag_home(struct rpc_tag *tag)
{
    atomic_load_explicit(&tag->order, memory_order_acquire);
}

void rpc_batch(grpc_call *call, const grpc_op *ops, size_t count, struct rpc_tag *tag)
{
    grpc_call_error refused;

    rpc_tag_arm(tag);
    refused = grpc_call_start_batch(call, ops, count, tag, NULL);
    BUG_ON(refused != GRPC_CALL_OK);
}

/* ---- the parked thread ---- */

static void cq_push(struct rpc_cq *cq, struct rpc_tag *tag)
{
    bool was_empty;

    pthread_mutex_lock(&cq->lock);
    was_empty = !cq->first;
    if (!tag)
        cq->ended = true;
    else if (was_empty)
        cq->first = cq->last = tag;
    else
        cq->last = cq->last->next = tag;
    pthread_mutex_unlock(&cq->lock);
    if (was_empty || !tag)
        uv_async_send(&cq->wake);
}

static void *cq_wait(void *user)
{
    struct rpc_cq *cq = user;

    for (;;) {
        grpc_event event = grpc_completion_queue_next(cq->queue, gpr_inf_future(GPR_CLOCK_MONOTONIC), NULL);
        struct rpc_tag *tag = event.tag;

        if (event.type == GRPC_QUEUE_SHUTDOWN)
            break;
        if (event.type != GRPC_OP_COMPLETE)
            continue;
        rpc_tag_home(tag);
        tag->ok = event.success != 0;
        tag->next = NULL;
        cq_push(cq, tag);
    }
    cq_push(cq, NULL);
    return NULL;
}

/* ---- the loop's side ---- */

static void cq_handle_closed(uv_handle_t *handle)
{
    struct rpc_cq *cq = handle->data;

    if (--cq->closing)
        return;
    pthread_mutex_destroy(&cq->lock);
    cq->on_closed(cq->closed_user);
}

static void cq_ended(struct rpc_cq *cq)
{
    pthread_join(cq->thread, NULL);
    grpc_completion_queue_destroy(cq->queue);
    BUG_ON(cq->done_first);
    cq->closing = 2;
    uv_close((uv_handle_t *)&cq->wake, cq_handle_closed);
    uv_close((uv_handle_t *)&cq->idle, cq_handle_closed);
}

static void tags_deliver(struct rpc_tag *tag)
{
    while (tag) {
        struct rpc_tag *next = tag->next;

        tag->done(tag, tag->ok);
        tag = next;
    }
}

static void cq_deliver(uv_async_t *wake)
{
    struct rpc_cq *cq = wake->data;
    struct rpc_tag *tag;
    bool ended;

    pthread_mutex_lock(&cq->lock);
    tag = cq->first;
    cq->first = cq->last = NULL;
    ended = cq->ended;
    pthread_mutex_unlock(&cq->lock);
    tags_deliver(tag);
    if (ended)
        cq_ended(cq);
}

static void cq_deliver_done(uv_idle_t *idle)
{
    struct rpc_cq *cq = idle->data;
    struct rpc_tag *tag = cq->done_first;

    /* It stays active for one turn more, in which the loop does not wait for events: a caller of uv_run(UV_RUN_ONCE) may wait
     * for what is delivered here. */
    if (!tag)
        uv_idle_stop(idle);
    cq->done_first = cq->done_last = NULL;
    tags_deliver(tag);
}

void rpc_cq_batch(struct rpc_cq *cq, grpc_call *call, const grpc_op *ops, size_t count, struct rpc_tag *tag)
{
    void *completed;
    int ok;

    grpc_completion_queue_thread_local_cache_init(cq->queue);
    rpc_batch(call, ops, count, tag);
    if (!grpc_completion_queue_thread_local_cache_flush(cq->queue, &completed, &ok))
        return;
    struct rpc_tag *done = completed;
    rpc_tag_home(done);
    done->ok = ok != 0;
    done->next = NULL;
    if (cq->done_first)
        cq->done_last = cq->done_last->next = done;
    else
        cq->done_first = cq->done_last = done;
    uv_idle_start(&cq->idle, cq_deliver_done);
}

void rpc_cq_init(struct rpc_cq *cq)
{
    memset(cq, 0, sizeof(*cq));
    cq->queue = grpc_completion_queue_create_for_next(NULL);
    pthread_mutex_init(&cq->lock, NULL);
}

void rpc_cq_start(struct rpc_cq *cq, uv_loop_t *loop)
{
    sigset_t all, old;
    int failed;

    failed = uv_async_init(loop, &cq->wake, cq_deliver);
    BUG_ON(failed);
    uv_idle_init(loop, &cq->idle);
    cq->wake.data = cq->idle.data = cq;
    sigfillset(&all); /* the loop's thread handles signals */
    pthread_sigmask(SIG_SETMASK, &all, &old);
    failed = pthread_create(&cq->thread, NULL, cq_wait, cq);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    BUG_ON(failed);
}

void rpc_cq_close(struct rpc_cq *cq, void (*on_closed)(void *user), void *user)
{
    cq->on_closed = on_closed;
    cq->closed_user = user;
    grpc_completion_queue_shutdown(cq->queue);
}

void rpc_cq_release(struct rpc_cq *cq)
{
    grpc_completion_queue_shutdown(cq->queue);
    while (grpc_completion_queue_next(cq->queue, gpr_inf_future(GPR_CLOCK_MONOTONIC), NULL).type !=
           GRPC_QUEUE_SHUTDOWN)
        continue;
    grpc_completion_queue_destroy(cq->queue);
    pthread_mutex_destroy(&cq->lock);
}

/* ---- the library ---- */

static atomic_int servers;

static void log_of_grpc(gpr_log_func_args *args)
{
    enum log_level level =
        args->severity == GPR_LOG_SEVERITY_ERROR && atomic_load(&servers) ? LOG_WARN : LOG_DEBUG;

    log_line(level, "grpc", "message=%s", LOG_Q(args->message));
}

/* gRPC uses the locks of Abseil. Debian's build of Abseil searches for deadlocks whenever a lock is taken. Other builds
 * have this function under other names, but do not search unless a program turns the search on. */
static void locks_stop_search(void)
{
    void (*set_mode)(int) = NULL;

    for (int version = 1; version <= ABSEIL_MOST && !set_mode; version++) {
        char name[96];
        snprintf(name, sizeof(name),
                 "_ZN4absl7debian%d29SetMutexDeadlockDetectionModeENS0_15OnDeadlockCycleE", version);
        void *symbol = dlsym(RTLD_DEFAULT, name);
        memcpy(&set_mode, &symbol, sizeof(symbol)); /* ISO C has no cast to a function pointer */
    }
    if (set_mode)
        set_mode(0); /* kIgnore */
}

/* gRPC's own resolver (c-ares) asks the name servers even for names of /etc/hosts, and waits for the
 * answer. The native resolver is getaddrinfo. gRPC reads this variable once, when it is first initialized;
 * it is removed afterwards, so that child processes do not see it. */
static void grpc_init_first(void)
{
    static const char name[] = "GRPC_DNS_RESOLVER";
    const bool ours = !getenv(name);

    gpr_set_log_function(log_of_grpc);
    locks_stop_search();
    if (ours)
        setenv(name, "native", 1);
    grpc_init();
    if (ours)
        unsetenv(name);
}

void rpc_grpc_enter(bool server)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static bool is_set_up;

    if (server)
        atomic_fetch_add(&servers, 1);
    pthread_mutex_lock(&lock);
    if (is_set_up)
        grpc_init();
    else
        grpc_init_first();
    is_set_up = true;
    pthread_mutex_unlock(&lock);
}

void rpc_grpc_leave(void)
{
    grpc_shutdown_blocking();
}

gpr_timespec rpc_deadline(int64_t timeout_ms)
{
    if (timeout_ms < 0)
        return gpr_inf_future(GPR_CLOCK_MONOTONIC);
    return gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC), gpr_time_from_millis(timeout_ms, GPR_TIMESPAN));
}

int64_t rpc_deadline_left_ms(gpr_timespec deadline)
{
    gpr_timespec left;

    deadline = gpr_convert_clock_type(deadline, GPR_CLOCK_MONOTONIC);
    if (gpr_time_cmp(deadline, gpr_inf_future(GPR_CLOCK_MONOTONIC)) == 0)
        return INT64_MAX;
    left = gpr_time_sub(deadline, gpr_now(GPR_CLOCK_MONOTONIC));
    return left.tv_sec < 0 ? 0 : (int64_t)left.tv_sec * 1000 + left.tv_nsec / 1000000;
}

enum err_code rpc_pack_buffer(const void *message, grpc_byte_buffer **out, size_t *size, struct err *e)
{
    grpc_slice slice;

    if (rpc_pack_check(message, size, e))
        return e->code;
    slice = grpc_slice_malloc(*size);
    protobuf_c_message_pack(message, GRPC_SLICE_START_PTR(slice));
    *out = grpc_raw_byte_buffer_create(&slice, 1);
    grpc_slice_unref(slice);
    return ERR_OK;
}

enum err_code rpc_unpack_buffer(const void *type, grpc_byte_buffer **buffer, void **out, struct err *e)
{
    grpc_byte_buffer_reader reader;
    enum err_code code = ERR_INTERNAL;

    if (!grpc_byte_buffer_reader_init(&reader, *buffer)) {
        err_set(e, code, "the bytes of the message cannot be read");
    } else {
        grpc_slice slice = grpc_byte_buffer_reader_readall(&reader);

        code = rpc_unpack(type, GRPC_SLICE_START_PTR(slice), GRPC_SLICE_LENGTH(slice), out, e);
        grpc_slice_unref(slice);
        grpc_byte_buffer_reader_destroy(&reader);
    }
    grpc_byte_buffer_destroy(*buffer);
    *buffer = NULL;
    return code;
}

char *rpc_slice_text(grpc_slice slice)
{
    size_t len = GRPC_SLICE_LENGTH(slice);
    char *text = xmalloc(len + 1);

    memcpy(text, GRPC_SLICE_START_PTR(slice), len);
    text[len] = '\0';
    return text;
}
