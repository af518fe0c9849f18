// Gloo's ring over TCP on the loopback, measured as bench_allreduce measures ours: the peer to compare with.
//
//   bench_gloo --ranks N [--ms PER_SIZE] [--sizes BYTES,...]
#include <getopt.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <vector>

#include <gloo/allreduce.h>
#include <gloo/broadcast.h>
#include <gloo/math.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>

static int ranks = 2;
static long ms = 300;
static std::vector<size_t> sizes;

static double now_us()
{
    using namespace std::chrono;
    return duration<double, std::micro>(steady_clock::now().time_since_epoch()).count();
}

static double cpu_us()
{
    timespec t;

    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return static_cast<double>(t.tv_sec) * 1e6 + static_cast<double>(t.tv_nsec) / 1e3;
}

static void array_reduce(const std::shared_ptr<gloo::Context> &context, float *data, size_t count)
{
    gloo::AllreduceOptions options(context);

    options.setAlgorithm(gloo::AllreduceOptions::Algorithm::RING);
    options.setOutput(data, count);
    options.setReduceFunction(
        static_cast<void (*)(void *, const void *, const void *, size_t)>(&gloo::sum<float>));
    gloo::allreduce(options);
}

static void size_measure(const std::shared_ptr<gloo::Context> &context, int rank, float *data, size_t bytes)
{
    size_t count = bytes / sizeof(float);
    double took = 0;
    std::vector<double> times;
    int64_t calls;

    for (int i = 0; i < 3; i++) {
        double start = now_us();

        array_reduce(context, data, count);
        took = now_us() - start;
    }
    calls =
        std::clamp<int64_t>(static_cast<int64_t>(static_cast<double>(ms) * 1e3 / (took + 0.001)), 7, 100000);
    gloo::BroadcastOptions share(context);
    share.setOutput(&calls, 1);
    share.setRoot(0);
    gloo::broadcast(share);
    double cpu = cpu_us();
    for (int64_t i = 0; i < calls; i++) {
        double start = now_us();

        array_reduce(context, data, count);
        times.push_back(now_us() - start);
    }
    cpu = (cpu_us() - cpu) / static_cast<double>(times.size());
    std::sort(times.begin(), times.end());
    if (rank == 0)
        printf("%zu %.3f %.3f %.3f\n", bytes, times[times.size() / 2], times[0], cpu);
    fflush(stdout);
}

static void rank_run(int rank, const std::string &directory)
{
    gloo::transport::tcp::attr attr("127.0.0.1");
    auto device = gloo::transport::tcp::CreateDevice(attr);
    gloo::rendezvous::FileStore store(directory);
    auto context = std::make_shared<gloo::rendezvous::Context>(rank, ranks);
    // Memory as our own arrays have: in huge pages where the kernel has some.
    const size_t huge = 2 << 20, size = (sizes.back() + huge - 1) / huge * huge;
    float *data = static_cast<float *>(std::aligned_alloc(huge, size));

    madvise(data, size, MADV_HUGEPAGE);
    std::memset(data, 0, size);
    context->connectFullMesh(store, device);
    for (size_t bytes : sizes)
        size_measure(context, rank, data, bytes);
}

static void read_options(int argc, char **argv)
{
    static const option longs[] = {
        {"ranks", 1, nullptr, 'n'}, {"ms", 1, nullptr, 't'}, {"sizes", 1, nullptr, 's'}, {}};
    int c;

    while ((c = getopt_long(argc, argv, "", longs, nullptr)) != -1) {
        if (c == 'n')
            ranks = atoi(optarg);
        else if (c == 't')
            ms = atol(optarg);
        else if (c == 's')
            for (char *at = strtok(optarg, ","); at; at = strtok(nullptr, ","))
                sizes.push_back(strtoull(at, nullptr, 10));
        else
            exit(2);
    }
    for (size_t s = 4096, given = sizes.size(); !given && s <= (256u << 20); s *= 4)
        sizes.push_back(s);
}

int main(int argc, char **argv)
{
    char directory[] = "/tmp/ddp-gloo-XXXXXX";
    int failed = 0, status;

    read_options(argc, argv);
    if (!mkdtemp(directory))
        return 1;
    for (int r = 0; r < ranks; r++)
        if (fork() == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            rank_run(r, directory);
            _exit(0);
        }
    while (wait(&status) > 0)
        failed |= status != 0;
    std::filesystem::remove_all(directory);
    return failed;
}
