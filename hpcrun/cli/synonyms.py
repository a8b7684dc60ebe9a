"""Names in other programs of hpcrun's commands and options."""

from __future__ import annotations

COMMANDS = {
    "hpcrun": {
        "status": "ps ls list queue squeue jobs job sacct qstat bjobs showq sq info",
        "logs": "tail log output cat attach bpeek",
        "cancel": "kill stop scancel delete qdel bkill abort end",
        "submit": "sbatch start launch qsub bsub msub oarsub condor_submit train create",
        "run": "exec srun mpirun mpiexec salloc",
        "resubmit": "rerun retry requeue repeat",
        "resume": "continue restart",
        "why": "explain debug diagnose reason",
        "watch": "top monitor follow progress",
        "result": "results show metrics",
        "cleanup": "clean purge killall",
        "prune": "rm remove gc",
        "compare": "diff",
        "report": "plot html",
        "doctor": "check test verify health",
        "site init": "init setup configure",
        "site list": "sites clusters",
        "site show": "sinfo scontrol partitions nodes limits qhost pbsnodes bqueues bhosts queues",
        "workload list": "workloads models examples",
        "--help": "help man usage",
        "--version": "version",
        "--install-completion": "completion completions install-completion autocomplete",
    },
    "hpcrun site": {
        "list": "ls sites",
        "init": "new create discover setup",
        "show": "cat view print get info edit open",
        "check": "lint validate verify",
        "test": "run benchmark try",
        "add": "install clone share",
        "update": "pull upgrade refresh sync",
        "remove": "rm delete uninstall",
        "allow": "trust accept approve",
        "diff": "compare changes",
    },
    "hpcrun workload": {
        "list": "ls",
        "show": "cat view info help options",
        "new": "init create copy add start clone fork",
    },
}
"""Names of each command in other programs, by group of commands."""

OPTIONS = {
    "--gpus-per-node": "--gpu --gpus -G --gres --num-gpus --ngpus --gpus-per-task --nproc-per-node --accelerators "
    "--devices --n-gpus",
    "--nodes": "--nnodes --num-nodes --node --num-machines --machines",
    "--ntasks": "--np -np --ranks --procs --nprocs --num-processes --num-proc --num-workers --tasks "
    "--workers --world-size",
    "--ntasks-per-node": "--tasks-per-node --ppn --ranks-per-node --procs-per-node",
    "--cpus-per-task": "--cpus --cores --threads --cpu --ncpus --num-cpus",
    "--time": "--walltime --wall-time --timeout --time-limit --max-time --duration",
    "--mem": "--memory --ram --mem-per-node --vmem --pmem",
    "--partition": "--queue --queues --part",
    "--account": "--project --allocation --charge",
    "--job-name": "--name",
    "--mail-user": "--email --mail --notify",
    "--hostfile": "--hosts --host --machinefile -machinefile --host-file",
    "--nodelist": "--host --hosts --on",
    "--in-job": "--job --on-node",
    "--dependency": "--after --afterok --depends-on --wait-for",
    "--container": "--image --singularity --apptainer --docker",
    "--dry-run": "--test-only --print --preview --simulate -n --noop --script",
    "-x": "--env --environment --setenv",
    "--site": "--cluster --config --profile --system --machine -M --clusters",
    "--no-gpu": "--cpu-only --no-gpus --nogpu",
    "--wait": "--follow --block --sync",
    "--watch": "--interval --refresh --every",
    "--max-requeue": "--requeue --retries --restarts",
    "--lines": "--tail --last --head",
    "--json": "--format --output-format -j --csv --tsv --verbose -v --long -l",
    "--version": "-V -version",
    "--rank": "--ranks --all-ranks --task",
    "--grep": "--filter --search --match",
    "--output": "--file --out",
    "--yes": "--force --no-confirm",
    "--older-than": "--days --hours --age --before --keep-days",
    "--since": "--days --hours --after --newer-than",
}
"""Names of each option of hpcrun in Slurm and other programs."""

ARGUMENTS = {
    "JOB": "--job --jobs --job-id --jobid --id --run --name --job-name -j -J",
    "SITE": "--site --cluster --name --system --machine --clusters -s -M",
    "WORKLOAD": "--workload --name --model",
    "NAME": "--name --site --cluster --workload",
    "TARGET": "--workload --target",
    "DIR": "--dir --directory --folder --path --input --data-dir",
}
"""Options that users expect in place of a command's first argument, by its name in the usage line."""

