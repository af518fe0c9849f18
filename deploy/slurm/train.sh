#!/bin/bash
# A train job of ddp's own trainer, over as many time limits as it takes: sbatch --nodes=2 train.sh job.yaml
# Two minutes before the time limit Slurm sends SIGUSR1: the job leaves a snapshot and stops, and this script puts
# itself into the queue again. The next run goes on from that snapshot, though the first one's coordinator is gone.
# Preemption (PreemptMode=REQUEUE) and node failures do the same by Slurm itself. `scancel` is the end.
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
