#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/json.h"
#include "base/mem.h"
#include "client/bench/bench_run.h"
#include "client/cmd/command.h"
#include "client/interrupts.h"
#include "client/text/format.h"
#include "client/text/table.h"

#define RUNS_MOST 6    /* three sizes, two precisions */
#define LOAD_MOST 0.25 /* running programs a processor, before the bench, that do not matter */
#define SECONDS_MOST 3600

struct bench_options {
    const char *sizes, *precision, *device, *output;
    int64_t seconds;
};

static const struct option_spec options[] = {
    {.name = "sizes",
     .type = OPTION_TEXT,
     .offset = offsetof(struct bench_options, sizes),
     .value = "LIST",
     .help = "of small, middle and large (124 M parameters; needs 4 GB of memory)",
     .default_text = "small,middle; with a GPU middle,large"},
    {.name = "precision",
     .type = OPTION_CHOICE,
     .offset = offsetof(struct bench_options, precision),
     .value = "both|fp32|bf16",
     .help = "numbers to compute with",
     .default_text = "both"},
    {.name = "device",
     .type = OPTION_CHOICE,
     .offset = offsetof(struct bench_options, device),
     .value = "auto|cpu|cuda",
     .help = "auto: a GPU if there is one",
     .default_text = "auto"},
    {.name = "seconds",
     .type = OPTION_INT,
     .offset = offsetof(struct bench_options, seconds),
     .value = "S",
     .min = 1,
     .max = SECONDS_MOST,
     .help = "how long each run is measured",
     .default_text = "5"},
    OPTION_OUTPUT(bench_options, output),
    {0},
};

/* One line of the table. */
struct bench_line {
    const struct bench_size *size;
    const char *precision;
    double usual; /* share of the matrix rate; 0: nothing is known of such a device */
    struct bench_result result;
};

struct bench {
    struct bench_line lines[RUNS_MOST];
    size_t count;
    double load; /* programs that ran before the bench, as an average of a minute */
    long processors;
};

static bool line_is_slow(const struct bench_line *l)
{
    return l->usual > 0.0 && l->result.share < l->usual;
}

static bool bench_is_slow(const struct bench *b)
{
    for (size_t i = 0; i < b->count; i++)
        if (line_is_slow(&b->lines[i]))
            return true;
    return false;
}

/* The runs that the options ask for. */
static enum err_code bench_plan(const struct bench_options *o, struct bench *b, struct err *e)
{
    static const char *const precisions[] = {"fp32", "bf16"};
    const bool gpu = (!o->device || strcmp(o->device, "cpu") != 0) && file_exists("/dev/nvidiactl");
    const char *list = o->sizes ? o->sizes : gpu ? "middle,large" : "small,middle";
    while (*list) {
        const size_t len = strcspn(list, ",");
        const struct bench_size *size = bench_size_find(list, len);
        if (!size || b->count + ARRAY_LEN(precisions) > RUNS_MOST)
            return err_set(e, ERR_INVALID_ARGUMENT,
                           "--sizes: expected up to three of small, middle and large, got '%.*s'", (int)len,
                           list);
        for (size_t p = 0; p < ARRAY_LEN(precisions); p++)
            if (!o->precision || !strcmp(o->precision, "both") || !strcmp(o->precision, precisions[p]))
                b->lines[b->count++] = (struct bench_line){.size = size, .precision = precisions[p]};
        list += len + (list[len] == ',');
    }
    return b->count ? ERR_OK : err_set(e, ERR_INVALID_ARGUMENT, "--sizes: expected a size");
}

static enum err_code bench_measure(const struct bench_options *o, struct bench *b, struct err *e)
{
    const bool shows = isatty(STDERR_FILENO);
    for (size_t i = 0; i < b->count; i++) {
        struct bench_line *l = &b->lines[i];
        if (shows)
            fprintf(stderr, "\rmeasuring %zu of %zu: %s %s \033[K", i + 1, b->count, l->size->name,
                    l->precision);
        const enum err_code code = bench_run(l->size, l->precision, o->device ? o->device : "auto",
                                             o->seconds ? o->seconds : 5, &l->result, e);
        if (shows)
            fputs("\r\033[K", stderr);
        if (code != ERR_OK)
            return code;
        const bool cpu = !strncmp(l->result.device, "cpu", 3);
        l->usual = !cpu ? 0.0 : !strcmp(l->precision, "fp32") ? l->size->usual_fp32 : l->size->usual_bf16;
    }
    return ERR_OK;
}

/* ---- output */

