#include "client/diagnose/diagnosis.h"

#include <string.h>

#include "base/job/job_names.h"
#include "base/mem.h"
#include "base/text.h"
#include "client/diagnose/diagnosis_failure.h"
#include "client/diagnose/link_wait.h"
#include "client/diagnose/worker_probe.h"
#include "client/job_status.h"
#include "client/text/term.h"

#define STILL_MS                                                                                             \
    5000 /* without output or report of any rank: the job hangs, it is not just between two lines */
#define IDLE_MS 2000  /* without CPU time: a rank does nothing */
#define APART_MS 1500 /* ranks that fell asleep within this time did so in the same collective */

const char *diagnosis_name(enum diagnosis_kind kind)
{
    static const char *const names[] = {"queued",     "starting",   "running", "slow",    "link",   "stopped",
                                        "kernel",     "left_early", "asleep",  "waiting", "silent", "unseen",
                                        "restarting", "stopping",   "failed",  "ended"};
    return names[kind];
}

void diagnosis_release(struct diagnosis *d)
{
    buf_release(&d->sentence);
    buf_release(&d->details);
    buf_release(&d->next);
}

static bool text_is(const char *text, const char *wanted)
{
    return strcmp(text, wanted) == 0;
}

/* ---- text */

/* "rank 1 on n2 (pid 4121, python3)" */
static void diagnosis_put_process(struct buf *out, const Ddp__V1__WorkerProbe *w,
                                  const Ddp__V1__ProcessProbe *p)
{
    worker_probe_name(out, w);
    buf_printf(out, " (pid %lld", (long long)(p ? p->pid : w->pid));
    if (p && *p->name) {
        buf_puts(out, ", ");
        term_puts_safe(out, p->name);
    }
    buf_putc(out, ')');
}

static void diagnosis_put_wait(struct buf *out, const Ddp__V1__ProcessProbe *p)
{
    if (!p || !*p->waits_in)
        return;
    buf_puts(out, ", in ");
    term_puts_safe(out, p->waits_in);
    if (*p->waits_for) {
        buf_puts(out, text_is(p->waits_for, "socket") || text_is(p->waits_for, "pipe") ? " of a " : " of ");
        term_puts_safe(out, p->waits_for);
    }
}

/* "rank 0 waits", "ranks 0, 2 and 3 wait", "ranks 0 to 6 and 9 wait": the living ranks other than `but`.
 * Three or more neighbours are written as a range, so that a job of a thousand ranks still fits in a
 * sentence. */
static void diagnosis_put_others(struct buf *out, const Ddp__V1__ProbeJobReply *reply,
                                 const Ddp__V1__WorkerProbe *but, const char *one, const char *many)
{
    CLEANUP(buf_release) struct buf list = {0};
    size_t count = 0, pieces = 0, last = 0;
    for (size_t i = 0; i < reply->n_workers; i++) {
        if (reply->workers[i] == but || reply->workers[i]->ended)
            continue;
        size_t end = i;
        while (end + 1 < reply->n_workers && reply->workers[end + 1] != but &&
               !reply->workers[end + 1]->ended)
            end++;
        if (pieces++)
            buf_puts(&list, ", ");
        last = list.len; /* where the last piece begins, which gets " and " in front */
        buf_printf(&list, "%d", reply->workers[i]->rank);
        count += end - i + 1;
        if (end > i + 1) {
            buf_printf(&list, " to %d", reply->workers[end]->rank);
        } else if (end > i) {
            buf_puts(&list, ", ");
            pieces++;
            last = list.len;
            buf_printf(&list, "%d", reply->workers[end]->rank);
        }
        i = end;
    }
    if (!count)
        return;
    buf_printf(out, "; rank%s ", text_plural((int64_t)count));
    if (pieces > 1)
        buf_printf(out, "%.*s and %s", (int)last - 2, list.data, list.data + last);
    else
        buf_puts(out, list.data);
    buf_printf(out, " %s", count == 1 ? one : many);
}