SBATCH_OPTIONS = (
    "batch bb bbf begin cluster-constraint comment container-id contiguous core-spec cores-per-socket "
    "cpu-freq cpus-per-gpu deadline delay-boot distribution export-file extra get-user-env gpu-bind "
    "gpu-freq gpus-per-socket gpus-per-task gres-flags hint hold ignore-pbs kill-on-invalid-dep licenses mcs-label "
    "mem-bind mincpus network nice no-kill no-requeue ntasks-per-core ntasks-per-gpu ntasks-per-socket open-mode "
    "overcommit oversubscribe power prefer priority profile propagate reboot requeue reservation segment signal "
    "sockets-per-node spread-job switches thread-spec threads-per-core tmp tres-bind tres-per-task uid use-min-nodes "
    "wckey"
)
"""Options of sbatch(1) that hpcrun passes on in ``--sbatch``."""

QUEUE_COMMANDS = {"sbatch", "qsub", "bsub", "msub", "oarsub", "condor_submit", "submitit"}
"""Programs that queue jobs, as ``hpcrun submit`` does."""

ARGUMENT_OPTIONS = {"--args", "--arg", "--arguments", "--script-args", "--program-args", "--extra-args", "--params"}
"""Names in other programs of the option for a program's arguments."""

FLAGS = {"--dry-run", "--no-gpu", "--wait", "--json", "--yes", "--version"}
"""Options in `OPTIONS_OF_HPCRUN` and other tables of this module that take no value."""

WRAPPER_PROGRAMS = {
    **dict.fromkeys(
        ["docker", "podman", "nerdctl", "apptainer", "singularity"],
        "hpcrun starts the container: {line} --container IMAGE",
    ),
    **dict.fromkeys(["conda", "mamba", "micromamba"], "jobs use the active environment: conda activate ENV; {line}"),
}
"""Programs that run other programs in a container or an environment, and the command line to use instead."""

ENVIRONMENT_MANAGERS = {"uv", "poetry", "pixi", "pipenv"}
"""Programs whose subcommand ``run`` starts Python in an environment, such as ``uv run``."""

_DOWNLOAD_OPTIONS = "--download --url --fetch"
_NO_DOWNLOAD = "hpcrun data downloads nothing; without options, it names the files to download, and their folder"

JOB_COMMAND = "a command whose first argument is JOB"
"""The commands for jobs that exist, such as ``hpcrun status``."""

QUEUE_COMMAND = "a command that queues jobs"
"""The commands whose jobs get their nodes from a queue: ``hpcrun submit`` and ``hpcrun resubmit``."""

