#include "daemon/coordinator/service/metrics/openmetrics.h"

#include <string.h>

static const char total[] = "_total";

bool openmetrics_accepted(const char *accept)
{
    return accept && strstr(accept, "application/openmetrics-text");
}

/* The length of a family's name, which ends at a space, without _total. */
static size_t family_length(const char *name)
{
    const size_t len = strcspn(name, " \n"), end = sizeof(total) - 1;

    return len > end && !memcmp(name + len - end, total, end) ? len - end : len;
}

/* "# HELP ddp_commits_total Commits to disk." -> "# HELP ddp_commits Commits to disk." */
static void print_head(const char *line, size_t len, struct buf *out)
{
    const size_t name = sizeof("# HELP ") - 1, from = name + strcspn(line + name, " \n");

    buf_append(out, line, name + family_length(line + name));
    buf_append(out, line + from, len - from);
}

void openmetrics_print(const char *text, struct buf *out)
{
    while (*text) {
        const size_t len = strcspn(text, "\n") + 1;
        if (!strncmp(text, "# HELP ", 7) || !strncmp(text, "# TYPE ", 7))
            print_head(text, len, out);
        else
            buf_append(out, text, len);
        text += len;
    }
    buf_puts(out, "# EOF\n");
}
