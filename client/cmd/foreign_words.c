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
    {MAKES_JOB, " -N --num-nodes ", "the number of nodes is --nodes N"},
    {MAKES_JOB, " -n --ntasks --np -np --num-procs ",
     "the number of workers is --nodes N times --procs-per-node N"},
    {MAKES_JOB, " --ntasks-per-node --tasks-per-node --workers --procs ",
     "the number of workers on each node is --procs-per-node N"},
    {MAKES_JOB, " -G --gpus --gres --gpus-per-task --gpus-per-node --num-gpus ",
     "the GPUs of each worker are --gpus-per-proc N, and a worker for each GPU of a node is --procs-per-node gpu"},
    {MAKES_JOB, " -t --time --timeout --walltime ", "the time limit is --time-limit 90s, 15m, 2h or 1d"},
    {MAKES_JOB, " -J --job-name ", "the job's name is --name NAME"},
    {MAKES_JOB, " -D --chdir --working-dir --cwd ", "the working directory is --workdir DIR"},
    {MAKES_JOB, " -e ", "a variable is --env NAME=VALUE"},
    {MAKES_JOB, " --requeue --restarts ", "the number of restarts is --max-restarts N"},
    {MAKES_JOB, " --mail-type --mail-user --notify ", "messages about the job are --tell URL"},
    {MAKES_JOB, " -H --hold --begin ",
     "a job that begins on hold is --set hold=true, and `ddpctl release JOB` starts it"},
    {" submit ", " -a --array ",
     "there are no job arrays: submit a job for each value in a loop, with --env TASK=N"},
    {" submit ", " -d --dependency ", "there are no dependencies: `ddpctl wait JOB && ddpctl submit ...`"},
    {" submit ", " -W --wait ", "--follow waits until the job ends"},
    {MAKES_JOB, " --wrap ", "the command follows the options: ddpctl submit [OPTIONS] COMMAND"},
    {" submit ", " --error ", "`ddpctl logs JOB` prints the output, at any time"},
    {MAKES_JOB, " -w --nodelist --nodeslist -x --exclude ",
     "the nodes that the job may use are --set only_nodes=[box1,box2]"},
    {MAKES_JOB, " --exclusive ", "all slots of a node are --procs-per-node gpu or cpu"},
    {MAKES_JOB, " -c --cpus-per-task --mem --mem-per-cpu ",
     "ddp counts slots: --procs-per-node N takes N of a node, and a job has no limits of CPUs or memory of its own"},
    {MAKES_JOB, " -p --partition -q --qos -A --account --reservation ",
     "ddp has one queue for all jobs and nodes; --priority N moves a job forward in it"},
    {" status ", " -u --user --me ", "your own jobs are --mine"},
    {" status ", " -t --states --filter ", "states are --state running,queued"},
    {" status ", " -i --iterate -f --follow ", "--watch draws the screen again"},
    {" status nodes events ", " --json -j ", "use -o json for JSON"},
    {" cancel ", " -f --force -s --signal -9 --now ", "--kill kills the job at once"},
    {" logs ", " -o ", "`ddpctl logs` prints both streams; --stdout or --stderr prints one of them"},
    {" logs ", " -n --lines ", "the last lines are --tail N"},
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
