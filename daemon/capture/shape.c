#include "daemon/capture/shape.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "daemon/capture/number.h"

static bool line_has_loss(const struct metric_line *l)
{
    for (size_t i = 0; i < l->count; i++)
        if (strstr(l->metrics[i].name, "loss"))
            return true;
    return false;
}

static bool line_names(const struct metric_line *l, const char *name)
{
    for (size_t i = 0; i < l->count; i++)
        if (strcmp(l->metrics[i].name, name) == 0)
            return true;
    return false;
}

/* A line may not name a metric twice (base/worker/metric.h): the first value counts. */
static void line_put(struct metric_line *l, const char *name, double value)
{
    if (!line_names(l, name))
        metric_line_add(l, name, value);
}

static bool name_is_step(const char *name)
{
    static const char *const names[] = {"step", "iter", "iteration", "global_step", "steps", "it"};

    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        if (strcmp(name, names[i]) == 0)
            return true;
    return false;
}

static void step_put(struct shape_values *out, double value)
{
    if (out->line.has_step || !number_is_step(value))
        return;
    out->line.has_step = true;
    out->line.step = (int64_t)value;
}

static const char *skip_spaces(const char *at)
{
    while (*at == ' ')
        at++;
    return at;
}

/* ---- {'loss': 1.2, ...}, as Python or JSON */

static const char *quoted_read(const char *at, const char **text, size_t *len)
{
    const char quote = *at;
    const char *end = quote == '\'' || quote == '"' ? strchr(at + 1, quote) : NULL;

    if (!end)
        return NULL;
    *text = at + 1;
    *len = (size_t)(end - at - 1);
    return end + 1;
}

/* A value that is no number is passed over. NULL: none that a flat record can have. */
static const char *record_value(const char *at, double *value, bool *number)
{
    const char *text, *end;
    size_t len;

    *number = number_read(at, &end, value);
    if (*number)
        return end;
    if (*at == '\'' || *at == '"') {
        end = quoted_read(at, &text, &len);
        /* some versions print numbers as texts */
        *number = end && number_read(text, &at, value) && at == text + len;
        return end;
    }
    if (!isalpha((unsigned char)*at)) /* None, True, null */
        return NULL;
    while (isalpha((unsigned char)*at))
        at++;
    return at;
}

static bool record_read(const char *at, struct shape_values *out)
{
    for (at = skip_spaces(at + 1); *at != '}'; at = skip_spaces(at + (*at == ','))) {
        char name[METRIC_NAME];
        const char *text;
        double value;
        size_t len;
        bool number;

        at = quoted_read(at, &text, &len);
        if (!at || *(at = skip_spaces(at)) != ':')
            return false;
        at = record_value(skip_spaces(at + 1), &value, &number);
        if (!at || (*(at = skip_spaces(at)) != ',' && *at != '}'))
            return false;
        if (!number || !number_name(text, len, name))
            continue;
        if (name_is_step(name))
            step_put(out, value);
        else
            line_put(&out->line, name, value);
    }
    return line_has_loss(&out->line);
}

/* ---- progress bars */

static const char *bar_metric_name(const char *name)
{
    return !strcmp(name, "train_loss") || !strcmp(name, "train_loss_step") ? "loss" : name;
}

/* "loss=0.3, lr=1e-4]" */
static void bar_metrics(const char *at, struct shape_values *out)
{
    while (*at && *at != ']') {
        const size_t len = strcspn(at, "=,]");
        const char *end;
        char name[METRIC_NAME];
        double value;

        if (at[len] == '=' && number_read(skip_spaces(at + len + 1), &end, &value) &&
            (*end == ',' || *end == ']') && number_name(at, len, name) && strcmp(name, "v_num") != 0)
            line_put(&out->line, bar_metric_name(name), value);
        at += strcspn(at, ",]");
        at = *at == ',' ? skip_spaces(at + 1) : at;
    }
}

/* " 10%|####      | 50/500 [00:10<01:30,  5.0it/s, loss=0.3]" */
/* "Validating: ", "Validation DataLoader 0: ", "eval: ", "Testing: ": what such a bar says is not the loss of training. */
static bool bar_is_beside_training(const char *text)
{
    return strncasecmp(text, "val", 3) == 0 || strncasecmp(text, "eval", 4) == 0 ||
           strncasecmp(text, "test", 4) == 0;
}

static bool bar_read(const char *text, struct shape_values *out)
{
    const char *at = strstr(text, "%|"), *end;
    double step, total, epoch;

    at = at ? strchr(at + 2, '|') : NULL;
    if (!at || !number_read(skip_spaces(at + 1), &end, &step) || *end != '/' ||
        !number_read(end + 1, &end, &total) || !number_is_step(step) || !number_is_step(total) || total < 1)
        return false;
    step_put(out, step);
    out->total = (int64_t)total;
    text = skip_spaces(text);
    if (strncmp(text, "Epoch ", 6) == 0 && number_read(text + 6, &end, &epoch) && number_is_step(epoch)) {
        out->epoch = (int64_t)epoch;
        out->has_epoch = true;
    }
    at = strchr(end, '[');
    at = at ? strchr(at, ',') : NULL; /* behind the time */
    if (at)
        bar_metrics(skip_spaces(at + 1), out);
    if (!line_has_loss(&out->line) || bar_is_beside_training(text))
        out->line.count = 0;
    return true;
}

