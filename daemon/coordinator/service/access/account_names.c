#include "daemon/coordinator/service/access/account_names.h"

#include <pwd.h>
#include <stdio.h>
#include <unistd.h>

#include "base/mem.h"

#define RETRY_MS 60000

static void account_look_up(struct account_name *entry, int64_t boot_ms)
{
    const struct passwd *account = getpwuid(entry->uid);
    snprintf(entry->name, sizeof entry->name, "%s", account ? account->pw_name : "");
    entry->asked_ms = boot_ms;
}

const char *account_names_find(struct account_names *names, uid_t uid, int64_t boot_ms)
{
    size_t i = 0;
    while (i < names->count && names->entries[i].uid != uid)
        i++;
    if (i == names->count) {
        if (i == ARRAY_LEN(names->entries))
            i--; /* never with the mode of the socket; the last entry is used again */
        else
            names->count++;
        names->entries[i] = (struct account_name){.uid = uid};
        account_look_up(&names->entries[i], boot_ms);
    } else if (!names->entries[i].name[0] && boot_ms - names->entries[i].asked_ms >= RETRY_MS) {
        account_look_up(&names->entries[i], boot_ms);
    }
    return names->entries[i].name[0] ? names->entries[i].name : NULL;
}

void account_names_open(struct account_names *names, int64_t boot_ms)
{
    (void)account_names_find(names, 0, boot_ms);
    (void)account_names_find(names, geteuid(), boot_ms);
}
