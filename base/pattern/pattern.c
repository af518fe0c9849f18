#include "base/pattern/pattern.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/pattern/pattern_program.h"
#include "base/pattern/pattern_tree.h"

/* The automaton is made while lines are searched: an automaton state is the set of the program's states in which a search
 * can be. Its transitions are computed when they are first needed. When there are too many sets, all are forgotten but the
 * one in use. Searches that were saved bring their sets with them. */

#define SETS_MOST 1024
#define MEMBERS_MOST 65536 /* of all sets together, unless two sets alone have more */
#define UNKNOWN UINT16_MAX
#define HASH_SLOTS 2048 /* a power of two, more than SETS_MOST */
#define SET_STEPS 64    /* what making a set costs beside its members */

struct pattern_set {
    size_t first, count; /* in members */
    bool begin;          /* no byte of the line has been read */
    bool matched;
    int8_t at_end; /* whether the line matches if it ends here; -1: not known yet */
};

struct pattern {
    struct pattern_program program;
    uint8_t classes[256]; /* bytes that no state tells apart */
    size_t class_count;
    struct pattern_set sets[SETS_MOST];
    size_t set_count;
    uint16_t *moves; /* SETS_MOST rows of class_count */
    uint16_t *members;
    size_t member_count, members_most;
    uint16_t slots[HASH_SLOTS]; /* 1 + number of a set; 0: empty */
    /* while a set is made */
    uint32_t *marks; /* by state: the number of the set that it was added to last */
    uint32_t mark;
    uint16_t *stack, *next;
    size_t next_count, visited;
    uint16_t initial; /* the set at the begin of a line; UNKNOWN: not made yet */
};

static void classes_make(struct pattern *p)
{
    bool begins[257] = {true};

    for (size_t i = 0; i < p->program.count; i++)
        if (p->program.states[i].kind == PATTERN_BYTE) {
            begins[p->program.states[i].from] = true;
            begins[p->program.states[i].to + 1] = true;
        }
    for (int i = 0; i < 256; i++) {
        p->class_count += begins[i];
        p->classes[i] = (uint8_t)(p->class_count - 1);
    }
}

enum err_code pattern_compile(const char *text, struct pattern **out, struct err *e)
{
    CLEANUP(pattern_tree_release) struct pattern_tree tree = {0};
    struct pattern *p = xcalloc(1, sizeof(*p));

    if (pattern_tree_parse(text, &tree, e) || pattern_program_make(&tree, &p->program, e)) {
        pattern_free(p);
        e->code = ERR_INVALID_ARGUMENT;
        return e->code;
    }
    classes_make(p);
    p->initial = UNKNOWN;
    p->members_most = p->program.count * 2 > MEMBERS_MOST ? p->program.count * 2 : MEMBERS_MOST;
    p->moves = xmalloc(SETS_MOST * p->class_count * sizeof(*p->moves));
    p->members = xmalloc(p->members_most * sizeof(*p->members));
    p->marks = xcalloc(p->program.count, sizeof(*p->marks));
    p->stack = xmalloc((p->program.count + 1) * sizeof(*p->stack));
    p->next = xmalloc(p->program.count * sizeof(*p->next));
    *out = p;
    return ERR_OK;
}

void pattern_free(struct pattern *p)
{
    if (!p)
        return;
    pattern_program_release(&p->program);
    free(p->moves);
    free(p->members);
    free(p->marks);
    free(p->stack);
    free(p->next);
    free(p);
}

/* ---- making sets */

static void next_begin(struct pattern *p)
{
    p->next_count = p->visited = 0;
    if (++p->mark == 0) { /* the numbers have run out */
        memset(p->marks, 0, p->program.count * sizeof(*p->marks));
        p->mark = 1;
    }
}

/* Adds a state and all that it leads to without a byte. */
static void next_add(struct pattern *p, uint16_t state, bool begin, bool end)
{
    size_t depth = 0;

    p->stack[depth++] = state;
    for (; depth; p->visited++) {
        const uint16_t at = p->stack[--depth];
        const struct pattern_state *s = &p->program.states[at];

        if (p->marks[at] == p->mark)
            continue;
        p->marks[at] = p->mark;
        if (s->kind == PATTERN_FORK || (s->kind == PATTERN_AT_BEGIN && begin) ||
            (s->kind == PATTERN_AT_END && end)) {
            p->stack[depth++] = s->next;
            if (s->kind == PATTERN_FORK)
                p->stack[depth++] = s->other;
        } else if (s->kind != PATTERN_AT_BEGIN) {
            p->next[p->next_count++] = at;
        }
    }
}

static bool next_matched(const struct pattern *p)
{
    return p->marks[0] == p->mark; /* state 0 is the match */
}

static size_t next_slot(const struct pattern *p)
{
    uint32_t hash = 2166136261u; /* FNV-1a */

    for (size_t i = 0; i < p->next_count; i++)
        hash = (hash ^ p->next[i]) * 16777619u;
    return (hash ^ hash >> 16) % HASH_SLOTS;
}