/* ---- progress bars that rich draws for Lightning */

#define COLUMN_LEAST 20 /* a bar of rich is wider than this */

/* Goes behind the bar itself, which consists of spaces and of signs that are not ASCII. */
static const char *rich_bar_skip(const char *at)
{
    while (*at == ' ' || (unsigned char)*at >= 0x80)
        at++;
    return at;
}

/* "train_loss: 0.250 val_loss: 0.300". A name that rich has cut ends in a sign that is not ASCII. */
void shape_rest_read(const char *joined, struct shape_values *out)
{
    out->line.count = 0;
    for (const char *at = skip_spaces(joined); *at; at = skip_spaces(at)) {
        const size_t len = strcspn(at, " ");
        const char *end;
        char name[METRIC_NAME];
        double value;

        if (at[len - 1] == ':' && number_read(skip_spaces(at + len), &end, &value) &&
            (!*end || *end == ' ')) {
            if (number_name(at, len - 1, name) && strcmp(name, "v_num") != 0)
                line_put(&out->line, bar_metric_name(name), value);
            at = end;
        } else {
            at += len;
        }
    }
    if (!line_has_loss(&out->line))
        out->line.count = 0;
}

/* "Epoch 0/2 ----  50/500 0:00:10 • 0:01:30 5.0it/s train_loss: 2.100" */
static bool rich_read(const char *text, struct shape_values *out)
{
    const char *at = skip_spaces(text), *end;
    double epoch, epochs, step, total;

    if (strncmp(at, "Epoch ", 6) != 0 || !number_read(at + 6, &end, &epoch) || !number_is_step(epoch) ||
        *end != '/' || !number_read(end + 1, &end, &epochs) || *end != ' ')
        return false;
    if (!number_read(rich_bar_skip(end), &end, &step) || *end != '/' || !number_read(end + 1, &end, &total) ||
        *end != ' ' || !number_is_step(step) || !number_is_step(total) || total < 1)
        return false;
    at = strstr(end, "it/s");
    if (!at || (at[4] && at[4] != ' '))
        return false;
    step_put(out, step);
    out->total = (int64_t)total;
    out->epoch = (int64_t)epoch;
    out->has_epoch = true;
    out->epochs =
        number_is_step(epochs) ? (int64_t)epochs + 1 : 0; /* it shows the last one: "Epoch 0/2" is of three */
    out->rest = at + 4;
    shape_rest_read(out->rest, out);
    return true;
}

const char *shape_column(const char *text)
{
    const size_t indent = strspn(text, " ");

    return indent >= COLUMN_LEAST && text[indent] ? text + indent : NULL;
}

/* ---- words and numbers */

struct words { /* the last two words before a number */
    const char *at[2];
    size_t len[2];
};

static void words_push(struct words *w, const char *at, size_t len)
{
    w->at[0] = w->at[1];
    w->len[0] = w->len[1];
    w->at[1] = at;
    w->len[1] = len;
}

static bool word_is_any(const char *at, size_t len, const char *const *list)
{
    for (; *list; list++)
        if (strlen(*list) == len && strncasecmp(at, *list, len) == 0)
            return true;
    return false;
}

/* "val loss" has two words, "INFO loss" one. */
static bool words_name(const struct words *w, char out[METRIC_NAME])
{
    static const char *const first[] = {"train",    "training",   "val",  "valid", "validation",
                                        "eval",     "evaluation", "test", "grad",  "gradient",
                                        "learning", "global",     NULL};
    char joined[2 * METRIC_NAME];

    if (!w->at[1] || w->len[1] >= METRIC_NAME)
        return false;
    if (!w->at[0] || !word_is_any(w->at[0], w->len[0], first))
        return number_name(w->at[1], w->len[1], out);
    memcpy(joined, w->at[0], w->len[0]);
    joined[w->len[0]] = '_';
    memcpy(joined + w->len[0] + 1, w->at[1], w->len[1]);
    return number_name(joined, w->len[0] + 1 + w->len[1], out);
}

static size_t word_length(const char *at)
{
    size_t len = 0;

    if (!isalpha((unsigned char)*at))
        return 0;
    while (isalnum((unsigned char)at[len]) || (at[len] && strchr("_/.-", at[len])))
        len++;
    while (len && strchr("/.-", at[len - 1]))
        len--;
    return len;
}

static bool unit_is(const char *at, const char *unit)
{
    const size_t len = strlen(unit);

    at = skip_spaces(at);
    return strncmp(at, unit, len) == 0 && !isalnum((unsigned char)at[len]) && at[len] != '/';
}

