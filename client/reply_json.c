#include "client/reply_json.h"

#include "base/json.h"
#include "base/mem.h"
#include "client/diagnose/diagnosis.h"
#include "client/text/json_print.h"

void reply_json_metrics(const Ddp__V1__GetMetricsReply *reply, int64_t job, struct buf *out)
{
    CLEANUP(buf_release) struct buf inner = {0};
    json_print(&reply->base, &inner);
    buf_printf(out, "{\"job\":%lld,", (long long)job);
    buf_append(out, inner.data + 1, inner.len - 1);
}

void reply_json_why(const Ddp__V1__ProbeJobReply *reply, struct buf *out)
{
    struct jout o = {.buf = out};
    CLEANUP(diagnosis_release) struct diagnosis d = {0};
    CLEANUP(buf_release) struct buf probe = {0};
    diagnosis_find(reply, &d);
    json_print(&reply->base, &probe);
    probe.data[probe.len - 1] = '\0'; /* the line's end */
    jout_open(&o, NULL, '{');
    jout_int(&o, "job", reply->job->job);
    jout_text(&o, "verdict", diagnosis_name(d.kind));
    jout_text(&o, "bound", bound_name(d.bound));
    jout_text(&o, "sentence", d.sentence.data);
    jout_text(&o, "details", d.details.data ? d.details.data : "");
    jout_text(&o, "next", d.next.data ? d.next.data : "");
    if (d.rank) {
        jout_int(&o, "rank", d.rank->rank);
        jout_text(&o, "node", d.rank->node);
    } else {
        jout_raw(&o, "rank", "null");
        jout_raw(&o, "node", "null");
    }
    jout_int(&o, "pid", d.pid);
    jout_raw(&o, "probe", probe.data);
    jout_close(&o, '}');
    buf_putc(out, '\n');
}

void reply_json_version(const Ddp__V1__GetVersionReply *reply, struct buf *out)
{
    struct jout o = {.buf = out};
    jout_open(&o, NULL, '{');
    jout_text(&o, "client", DDP_VERSION);
    jout_text(&o, "coordinator", reply ? reply->version : NULL);
    jout_text(&o, "cluster_id", reply ? reply->cluster_id : NULL);
    jout_int(&o, "epoch", reply ? reply->epoch : 0);
    jout_int(&o, "schema", reply ? reply->schema : 0);
    jout_close(&o, '}');
    buf_putc(out, '\n');
}

void reply_json_submitted(int64_t job, const char *name, struct buf *out)
{
    struct jout o = {.buf = out};
    jout_open(&o, NULL, '{');
    jout_int(&o, "job", job);
    jout_text(&o, "name", name);
    jout_close(&o, '}');
    buf_putc(out, '\n');
}
