#include "client/screen/screen_hooks.h"

#include "base/mem.h"
#include "base/text.h"
#include "client/text/table.h"

static void cell_time(struct table *t, int64_t time_ms, const struct term *term)
{
    table_cell(t, STYLE_NONE, time_ms ? text_clock(time_ms, term->now_ms, true).text : "-");
}

/* The error is shown while it is the newest result. */
static void cell_error(struct table *t, const Ddp__V1__Hook *hook, const struct term *term)
{
    CLEANUP(buf_release) struct buf text = {0};
    const bool now = hook->error_ms > hook->ok_ms;
    if (hook->error_ms)
        buf_printf(&text, "%s  %s", text_clock(hook->error_ms, term->now_ms, true).text, hook->error);
    table_cell(t, now ? STYLE_BAD : STYLE_DIM, hook->error_ms ? text.data : "-");
}

void screen_hooks(const Ddp__V1__ListHooksReply *reply, const struct term *term, struct buf *out)
{
    static const struct table_column columns[] = {
        {.heading = "HOOK"},
        {.heading = "TO", .spare = 2},
        {.heading = "ON", .spare = 1, .most = 40},
        {.heading = "WAITING", .right = true},
        {.heading = "DELIVERED", .right = true},
        {.heading = "DROPPED", .right = true},
        {.heading = "LAST SUCCESS"},
        {.heading = "LAST FAILURE", .wrap = true},
    };
    CLEANUP(table_release) struct table *t = table_new(columns, ARRAY_LEN(columns));
    for (size_t i = 0; i < reply->n_hooks; i++) {
        const Ddp__V1__Hook *hook = reply->hooks[i];
        CLEANUP(buf_release) struct buf on = {0};
        for (size_t k = 0; k < hook->n_on; k++)
            buf_printf(&on, "%s%s", k ? "," : "", hook->on[k]);
        table_cell(t, STYLE_NONE, hook->name);
        table_cell(t, STYLE_NONE, hook->target);
        table_cell(t, STYLE_NONE, on.len ? on.data : "-");
        table_cell(t, hook->waiting ? STYLE_WAIT : STYLE_NONE, text_count(hook->waiting).text);
        table_cell(t, STYLE_NONE, text_count(hook->delivered).text);
        table_cell(t, hook->dropped ? STYLE_BAD : STYLE_NONE, text_count(hook->dropped).text);
        cell_time(t, hook->ok_ms, term);
        cell_error(t, hook, term);
        table_end_row(t);
    }
    table_print(t, term, out);
}

void screen_hook_test(const Ddp__V1__TestHookReply *reply, const struct term *term, struct buf *out)
{
    static const struct table_column columns[] = {{.heading = "HOOK"},
                                                  {.heading = "RESULT"},
                                                  {.heading = "TIME", .right = true},
                                                  {.heading = "ANSWER", .wrap = true}};
    CLEANUP(table_release) struct table *t = table_new(columns, ARRAY_LEN(columns));
    for (size_t i = 0; i < reply->n_results; i++) {
        const Ddp__V1__HookResult *r = reply->results[i];
        table_cell(t, STYLE_NONE, r->name);
        table_cell(t, r->ok ? STYLE_GOOD : STYLE_BAD, r->ok ? "delivered" : "failed");
        table_cell(t, STYLE_NONE, text_duration(r->took_ms).text);
        table_cell(t, STYLE_NONE, r->text);
        table_end_row(t);
    }
    table_print(t, term, out);
}
