/* The smallest program for a launcher: appends "seconds rank pid" to the file $LAUNCH_OUT and waits to be
 * killed, unless its argument is "once". */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    const char *path = getenv("LAUNCH_OUT"), *rank = getenv("RANK");
    struct timespec now;
    char line[96];

    clock_gettime(CLOCK_REALTIME, &now);
    int fd = path ? open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666) : -1;
    int n = snprintf(line, sizeof(line), "%lld.%09ld %s %ld\n", (long long)now.tv_sec, now.tv_nsec,
                     rank ? rank : "-", (long)getpid());
    if (fd < 0 || write(fd, line, (size_t)n) != n) {
        fprintf(stderr, "launch_rank: LAUNCH_OUT must name a file that can be written\n");
        return 1;
    }
    while (argc < 2 || strcmp(argv[1], "once") != 0)
        pause();
    return 0;
}
