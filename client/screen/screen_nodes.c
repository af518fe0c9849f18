#include "client/screen/screen_nodes.h"

#include <inttypes.h>
#include <string.h>

#include "base/mem.h"
#include "client/screen/screen_parts.h"
#include "client/text/format.h"
#include "client/text/table.h"

static const struct table_column columns[] = {
    {"NODE", .most = 24},
    {"STATE"},
    {"CPU"},
    {"MEMORY", .spare = 2, .optional = true},
    {"GPU", .spare = 4, .optional = true},
    {"GPU LOAD", true, .spare = 5, .optional = true},
    {"FREE", true},
    {"JOBS", .most = 16},
    {"LOAD", true},
    {"SEEN", true, .spare = 3},
    {"VERSION", .spare = 1},
    {"NOTE", .optional = true, .wrap = true},
};

static bool node_is_in(const Ddp__V1__NodeStatus *node, const char *state)
{
    return strcmp(node->state, state) == 0;
}

/* "22/64 GB": what is used, and all. */
static void nodes_memory_cell(const Ddp__V1__NodeStatus *node, struct buf *out)
{
    const double gb = 1e9, all = (double)node->memory_bytes / gb;
    if (!node->memory_bytes)
        return;
    if (screen_node_is_usable(node) && node->memory_free > 0 && node->memory_free <= node->memory_bytes)
        buf_printf(out, "%.0f/%.0f GB", all - (double)node->memory_free / gb, all);
    else
        buf_printf(out, "%.0f GB", all);
}

/* "87 %": the mean of its GPUs. */
static void nodes_gpu_load_cell(const Ddp__V1__NodeStatus *node, struct buf *out)
{
    double sum = 0;
    for (size_t i = 0; i < node->n_gpus; i++)
        sum += node->gpus[i]->utilisation;
    if (node->n_gpus && screen_node_is_usable(node))
        buf_puts(out, fmt_percent(sum / (double)node->n_gpus).text);
}

/* What keeps a node from running jobs, and what to do. */
static void nodes_advice(const Ddp__V1__NodeStatus *node, const struct term *term, struct buf *out)
{
    CLEANUP(buf_release) struct buf silent = {0};
    if (node->seen_ms)
        buf_printf(&silent, "silent for %s",
                   text_duration((term->now_ms - node->seen_ms) / 1000 * 1000).text);
    else
        buf_puts(&silent, "never heard");
    if (node_is_in(node, "suspect"))
        buf_printf(out, "%s: see whether the machine, its network and ddp-agent run", silent.data);
    else if (node_is_in(node, "lost"))
        term_printf_safe(out, "%s: start its ddp-agent again, or `ddpctl forget %s` if it is gone for good",
                         silent.data, node->name);
    else if (node_is_in(node, "left"))
        term_printf_safe(out, "its agent was stopped: start it again, or `ddpctl forget %s`", node->name);
    else if (node_is_in(node, "drained") || node_is_in(node, "draining"))
        term_printf_safe(out, "gets no jobs: `ddpctl undrain %s` takes it back", node->name);
}

/* "8× H200 139G  61°C 540W": the temperature of the hottest GPU, and the power of all. */
static void nodes_gpu_cell(const Ddp__V1__NodeStatus *node, struct buf *out)
{
    int hottest = 0, watts = 0;
    bool alike = true;
    if (node->n_gpus == 0)
        return;
    for (size_t i = 0; i < node->n_gpus; i++) {
        const Ddp__V1__Gpu *g = node->gpus[i];
        hottest = g->temperature > hottest ? g->temperature : hottest;
        watts += g->power_watts;
        alike = alike && strcmp(g->name, node->gpus[0]->name) == 0;
    }
    buf_printf(out, "%zu× %s", node->n_gpus, alike ? node->gpus[0]->name : "mixed");
    if (alike && node->gpus[0]->memory_bytes)
        buf_printf(out, " %.0fG", (double)node->gpus[0]->memory_bytes / (1024.0 * 1024 * 1024));
    if (hottest)
        buf_printf(out, "  %d°C %dW", hottest, watts);
}

/* What to do, the note of the node or of an operator, then the problem of every sick GPU. */
static void nodes_note_cell(const Ddp__V1__NodeStatus *node, const struct term *term, struct buf *out)
{
    nodes_advice(node, term, out);
    if (*node->note && out->len)
        buf_puts(out, "; ");
    term_puts_safe(out, node->note);
    for (size_t i = 0; i < node->n_gpus; i++) {
        if (node->gpus[i]->healthy && !*node->gpus[i]->problem)
            continue;
        buf_printf(out, "%sgpu%d ", out->len ? "; " : "", node->gpus[i]->index);
        term_puts_safe(out, *node->gpus[i]->problem ? node->gpus[i]->problem : "is sick");
    }
}