static void diagnosis_put_stack(struct diagnosis *d, const Ddp__V1__ProcessProbe *p)
{
    if (!p || !p->n_stack)
        return;
    buf_puts(&d->details, "kernel stack  ");
    for (size_t i = 0; i < p->n_stack; i++) {
        buf_puts(&d->details, i ? " < " : "");
        term_puts_safe(&d->details, p->stack[i]);
    }
    buf_putc(&d->details, '\n');
}

static void diagnosis_blame(struct diagnosis *d, enum diagnosis_kind kind, const Ddp__V1__WorkerProbe *w,
                            const Ddp__V1__ProcessProbe *p)
{
    d->kind = kind;
    d->rank = w;
    d->pid = p ? p->pid : w->pid;
    diagnosis_put_process(&d->sentence, w, p);
}

static void diagnosis_advise_logs(struct diagnosis *d, const Ddp__V1__ProbeJobReply *reply,
                                  const Ddp__V1__WorkerProbe *w)
{
    buf_printf(&d->next, "ddpctl logs %lld --rank %d\n", (long long)reply->job->job, w->rank);
}

/* ---- what each cause looks like */

/* Time since the last output or report of any rank; -1: unknown. */
static int64_t diagnosis_quiet_ms(const Ddp__V1__ProbeJobReply *reply)
{
    int64_t least = -1;
    for (size_t i = 0; i < reply->n_workers; i++) {
        int64_t age = reply->workers[i]->ended ? -1 : worker_probe_quiet_ms(reply->workers[i]);
        if (age >= 0 && (least < 0 || age < least))
            least = age;
    }
    return least;
}

static bool diagnosis_is_idle(const Ddp__V1__WorkerProbe *w)
{
    return w->idle_ms >= IDLE_MS;
}

/* A stopped process is a certain cause, so it is reported at once, without waiting until the job is silent.
 */
static bool diagnosis_find_halted(const Ddp__V1__ProbeJobReply *reply, struct diagnosis *d)
{
    for (size_t i = 0; i < reply->n_workers; i++) {
        const Ddp__V1__WorkerProbe *w = reply->workers[i];
        const Ddp__V1__ProcessProbe *p = w->ended ? NULL : worker_probe_process(w);
        if (!p || !process_probe_halted(p))
            continue;
        diagnosis_blame(d, DIAGNOSIS_STOPPED, w, p);
        buf_puts(&d->sentence, text_is(p->state, "t") ? " is held by a debugger"
                                                      : " is stopped by a signal (such as SIGSTOP)");
        if (w->idle_ms >= 1000)
            buf_printf(&d->sentence, ", without CPU time for %s", text_duration(w->idle_ms).text);
        diagnosis_put_others(&d->sentence, reply, w, "waits for it", "wait for it");
        if (text_is(p->state, "T"))
            buf_printf(&d->next, "kill -CONT %lld    on %s, to continue it\n", (long long)p->pid, w->node);
        return true;
    }
    return false;
}

/* Processes are in uninterruptible sleep for moments all the time. Only one that lasts is a cause. */
static bool diagnosis_find_stuck(const Ddp__V1__ProbeJobReply *reply, struct diagnosis *d)
{
    for (size_t i = 0; i < reply->n_workers; i++) {
        const Ddp__V1__WorkerProbe *w = reply->workers[i];
        const Ddp__V1__ProcessProbe *p = w->ended ? NULL : worker_probe_process(w);
        if (!p || !text_is(p->state, "D") || !diagnosis_is_idle(w))
            continue;
        diagnosis_blame(d, DIAGNOSIS_KERNEL, w, p);
        buf_printf(&d->sentence, " has been stuck in the kernel for %s", text_duration(w->idle_ms).text);
        diagnosis_put_wait(&d->sentence, p);
        diagnosis_put_others(&d->sentence, reply, w, "waits for it", "wait for it");
        diagnosis_put_stack(d, p);
        buf_printf(&d->next, "check the disks and network file systems of %s: dmesg, mount\n", w->node);
        return true;
    }
    return false;
}

