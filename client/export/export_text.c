#include "client/export/export_text.h"

#include <string.h>

#include "base/buf.h"
#include "base/json.h"
#include "base/mem.h"
#include "client/text/term.h"

void export_put_csv_text(struct buf *out, const char *text, bool terminal)
{
    CLEANUP(buf_release) struct buf safe = {0};

    if (terminal && *text) {
        term_puts_safe(&safe, text);
        text = safe.data;
    }
    const bool quoted = text[strcspn(text, ",\"\r\n")];

    buf_puts(out, quoted ? "\"" : "");
    for (; *text; text++)
        buf_puts(out, (char[]){*text, *text == '"' ? '"' : '\0', '\0'});
    buf_puts(out, quoted ? "\"" : "");
}

void export_put_csv(struct buf *out, int64_t job, const struct export_point *p, bool terminal)
{
    char value[REAL_TEXT];

    buf_printf(out, "%lld,%lld,%lld,%d,", (long long)job, (long long)p->step, (long long)p->time_ms,
               p->series->rank);
    export_put_csv_text(out, p->series->name, terminal);
    real_text(value, p->value);
    buf_printf(out, ",%s,%d\n", value, p->series->captured);
}

void export_put_jsonl(struct buf *out, int64_t job, const struct export_point *p)
{
    struct jout o = {.buf = out};

    jout_open(&o, NULL, '{');
    jout_int(&o, "job", job);
    jout_int(&o, "step", p->step);
    jout_int(&o, "time_ms", p->time_ms);
    jout_int(&o, "rank", p->series->rank);
    jout_text(&o, "name", p->series->name);
    jout_real(&o, "value", p->value);
    jout_bool(&o, "captured", p->series->captured);
    jout_close(&o, '}');
    buf_putc(out, '\n');
}
