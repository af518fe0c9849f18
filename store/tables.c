#include "store/tables.h"

#include <stddef.h>

#include "base/mem.h"
#include "store/record.h"

static const struct column job_columns[] = {
    COL_KEY(job_record, COLUMN_INT64, id),
    COL(job_record, COLUMN_TEXT, request_id),
    COL_FIXED(job_record, body_digest),
    COL(job_record, COLUMN_TEXT, name),
    COL(job_record, COLUMN_TEXT, user),
    COL(job_record, COLUMN_TEXT, job_file),
    COL(job_record, COLUMN_TEXTS, env),
    COL_STATE(job_record, state, job_sm),
    COL(job_record, COLUMN_TEXT, reason),
    COL(job_record, COLUMN_INT64, generation),
    COL(job_record, COLUMN_INT64, restarts_used),
    COL(job_record, COLUMN_INT64, continues),
    COL(job_record, COLUMN_INT64, created_ms),
    COL(job_record, COLUMN_INT64, started_ms),
    COL(job_record, COLUMN_INT64, ended_ms),
    COL(job_record, COLUMN_INT, exit_code),
    COL(job_record, COLUMN_INT64, next_spawn),
    COL_ENUM(job_record, goal, job_sm),
    COL(job_record, COLUMN_BOOL, kill),
    COL(job_record, COLUMN_INT64, nodes_min),
    COL(job_record, COLUMN_INT64, nodes_max),
    COL(job_record, COLUMN_INT64, fault_ms),
    COL(job_record, COLUMN_INT64, fault_step),
    COL(job_record, COLUMN_TEXT, last_restart),
    COL(job_record, COLUMN_INT64, last_restart_ms),
    COL(job_record, COLUMN_INT, stop_signal),
    COL(job_record, COLUMN_TEXT, progress),
    COL(job_record, COLUMN_INT64, scratch_generation),
    COL(job_record, COLUMN_INT64, revision),
    COL(job_record, COLUMN_INT64, revision_used),
};

static const struct column node_columns[] = {
    COL_KEY(node_record, COLUMN_TEXT, name),      COL(node_record, COLUMN_TEXT, instance),
    COL(node_record, COLUMN_TEXT, address),       COL(node_record, COLUMN_TEXT, version),
    COL(node_record, COLUMN_TEXT, log_dir),       COL_STATE(node_record, state, node_sm),
    COL(node_record, COLUMN_BOOL, drain),         COL(node_record, COLUMN_TEXT, note),
    COL(node_record, COLUMN_INT, cpu_slots),      COL(node_record, COLUMN_INT, cores),
    COL(node_record, COLUMN_INT, port_first),     COL(node_record, COLUMN_INT, port_last),
    COL(node_record, COLUMN_INT64, memory_bytes), COL(node_record, COLUMN_TEXT, gpus),
    COL(node_record, COLUMN_INT64, seen_ms),
};

static const struct column generation_columns[] = {
    COL_KEY(generation_record, COLUMN_INT64, job),
    COL_KEY(generation_record, COLUMN_INT64, number),
    COL_STATE(generation_record, state, generation_sm),
    COL(generation_record, COLUMN_TEXT, reason),
    COL(generation_record, COLUMN_INT, world_size),
    COL(generation_record, COLUMN_INT, node_count),
    COL(generation_record, COLUMN_INT, master_port),
    COL(generation_record, COLUMN_TEXT, master_addr),
    COL(generation_record, COLUMN_BOOL, charged),
    COL(generation_record, COLUMN_INT64, failed_spawn),
    COL_BYTES(generation_record, bootstrap, bootstrap_size),
    COL_FIXED(generation_record, key),
    COL(generation_record, COLUMN_BOOL, has_key),
    COL(generation_record, COLUMN_INT, source_rank),
    COL(generation_record, COLUMN_INT64, source_generation),
    COL(generation_record, COLUMN_INT64, source_step),
    COL(generation_record, COLUMN_TEXT, source_digest),
    COL(generation_record, COLUMN_TEXT, source_path),
    COL(generation_record, COLUMN_INT64, created_ms),
    COL(generation_record, COLUMN_INT64, ready_ms),
    COL(generation_record, COLUMN_INT64, closed_ms),
    COL(generation_record, COLUMN_BOOL, error),
    COL(generation_record, COLUMN_BOOL, has_step),
    COL(generation_record, COLUMN_INT64, last_step),
    COL(generation_record, COLUMN_INT64, stop_step),
};

static const struct column rank_columns[] = {
    COL_KEY(rank_record, COLUMN_INT64, job),       COL_KEY(rank_record, COLUMN_INT64, generation),
    COL_KEY(rank_record, COLUMN_INT, rank),        COL(rank_record, COLUMN_INT, node_rank),
    COL(rank_record, COLUMN_INT, local_rank),      COL(rank_record, COLUMN_TEXT, node),
    COL(rank_record, COLUMN_INT64, spawn),         COL_STATE(rank_record, state, rank_sm),
    COL_BYTES(rank_record, address, address_size), COL(rank_record, COLUMN_TEXT, version),
    COL(rank_record, COLUMN_TEXT, computes),
};