/* A rank that exited with code 0 has not failed, so the generation goes on. The first one to exit is named.
 * Only if the job is silent, too, is it said that the others wait for it: they may be about to finish. */
static bool diagnosis_find_left_early(const Ddp__V1__ProbeJobReply *reply, struct diagnosis *d)
{
    const Ddp__V1__WorkerProbe *left = NULL;
    bool living = false;
    for (size_t i = 0; i < reply->n_workers; i++) {
        const Ddp__V1__WorkerProbe *w = reply->workers[i];
        living = living || !w->ended;
        if (w->ended && w->exit_known && !w->code && !w->signal && (!left || w->ended_ms < left->ended_ms))
            left = w;
    }
    if (!left || !living) /* if nobody is left, the job is about to succeed */
        return false;
    diagnosis_blame(d, DIAGNOSIS_LEFT_EARLY, left, NULL);
    buf_puts(&d->sentence, " has exited with code 0");
    if (diagnosis_quiet_ms(reply) >= STILL_MS)
        diagnosis_put_others(&d->sentence, reply, left, "still runs and waits for it",
                             "still run and wait for it");
    else
        diagnosis_put_others(&d->sentence, reply, left, "still runs", "still run");
    diagnosis_advise_logs(d, reply, left);
    return true;
}

/* The sleeping rank that the others most likely wait for. A rank whose system call is not a wait for a peer
 * comes first (process_probe_elsewhere); among equals the one that has slept longest. *clear: it stands out,
 * by its system call or by APART_MS; otherwise the order means nothing. */
static const Ddp__V1__WorkerProbe *diagnosis_first_asleep(const Ddp__V1__ProbeJobReply *reply, bool *clear)
{
    const Ddp__V1__WorkerProbe *worst = NULL;
    int most = 0;
    *clear = false;
    for (size_t i = 0; i < reply->n_workers; i++) {
        const Ddp__V1__WorkerProbe *w = reply->workers[i];
        if (w->ended || !w->probed || !diagnosis_is_idle(w))
            continue;
        int score = process_probe_elsewhere(worker_probe_process(w));
        bool earlier = worst && w->idle_ms > worst->idle_ms + APART_MS;
        bool as_early = !worst || w->idle_ms > worst->idle_ms - APART_MS;
        if (!worst || score > most || (score == most && earlier)) {
            *clear = worst ? score > most || earlier : score > 0;
            worst = w;
            most = score;
        } else if (score == most && as_early) {
            *clear = false; /* two that are alike: neither stands out */
        } else if (score <= most) {
            *clear = true; /* this one sleeps in a wait for a peer, or fell asleep later */
        }
    }
    return worst;
}

static bool diagnosis_find_asleep(const Ddp__V1__ProbeJobReply *reply, struct diagnosis *d, int64_t quiet)
{
    size_t living = 0, sleeping = 0;
    bool clear;
    for (size_t i = 0; i < reply->n_workers; i++) {
        living += !reply->workers[i]->ended;
        sleeping +=
            !reply->workers[i]->ended && reply->workers[i]->probed && diagnosis_is_idle(reply->workers[i]);
    }
    if (!sleeping) /* all use CPU time: they compute, or spin in a collective */
        return false;
    const Ddp__V1__WorkerProbe *w = diagnosis_first_asleep(reply, &clear);
    const Ddp__V1__ProcessProbe *p = worker_probe_process(w);
    /* Blaming a rank at random would mislead. If some ranks do not sleep, they spin, and any sleeper is the
     * cause. */
    if (sleeping == living && !clear && living > 1) {
        d->kind = DIAGNOSIS_WAITING;
        d->bound = BOUND_WAIT;
        buf_printf(&d->sentence,
                   "all %zu ranks have slept for %s and none stands out: they wait for each other, "
                   "or for something outside the job",
                   living, text_duration(quiet).text);
        return true;
    }
    diagnosis_blame(d, DIAGNOSIS_ASLEEP, w, p);
    d->bound = BOUND_RANK;
    buf_printf(&d->sentence,
               living > 1 ? " fell asleep first: no CPU time for %s" : " is asleep: no CPU time for %s",
               text_duration(w->idle_ms).text);
    diagnosis_put_wait(&d->sentence, p);
    diagnosis_put_others(&d->sentence, reply, w, "waits for it", "wait for it");
    diagnosis_put_stack(d, p);
    diagnosis_advise_logs(d, reply, w);
    return true;
}

