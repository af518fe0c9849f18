#include "client/screen/screen_nodes.h"

#include <string.h>

#include "base/mem.h"
#include "client/text/format.h"
#include "client/text/table.h"

static const struct table_column columns[] = {
    {"NODE", false}, {"STATE", false}, {"CPU", false},    {"GPU", false},        {"FREE", true},
    {"JOBS", false}, {"LOAD", true},   {"SEEN", true, 2}, {"VERSION", false, 1}, {"NOTE", false},
};

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

/* The note of the node or of an operator, then the problem of every sick GPU. */
static void nodes_note_cell(const Ddp__V1__NodeStatus *node, struct buf *out)
{
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
    CLEANUP(buf_release) struct buf cpu = {0}, gpu = {0}, jobs = {0}, note = {0};
    buf_printf(&cpu, "%d c", node->slots);
    nodes_gpu_cell(node, &gpu);
    for (size_t i = 0; i < node->n_jobs; i++)
        buf_printf(&jobs, "%s%lld", i ? "," : "", (long long)node->jobs[i]);
    nodes_note_cell(node, &note);
    nodes_unknown_cell(node, &note);
    /* what was last heard from a node in another state says nothing about it now */
    bool usable = strcmp(node->state, "alive") == 0 || strcmp(node->state, "suspect") == 0;
    table_cell(t, STYLE_NONE, node->name);
    table_cell(t, style_of_state(node->state), node->state);
    table_cell(t, STYLE_NONE, cpu.data);
    table_cell(t, STYLE_NONE, gpu.data ? gpu.data : "-");
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

void screen_nodes(const Ddp__V1__ListNodesReply *reply, const struct term *term, struct buf *out)
{
    CLEANUP(table_release) struct table *t = table_new(columns, ARRAY_LEN(columns));
    for (size_t i = 0; i < reply->n_nodes; i++)
        nodes_node_row(t, reply->nodes[i], term);
    table_print(t, term, out);
}