static const struct column spawn_columns[] = {
    COL_KEY(spawn_record, COLUMN_INT64, job),
    COL_KEY(spawn_record, COLUMN_INT64, spawn),
    COL(spawn_record, COLUMN_INT64, first_generation),
    COL(spawn_record, COLUMN_INT, first_local_rank),
    COL(spawn_record, COLUMN_TEXT, node),
    COL(spawn_record, COLUMN_INT, cpu_slot),
    COL(spawn_record, COLUMN_TEXTS, gpu_uuids),
    COL_FIXED(spawn_record, token),
    COL_FIXED(spawn_record, token_hash),
    COL(spawn_record, COLUMN_BOOL, revoked),
    COL(spawn_record, COLUMN_BOOL, dead),
    COL(spawn_record, COLUMN_BOOL, exit_known),
    COL(spawn_record, COLUMN_INT, code),
    COL(spawn_record, COLUMN_INT, signal),
    COL(spawn_record, COLUMN_BOOL, out_of_memory),
    COL(spawn_record, COLUMN_BOOL, lost),
    COL(spawn_record, COLUMN_BOOL, stopped),
    COL(spawn_record, COLUMN_TEXT, message),
    COL(spawn_record, COLUMN_TEXT, stderr_tail),
    COL(spawn_record, COLUMN_INT64, pid),
    COL(spawn_record, COLUMN_INT64, started_ms),
    COL(spawn_record, COLUMN_INT64, ended_ms),
    COL(spawn_record, COLUMN_INT64, last_commit),
};

static const struct column snapshot_columns[] = {
    COL_KEY(snapshot_record, COLUMN_INT64, job),      COL_KEY(snapshot_record, COLUMN_INT64, generation),
    COL_KEY(snapshot_record, COLUMN_INT64, step),     COL(snapshot_record, COLUMN_INT64, bytes),
    COL(snapshot_record, COLUMN_INT64, committed_ms), COL(snapshot_record, COLUMN_TEXT, digest),
    COL(snapshot_record, COLUMN_TEXT, path),          COL(snapshot_record, COLUMN_TEXTS, nodes),
};

static const struct column event_columns[] = {
    COL_KEY(event_record, COLUMN_INT64, id), COL(event_record, COLUMN_INT64, time_ms),
    COL(event_record, COLUMN_INT64, job),    COL(event_record, COLUMN_INT64, generation),
    COL(event_record, COLUMN_TEXT, what),    COL(event_record, COLUMN_TEXT, text),
};

static const struct column user_columns[] = {
    COL_KEY(user_record, COLUMN_TEXT, name),  COL(user_record, COLUMN_TEXT, role),
    COL_FIXED(user_record, token_hash),       COL(user_record, COLUMN_INT64, created_ms),
    COL(user_record, COLUMN_INT64, token_ms),
};

static const struct column audit_columns[] = {
    COL_KEY(audit_record, COLUMN_INT64, id), COL(audit_record, COLUMN_INT64, time_ms),
    COL(audit_record, COLUMN_TEXT, who),     COL(audit_record, COLUMN_TEXT, origin),
    COL(audit_record, COLUMN_TEXT, what),    COL(audit_record, COLUMN_INT64, job),
    COL(audit_record, COLUMN_TEXT, text),
};

static const struct column notice_columns[] = {
    COL_KEY(notice_record, COLUMN_INT64, id), COL(notice_record, COLUMN_INT64, time_ms),
    COL(notice_record, COLUMN_INT64, job),    COL(notice_record, COLUMN_INT64, generation),
    COL(notice_record, COLUMN_TEXT, hook),    COL(notice_record, COLUMN_TEXT, what),
    COL(notice_record, COLUMN_TEXT, text),    COL(notice_record, COLUMN_TEXT, name),
    COL(notice_record, COLUMN_TEXT, user),    COL(notice_record, COLUMN_TEXT, node),
    COL(notice_record, COLUMN_TEXT, url),     COL(notice_record, COLUMN_INT64, shape),
};

const struct table job_table = {"job", job_columns, ARRAY_LEN(job_columns), sizeof(struct job_record)};
const struct table node_table = {"node", node_columns, ARRAY_LEN(node_columns), sizeof(struct node_record)};
const struct table generation_table = {"generation", generation_columns, ARRAY_LEN(generation_columns),
                                       sizeof(struct generation_record)};
const struct table rank_table = {"rank", rank_columns, ARRAY_LEN(rank_columns), sizeof(struct rank_record)};
const struct table spawn_table = {"spawn", spawn_columns, ARRAY_LEN(spawn_columns),
                                  sizeof(struct spawn_record)};
const struct table snapshot_table = {"snapshot", snapshot_columns, ARRAY_LEN(snapshot_columns),
                                     sizeof(struct snapshot_record)};
const struct table event_table = {"event", event_columns, ARRAY_LEN(event_columns),
                                  sizeof(struct event_record)};
const struct table user_table = {"user", user_columns, ARRAY_LEN(user_columns), sizeof(struct user_record)};
const struct table audit_table = {"audit", audit_columns, ARRAY_LEN(audit_columns),
                                  sizeof(struct audit_record)};
const struct table notice_table = {"notice", notice_columns, ARRAY_LEN(notice_columns),
                                   sizeof(struct notice_record)};
