#ifndef DDP_DAEMON_AGENT_GPU_TRAINER_PLUGIN_H
#define DDP_DAEMON_AGENT_GPU_TRAINER_PLUGIN_H

/* What this node's trainer would train with on GPUs: asked of the program itself, by `ddp-trainer --plugin`,
 * since neither CUDA nor NCCL belongs into an agent. Loop thread. */

struct uv_loop_s;
struct trainer_plugin;

/* nccl: "2.28.9", or "none" where it has no plugin for GPUs, or does not say. version: all that it is made
 * of, for people: "CUDA 13.0, NCCL 2.28.9, cuDNN 9.19.0"; "": nothing. Borrowed. */
typedef void (*trainer_plugin_fn)(void *user, const char *nccl, const char *version);

/* fn comes once, when the loop turns, within half a minute; the question is over then, and frees itself. */
struct trainer_plugin *trainer_plugin_ask(struct uv_loop_s *loop, const char *trainer, trainer_plugin_fn fn,
                                          void *user);
/* Before fn came: it does not come any more. NULL is fine. */
void trainer_plugin_close(struct trainer_plugin *t);

#endif
