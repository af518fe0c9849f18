#include "daemon/agent/gpu/gpu_choice.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

static bool word_is_number(const char *word, size_t *value)
{
    char *end;

    errno = 0;
    *value = strtoul(word, &end, 10);
    return !errno && *word >= '0' && *word <= '9' && !*end;
}

static enum err_code gpu_find(const char *word, const char *const *uuids, size_t count, size_t *out,
                              struct err *e)
{
    size_t found = count;

    if (!strncmp(word, "MIG-", 4))
        return err_set(
            e, ERR_INVALID_ARGUMENT,
            "'%s' is a slice of a GPU, but ddp uses whole GPUs: switch MIG off (nvidia-smi -mig 0)", word);
    if (word_is_number(word, &found)) {
        if (found >= count)
            return err_set(e, ERR_INVALID_ARGUMENT,
                           "there is no GPU %s: this machine has %zu (nvidia-smi -L lists them)", word,
                           count);
        *out = found;
        return ERR_OK;
    }
    found = count; /* none yet */
    for (size_t i = 0; i < count; i++) {
        if (!*word || strncmp(uuids[i], word, strlen(word)) != 0)
            continue;
        if (found < count)
            return err_set(e, ERR_INVALID_ARGUMENT, "'%s' is the start of more than one GPU's UUID", word);
        found = i;
    }
    if (found == count)
        return err_set(e, ERR_INVALID_ARGUMENT,
                       "there is no GPU '%s': give numbers or UUIDs as nvidia-smi -L lists them", word);
    *out = found;
    return ERR_OK;
}

bool gpu_choice_none(const char *list)
{
    return list && (!*list || !strcmp(list, "none") || !strcmp(list, "-1") || !strcmp(list, "NoDevFiles"));
}

enum err_code gpu_choice(const char *list, const char *const *uuids, size_t count, bool *chosen,
                         struct err *e)
{
    CLEANUP(free_text) char *copy = xstrdup(list);
    bool *named = xcalloc(count + 1, sizeof(*named));
    enum err_code code = ERR_OK;
    char *rest = copy;

    if (!strcmp(list, "all"))
        memset(named, 1, count * sizeof(*named));
    else
        for (char *word; !code && !gpu_choice_none(list) && (word = strsep(&rest, ","));) {
            size_t at = 0;
            word += strspn(word, " ");
            word[strcspn(word, " ")] = '\0';
            code = gpu_find(word, uuids, count, &at, e);
            if (!code)
                named[at] = true;
        }
    for (size_t i = 0; i < count; i++)
        /* Also after an error: like CUDA, the list counts up to its first invalid word. */
        chosen[i] = chosen[i] && named[i];
    free(named);
    return code;
}
