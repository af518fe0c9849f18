#!/bin/bash
# Runs any distributed program, or a train job's file, on several nodes: qsub nodes.sh
# One ddpctl on the first node starts the others, with pbsdsh if it is installed, else with ssh, and makes the token for them.
# Torque writes the request as -l nodes=2:ppn=8.
#PBS -N ddp
#PBS -l select=2:ncpus=8:mpiprocs=1
#PBS -l place=scatter
#PBS -l walltime=24:00:00
#PBS -j oe

cd "${PBS_O_WORKDIR:-.}" || exit 1

# The program to run. qsub passes no arguments on, so name the program here.
(($#)) || set -- train.py --epochs 50

exec ddpctl run --launcher auto ${PROCS:+--nproc-per-node="$PROCS"} "$@"
