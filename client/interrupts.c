#include "client/interrupts.h"

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>

static volatile sig_atomic_t interrupt_count, interrupt_number, interrupt_continued, interrupt_reader_left;

/* A signal that repeats the last one is not counted, since a closing terminal and a batch system may send it
 * several times, and a second count would kill the job while it writes a snapshot. ^C is counted each time:
 * the user means it. */
static void interrupt_count_signal(int number)
{
    if ((number == interrupt_number && number != SIGINT) || (number == SIGHUP && interrupt_reader_left))
        return;
    interrupt_number = number;
    interrupt_count++;
}

static void interrupt_note_continue(int number)
{
    (void)number;
    interrupt_continued = 1;
}

void interrupts_catch_these(const int *signals)
{
    struct sigaction action = {.sa_handler = interrupt_count_signal};
    struct sigaction note = {.sa_handler = interrupt_note_continue, .sa_flags = SA_RESTART};
    sigemptyset(&action.sa_mask);
    sigemptyset(&note.sa_mask);
    sigaction(SIGCONT, &note, NULL);
    for (; *signals; signals++) {
        struct sigaction before;
        /* nohup ignores SIGHUP on purpose: leave that as it is */
        bool nohup =
            *signals == SIGHUP && sigaction(SIGHUP, NULL, &before) == 0 && before.sa_handler == SIG_IGN;
        if (!nohup)
            sigaction(*signals, &action, NULL);
    }
}

void interrupts_catch(void)
{
    static const int signals[] = {SIGINT, SIGTERM, 0};
    interrupts_catch_these(signals);
}

void interrupts_catch_all(void)
{
    static const int signals[] = {SIGINT, SIGTERM, SIGHUP, 0};
    interrupts_catch_these(signals);
}

void interrupts_add(int number)
{
    interrupt_count_signal(number);
}

void interrupts_add_reader_left(void)
{
    if (interrupt_count)
        return; /* the reader has probably got the same signal: ^C at `| tee log` reaches both */
    interrupt_reader_left = 1;
    interrupt_count_signal(SIGTERM);
}

int interrupts_count(void)
{
    return interrupt_count;
}

int interrupt_signal(void)
{
    return interrupt_number;
}

bool interrupts_was_continued(void)
{
    const bool was = interrupt_continued;
    interrupt_continued = 0;
    return was;
}
