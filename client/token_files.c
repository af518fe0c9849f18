#include "client/token_files.h"

#include <stdlib.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/paths.h"

#define PLACES_MOST 3

/* Writes the paths into `place` and returns how many. The caller frees each path. */
static size_t token_files_fill(enum token_use use, char *place[PLACES_MOST])
{
    size_t count = 0;
    /* Root's home may be shared by all nodes, while /etc is not. */
    place[count++] = paths_user_config("token");
    if (geteuid() == 0)
        place[count++] = paths_config("token");
    if (use == TOKEN_OF_CLUSTER) {
        CLEANUP(free_text) char *state = paths_state();
        place[count++] = paths_join(state, "token");
    }
    return count;
}

char *token_file_find(enum token_use use)
{
    char *place[PLACES_MOST], *found = NULL;
    const size_t count = token_files_fill(use, place);
    for (size_t i = 0; i < count; i++) {
        if (!found && file_exists(place[i]))
            found = steal(place[i]);
        else
            free(place[i]);
    }
    return found;
}

void token_files_list(enum token_use use, struct buf *out)
{
    char *place[PLACES_MOST];
    const size_t count = token_files_fill(use, place);
    for (size_t i = 0; i < count; i++) {
        buf_printf(out, "%s%s", i ? ", " : "", place[i]);
        free(place[i]);
    }
}
