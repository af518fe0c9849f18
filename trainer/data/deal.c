#include "trainer/data/deal.h"

#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/mem.h"

#define HEADROOM 2 /* see deal_limits */

/* Joins the piece to the last one if it continues it. */
static void piece_append(struct deal *d, const struct deal_piece *piece)
{
    struct deal_piece *last = d->count ? &d->pieces[d->count - 1] : NULL;
    if (piece->count <= 0)
        return;
    if (last && last->epoch == piece->epoch && last->position + last->count == piece->position) {
        last->count += piece->count;
        return;
    }
    if (d->count == d->room) {
        d->room = d->room ? 2 * d->room : 16;
        d->pieces = xrealloc(d->pieces, d->room * sizeof(*d->pieces));
    }
    d->pieces[d->count++] = *piece;
}

void deal_start(struct deal *d, const struct cursor *next, const struct deal_piece *pieces, size_t count)
{
    d->count = 0;
    d->next = *next;
    for (size_t i = 0; i < count; i++)
        piece_append(d, &pieces[i]);
}

void deal_release(struct deal *d)
{
    free(d->pieces);
    *d = (struct deal){0};
}

void deal_extend(struct deal *d, int64_t samples, int64_t wanted)
{
    for (size_t i = 0; i < d->count; i++)
        wanted -= d->pieces[i].count;
    while (wanted > 0) {
        int64_t rest = samples - d->next.position;
        struct deal_piece fresh = {d->next.epoch, d->next.position, rest < wanted ? rest : wanted};
        piece_append(d, &fresh);
        wanted -= fresh.count;
        d->next.position += fresh.count;
        if (d->next.position >= samples)
            d->next = (struct cursor){d->next.epoch + 1, 0};
    }
}

void deal_remove(struct deal *d, int64_t from, int64_t count)
{
    struct deal old = *d;
    int64_t at = 0;
    d->pieces = NULL;
    d->count = d->room = 0;
    for (size_t i = 0; i < old.count; at += old.pieces[i++].count) {
        const struct deal_piece *p = &old.pieces[i];
        /* In the piece: what lies before `from`, and what lies behind `from + count`. */
        int64_t before = from - at < p->count ? from - at : p->count;
        int64_t behind = from + count - at > 0 ? from + count - at : 0;
        piece_append(d, &(struct deal_piece){p->epoch, p->position, before});
        behind = behind > p->count ? p->count : behind;
        if (before < 0)
            before = 0;
        if (behind < before)
            behind = before;
        piece_append(d, &(struct deal_piece){p->epoch, p->position + behind, p->count - behind});
    }
    free(old.pieces);
}

void deal_indices(const struct deal *d, const struct sampler *s, int64_t from, int64_t count, int64_t *index)
{
    for (size_t i = 0; i < d->count && count > 0; i++) {
        const struct deal_piece *p = &d->pieces[i];
        for (; from < p->count && count > 0; from++, count--)
            *index++ = sampler_permute(s, p->epoch, p->position + from);
        from -= p->count; /* where the next piece has it */
    }
    BUG_ON(count > 0);
}

void deal_limits(const int64_t *fits, int ranks, int64_t left, int64_t *most)
{
    int64_t all = 0, before = 0;
    for (int r = 0; r < ranks; r++)
        all += fits[r];
    for (int r = 0; r < ranks; r++) {
        /* By sums, so that rounding loses no sample. */
        int64_t from = HEADROOM * all <= left ? HEADROOM * before : left * before / all;
        before += fits[r];
        most[r] = (HEADROOM * all <= left ? HEADROOM * before : left * before / all) - from;
    }
}