/* Names the rank that computes longest, if it takes 10 % longer than the average of the others. Ranks that do
 * not report both times cannot be compared. */
static void diagnosis_find_slow(const Ddp__V1__ProbeJobReply *reply, struct diagnosis *d)
{
    const Ddp__V1__WorkerProbe *worst = NULL;
    double sum = 0, most = 0;
    size_t count = 0;
    for (size_t i = 0; i < reply->n_workers; i++) {
        const Ddp__V1__WorkerProbe *w = reply->workers[i];
        double busy = w->ms_per_step - w->wait_ms;
        if (!(busy > 0)) /* not reported yet, or the waiting overlaps the computing */
            return;
        count++;
        sum += busy;
        if (busy > most) {
            most = busy;
            worst = w;
        }
    }
    if (count < 2 || most / ((sum - most) / (double)(count - 1)) < 1.1)
        return;
    d->kind = DIAGNOSIS_SLOW;
    d->rank = worst;
    d->pid = worst->pid;
    buf_puts(&d->sentence, ", held up by ");
    diagnosis_put_process(&d->sentence, worst, worker_probe_process(worst));
    buf_printf(&d->sentence, ": it computes %.1f ms a step, the others %.1f ms", most,
               (sum - most) / (double)(count - 1));
}

/* Whether the job could give its slow ranks fewer samples, and does not. */
static bool diagnosis_job_is_unbalanced(const Ddp__V1__JobStatus *job)
{
    CLEANUP(job_release) struct job_spec spec = {0};
    struct err e;
    const struct train_spec *t = &spec.train;
    return job_parse(&spec, job->job_file, strlen(job->job_file), "job file", &e) == ERR_OK &&
           spec.kind == JOB_TRAIN && t->balance == BALANCE_EQUAL && t->sync.type == SYNC_ALLREDUCE &&
           t->reproducible != REPRODUCIBLE_WORLD && !t->data.pad;
}

static void diagnosis_put_balance(const Ddp__V1__ProbeJobReply *reply, struct diagnosis *d)
{
    CLEANUP(buf_release) struct buf text = {0};
    if (job_status_put_balance(reply->job, &text))
        buf_printf(&d->sentence, "; %s", text.data);
    else if (d->kind == DIAGNOSIS_SLOW && diagnosis_job_is_unbalanced(reply->job))
        buf_puts(
            &d->next,
            "balance: speed    below train in the job file; slow ranks then take fewer samples of each step\n");
}

static void diagnosis_put_running(const Ddp__V1__ProbeJobReply *reply, struct diagnosis *d, int64_t quiet)
{
    const Ddp__V1__Progress *progress = reply->job->progress;
    buf_puts(&d->sentence, "it runs");
    if (progress && progress->step)
        buf_printf(&d->sentence, ", at step %s", text_count(progress->step).text);
    buf_printf(&d->sentence, ", the last output or report was %s ago", text_duration(quiet).text);
}

