#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "client/run/batch/batch_allocation.h"
#include "client/run/batch/nodelist.h"
#include "client/run/launch/launch_message.h"

/* The input is an environment with one variable on each line. PBS_NODEFILE is left out, because the fuzzer
 * would choose the file that is read. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void read_text(const char *line)
{
    struct launch_message at;
    struct err e;
    char **nodes = NULL;
    if (nodelist_expand(line, &nodes, &e) == ERR_OK)
        BUG_ON(!nodes || !nodes[0] || !*nodes[0]);
    strv_free(nodes);
    for (int64_t node = 0; node < 3; node++)
        BUG_ON(nodelist_count_at(line, node) < -1);
    if (launch_message_parse(line, &at, &e) == ERR_OK) {
        CLEANUP(free_text) char *again = launch_message_text(&at);
        BUG_ON(!strchr(again, ','));
        launch_message_release(&at);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    CLEANUP(free_text) char *text = xmalloc(size + 1);
    char **environment = strv_append(NULL, "HOME=/");
    char *rest = text;
    struct batch_allocation a;
    struct err e;
    memcpy(text, data, size);
    text[size] = 0;
    for (char *line; (line = strsep(&rest, "\n"));) {
        read_text(line);
        if (strncmp(line, "PBS_NODEFILE", 12) != 0)
            environment = strv_append(environment, line);
    }
    if (batch_allocation_read(&a, environment, "box1", &e) == ERR_OK) {
        BUG_ON(a.local_task > 0 && a.local_task >= a.local_tasks);
        BUG_ON(batch_allocation_port(&a) < 10000 || batch_allocation_port(&a) > 28999);
        batch_allocation_release(&a);
    }
    strv_free(environment);
    return 0;
}
