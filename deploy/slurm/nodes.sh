#!/bin/bash
# Any distributed program on several nodes: sbatch --nodes=4 nodes.sh train.py --epochs 50
# ddpctl finds nodes, ranks and the place to meet by itself. One task a node starts the node's workers; with
# --ntasks-per-node=8 a task is a worker, and PROCS stays out of it.
#SBATCH --job-name=ddp
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
##SBATCH --gpus-per-node=8
##SBATCH --cpus-per-task=32
##SBATCH --time=24:00:00

# What lets the nodes of this job into its run, and nobody else.
DDP_TOKEN=$(head -c 32 /dev/urandom | od -An -v -tx1 | tr -d ' \n')
export DDP_TOKEN

[[ ${SLURM_CPUS_PER_TASK-} ]] && export SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK
srun ddpctl run ${PROCS:+--nproc-per-node="$PROCS"} "$@"
