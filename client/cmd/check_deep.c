#include "client/cmd/check_deep.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/json.h"
#include "base/mem.h"
#include "client/cmd/command.h"
#include "client/diagnose/deep_run.h"
#include "client/interrupts.h"
#include "client/screen/screen_deep.h"

const char *check_deep_misuse(const struct check_deep_options *o)
{
    if (!o->deep && (o->drain || o->only || o->below || o->seconds > 0.0))
        return "--drain, --only-nodes, --below and --seconds need --deep";
    return NULL;
}

/* The names between the commas; strv_free. */
static char **deep_split(const char *list)
{
    char **names = NULL;
    while (list && *list) {
        const size_t len = strcspn(list, ",");
        CLEANUP(free_text) char *name = xasprintf("%.*s", (int)len, list);
        if (len)
            names = strv_append(names, name);
        list += len + (list[len] == ',');
    }
    return names;
}

/* Why its nodes are drained, for `ddpctl nodes`; NULL: nothing is wrong with it. */
static char *deep_reason(const struct findings *found, const char *node)
{
    CLEANUP(buf_release) struct buf text = {0};
    for (size_t i = 0; i < found->count; i++)
        if (!strcmp(found->items[i].node, node))
            buf_printf(&text, "%s%s", text.len ? "; " : "check --deep: ", found->items[i].what);
    return text.len ? buf_steal(&text) : NULL;
}

static bool deep_seen_before(const struct findings *found, size_t at)
{
    for (size_t i = 0; i < at; i++)
        if (!strcmp(found->items[i].node, found->items[at].node))
            return true;
    return false;
}

/* Drains each node that a finding names. *drained: strv_free. */
static enum err_code deep_drain(struct link *link, const struct findings *found, char ***drained,
                                struct err *e)
{
    for (size_t i = 0; i < found->count; i++) {
        Ddp__V1__NodeRequest request = DDP__V1__NODE_REQUEST__INIT;
        CLEANUP(rpc_release) void *reply = NULL;
        CLEANUP(free_text) char *reason = deep_reason(found, found->items[i].node);
        if (!*found->items[i].node || deep_seen_before(found, i))
            continue;
        request.node = found->items[i].node;
        request.reason = reason;
        if (link_call(link, "DrainNode", &request, &reply, 0, e) != ERR_OK)
            return e->code;
        *drained = strv_append(*drained, found->items[i].node);
    }
    return ERR_OK;
}

static void deep_print_place(struct jout *o, const struct deep_place *p)
{
    jout_open(o, NULL, '{');
    jout_text(o, "node", p->node);
    jout_text(o, "place", p->gpu ? "gpu" : "slot");
    jout_int(o, "index", p->index);
    jout_text(o, "model", p->model);
    jout_int(o, "peers", (int64_t)p->peers);
    for (size_t k = 0; k < DEEP_RATES; k++) {
        const struct deep_rate *rate = &p->rates[k];
        if (!(rate->median > 0.0) && (k != DEEP_ALLREDUCE || !p->partner_count))
            continue;
        jout_open(o, deep_rate_kinds[k].name, '{');
        jout_real(o, "median", rate->median);
        jout_real(o, "best", rate->best);
        jout_real(o, "peers", rate->peers > 0.0 ? rate->peers : NAN);
        jout_bool(o, "slow", rate->slow);
        if (k == DEEP_ALLREDUCE)
            jout_int(o, "partners", (int64_t)p->partner_count);
        jout_close(o, '}');
    }
    jout_close(o, '}');
}

