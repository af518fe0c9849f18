#include "client/screen/screen_events.h"

#include "base/mem.h"
#include "base/text.h"
#include "client/text/table.h"

void screen_audit(const Ddp__V1__GetAuditReply *reply, const struct term *term, struct buf *out)
{
    static const struct table_column audit_columns[] = {
        {"TIME"}, {"WHO", .most = 24}, {"FROM", .spare = 1}, {"WHAT", .wrap = true}};
    CLEANUP(table_release) struct table *t = table_new(audit_columns, ARRAY_LEN(audit_columns));
    for (size_t i = 0; i < reply->n_entries; i++) {
        table_cell(t, STYLE_NONE, text_clock(reply->entries[i]->time_ms, term->now_ms, true).text);
        table_cell(t, STYLE_NONE, reply->entries[i]->who);
        table_cell(t, STYLE_NONE, reply->entries[i]->origin);
        table_cell(t, STYLE_NONE, reply->entries[i]->text);
        table_end_row(t);
    }
    table_print(t, term, out);
}

void screen_events(const Ddp__V1__GetEventsReply *reply, const struct term *term, struct buf *out)
{
    for (size_t i = 0; i < reply->n_events; i++) {
        const Ddp__V1__Event *event = reply->events[i];
        const size_t start = out->len;
        buf_printf(out, "%s  ", text_clock(event->time_ms, term->now_ms, true).text);
        const size_t indent = out->len - start;
        term_puts_safe(out, event->text);
        buf_putc(out, '\n');
        term_wrap(term, out, start, indent);
    }
}
