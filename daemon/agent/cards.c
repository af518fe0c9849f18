#include "daemon/agent/cards.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/paths.h"
#include "daemon/agent/message_file.h"
#include "proto/rpc_codec.h"

/* The first line of a card's file (message_file.h). */
static const char magic[] = "ddp card 1\n";
#define CARD_MAX (16u << 20)
#define ENDED_MOST 1000

static char *card_path(const struct card_store *c, int64_t job)
{
    return xasprintf("%s/%" PRId64, c->dir, job);
}

static Ddp__V1__JobCard *card_find(const struct card_store *c, int64_t job)
{
    for (size_t i = 0; i < c->count; i++)
        if (c->heads[i]->job == job)
            return c->heads[i];
    return NULL;
}

static void card_set(struct card_store *c, const Ddp__V1__JobCard *card)
{
    Ddp__V1__JobCard *head = card_find(c, card->job);

    if (!head) {
        head = xcalloc(1, sizeof(*head));
        ddp__v1__job_card__init(head);
        c->heads = array_grow(c->heads, c->count, &c->cap, sizeof(*c->heads));
        c->heads[c->count++] = head;
    }
    head->job = card->job;
    head->progress = card->progress;
    head->ended = card->ended;
}

static void card_drop(struct card_store *c, int64_t job)
{
    CLEANUP(free_text) char *path = card_path(c, job);

    if (unlink(path) && errno != ENOENT)
        log_warn("card_not_removed", "job=%" PRId64 " why=%s", job, strerror(errno));
    for (size_t i = 0; i < c->count; i++)
        if (c->heads[i]->job == job) {
            free(c->heads[i]);
            c->heads[i] = c->heads[--c->count];
            return;
        }
}

/* Drops cards of ended jobs until ended_most are left, lowest job number first: numbers only grow. */
static void cards_bound_ended(struct card_store *c)
{
    for (;;) {
        int64_t oldest = INT64_MAX;
        size_t ended = 0;
        for (size_t i = 0; i < c->count; i++)
            if (c->heads[i]->ended) {
                ended++;
                oldest = c->heads[i]->job < oldest ? c->heads[i]->job : oldest;
            }
        if (ended <= c->ended_most)
            return;
        card_drop(c, oldest);
    }
}

static enum err_code card_read(const char *path, Ddp__V1__JobCard **out, struct err *e)
{
    void *card;

    if (message_file_read(path, magic, CARD_MAX, &ddp__v1__job_card__descriptor, &card, e))
        return e->code;
    *out = card;
    return ERR_OK;
}

static void card_load(struct card_store *c, const char *name)
{
    CLEANUP(free_text) char *path = paths_join(c->dir, name);
    CLEANUP(rpc_release) Ddp__V1__JobCard *card = NULL;
    struct err e;

    if (name[0] < '0' || name[0] > '9' || strchr(name, '.'))
        return; /* not a card, or one that was being written when the machine stopped */
    if (card_read(path, &card, &e))
        log_warn("card_unreadable", "path=%s why=%s", LOG_Q(path), LOG_Q(e.msg));
    else
        card_set(c, card);
}

enum err_code cards_open(struct card_store *out, const char *state, struct err *e)
{
    const struct dirent *entry;
    DIR *dir;

    *out = (struct card_store){.dir = paths_join(state, "cards"), .ended_most = ENDED_MOST};
    if (file_mkdirs(out->dir, 0700, e)) {
        cards_close(out);
        return e->code;
    }
    dir = opendir(out->dir);
    if (!dir) {
        err_sys(e, errno, "%s", out->dir);
        cards_close(out);
        return e->code;
    }
    while ((entry = readdir(dir)))
        card_load(out, entry->d_name);
    closedir(dir);
    return ERR_OK;
}

void cards_close(struct card_store *c)
{
    for (size_t i = 0; i < c->count; i++)
        free(c->heads[i]);
    free(c->heads);
    free(c->dir);
    memset(c, 0, sizeof(*c));
}

enum err_code cards_keep(struct card_store *c, Ddp__V1__JobCard *const *cards, size_t count, struct err *e)
{
    for (size_t i = 0; i < count; i++) {
        CLEANUP(free_text) char *path = card_path(c, cards[i]->job);
        if (!cards[i]->data.len) {
            card_drop(c, cards[i]->job);
            continue;
        }
        if (message_file_write(path, magic, cards[i], !c->brief, e))
            return e->code;
        card_set(c, cards[i]);
    }
    cards_bound_ended(c);
    return ERR_OK;
}

void cards_forget(struct card_store *c)
{
    while (c->count)
        card_drop(c, c->heads[0]->job);
}

Ddp__V1__JobCard *cards_read(const struct card_store *c, int64_t job)
{
    CLEANUP(free_text) char *path = card_path(c, job);
    Ddp__V1__JobCard *card = NULL;
    struct err e;

    if (!card_read(path, &card, &e))
        return card;
    log_warn("card_unreadable", "path=%s why=%s", LOG_Q(path), LOG_Q(e.msg));
    return NULL;
}
