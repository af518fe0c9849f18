#include "client/cmd/foreign_words.h"

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#include "base/mem.h"

static const struct {
    const char *words; /* with a blank before and behind each */
    const char *advice;
} commands[] = {
    {" squeue sq qstat ps list ls jobs queue ", "try `ddpctl status`"},
    {" sacct history ", "try `ddpctl status --all`"},
    {" describe inspect info sstat ", "try `ddpctl status JOB`"},
    {" seff ", "try `ddpctl metrics JOB --usage`"},
    {" sprio sshare ",
     "try `ddpctl status`, which lists the queue in the order in which jobs start; there are no shares"},
    {" sreport ", "try `ddpctl status --all --since 30d -o json`"},
    {" sacctmgr ", "try `ddp-coordinator user add NAME`"},
    {" sdiag ", "try `ddpctl events`, or /metrics of the coordinator"},
    {" htop watch smap ", "try `ddpctl top`, or `ddpctl status --watch`"},
    {" get ", "try `ddpctl status` for jobs, `ddpctl nodes` for nodes"},
    {" scancel qdel stop abort ", "try `ddpctl cancel JOB`"},
    {" kill ", "try `ddpctl cancel --kill JOB`"},
    {" sinfo pbsnodes node hosts ", "try `ddpctl nodes`"},
    {" sbatch qsub apply create start launch ", "try `ddpctl submit`"},
    {" srun salloc torchrun mpirun exec ", "try `ddpctl run`"},
    {" scontrol ", "try `ddpctl status JOB`, `hold`, `release`, `restart`, `priority` or `drain NODE`"},
    {" cordon ", "try `ddpctl drain NODE`"},
    {" uncordon ", "try `ddpctl undrain NODE`"},
    {" rm remove purge ", "try `ddpctl delete JOB`"},
    {" tail output attach sattach ", "try `ddpctl logs -f JOB`"},
    {" nice renice ", "try `ddpctl priority JOB +1`"},
    {" suspend pause ",
     "try `ddpctl hold JOB` for a queued job, `ddpctl cancel` and `ddpctl resume` for a train job"},
    {" scale ", "try `ddpctl resize JOB NODES`"},
    {" requeue rollout ", "try `ddpctl restart JOB`"},
    {" cat ", "try `ddpctl show JOB` for the job file, `ddpctl logs JOB` for the output"},
    {" tensorboard plot curves ",
     "try `ddpctl metrics JOB --plot loss`, or `ddpctl export JOB --tensorboard DIR`"},
    {" dashboard ui gui browser ", "try `ddpctl web`"},
    {" notify alert hooks strigger ", "try `ddpctl tell`, or `ddpctl submit --tell URL`"},
};

/* takes: the commands that have what the advice names, with a blank before and behind each. */
static const struct {
    const char *takes, *words, *advice;
} options[] = {
#define MAKES_JOB " submit run check "
    {MAKES_JOB, " -N --num-nodes ", "use --nodes N for the number of nodes"},
    {MAKES_JOB, " -n --ntasks --np -np --num-procs ",
     "use --nodes N and --procs-per-node M: N times M workers start"},
    {MAKES_JOB, " --ntasks-per-node --tasks-per-node --workers --procs ",
     "use --procs-per-node N for the number of workers on each node"},
    {MAKES_JOB, " -G --gpus --gres --gpus-per-task --gpus-per-node --num-gpus ",
     "use --gpus-per-proc N for the GPUs of each worker, or --procs-per-node gpu for a worker on each GPU of a node"},
    {MAKES_JOB, " -t --time --timeout --walltime ", "use --time-limit, with 90s, 15m, 2h or 1d for example"},
    {MAKES_JOB, " -J --job-name ", "use --name NAME for the job's name"},
    {MAKES_JOB, " -D --chdir --working-dir --cwd ", "use --workdir DIR for the working directory"},
    {MAKES_JOB, " -e ", "use --env NAME=VALUE to set a variable"},
    {MAKES_JOB, " --requeue --restarts ", "use --max-restarts N for the number of restarts"},
    {MAKES_JOB, " --mail-type --mail-user --notify ", "use --tell URL for messages about the job"},
    {MAKES_JOB, " -H --hold --begin ",
     "use --set hold=true for a job that waits until you type `ddpctl release JOB`"},
    {" submit ", " -a --array ",
     "there are no job arrays: submit a job for each value in a loop, with --env TASK=N"},
    {" submit ", " -d --dependency ", "there are no dependencies: `ddpctl wait JOB && ddpctl submit ...`"},
    {" submit ", " -W --wait ", "--follow waits until the job ends"},
    {MAKES_JOB, " --wrap ", "the command follows the options: ddpctl submit [OPTIONS] COMMAND"},
    {" submit ", " --error ", "`ddpctl logs JOB` prints the output, at any time"},
    {MAKES_JOB, " -w --nodelist --nodeslist -x --exclude ",
     "use --set only_nodes=[box1,box2] for the nodes that the job may use"},
    {MAKES_JOB, " --exclusive ", "use --procs-per-node gpu or cpu for all slots of a node"},
    {MAKES_JOB, " -c --cpus-per-task --mem --mem-per-cpu ",
     "ddp counts slots: --procs-per-node N takes N of a node, and a job has no limits of CPUs or memory of its own"},
    {MAKES_JOB, " -p --partition -q --qos -A --account --reservation ",
     "ddp has one queue for all jobs and nodes; --priority N moves a job forward in it"},
    {" status ", " -u --user --me ", "use --mine for your own jobs"},
    {" status ", " -t --states --filter ", "use --state running,queued for jobs in these states"},
    {" status ", " -i --iterate -f --follow ", "--watch draws the screen again"},
    {" status nodes events ", " --json -j ", "use -o json for JSON"},
    {" cancel ", " -f --force -s --signal -9 --now ", "--kill kills the job at once"},
    {" logs ", " -o ", "`ddpctl logs` prints both streams; --stdout or --stderr prints one of them"},
    {" logs ", " -n --lines ", "use --tail N for the last lines"},
#undef MAKES_JOB
};

static bool words_contain(const char *words, const char *word)
{
    CLEANUP(free_text) char *between = xasprintf(" %s ", word);
    return *word && !strchr(word, ' ') && strstr(words, between);
}

const char *foreign_command(const char *word)
{
    for (size_t i = 0; i < ARRAY_LEN(commands); i++)
        if (words_contain(commands[i].words, word))
            return commands[i].advice;
    return NULL;
}

const char *foreign_option(const char *option, const void *command)
{
    for (size_t i = 0; i < ARRAY_LEN(options); i++)
        if (words_contain(options[i].takes, command) && words_contain(options[i].words, option))
            return options[i].advice;
    return NULL;
}
