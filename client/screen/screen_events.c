#include "client/screen/screen_events.h"

#include <time.h>

#include "base/mem.h"
#include "client/text/table.h"

/* The local time; with the date unless it was today. */
static void event_print_time(char out[64], int64_t time_ms, int64_t now_ms)
{
    time_t second = (time_t)(time_ms / 1000), now = (time_t)(now_ms / 1000);
    struct tm at, today;
    localtime_r(&second, &at);
    localtime_r(&now, &today);
    bool same_day = at.tm_yday == today.tm_yday && at.tm_year == today.tm_year;
    strftime(out, 64, same_day ? "%H:%M:%S" : "%Y-%m-%d %H:%M:%S", &at);
}

void screen_audit(const Ddp__V1__GetAuditReply *reply, const struct term *term, struct buf *out)
{
    static const struct table_column audit_columns[] = {{"TIME"}, {"WHO"}, {"FROM"}, {"WHAT"}};
    CLEANUP(table_release) struct table *t = table_new(audit_columns, ARRAY_LEN(audit_columns));
    for (size_t i = 0; i < reply->n_entries; i++) {
        char stamp[64];
        event_print_time(stamp, reply->entries[i]->time_ms, term->now_ms);
        table_cell(t, STYLE_NONE, stamp);
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
        char stamp[64];
        event_print_time(stamp, event->time_ms, term->now_ms);
        buf_printf(out, "%s  ", stamp);
        term_puts_safe(out, event->text);
        buf_putc(out, '\n');
    }
}