/* Comes before the search for a rank that is asleep or slow: ranks that wait for the link sleep, and report seldom. */
static bool diagnosis_find_link(const Ddp__V1__ProbeJobReply *reply, struct diagnosis *d, int64_t quiet)
{
    struct link_wait w;
    if (!link_wait_find(reply, &w) || quiet >= STILL_MS + 2 * w.report_ms)
        return false;
    d->kind = DIAGNOSIS_LINK;
    d->bound = BOUND_LINK;
    diagnosis_put_running(reply, d, quiet);
    buf_puts(&d->sentence, "; ");
    link_wait_print(&w, &d->sentence);
    if (!w.allowed)
        return true;
    buf_printf(
        &d->next,
        "sync: {type: diloco, every: %lld, wire: %s}    below train in the job file; ranks then differ for "
        "some steps, which costs a little loss\n",
        (long long)w.better.every, job_wire_names[w.better.wire]);
    return true;
}

/* Appends what bounds the job, unless the sentence names a slow rank already. */
static void diagnosis_put_bound(const Ddp__V1__ProbeJobReply *reply, struct diagnosis *d)
{
    CLEANUP(bound_release) struct bound bound = {0};
    bound_find(reply, &bound);
    d->bound = d->kind == DIAGNOSIS_SLOW ? BOUND_RANK : bound.kind;
    if (d->kind == DIAGNOSIS_SLOW || !bound.text.len)
        return;
    buf_puts(&d->sentence, "; ");
    term_puts_safe(&d->sentence, bound.text.data);
    for (size_t i = 0; i < reply->n_workers && bound.rank; i++)
        if (reply->workers[i]->rank == bound.rank->rank) {
            d->rank = reply->workers[i];
            d->pid = d->rank->pid;
        }
}

static void diagnosis_working(const Ddp__V1__ProbeJobReply *reply, struct diagnosis *d, int64_t quiet)
{
    d->kind = quiet < STILL_MS ? DIAGNOSIS_RUNNING : DIAGNOSIS_SILENT;
    if (d->kind == DIAGNOSIS_SILENT) {
        buf_printf(&d->sentence,
                   "all ranks use CPU time, but none has written or reported anything for %s: a long step, "
                   "or all spin in a collective",
                   text_duration(quiet).text);
        diagnosis_put_bound(reply, d);
        return;
    }
    diagnosis_put_running(reply, d, quiet);
    diagnosis_find_slow(reply, d);
    diagnosis_put_balance(reply, d);
    diagnosis_put_bound(reply, d);
}

static void diagnosis_put_absent(const Ddp__V1__JobStatus *job, struct diagnosis *d)
{
    if (job->ranks_present >= job->ranks_wanted || !*job->missing)
        return;
    buf_printf(&d->details, "%d of %d ranks: ", job->ranks_present, job->ranks_wanted);
    term_puts_safe(&d->details, job->missing);
    buf_putc(&d->details, '\n');
}

/* Certain causes first. Whether a rank is asleep only matters once the job has been silent for STILL_MS:
 * between two lines of output any rank may sleep for a moment. */
static void diagnosis_running(const Ddp__V1__ProbeJobReply *reply, struct diagnosis *d)
{
    int64_t quiet = diagnosis_quiet_ms(reply);
    size_t seen = 0;
    for (size_t i = 0; i < reply->n_workers; i++)
        seen += reply->workers[i]->probed;
    if (diagnosis_find_halted(reply, d) || diagnosis_find_stuck(reply, d) ||
        diagnosis_find_left_early(reply, d))
        return;
    if (!seen) { /* after the exits, which the coordinator knows without asking the nodes */
        d->kind = DIAGNOSIS_UNSEEN;
        buf_puts(&d->sentence, "no node has answered, so the state of its processes is unknown");
        return;
    }
    if (diagnosis_find_link(reply, d, quiet < 0 ? 0 : quiet))
        return;
    if (quiet >= STILL_MS && diagnosis_find_asleep(reply, d, quiet))
        return;
    diagnosis_working(reply, d, quiet < 0 ? 0 : quiet);
}

