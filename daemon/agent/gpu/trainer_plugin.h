#ifndef DDP_DAEMON_AGENT_GPU_TRAINER_PLUGIN_H
#define DDP_DAEMON_AGENT_GPU_TRAINER_PLUGIN_H

/* Which GPU libraries this node's trainer uses. The trainer itself is asked, by `ddp-trainer --plugin`, so
 * that the agent does not load CUDA or NCCL. Loop thread. */

struct uv_loop_s;
struct trainer_plugin;

/* nccl: "2.28.9"; "missing" if the trainer has none, so that one rank alone can train; "none" if it has no plugin for GPUs or
 * did not answer. version: all its libraries, for people: "CUDA 13.0, NCCL 2.28.9, cuDNN 9.19.0"; "": none. Both are
 * borrowed. */
typedef void (*trainer_plugin_fn)(void *user, const char *nccl, const char *version);

/* fn is called once, from the loop, within half a minute. The query frees itself then. */
struct trainer_plugin *trainer_plugin_ask(struct uv_loop_s *loop, const char *trainer, trainer_plugin_fn fn,
                                          void *user);
/* Cancels the query before fn was called; fn is not called any more. NULL is fine. */
void trainer_plugin_close(struct trainer_plugin *t);

#endif
