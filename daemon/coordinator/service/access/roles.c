#include "daemon/coordinator/service/access/roles.h"

#include <stddef.h>
#include <string.h>

#include "base/mem.h"

#define CLUSTER "ddp.v1.Cluster"
#define RENDEZVOUS "ddp.v1.Rendezvous"

/* One row for each method in cluster_rpc.c, agent_rpc.c and rendezvous_rpc.c; docs/howto/security.md describes them
 * for users. The daemon does not start if a method has no row, so none can be left open by mistake. */
static const struct access_row rows[] = {
    {CLUSTER, "WhoAmI", ACCESS_VIEW, "ask for your identity"},
    {CLUSTER, "GetVersion", ACCESS_VIEW, "ask for the version"},
    {CLUSTER, "GetJob", ACCESS_VIEW, "see a job"},
    {CLUSTER, "ListJobs", ACCESS_VIEW, "list jobs"},
    {CLUSTER, "WatchJob", ACCESS_VIEW, "watch a job"},
    {CLUSTER, "ReadLogs", ACCESS_VIEW, "read logs"},
    {CLUSTER, "ProbeJob", ACCESS_VIEW, "diagnose a job"},
    {CLUSTER, "GetMetrics", ACCESS_VIEW, "see metrics"},
    {CLUSTER, "GetEvents", ACCESS_VIEW, "see events"},
    {CLUSTER, "ListNodes", ACCESS_VIEW, "list nodes"},
    {CLUSTER, "SubmitJob", ACCESS_SUBMIT, "submit a job"},
    {CLUSTER, "CancelJob", ACCESS_SUBMIT, "cancel a job"},
    {CLUSTER, "ResizeJob", ACCESS_SUBMIT, "resize a job"},
    {CLUSTER, "RestartJob", ACCESS_SUBMIT, "restart a job"},
    {CLUSTER, "TuneJob", ACCESS_SUBMIT, "tune a job"},
    {CLUSTER, "SetPriority", ACCESS_SUBMIT, "change a job's priority"},
    {CLUSTER, "HoldJob", ACCESS_SUBMIT, "hold or release a job"},
    {CLUSTER, "DeleteJob", ACCESS_SUBMIT, "delete a job"},
    {CLUSTER, "DrainNode", ACCESS_OPERATE, "drain a node"},
    {CLUSTER, "UndrainNode", ACCESS_OPERATE, "undrain a node"},
    {CLUSTER, "ForgetNode", ACCESS_OPERATE, "forget a node"},
    /* Agents start a process for it, which looks at paths that the caller names. */
    {CLUSTER, "CheckNodes", ACCESS_OPERATE, "check nodes"},
    {CLUSTER, "JoinRun", ACCESS_OPERATE, "join a run"},
    {CLUSTER, "GetAudit", ACCESS_OPERATE, "read the audit log"},
    {CLUSTER, "ListHooks", ACCESS_OPERATE, "list hooks"},
    {CLUSTER, "TestHook", ACCESS_OPERATE, "test a hook"},
    /* A stolen token, even one with the role operate, must not be good for making further tokens. */
    {CLUSTER, "ListUsers", ACCESS_SOCKET, "list users"},
    {CLUSTER, "AddUser", ACCESS_SOCKET, "add a user"},
    {CLUSTER, "RemoveUser", ACCESS_SOCKET, "remove a user"},
    {CLUSTER, "RenewUserToken", ACCESS_SOCKET, "make a new token for a user"},
    {"ddp.v1.Agent", "Session", ACCESS_AGENT, "serve as a node"},
    {RENDEZVOUS, "Join", ACCESS_WORKER, "join a generation"},
    {RENDEZVOUS, "PutBootstrap", ACCESS_WORKER, "publish a bootstrap id"},
    {RENDEZVOUS, "Watch", ACCESS_WORKER, "watch a generation"},
    {RENDEZVOUS, "CommitSnapshot", ACCESS_WORKER, "commit a snapshot"},
    {RENDEZVOUS, "ReportSnapshotFailure", ACCESS_WORKER, "report a failed snapshot"},
};

static const char *const names[] = {"none", "view", "submit", "operate"};

const char *role_name(enum role role)
{
    return names[role];
}

enum role role_of(const char *name)
{
    for (size_t i = ROLE_VIEW; i < ARRAY_LEN(names); i++)
        if (strcmp(name, names[i]) == 0)
            return (enum role)i;
    return ROLE_NONE;
}

const struct access_row *access_find(const char *service, const char *method)
{
    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        if (strcmp(rows[i].method, method) == 0 && strcmp(rows[i].service, service) == 0)
            return &rows[i];
    return NULL;
}

enum role access_role(enum access access)
{
    switch (access) {
    case ACCESS_VIEW:
        return ROLE_VIEW;
    case ACCESS_SUBMIT:
        return ROLE_SUBMIT;
    case ACCESS_OPERATE:
        return ROLE_OPERATE;
    case ACCESS_SOCKET:
    case ACCESS_AGENT:
    case ACCESS_WORKER:
        break;
    }
    return ROLE_NONE;
}
