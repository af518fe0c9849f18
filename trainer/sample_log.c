#include "trainer/sample_log.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/mem.h"

void sample_log_begin(const struct trainer *t, struct sample_log *log)
{
    log->cursor = t->engine.cursor;
}

static void log_shard(struct engine *n, const struct sample_log *log, struct buf *line)
{
    int64_t *index = xcalloc((size_t)sampler_max_rows(&n->sampler), sizeof(*index));
    struct sampler_batch b;

    for (int64_t micro = 0; micro < sampler_micro_batches(&n->sampler); micro++) {
        sampler_batch(&n->sampler, &log->cursor, micro, &b);
        sampler_indices(&n->sampler, &log->cursor, &b, index);
        for (int64_t i = 0; i < b.count; i++)
            buf_printf(line, " %lld", (long long)index[i]);
    }
    free(index);
}

void sample_log_end(struct trainer *t, const struct sample_log *log)
{
    struct engine *n = &t->engine;
    const char *directory = getenv("DDP_TEST_SAMPLES");
    if (!directory)
        return;
    CLEANUP(buf_release) struct buf line = {0};
    CLEANUP(free_text) char *path = xasprintf("%s/%ld", directory, (long)getpid());
    buf_printf(&line, "%lld %lld", (long long)n->step, (long long)log->cursor.epoch);
    for (int j = 0; j < n->shards; j++) {
        engine_take_shard(n, j);
        log_shard(n, log, &line);
    }
    engine_take_shard(n, 0);
    FILE *f = fopen(path, "a");
    if (f)
        fprintf(f, "%s\n", line.data);
    if (f)
        fclose(f);
}
