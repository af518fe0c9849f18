#ifndef DDP_DAEMON_COORDINATOR_CORE_EMIT_H
#define DDP_DAEMON_COORDINATOR_CORE_EMIT_H

#include "daemon/coordinator/core/model.h"

/* Changes and effects of the call in progress. All of them copy what they are given. emit_*_move checks the
 * move against the state table, logs it once and sets the state; no other code sets a state. */
void emit_job(struct core *core, const struct job *job, enum change_kind kind);
void emit_node(struct core *core, const struct node *node, enum change_kind kind);
void emit_generation(struct core *core, const struct generation *g, enum change_kind kind);
void emit_generation_removed(struct core *core, const struct generation *g);
void emit_rank(struct core *core, const struct rank *rank, enum change_kind kind);
void emit_spawn(struct core *core, const struct spawn *s, enum change_kind kind);
void emit_snapshot(struct core *core, const struct snapshot_record *snapshot, enum change_kind kind);
void emit_progress(struct core *core, const struct job *job); /* job->r.progress only */
void emit_forget(struct core *core, int64_t job);
void emit_number_removed(struct core *core, int64_t job);
void emit_clear(struct core *core, int64_t job);
void emit_meta(struct core *core, const char *key, int64_t value);
void emit_event(struct core *core, const struct job *job, const char *what, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
void emit_notice(struct core *core, const struct notice_record *notice); /* texts may be NULL */
/* The user who caused the event, for texts: a name, or "the user". */
const char *event_who(const struct core_event *event);
void emit_job_move(struct core *core, struct job *job, enum job_state to, const char *why);
void emit_node_move(struct core *core, struct node *node, enum node_state to, const char *why);
void emit_generation_move(struct core *core, struct generation *g, enum generation_state to, const char *why);
void emit_rank_move(struct core *core, struct rank *rank, enum rank_state to);

struct core_effect *emit_effect(struct core *core, enum core_effect_kind kind);
void emit_ok(struct core *core, uint64_t call);
void emit_fail(struct core *core, uint64_t call, enum err_code code, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
/* Answers a worker that names a generation which restored records may lack: it calls again. */
void emit_not_yet(struct core *core, uint64_t call, const struct job *job, int64_t generation);
/* Replies OK to a submit. warnings: what its user should know, or NULL; the effect owns them. */
void emit_submit_reply(struct core *core, uint64_t call, const struct job *job, char **warnings);
/* Replies OK with the job; existed: the job was not created by this call. */
void emit_job_reply(struct core *core, uint64_t call, const struct job *job, bool existed);
void emit_wish(struct core *core, const struct node *node); /* to the node's session */

#endif
