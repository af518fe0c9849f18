#!/bin/bash
# Runs any distributed program on several nodes: sbatch --nodes=4 nodes.sh train.py --epochs 50
# ddpctl finds the nodes, the ranks and the endpoint by itself. One task on each node starts the node's workers (PROCS of them).
# With --ntasks-per-node=8 each task is a worker; do not set PROCS then, and give srun --cpu-bind=none if Slurm binds tasks to cores.
#SBATCH --job-name=ddp
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
##SBATCH --gpus-per-node=8
##SBATCH --cpus-per-task=32
##SBATCH --time=24:00:00

# Only the nodes of this job have this token, so only they can join its run.
DDP_TOKEN=$(head -c 32 /dev/urandom | od -An -v -tx1 | tr -d ' \n')
export DDP_TOKEN

[[ ${SLURM_CPUS_PER_TASK-} ]] && export SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK
srun ddpctl run ${PROCS:+--nproc-per-node="$PROCS"} "$@"
