#include "trainer/signals.h"

#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <unistd.h>

#include "trainer/peer_loss.h"

atomic_int trainer_stop_signal, trainer_running;

/* Stores the number before it reads trainer_running. So a thread that clears trainer_running and then reads the number sees
 * the signal, or this process ends here. */
static void *signals_main(void *arg)
{
    sigset_t *set = arg;
    for (;;) {
        int number = 0;
        if (sigwait(set, &number))
            continue;
        atomic_store(&trainer_stop_signal, number);
        if (!atomic_load(&trainer_running))
            _exit(128 + number);
        peer_loss_wake();
    }
    return NULL;
}

/* The frame of a signal handler lies 128 bytes below the stack pointer, since compilers use no more than that (System V
 * ABI for x86-64, "red zone"). oneDNN 2.6 multiplies floats by generated code that keeps data further down. A handler on such a
 * thread overwrites the data, and with it addresses to which the code then writes. */
enum err_code signals_open(bool standalone, struct err *e)
{
    static sigset_t set;
    pthread_t thread;
    struct sigaction ignore = {.sa_handler = SIG_IGN};
    sigaction(SIGPIPE, &ignore, NULL);
    /* A batch system sends these to all processes of a step; ddpctl run handles them. */
    sigaction(SIGUSR1, &ignore, NULL);
    sigaction(SIGUSR2, &ignore, NULL);
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    if (standalone)
        sigaddset(&set, SIGINT);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    const int failed = pthread_create(&thread, NULL, signals_main, &set);
    if (failed)
        return err_sys(e, failed, "cannot start the thread that waits for signals");
    pthread_detach(thread);
    return ERR_OK;
}
