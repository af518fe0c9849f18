/* Event files that a program writes while they are read. */
#include "tests/unit/base/check.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/event_file/event_write.h"
#include "base/file.h"
#include "base/mem.h"
#include "daemon/capture/event_points.h"

static void file_append(const char *dir, const char *name, const void *data, size_t len)
{
    CLEANUP(free_text) char *path = xasprintf("%s/%s", dir, name);
    FILE *f = fopen(path, "ab");

    assert_non_null(f);
    assert_int_equal(fwrite(data, 1, len, f), len);
    assert_int_equal(fclose(f), 0);
}

static void expect_read(struct event_points *p, const char *want)
{
    event_points_scan(p);
    while (event_points_read(p, 4096, 1000))
        ;
    assert_string_equal(p->writer->out.len ? p->writer->out.data : "", want);
    buf_clear(&p->writer->out);
}

static void files_are_followed(void **state)
{
    char dir[] = "/tmp/ddp-events-XXXXXX";
    struct point_writer writer = {0};
    CLEANUP(buf_release) struct buf out = {0};
    struct err e;

    (void)state;
    assert_non_null(mkdtemp(dir));
    struct event_points p = {.writer = &writer, .dir = dir, .started_ms = 50000};
    CLEANUP(free_text) char *deep = xasprintf("%s/version_0", dir);
    CLEANUP(free_text) char *fifo = xasprintf("%s/a.tfevents.fifo", dir);
    expect_read(&p, "");
    assert_ok(file_mkdirs(deep, 0700, &e), &e);
    assert_int_equal(mkfifo(fifo, 0600), 0); /* holds nobody up */
    event_put_version(&out, 51);
    event_put_scalar(&out, 49, 1, "loss", 9); /* of an earlier run */
    event_put_scalar(&out, 51, 2, "train/loss", 2);
    file_append(deep, "events.out.tfevents.1", out.data, out.len);
    expect_read(&p, "{\"step\":2,\"loss\":2}\n");
    buf_clear(&out);
    event_put_scalar(&out, 52, 3, "acc", 0.5);
    file_append(deep, "events.out.tfevents.1", out.data, 20); /* the program is writing this record */
    expect_read(&p, "");
    file_append(deep, "events.out.tfevents.1", out.data + 20, out.len - 20);
    expect_read(&p, "{\"step\":3,\"acc\":0.5}\n");
    out.data[14] ^= 1;
    file_append(deep, "events.out.tfevents.1", out.data, out.len);
    out.data[14] ^= 1;
    file_append(deep, "events.out.tfevents.1", out.data, out.len + 0);
    expect_read(&p, "{\"step\":3,\"acc\":0.5}\n");
    file_append(deep, "events.out.tfevents.1", out.data, 15);
    expect_read(&p, "");
    event_points_end(&p);
    assert_non_null(strstr(writer.out.data, "1 damaged records are left out"));
    assert_non_null(strstr(writer.out.data, "ends within a record"));
    event_points_release(&p);
    point_writer_release(&writer);
    assert_ok(file_remove_tree(dir, &e), &e);
}

/* A program writes its events in batches. They wait in the file; when it has ended, its last one counts. */
static void a_batch_is_read_in_pieces(void **state)
{
    char dir[] = "/tmp/ddp-events-XXXXXX";
    struct point_writer writer = {0};
    CLEANUP(buf_release) struct buf out = {0};
    struct err e;
    int64_t now = 1000;

    (void)state;
    assert_non_null(mkdtemp(dir));
    struct event_points p = {.writer = &writer, .dir = dir};
    event_put_version(&out, 51);
    for (int i = 0; i < 1000; i++)
        event_put_scalar(&out, 51, i, "loss", i);
    file_append(dir, "events.out.tfevents.1", out.data, out.len);
    event_points_scan(&p);
    for (int turns = 0; turns < 20; turns++, now += 1000)
        while (event_points_read(&p, 1 << 20, now))
            ;
    int count = 0;
    for (size_t i = 0; i < writer.out.len; i++)
        count += writer.out.data[i] == '\n';
    assert_int_equal(count, 1000);
    for (int i = 0; i < 10; i++)
        file_append(dir, "events.out.tfevents.1", out.data, out.len);
    writer.ends = true;
    while (event_points_read(&p, 1 << 20, now))
        ;
    point_flush(&writer, INT64_MAX);
    const char *last = strstr(writer.out.data + writer.out.len - 30, "{");
    assert_string_equal(last, "{\"step\":999,\"loss\":999}\n");
    event_points_release(&p);
    point_writer_release(&writer);
    assert_ok(file_remove_tree(dir, &e), &e);
}

static void a_missing_directory_is_said(void **state)
{
    struct point_writer writer = {0};
    struct event_points p = {.writer = &writer, .dir = "/tmp/ddp-no-such-directory"};

    (void)state;
    event_points_scan(&p);
    event_points_end(&p);
    assert_non_null(strstr(writer.out.data, "has written no event files to /tmp/ddp-no-such-directory"));
    event_points_release(&p);
    point_writer_release(&writer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(files_are_followed),
        cmocka_unit_test(a_batch_is_read_in_pieces),
        cmocka_unit_test(a_missing_directory_is_said),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
