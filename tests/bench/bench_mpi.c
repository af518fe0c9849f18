/* MPI_Allreduce over TCP on the loopback, measured as bench_allreduce measures ours. Started by mpirun (tests/bench/allreduce). */
#include <mpi.h>
#include <stdio.h>

#include "tests/bench/bench_rounds.h"

static void mpi_sum(void *of, float *data, size_t count)
{
    (void)of;
    MPI_Allreduce(MPI_IN_PLACE, data, (int)count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
}

static void mpi_share(void *of, int64_t *number)
{
    (void)of;
    MPI_Bcast(number, 1, MPI_INT64_T, 0, MPI_COMM_WORLD);
}

int main(int argc, char **argv)
{
    const struct bench_peer peer = {NULL, mpi_sum, mpi_share};
    struct bench_rounds rounds;
    int rank, size;

    bench_rounds_read(&rounds, argc, argv);
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (size != rounds.ranks)
        fprintf(stderr, "bench_mpi: mpirun started %d ranks\n", size);
    else
        bench_rounds_run(&rounds, &peer, rank);
    MPI_Finalize();
    return size != rounds.ranks;
}
