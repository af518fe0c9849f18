#!/bin/bash
# Runs any distributed program on one node: sbatch one-node.sh train.py --epochs 50
#SBATCH --job-name=ddp
#SBATCH --nodes=1
#SBATCH --ntasks=1
##SBATCH --gpus=4
##SBATCH --cpus-per-task=32
##SBATCH --time=4:00:00

# One worker for each GPU that Slurm has given to the job, or one worker without GPUs. A program that starts its own processes needs
# one worker: WORKERS=1 sbatch one-node.sh spawn.py. Where Slurm does not manage the GPUs, WORKERS=gpu uses all GPUs of the node.
workers=1
given=${CUDA_VISIBLE_DEVICES:-${SLURM_GPUS_ON_NODE:+any}}
[[ ${SLURM_GPUS_ON_NODE-} != 0 ]] || given=
case $given in
'' | NoDevFiles | -1 | MIG-*) ;; # Slurm sets NoDevFiles if the job has no GPU; ddp uses whole GPUs of NVIDIA
*) ! nvidia-smi --list-gpus 2>/dev/null | grep -q '^GPU ' || workers=gpu ;;
esac

[[ ${SLURM_CPUS_PER_TASK-} ]] && export SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK
srun ddpctl run --nproc-per-node="${WORKERS:-$workers}" "$@"
