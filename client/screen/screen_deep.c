#include "client/screen/screen_deep.h"

#include "base/mem.h"
#include "client/screen/screen_check.h"
#include "client/text/format.h"
#include "client/text/table.h"

static const struct table_column columns[] = {
    {"NODE"},
    {"PLACE"},
    {"MODEL", .spare = 1, .most = 40},
    {"GFLOP/S", true},
    {"OF PEERS", true},
    {"MEMORY GB/S", true, .optional = true},
    {"OF PEERS", true, .optional = true},
    {"FROM HOST GB/S", true, .optional = true},
    {"OF PEERS", true, .optional = true},
    {"TO HOST GB/S", true, .optional = true},
    {"OF PEERS", true, .optional = true},
    {"ALL-REDUCE GB/S", true, .optional = true},
    {"OF PEERS", true, .optional = true},
    {"PARTNERS", true, .optional = true},
};

static void deep_place_row(struct table *t, const struct deep_place *p)
{
    CLEANUP(buf_release) struct buf node = {0}, place = {0}, model = {0};
    term_puts_safe(&node, p->node);
    term_puts_safe(&model, p->model);
    buf_printf(&place, "%s %lld", p->gpu ? "GPU" : "slot", (long long)p->index);
    table_cell(t, STYLE_NONE, node.data ? node.data : "");
    table_cell(t, STYLE_NONE, place.data);
    table_cell(t, STYLE_NONE, model.data ? model.data : "");
    for (size_t k = 0; k < DEEP_RATES; k++) {
        const struct deep_rate *rate = &p->rates[k];
        const double value = rate->median / 1e9;
        const bool none = rate->median <= 0.0 && (k != DEEP_ALLREDUCE || !p->partner_count);
        table_cell(t, rate->slow ? STYLE_BAD : STYLE_NONE,
                   none ? ""
                   : k  ? fmt_metric(value).text
                        : text_count((int64_t)value).text);
        table_cell(t, rate->slow ? STYLE_BAD : STYLE_DIM,
                   !none && rate->peers > 0.0 ? fmt_percent(rate->median / rate->peers).text : "");
    }
    table_cell(t, STYLE_DIM, p->partner_count ? text_count((int64_t)p->partner_count).text : "");
    table_end_row(t);
}

void screen_deep(const struct deep_result *r, const struct findings *found, const struct term *term,
                 struct buf *out)
{
    CLEANUP(table_release) struct table *t = table_new(columns, ARRAY_LEN(columns));
    for (size_t i = 0; i < r->figures.count; i++)
        deep_place_row(t, &r->figures.places[i]);
    if (r->figures.count)
        table_print(t, term, out);
    for (size_t i = 0; i < r->skipped_count; i++) {
        term_printf_safe(out, "%s was not measured: it %s", r->skipped[i].node, r->skipped[i].why);
        buf_putc(out, '\n');
    }
    screen_findings(found, term, out);
}
