/* What a worker says: the tutorials' lines on stdout, and JSON reports. */
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "trainer/trainer.h"

void progress_epoch(const struct trainer *t)
{
    if (!t->spec->tutorial_lines)
        return;
    struct cursor start = {t->cursor.epoch, 0};
    struct sampler_batch b;
    sampler_batch(&t->sampler, &start, 0, &b);
    printf("[%s%d] Epoch %lld | Batchsize: %lld | Steps: %lld\n", "GPU", t->rank, (long long)t->cursor.epoch,
           (long long)b.count, (long long)sampler_steps(&t->sampler));
    fflush(stdout);
}

void progress_resumed(const struct trainer *t)
{
    if (!t->spec->tutorial_lines)
        return;
    printf("Resuming training from snapshot at Epoch %lld\n", (long long)t->cursor.epoch);
    fflush(stdout);
}

void progress_saved(struct trainer *t)
{
    struct snapshot_place place;
    struct err e = {0};
    if (!t->saver || !saver_take_result(t->saver, &place, &e) || e.code)
        return;
    if (t->spec->tutorial_lines && t->rank == 0) {
        printf("Epoch %lld | Training snapshot saved at %s/step-%lld-g%lld\n", (long long)place.epoch,
               t->spec->snapshot.dir, (long long)place.step, (long long)place.generation);
        fflush(stdout);
    }
}

int64_t progress_steps(const struct trainer *t)
{
    if (t->spec->steps)
        return t->spec->steps;
    int64_t epochs_after = t->spec->epochs - t->cursor.epoch - 1;
    if (epochs_after < 0)
        return t->step;
    return t->step + sampler_steps_left(&t->sampler, &t->cursor) + epochs_after * sampler_steps(&t->sampler);
}

/* Resident memory of this process; 0 where it cannot be told. */
static double memory_bytes(void)
{
    char text[128] = {0};
    long long whole = 0, resident = 0;
    int fd = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return 0.0;
    if (read(fd, text, sizeof(text) - 1) <= 0 || sscanf(text, "%lld %lld", &whole, &resident) != 2)
        resident = 0;
    close(fd);
    return (double)resident * (double)sysconf(_SC_PAGESIZE);
}

void progress_report(struct trainer *t, bool evaluated)
{
    struct coll_stats stats;
    struct interval *i = &t->interval;
    int64_t now = clock_mono_ns();
    double seconds = (double)(now - i->since_ns) / 1e9, steps = (double)(i->steps ? i->steps : 1);
    coll_get_stats(t->group, &stats);
    double epoch = (double)t->cursor.epoch + (double)t->cursor.position / (double)t->sampler.samples;
    struct report_metric metrics[16] = {
        {"steps", (double)progress_steps(t)},
        {"epoch", epoch},
        {"loss", t->loss},
        {"lr", t->lr},
        {"grad_norm", t->grad_norm},
        {"samples_per_s", i->steps && seconds > 0.0 ? (double)i->samples / seconds : NAN},
        {"ms_per_step", i->steps ? seconds * 1e3 / steps : NAN},
        {"wait_ms", i->steps ? (double)(stats.wait_ns - i->wait_ns) / 1e6 / steps : NAN},
        {"memory_bytes", memory_bytes()},
        {"sync_bytes", (double)stats.bytes},
    };
    size_t count = 10;
    if (t->rank == 0 && t->digest_step == t->step) {
        metrics[count++] = (struct report_metric){"digest_high", (double)(t->digest >> 32)};
        metrics[count++] = (struct report_metric){"digest_low", (double)(t->digest & UINT32_MAX)};
    }
    if (evaluated) {
        metrics[count++] = (struct report_metric){"val_loss", t->val_loss};
        if (t->train->loss == LOSS_CROSS_ENTROPY)
            metrics[count++] = (struct report_metric){"val_acc", t->val_acc};
    }
    report_line(t->report, t->step, metrics, count);
    *i = (struct interval){.since_ns = clock_mono_ns(), .wait_ns = stats.wait_ns};
}