static void pair_put(struct shape_values *out, const struct words *w, double value, const char *end,
                     int64_t total)
{
    char name[METRIC_NAME];

    if (!words_name(w, name)) { /* numbers that only their unit names */
        if (unit_is(end, "ms"))
            line_put(&out->line, "ms_per_step", value);
        else if (unit_is(end, "tok/s"))
            line_put(&out->line, "tokens_per_s", value);
    } else if (name_is_step(name)) {
        if (out->has_epoch && strcmp(name, "steps") == 0) /* "Epoch 3, steps: 64": the length of an epoch */
            return;
        step_put(out, value);
        out->total = total;
    } else if (strcmp(name, "epoch") == 0) {
        out->has_epoch = true;
        out->epochs = total;
        line_put(&out->line, name, value);
    } else if ((!strcmp(name, "time") || !strcmp(name, "dt")) && unit_is(end, "ms")) {
        line_put(&out->line, "ms_per_step", value);
    } else if (strcmp(name, "rank") != 0) { /* "rank 3" says who prints the line */
        line_put(&out->line, name, value);
    }
}

/* Returns the end of a number and what belongs to it: "/600", or the rest of "12:30:05" and "2026-01-31". */
static const char *number_tail(const char *end, int64_t *total, bool *plain)
{
    const char *stop;
    double value;

    *total = 0;
    *plain = true;
    if (*end == '/' && number_read(end + 1, &stop, &value)) {
        *total = number_is_step(value) ? (int64_t)value : 0;
        return stop;
    }
    while ((*end == ':' || *end == '-') && isdigit((unsigned char)end[1])) {
        *plain = false;
        for (end++; isdigit((unsigned char)*end) || *end == '.'; end++)
            ;
    }
    return end;
}

/* What stands in parentheses may be a z-score or the best value so far. Only a time and a speed are read, by their unit:
 * "(took 35.2 ms)", "(412.34 ms | 39751 tok/s)". Returns the end. */
static const char *aside_read(const char *at, struct shape_values *out)
{
    const char *const stop = at + strcspn(at, ")");
    const struct words none = {{0}, {0}};

    for (at++; at < stop;) {
        const char *end = at;
        double value;

        if (number_read(at, &end, &value))
            pair_put(out, &none, value, end, 0);
        else
            end = at + word_length(at);
        at = end > at ? end : at + 1;
    }
    return stop + (*stop == ')');
}

/* A line with the loss of the training step alone. Beside a validation loss, train_loss is the result of an evaluation. */
static void train_loss_rename(struct metric_line *l)
{
    if (line_names(l, "loss") || line_names(l, "val_loss"))
        return;
    for (size_t i = 0; i < l->count; i++)
        if (strcmp(l->metrics[i].name, "train_loss") == 0)
            snprintf(l->metrics[i].name, sizeof(l->metrics[i].name), "loss");
}

static bool words_read(const char *text, struct shape_values *out)
{
    struct words w = {{0}, {0}};
    const char *at = text;

    while (*at) {
        const char *end;
        int64_t total;
        double value;
        bool plain;

        if (number_read(at, &end, &value)) {
            end = number_tail(end, &total, &plain);
            if (plain)
                pair_put(out, &w, value, end, total);
            w = (struct words){{0}, {0}};
            at = end + (unit_is(end, "ms") ? strspn(end, " ") + 2 : 0);
            continue;
        }
        const size_t len = word_length(at);
        if (len) {
            words_push(&w, at, len);
            at += len;
        } else if (*at == '(') {
            at = aside_read(at, out);
        } else {
            if (!strchr(" :=[", *at))
                w = (struct words){{0}, {0}};
            at++;
        }
    }
    if (out->line.has_step || line_names(&out->line, "epoch")) {
        train_loss_rename(&out->line);
        return line_has_loss(&out->line);
    }
    return out->line.count == 1 && !strcmp(out->line.metrics[0].name, "val_loss") &&
           !strncasecmp(skip_spaces(text), "val", 3);
}

static void values_clear(struct shape_values *out)
{
    out->line.has_step = false;
    out->line.step = 0;
    out->line.count = 0;
    out->total = 0;
    out->epoch = -1;
    out->epochs = 0;
    out->has_epoch = false;
    out->rest = NULL;
}

enum shape shape_read(const char *text, struct shape_values *out)
{
    const char *brace = strchr(text, '{');

    values_clear(out);
    if (brace && record_read(brace, out)) /* a bar may stand before it */
        return SHAPE_RECORD;
    values_clear(out);
    if (strstr(text, "%|") && bar_read(text, out))
        return SHAPE_BAR;
    values_clear(out);
    if (strstr(text, "it/s") && rich_read(text, out))
        return SHAPE_BAR;
    values_clear(out);
    /* Most lines of most programs end here, at the cost of one search. */
    if (strcasestr(text, "loss") && words_read(text, out))
        return SHAPE_LINE;
    values_clear(out);
    return SHAPE_NONE;
}
