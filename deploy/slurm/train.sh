#!/bin/bash
# Runs a train job that continues over several time limits: sbatch --nodes=2 train.sh job.yaml
# Two minutes before the time limit Slurm sends SIGUSR1: the job writes a snapshot and stops, and this script puts itself into
# the queue again. The next run continues from that snapshot, although the first run's coordinator is gone. After preemption
# (PreemptMode=REQUEUE) and node failures Slurm itself queues the job again. `scancel` ends the job.
#SBATCH --job-name=ddp-train
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --signal=USR1@120
#SBATCH --requeue
#SBATCH --open-mode=append
##SBATCH --gpus-per-node=8
##SBATCH --time=24:00:00

DDP_TOKEN=$(head -c 32 /dev/urandom | od -An -v -tx1 | tr -d ' \n')
export DDP_TOKEN

[[ ${SLURM_CPUS_PER_TASK-} ]] && export SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK
srun ddpctl run "$@"
code=$?
if ((code == 128 + $(kill -l USR1))); then
    echo "train.sh: stopped before the time limit, queued again" >&2
    scontrol requeue "$SLURM_JOB_ID"
fi
exit $code