static void diagnosis_starting(const Ddp__V1__ProbeJobReply *reply, struct diagnosis *d)
{
    const Ddp__V1__WorkerProbe *missing = NULL;
    size_t count = 0;
    d->kind = DIAGNOSIS_STARTING;
    for (size_t i = 0; i < reply->n_workers; i++) {
        const Ddp__V1__WorkerProbe *w = reply->workers[i];
        if (text_is(w->state, "joined") || text_is(w->state, "training"))
            continue;
        count++;
        /* a rank without a process is further behind than one whose process has not joined */
        if (!missing || (missing->pid && !w->pid))
            missing = w;
    }
    if (!missing) {
        buf_puts(&d->sentence, "it is about to start: all ranks have joined");
        return;
    }
    d->rank = missing;
    d->pid = missing->pid;
    buf_printf(&d->sentence, "it is starting, %zu of %zu ranks have not joined yet: ", count,
               reply->n_workers);
    if (!missing->pid) {
        worker_probe_name(&d->sentence, missing);
        buf_puts(&d->sentence, " has no process yet");
    } else {
        diagnosis_put_process(&d->sentence, missing, worker_probe_process(missing));
        buf_puts(&d->sentence, " has not joined");
        diagnosis_put_wait(&d->sentence, worker_probe_process(missing));
        diagnosis_advise_logs(d, reply, missing);
    }
}

/* The processes that a job which stops or restarts still waits for. */
static void diagnosis_put_living(const Ddp__V1__ProbeJobReply *reply, struct diagnosis *d)
{
    for (size_t i = 0; i < reply->n_workers; i++) {
        const Ddp__V1__WorkerProbe *w = reply->workers[i];
        const Ddp__V1__ProcessProbe *p = worker_probe_process(w);
        if (w->ended || !w->pid) /* never started, or gone */
            continue;
        buf_puts(&d->details, "still running: ");
        diagnosis_put_process(&d->details, w, p);
        if (p)
            buf_printf(&d->details, " %s", process_probe_state(p->state));
        buf_putc(&d->details, '\n');
    }
}

void diagnosis_find(const Ddp__V1__ProbeJobReply *reply, struct diagnosis *d)
{
    const Ddp__V1__JobStatus *job = reply->job;
    if (text_is(job->state, "running")) {
        diagnosis_running(reply, d);
        diagnosis_put_absent(job, d);
    } else if (text_is(job->state, "starting")) {
        diagnosis_starting(reply, d);
    } else if (text_is(job->state, "queued")) {
        d->kind = DIAGNOSIS_QUEUED;
        /* The reason is a clause with or without its verb: "waits for 4 GPUs", "job 9 is ahead". */
        bool waits = strncmp(job->reason, "waits ", 6) == 0;
        buf_puts(&d->sentence, waits ? "it " : "it waits for its turn");
        if (*job->reason && !waits)
            buf_puts(&d->sentence, ": ");
        term_puts_safe(&d->sentence, job->reason);
        buf_puts(&d->next, "ddpctl nodes\n");
    } else if (text_is(job->state, "failed") || text_is(job->state, "recovering")) {
        diagnosis_failure(reply, d);
        diagnosis_put_living(reply, d);
    } else {
        d->kind = text_is(job->state, "stopping") ? DIAGNOSIS_STOPPING : DIAGNOSIS_ENDED;
        buf_printf(&d->sentence, "it %s: ",
                   text_is(job->state, "stopping")    ? "is stopping"
                   : text_is(job->state, "succeeded") ? "has succeeded"
                                                      : "was cancelled");
        term_puts_safe(&d->sentence, job->reason);
        diagnosis_put_living(reply, d);
    }
    for (size_t i = 0; i < job->n_notes; i++) {
        buf_puts(&d->details, "NOTE: ");
        term_puts_safe(&d->details, job->notes[i]);
        buf_putc(&d->details, '\n');
    }
    for (size_t i = 0; i < reply->n_notes; i++) {
        term_puts_safe(&d->details, reply->notes[i]);
        buf_putc(&d->details, '\n');
    }
}
