#include "daemon/supervisor/protocol/spawn_report.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

void spawn_report_add(struct spawn_report *r, const char *name, double value)
{
    if (r->count == REPORT_METRICS || !*name || strlen(name) >= REPORT_NAME)
        return;
    snprintf(r->metrics[r->count].name, REPORT_NAME, "%s", name);
    r->metrics[r->count++].value = value;
}

void spawn_report_encode(struct jout *o, const struct spawn_report *r)
{
    jout_int(o, "spawn", r->spawn);
    jout_int(o, "time_ms", r->time_ms);
    if (r->has_step)
        jout_int(o, "step", r->step);
    jout_open(o, "metrics", '{');
    for (size_t i = 0; i < r->count; i++)
        jout_real(o, r->metrics[i].name, r->metrics[i].value);
    jout_close(o, '}');
}

enum err_code spawn_report_decode(struct spawn_report *r, json_t *obj, struct err *e)
{
    json_t *metrics = json_object_get(obj, "metrics"), *value;
    const char *key;

    r->spawn = json_get_int(obj, "spawn", 0);
    r->time_ms = json_get_int(obj, "time_ms", 0);
    r->has_step = json_is_integer(json_object_get(obj, "step"));
    r->step = json_get_int(obj, "step", 0);
    json_object_foreach(metrics, key, value)
        spawn_report_add(r, key, json_is_number(value) ? json_number_value(value) : NAN);
    if (r->spawn <= 0)
        return err_set(e, ERR_INVALID_ARGUMENT, "report without a spawn");
    return ERR_OK;
}