static void deep_print_json(const struct deep_result *r, const struct findings *found, char *const *drained,
                            struct buf *out)
{
    struct jout o = {.buf = out};
    jout_open(&o, NULL, '{');
    jout_bool(&o, "fit", found->count == 0);
    findings_print_json(found, &o);
    jout_open(&o, "measured", '[');
    for (size_t i = 0; i < r->figures.count; i++)
        deep_print_place(&o, &r->figures.places[i]);
    jout_close(&o, ']');
    jout_open(&o, "skipped", '[');
    for (size_t i = 0; i < r->skipped_count; i++) {
        jout_open(&o, NULL, '{');
        jout_text(&o, "node", r->skipped[i].node);
        jout_text(&o, "why", r->skipped[i].why);
        jout_close(&o, '}');
    }
    jout_close(&o, ']');
    jout_open(&o, "jobs", '[');
    for (size_t i = 0; i < r->job_count; i++)
        jout_int(&o, NULL, r->jobs[i]);
    jout_close(&o, ']');
    jout_open(&o, "drained", '[');
    for (; drained && *drained; drained++)
        jout_text(&o, NULL, *drained);
    jout_close(&o, ']');
    jout_close(&o, '}');
    buf_putc(out, '\n');
}

/* The check only suggests a drain. An operator decides, because a slow node may be better than none. */
static void deep_print_orders(const struct findings *found, struct buf *out)
{
    for (size_t i = 0; i < found->count; i++) {
        const char *node = found->items[i].node;
        CLEANUP(free_text) char *reason = deep_reason(found, node);
        if (!*node || deep_seen_before(found, i))
            continue;
        term_printf_safe(out, "to keep %s from further jobs: ddpctl drain %s --reason '%s'", node, node,
                         reason);
        buf_putc(out, '\n');
    }
}

static void deep_print_screen(const struct deep_result *r, const struct findings *found, bool drain,
                              char *const *drained, struct buf *out)
{
    const struct term term = term_of(STDOUT_FILENO);
    screen_deep(r, found, &term, out);
    if (!drain)
        deep_print_orders(found, out);
    for (; drained && *drained; drained++) {
        term_printf_safe(out, "%s is drained: `ddpctl undrain %s` takes it back", *drained, *drained);
        buf_putc(out, '\n');
    }
}

static enum err_code deep_measure_nodes(struct link *link, const struct check_deep_options *o,
                                        const char *job_text, char *const *env, struct deep_result *r,
                                        struct err *e)
{
    CLEANUP(job_release) struct job_spec job = {0};
    char **only = deep_split(o->only);
    if (job_text && job_parse(&job, job_text, strlen(job_text), "job file", e) != ERR_OK) {
        strv_free(only);
        return e->code;
    }
    const struct deep_ask ask = {
        .only = only,
        .job = job_text ? &job : NULL,
        .env = env,
        .measure_ms = (int64_t)(1000.0 * (o->seconds > 0.0 ? o->seconds : CHECK_DEEP_SECONDS))};
    const enum err_code code = deep_run(link, &ask, r, e);
    strv_free(only);
    return code;
}

int check_deep(struct link *link, const struct check_deep_options *o, const char *job_text, char *const *env,
               bool json)
{
    CLEANUP(deep_result_release) struct deep_result result = {0};
    CLEANUP(findings_release) struct findings found = {0};
    CLEANUP(buf_release) struct buf out = {0};
    char **drained = NULL;
    struct err e = {0};
    interrupts_catch_all();
    if (deep_measure_nodes(link, o, job_text, env, &result, &e) != ERR_OK)
        return interrupts_count() ? 128 + interrupt_signal() : error_print(&e);
    deep_figures_judge(&result.figures, (double)(o->below ? o->below : CHECK_DEEP_BELOW) / 100.0, &found);
    const enum err_code code = o->drain ? deep_drain(link, &found, &drained, &e) : ERR_OK;
    for (size_t i = 0; i < result.job_count; i++)
        if (result.unfinished[i])
            findings_add(&found, "", xstrdup(result.unfinished[i]), NULL);
    if (!result.measured)
        findings_add(&found, "", xstrdup("no node could be measured"),
                     xstrdup("wait until nodes are free; `ddpctl nodes` lists them"));
    if (json)
        deep_print_json(&result, &found, drained, &out);
    else
        deep_print_screen(&result, &found, o->drain, drained, &out);
    strv_free(drained);
    const bool printed = (json ? stdout_put : screen_put)(&out);
    if (code != ERR_OK)
        return error_print(&e);
    return printed && !found.count ? EXIT_DONE : EXIT_FAILED;
}