static void sets_forget(struct pattern *p)
{
    memset(p->slots, 0, sizeof(p->slots));
    p->set_count = p->member_count = 0;
    p->initial = UNKNOWN;
}

/* Returns the number of the set in p->next, which it makes if there is none. If there is no room, forgets all others: *forgot. */
static uint16_t set_intern(struct pattern *p, bool begin, bool *forgot)
{
    const size_t bytes = p->next_count * sizeof(*p->next);
    size_t slot = next_slot(p);

    for (; p->slots[slot]; slot = (slot + 1) % HASH_SLOTS) {
        const struct pattern_set *s = &p->sets[p->slots[slot] - 1];

        if (s->begin == begin && s->count == p->next_count && !memcmp(p->members + s->first, p->next, bytes))
            return (uint16_t)(p->slots[slot] - 1);
    }
    *forgot = p->set_count == SETS_MOST || p->member_count + p->next_count > p->members_most;
    if (*forgot) {
        sets_forget(p);
        slot = next_slot(p);
    }
    p->sets[p->set_count] = (struct pattern_set){p->member_count, p->next_count, begin, next_matched(p), -1};
    memcpy(p->members + p->member_count, p->next, bytes);
    p->member_count += p->next_count;
    for (size_t i = 0; i < p->class_count; i++)
        p->moves[p->set_count * p->class_count + i] = UNKNOWN;
    p->slots[slot] = (uint16_t)(p->set_count + 1);
    return (uint16_t)p->set_count++;
}

static uint16_t set_move(struct pattern *p, uint16_t from, uint8_t byte, int64_t *budget)
{
    const struct pattern_set s = p->sets[from];
    bool forgot = false;
    uint16_t to;

    next_begin(p);
    for (size_t i = 0; i < s.count; i++) {
        const struct pattern_state *state = &p->program.states[p->members[s.first + i]];

        if (state->kind == PATTERN_BYTE && byte >= state->from && byte <= state->to)
            next_add(p, state->next, false, false);
    }
    next_add(p, p->program.start, false, false); /* a match may begin anywhere */
    to = set_intern(p, false, &forgot);
    if (!forgot)
        p->moves[from * p->class_count + p->classes[byte]] = to;
    *budget -= SET_STEPS + (int64_t)(s.count + p->visited + p->class_count);
    return to;
}

/* ---- lines */

static uint16_t set_initial(struct pattern *p)
{
    bool forgot;

    if (p->initial == UNKNOWN) {
        next_begin(p);
        next_add(p, p->program.start, true, false);
        p->initial = set_intern(p, true, &forgot);
    }
    return p->initial;
}

static uint16_t set_restore(struct pattern *p, const uint16_t *saved, size_t count)
{
    bool forgot;

    next_begin(p);
    for (size_t i = 0; i < count; i++)
        next_add(p, saved[i], false, false);
    return set_intern(p, false, &forgot);
}

static void line_resume(struct pattern *p, struct pattern_line *line)
{
    if (line->begun && !line->saved)
        return;
    line->state = line->begun ? set_restore(p, line->saved, line->count) : set_initial(p);
    free(steal(line->saved));
    line->begun = true;
    line->matched = p->sets[line->state].matched;
}

size_t pattern_line_feed(struct pattern *p, struct pattern_line *line, const char *data, size_t size,
                         int64_t *budget)
{
    const int64_t most = *budget;
    size_t done = 0;
    int64_t made = 0; /* what was used up besides one step a byte */
    uint16_t state;

    line_resume(p, line);
    state = line->state;
    for (; done < size && !line->matched && (int64_t)done - made < most; done++) {
        const uint8_t byte = (uint8_t)data[done];
        uint16_t to = p->moves[state * p->class_count + p->classes[byte]];

        if (to == UNKNOWN)
            to = set_move(p, state, byte, &made);
        state = to;
        line->matched = p->sets[state].matched;
    }
    line->state = state;
    *budget = most + made - (int64_t)done;
    return line->matched ? size : done;
}

bool pattern_line_end(struct pattern *p, struct pattern_line *line)
{
    struct pattern_set *s;

    line_resume(p, line);
    if (line->matched)
        return true;
    s = &p->sets[line->state];
    if (s->at_end < 0) {
        next_begin(p);
        for (size_t i = 0; i < s->count; i++)
            next_add(p, p->members[s->first + i], s->begin, true);
        s->at_end = next_matched(p);
    }
    return s->at_end > 0;
}

void pattern_line_save(const struct pattern *p, struct pattern_line *line)
{
    const struct pattern_set *s = &p->sets[line->state];

    if (!line->begun || line->matched || line->saved)
        return;
    line->begun = !s->begin; /* nothing of the line was read yet: it begins anew */
    if (s->begin)
        return;
    line->count = s->count;
    line->saved = xmalloc((s->count + 1) * sizeof(*line->saved)); /* not NULL, even for an empty set */
    memcpy(line->saved, p->members + s->first, s->count * sizeof(*line->saved));
}

void pattern_line_release(struct pattern_line *line)
{
    free(line->saved);
    *line = (struct pattern_line){0};
}
