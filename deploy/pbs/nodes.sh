#!/bin/bash
# Any distributed program, or a job file of ddp's own trainer, on several nodes: qsub nodes.sh
# One ddpctl on the first node starts the others, by pbsdsh where it is there, else by ssh, and makes the token that
# lets them in. Torque spells the request -l nodes=2:ppn=8.
#PBS -N ddp
#PBS -l select=2:ncpus=8:mpiprocs=1
#PBS -l place=scatter
#PBS -l walltime=24:00:00
#PBS -j oe

cd "${PBS_O_WORKDIR:-.}" || exit 1

# What to run: qsub hands no arguments on, so it stands here.
(($#)) || set -- train.py --epochs 50

exec ddpctl run --launcher auto ${PROCS:+--nproc-per-node="$PROCS"} "$@"
