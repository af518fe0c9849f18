#ifndef DDP_DAEMON_AGENT_TRAINER_NCCL_H
#define DDP_DAEMON_AGENT_TRAINER_NCCL_H

/* The NCCL version that this node's trainer would train with, "2.28.9": asked of the program itself, once,
 * with a deadline, since neither CUDA nor NCCL belongs into an agent. "none" where it has no plugin for GPUs,
 * or does not say. The caller frees. */
char *trainer_nccl(const char *trainer);

#endif
