#include "base/signals.h"

#include <signal.h>
#include <stddef.h>

#include "base/mem.h"

void signals_leave_to_parent(void)
{
    static const int numbers[] = {SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2};
    for (size_t i = 0; i < ARRAY_LEN(numbers); i++)
        signal(numbers[i], SIG_IGN);
}
