#include "daemon/agent/observe/probe_message.h"

#include <stdlib.h>

#include "base/mem.h"
#include "proto/rpc_codec.h"

static void process_message_fill(const struct sampled_process *from, Ddp__V1__ProcessProbe *out)
{
    static const char states[] = "R\0S\0D\0T\0t\0Z\0I\0X";
    const char *state = "";

    for (size_t i = 0; i < sizeof(states); i += 2)
        if (states[i] == from->p.state)
            state = &states[i];
    ddp__v1__process_probe__init(out);
    out->pid = from->p.pid;
    out->parent = from->p.parent;
    out->name = rpc_utf8_clean((char *)from->p.name);
    out->state = (char *)state;
    out->waits_in = (char *)from->call;
    out->waits_for = rpc_utf8_clean((char *)from->target);
    out->cpu_ms = from->p.cpu_ms;
    out->memory_bytes = from->p.memory_bytes;
    out->threads = from->p.threads;
    out->stack = from->stack;
    out->n_stack = strv_len(from->stack);
}

Ddp__V1__WorkerProbe *probe_message_make(const struct worker_sample *sample,
                                         const struct worker_activity *activity, int64_t now, int64_t wall)
{
    Ddp__V1__WorkerProbe *out = xcalloc(1, sizeof(*out));

    ddp__v1__worker_probe__init(out);
    out->spawn = sample->spawn;
    out->pid = sample->pid;
    out->probed = sample->there;
    out->cpu_ms = sample->cpu_ms;
    out->idle_ms = activity->seen ? now - activity->busy_at : -1;
    out->output_age_ms = sample->output_ms ? wall - sample->output_ms : -1;
    out->report_age_ms = activity->report_at ? now - activity->report_at : -1;
    out->processes_left_out = (int32_t)sample->left_out;
    out->processes = xcalloc(sample->process_count + 1, sizeof(Ddp__V1__ProcessProbe *));
    for (size_t i = 0; i < sample->process_count; i++) {
        out->processes[i] = xcalloc(1, sizeof(Ddp__V1__ProcessProbe));
        process_message_fill(&sample->processes[i], out->processes[i]);
        out->n_processes++;
    }
    return out;
}

void probe_message_free(Ddp__V1__WorkerProbe *worker)
{
    for (size_t i = 0; i < worker->n_processes; i++)
        free(worker->processes[i]);
    free(worker->processes);
    free(worker);
}