/* "runs job 41, which the coordinator does not know" */
static void nodes_unknown_cell(const Ddp__V1__NodeStatus *node, struct buf *out)
{
    for (size_t i = 0; i < node->n_unknown_jobs; i++)
        buf_printf(out, "%s%lld",
                   i          ? ","
                   : out->len ? "; runs job "
                              : "runs job ",
                   (long long)node->unknown_jobs[i]);
    if (node->n_unknown_jobs)
        buf_puts(out, ", which the coordinator does not know");
}

static void nodes_node_row(struct table *t, const Ddp__V1__NodeStatus *node, const struct term *term)
{
    CLEANUP(buf_release)
    struct buf cpu = {0}, memory = {0}, gpu = {0}, gpu_load = {0}, jobs = {0}, note = {0};
    buf_printf(&cpu, "%d c", node->slots);
    nodes_memory_cell(node, &memory);
    nodes_gpu_cell(node, &gpu);
    nodes_gpu_load_cell(node, &gpu_load);
    for (size_t i = 0; i < node->n_jobs; i++)
        buf_printf(&jobs, "%s%lld", i ? "," : "", (long long)node->jobs[i]);
    nodes_note_cell(node, term, &note);
    nodes_unknown_cell(node, &note);
    const bool usable = screen_node_is_usable(node);
    table_cell(t, STYLE_NONE, node->name);
    table_cell(t, style_of_state(node->state), node->state);
    table_cell(t, STYLE_NONE, cpu.data);
    table_cell(t, STYLE_NONE, memory.data ? memory.data : "");
    table_cell(t, STYLE_NONE, gpu.data ? gpu.data : "");
    table_cell(t, STYLE_NONE, gpu_load.data ? gpu_load.data : "");
    table_cell(t, STYLE_NONE,
               text_count(!usable        ? 0
                          : node->n_gpus ? node->gpus_free
                                         : node->slots_free)
                   .text);
    table_cell(t, STYLE_NONE, jobs.data ? jobs.data : "-");
    table_cell(t, STYLE_NONE, usable ? fmt_percent(node->load).text : "-");
    table_cell(t, STYLE_NONE, node->seen_ms ? text_age(term->now_ms - node->seen_ms).text : "never");
    table_cell(t, STYLE_NONE, node->version);
    table_cell(t, STYLE_NONE, note.data ? note.data : "");
    table_end_row(t);
}

/* "3 nodes (1 lost, 1 drained): 68 slots, 28 free; 16 GPUs, 4 free, 1 sick; 128 GB, 90 GB of it free" */
static void nodes_put_total(const Ddp__V1__ListNodesReply *reply, struct buf *out)
{
    static const char *const states[] = {"joining", "suspect", "draining", "drained", "lost", "left"};
    int64_t slots = 0, slots_free = 0, gpus = 0, gpu_slots = 0, gpus_free = 0, sick = 0, memory = 0,
            memory_free = 0;
    size_t others = 0;
    for (size_t i = 0; i < reply->n_nodes; i++) {
        const Ddp__V1__NodeStatus *node = reply->nodes[i];
        for (size_t k = 0; k < node->n_gpus; k++)
            sick += !node->gpus[k]->healthy;
        if (!screen_node_is_usable(node))
            continue;
        slots += node->slots;
        slots_free += node->slots_free;
        gpus += (int64_t)node->n_gpus;
        gpu_slots += (int64_t)node->n_gpus * (node->slots_per_gpu > 1 ? node->slots_per_gpu : 1);
        gpus_free += node->gpus_free;
        memory += node->memory_bytes;
        memory_free += node->memory_free;
    }
    buf_puts(out, text_counted((int64_t)reply->n_nodes, "node").text);
    for (size_t s = 0; s < ARRAY_LEN(states); s++) {
        size_t count = 0;
        for (size_t i = 0; i < reply->n_nodes; i++)
            count += node_is_in(reply->nodes[i], states[s]);
        if (count)
            buf_printf(out, "%s%zu %s", others++ ? ", " : " (", count, states[s]);
    }
    buf_printf(out, "%s: %s, %" PRId64 " free", others ? ")" : "", text_counted(slots, "slot").text,
               slots_free);
    if (gpus)
        buf_printf(out, "; %s", text_counted(gpus, "GPU").text);
    if (gpu_slots > gpus) /* workers share GPUs, and what is free is counted in slots */
        buf_printf(out, " with %" PRId64 " slots", gpu_slots);
    if (gpus)
        buf_printf(out, ", %" PRId64 " free", gpus_free);
    if (sick)
        buf_printf(out, "%s%" PRId64 " sick", gpus ? ", " : "; ", sick);
    if (memory)
        buf_printf(out, "; memory %s", text_bytes(memory).text);
    if (memory && memory_free)
        buf_printf(out, ", %s free", text_bytes(memory_free).text);
    buf_putc(out, '\n');
}

void screen_nodes(const Ddp__V1__ListNodesReply *reply, const struct term *term, struct buf *out)
{
    CLEANUP(table_release) struct table *t = table_new(columns, ARRAY_LEN(columns));
    for (size_t i = 0; i < reply->n_nodes; i++)
        nodes_node_row(t, reply->nodes[i], term);
    table_print(t, term, out);
    nodes_put_total(reply, out);
}