static void print_table(const struct bench *b, const struct term *term, struct buf *out)
{
    static const struct table_column columns[] = {
        {.heading = "MODEL"},
        {.heading = "PARAMETERS", .right = true, .spare = 1},
        {.heading = "PRECISION"},
        {.heading = "TOKENS/S", .right = true},
        {.heading = "MS/STEP", .right = true, .spare = 2},
        {.heading = "GFLOP/S", .right = true},
        {.heading = "OF MATRIX RATE"},
        {.heading = "USUAL", .spare = 3},
    };
    CLEANUP(table_release) struct table *t = table_new(columns, ARRAY_LEN(columns));
    for (size_t i = 0; i < b->count; i++) {
        const struct bench_line *l = &b->lines[i];
        char share[128], usual[96] = "-";
        snprintf(share, sizeof(share), "%s %s", fmt_bar(l->result.share, 10).text,
                 fmt_percent(l->result.share).text);
        if (l->usual > 0.0)
            snprintf(usual, sizeof(usual), "at least %s", fmt_percent(l->usual).text);
        table_cell(t, STYLE_NONE, l->size->name);
        table_cell(t, STYLE_NONE, text_short((double)l->result.parameters).text);
        table_cell(t, STYLE_NONE, l->precision);
        table_cell(t, STYLE_BOLD, text_count((int64_t)l->result.tokens_per_s).text);
        table_cell(t, STYLE_NONE, fmt_metric(l->result.ms_per_step).text);
        table_cell(t, STYLE_NONE, text_count((int64_t)l->result.gflops).text);
        table_cell(t, line_is_slow(l) ? STYLE_BAD : STYLE_NONE, share);
        table_cell(t, STYLE_DIM, usual);
        table_end_row(t);
    }
    table_print(t, term, out);
}

static void print_verdict(const struct bench *b, struct buf *out)
{
    if (b->load > LOAD_MOST * (double)b->processors)
        buf_printf(
            out,
            "\nOther programs were running meanwhile (load %.1f on %s), so these figures are too low: measure again\n"
            "without them.\n",
            b->load, text_counted(b->processors, "processor").text);
    else if (bench_is_slow(b))
        buf_puts(
            out,
            "\nThis machine is slower than usual: its own rate of matrix products would allow more. Look for a limit of\n"
            "processor time (`cat /sys/fs/cgroup/cpu.max`), heat, a saving mode, or memory modules in too few slots.\n");
}

static void print_screen(const struct bench *b, struct buf *out)
{
    const struct term term = term_of(STDOUT_FILENO);
    const struct bench_result *first = &b->lines[0].result;
    buf_printf(out, "%s, %s, load before the measurement %.1f\n\n", first->device,
               text_counted(first->threads, "thread").text, b->load);
    print_table(b, &term, out);
    print_verdict(b, out);
}

static void print_json(const struct bench *b, struct buf *out)
{
    struct jout o = {out, false};
    jout_open(&o, NULL, '{');
    jout_text(&o, "device", b->lines[0].result.device);
    jout_int(&o, "threads", b->lines[0].result.threads);
    jout_real(&o, "load", b->load);
    jout_bool(&o, "slow", bench_is_slow(b));
    jout_open(&o, "runs", '[');
    for (size_t i = 0; i < b->count; i++) {
        const struct bench_line *l = &b->lines[i];
        jout_open(&o, NULL, '{');
        jout_text(&o, "size", l->size->name);
        jout_text(&o, "precision", l->precision);
        jout_int(&o, "parameters", l->result.parameters);
        jout_int(&o, "steps", l->result.steps);
        jout_real(&o, "tokens_per_s", l->result.tokens_per_s);
        jout_real(&o, "ms_per_step", l->result.ms_per_step);
        jout_real(&o, "gflops", l->result.gflops);
        jout_real(&o, "peak_share", l->result.share);
        jout_real(&o, "usual_share", l->usual > 0.0 ? l->usual : NAN);
        jout_close(&o, '}');
    }
    jout_close(&o, ']');
    jout_close(&o, '}');
    buf_putc(out, '\n');
}

static int cmd_bench_run(struct invocation *in)
{
    const struct bench_options *o = in->options;
    struct bench b = {.processors = sysconf(_SC_NPROCESSORS_ONLN)};
    CLEANUP(buf_release) struct buf out = {0};
    struct err e;
    if (getloadavg(&b.load, 1) < 1)
        b.load = 0.0;
    interrupts_catch_all();
    if (bench_plan(o, &b, &e) != ERR_OK || bench_measure(o, &b, &e) != ERR_OK)
        return interrupts_count() ? 128 + interrupt_signal() : error_print(&e);
    if (o->output && !strcmp(o->output, "json"))
        print_json(&b, &out);
    else
        print_screen(&b, &out);
    screen_put(&out);
    return bench_is_slow(&b) ? EXIT_FAILED : EXIT_DONE;
}

const struct command cmd_bench = {
    .name = "bench",
    .usage = "bench [--sizes LIST] [--seconds S]",
    .summary = "measure how fast this machine trains language models",
    .help =
        "Trains GPTs of known sizes on random tokens for some seconds each, on this machine alone, with one process and\n"
        "all processors, or on its first GPU. It prints tokens a second, and the share that this is of the machine's\n"
        "own rate of matrix products. A CPU that has nothing else to do reaches at least the share under USUAL: exit code 1 says\n"
        "that this one does not. Compare the tokens a second of machines of one kind to find the slow one.\n\n"
        "  ddpctl bench\n"
        "  ddpctl bench --sizes large --precision fp32 -o json",
    .options = options,
    .size = sizeof(struct bench_options),
    .offline = true,
    .run = cmd_bench_run,
};