ADVICE = {
    "hpcrun submit": {
        "--array -a --grid --param": "--sweep NAME=1..5 runs a task for each value of an option of the program",
        "-pe": "--ntasks=N sets the number of ranks, --ntasks-per-node=N the number on each node",
        "--local --localhost --no-slurm --no-queue": "--site local starts the job on this machine, without Slurm",
        "--wrap": "any command goes after --: hpcrun submit -- COMMAND",
        "--chdir -D --workdir --cwd": "jobs run in the directory in which they are submitted: cd there first",
        "--python --venv --conda --conda-env --virtualenv": "jobs use the Python of the active environment, or the "
        "site file's (python, venv, uv, conda.env): docs/environments.md",
        "--module --modules --load": "modules.load in the site file loads modules: docs/sites.md",
        "--verbose -v --debug --quiet": "--log-level=DEBUG prints more, ERROR less; --dry-run prints the script",
        "-o -e --output --error --log --logfile --log-file --stdout --stderr": "the output of a job is in its run "
        "directory, and hpcrun logs JOB shows it",
        "--bind -B --volume --mount --volumes --mounts": 'container.binds = ["/data"] in the site file binds a folder: '
        "docs/containers.md",
        "--hold -H": "--sbatch=--hold",
        "--parsable --quiet-id": "stdout has only the job id if it is not a terminal: id=$(hpcrun submit ...)",
        "--export": "jobs get your environment; -x NAME=VALUE sets one variable",
        "--mpi": 'mpi.type = "pmix" in the site file sets it, for all its jobs: docs/sites.md',
        "--pty --interactive --shell": "hpcrun run starts a job in the foreground, on the nodes of salloc",
        "--standalone --rdzv-backend --rdzv_backend --rdzv-endpoint --rdzv_endpoint --use-env --use_env --max-restarts "
        "--max_restarts --master-port --master_port": "--launch torchrun starts the ranks by "
        "torchrun, and gives it these options",
        "--cpus-per-gpu": "--cpus-per-task=N: each rank has one GPU",
    },
    JOB_COMMAND: {
        "--site --cluster --clusters -M": "SITE:1234 is job 1234 of a site; HPCRUN_SITE=SITE selects it where several "
        "sites have a job 1234",
    },
    QUEUE_COMMAND: {
        "--hostfile --machinefile -machinefile --host-file": "Slurm chooses the nodes, --nodelist=a,b names some; "
        "hpcrun run --hostfile FILE starts ranks over ssh",
    },
    "hpcrun run": {
        "--wait -W --follow --block --sync": "hpcrun run stays in the foreground until the job ends",
        "--sweep --array -a --grid --param --max-parallel --max-requeue --memory-retries": "only hpcrun submit has it: "
        "sweeps and restarts need a queue",
        "--detach --background": "hpcrun submit starts a job in the background",
    },
    "hpcrun cancel": {
        "-9 --signal -s --now --kill": "hpcrun cancel gives the ranks time for a checkpoint, and then kills them",
        "--user -u --me": "hpcrun cancel all cancels all your jobs",
        "--name -J": "ids and names follow without an option: hpcrun cancel 1234 'lenet*'",
    },
    "hpcrun resubmit": {
        "--sweep --array -a --grid --param": "hpcrun resubmit repeats a job: hpcrun submit --sweep NAME=1..5 starts "
        "a sweep"
    },
    "hpcrun data mnist": {_DOWNLOAD_OPTIONS: _NO_DOWNLOAD},
    "hpcrun data cifar10": {_DOWNLOAD_OPTIONS: _NO_DOWNLOAD},
    "hpcrun cleanup": {"--node --nodes --nodelist --host --hosts -w": "hpcrun cleanup JOB cleans all nodes of the job"},
    "hpcrun resume": {
        "--time -t --nodes -N --mem --partition -p --gpus-per-node": "hpcrun resume keeps the resources of the run; "
        "hpcrun resubmit JOB --time=2:00:00 starts it again with other resources",
    },
    "hpcrun doctor": {"--fix --repair --apply": "hpcrun doctor prints what to fix, and changes nothing"},
    "hpcrun site list": {"--all -a": "hpcrun site list has all sites"},
    "hpcrun report": {
        "--pdf --format --md --markdown --png": "hpcrun report writes HTML, which a browser prints to PDF"
    },
    "hpcrun result": {
        "--sort --sort-by --order --best --top": "hpcrun compare shows how runs differ; --json prints all metrics",
        "--metric --metrics --key -m --name": "hpcrun result shows all metrics; --json prints them for other programs",
    },
    "hpcrun logs": {
        "--since --until --timestamps -t": "the lines of a log have no times: --lines=50 prints the last 50 lines, "
        "--follow new lines, --grep=TEXT matching lines",
        "--stderr --err --stdout --out -e -o": "hpcrun logs prints stdout and stderr",
    },
    "hpcrun site init": {"--name --site": "the name has no option: hpcrun site init mycluster"},
    "hpcrun watch": {
        "--json --format": "hpcrun status JOB --json prints its state and progress for other programs",
        "--follow -f --live": "hpcrun watch follows the job until it ends",
        "--interval --refresh --every -n -i": "hpcrun watch shows each change; hpcrun status --watch 5 shows a table "
        "every 5 s",
    },
    "hpcrun status": {
        "--user --users --all-users -u": "hpcrun status lists your own runs; squeue --user=NAME lists any user's jobs",
        "--last -n --limit --tail": "without a JOB, it lists your 20 newest jobs; --since 2d lists those of two days",
        "--verbose -v --long -l": "hpcrun why JOB explains a job; --json has all values",
    },
    "hpcrun": {
        "--verbose -v --debug --quiet": "hpcrun submit and run have --log-level=DEBUG; --version prints the version"
    },
}
"""Advice on options that users expect, but that a command does not have.

``hpcrun run`` uses the advice of ``hpcrun submit``, but not the advice of `QUEUE_COMMAND`.
"""
