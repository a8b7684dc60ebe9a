"""Typical mistakes on the command line: each is one error that says what to type."""

import subprocess
import sys

import pytest

from hpcrun import workload
from hpcrun.cli import synonyms
from hpcrun.errors import HpcrunError

MISTAKES = {
    # commands of other programs, and misspelled ones
    "ps": "did you mean hpcrun status?",
    "ls": "did you mean hpcrun status?",
    "squeue": "did you mean hpcrun status?",
    "kill 5": "did you mean hpcrun cancel?",
    "tail 5": "did you mean hpcrun logs?",
    "sbatch job.sh": "did you mean hpcrun submit -- ./job.sh?",
    "sbatch": "did you mean hpcrun submit?",
    "srun -n 4 python x.py": "did you mean hpcrun run -n 4 x.py?",
    "mpirun -np 4 ./a.out in": "did you mean hpcrun run --ntasks=4 -- ./a.out in?",
    "python x.py --lr 1": "did you mean hpcrun submit x.py -- --lr 1?",
    "sites": "did you mean hpcrun site list?",
    "submti lenet5": "did you mean hpcrun submit?",
    "nonsense": "its commands: submit, run,",
    "site chek styx": "did you mean hpcrun site check?",
    "site rm styx": "did you mean hpcrun site remove?",
    "workload ls": "did you mean hpcrun workload list?",
    "workload run lenet5": "did you mean hpcrun run lenet5?",
    "lenet5 -N 2": "did you mean hpcrun submit lenet5 -N 2?",
    "./train.py": "did you mean hpcrun submit ./train.py?",
    "help submit": "did you mean hpcrun submit --help?",
    "site use styx": "each command has --site=styx; export HPCRUN_SITE=styx sets it for a shell",
    # options in the wrong place, and of other commands
    "--site styx submit lenet5": "options follow the command: hpcrun submit --site styx lenet5",
    "-N 2 submit lenet5": "options follow the command: hpcrun submit -N 2 lenet5",
    "-N 2 x.py": "options follow the command: hpcrun submit -N 2 x.py",
    "cancel --all": "did you mean hpcrun cancel all?",
    "logs --tail 20": "did you mean --lines=20?",
    "result --format json": "did you mean --json?",
    # options of Slurm, other launchers and habit, and misspelled ones
    "submit lenet5 --gpus 4": "did you mean --gpus-per-node=4?",
    "submit lenet5 -N 2 --gpus 8": "did you mean --gpus-per-node=4?",
    "submit lenet5 --nodes=2 -G h100:8": "did you mean --gpus-per-node=h100:4?",
    "submit lenet5 -N 2 --gpus 3": "did you mean --gpus-per-node=N?",
    "submit lenet5 -v /data:/data": "container.binds",
    "submit lenet5 -x OMP_NUM_THREADS": '-x OMP_NUM_THREADS="$OMP_NUM_THREADS" exports the value',
    "submit lenet5 -x n1": "use --exclude=n1 for sbatch's -x",
    "submit lenet5 -G 4": "did you mean --gpus-per-node=4?",
    "submit lenet5 --gres gpu:a100:4": "did you mean --gpus-per-node=a100:4?",
    "submit lenet5 --gres=nvme:100": "did you mean --sbatch=--gres=nvme:100?",
    "submit lenet5 --gres=gpu:a100:1,nvme:100": "did you mean --gpus-per-node=a100:1 --sbatch=--gres=nvme:100?",
    "submit lenet5 --gres=gpu:4": "did you mean --gpus-per-node=4?",
    "submit lenet5 --walltime 2h": "did you mean --time=2:00:00?",
    "submit lenet5 --memory 64GB": "did you mean --mem=64G?",
    "submit lenet5 --walltime 1:00:00": "did you mean --time=1:00:00?",
    "submit lenet5 --nnodes 2": "did you mean --nodes=2?",
    "submit lenet5 --np 4": "did you mean --ntasks=4?",
    "submit lenet5 --queue gpu": "did you mean --partition=gpu?",
    "submit lenet5 --env A=1": "did you mean -x A=1?",
    "submit lenet5 --ntasks_per_node 2": "did you mean --ntasks-per-node=2?",
    "submit lenet5 --dryrun": "did you mean --dry-run?",
    "submit lenet5 --output x.log": "hpcrun logs JOB shows it",
    "submit lenet5 --reservation maint": "write --sbatch='--reservation=maint'",
    "status --jsn": "did you mean --json?",
    "--versio": "did you mean --version?",
    "export 1 --format onnxx": "not one of 'savedmodel', 'keras', 'onnx'\nHINT: did you mean --format=onnx?",
    "workload init mynet": "did you mean hpcrun workload new?",
    "watch --follow 1": "hpcrun watch follows the job until it ends",
    "result --sort accuracy": "hpcrun compare shows how runs differ",
    "submit --site slurm -N 2 -n 1 lenet5": "HINT: give --nodes=1, or --ntasks=2 or more",
    "submit --site slurm -x 2FAST=1 lenet5": "begin with no digit",
    "sinfo": "did you mean hpcrun site show?",
    "completion bash": "did you mean hpcrun --install-completion?",
    "site edit lumi": "did you mean hpcrun site show?",
    "site list --all": "hpcrun site list has all sites",
    "doctor --fix": "hpcrun doctor prints what to fix",
    "submit lenet5 --parsable": "id=$(hpcrun submit ...)",
    "submit lenet5 --requeue": "did you mean --max-requeue=N?",
    "submit lenet5 --gpus-per-node=four": "did you mean --gpus-per-node=4?",
    "submit lenet5 --sweep seed=range(5)": "HINT: --sweep seed=0..4\n",
    "submit lenet5 --sweep seed=range(1,5)": "HINT: --sweep seed=1..4\n",
    "submit lenet5 --mem-per-node 2G": "did you mean --mem=2G?",
    "submit --site slurm --nodelist=n1,n3 -- true": "--nodelist=n1,n3 has 2 nodes, and the job has 1\nHINT: give",
    # long options with one dash
    "submit lenet5 -nodes 2": "ERROR: hpcrun submit has no option -nodes\nHINT: did you mean --nodes=2?\n",
    "submit lenet5 -time=10": "did you mean --time=10?",
    "submit -dry-run lenet5": "did you mean --dry-run?\n",
    "submit lenet5 -gpus 2": "did you mean --gpus-per-node=2?",
    "submit lenet5 -G2": "did you mean --gpus-per-node=2?",
    "submit lenet5 -job_name x": "did you mean --job-name=x?",
    "submit lenet5 -machinefile hosts": "has no option -machinefile\nHINT: Slurm chooses the nodes",
    "status -state failed": "did you mean --state=failed?",
    "logs -follow": "has no option -follow\nHINT: did you mean --follow?",
    "submit lenet5 --nproc_per_node 4": "did you mean --gpus-per-node=4? without GPUs: --ntasks-per-node=4\n",
    "submit lenet5 --hostfile hosts": "hpcrun run --hostfile FILE starts ranks over ssh",
    "submit lenet5 --machinefile hosts": "hpcrun run --hostfile FILE starts ranks over ssh",
    "run lenet5 --machinefile hosts": "did you mean --hostfile=hosts?",
    "submit --python /usr/bin/python2 train.py": "has no option --python\nHINT: jobs use the Python of the active",
    "submit --site local -N 2 lenet5": "HINT: give --nodes=1; hpcrun run --hostfile=FILE runs on other hosts",
    "submit lenet5 --array=1-5": "--sweep NAME=1..5 runs a task for each value",
    "submit lenet5 -a 1-5": "--sweep NAME=1..5 runs a task for each value",
    "submit lenet5 --wrap ./a.out": "any command goes after --: hpcrun submit -- COMMAND",
    "submit lenet5 --chdir /tmp": "cd there first",
    "submit x.py --config c.toml": "did you mean --site=c.toml?",
    "submit x.py --config c.yaml": "HINT: a program's own options go after --: hpcrun submit x.py -- --config c.yaml",
    "submit lenet5 --verbose": "--log-level=DEBUG prints more",
    "run lenet5 -v": "--log-level=DEBUG prints more",
    "submit lenet5 --export=ALL": "jobs get your environment; -x NAME=VALUE",
    "submit lenet5 --export=ALL,A=1,B=2": "did you mean -x A=1 -x B=2?",
    "submit lenet5 --exclusive=user": "HINT: --exclusive; see",
    "submit lenet5 --conda-env tf": "docs/environments.md",
    "run -np 2 x.py": "ERROR: hpcrun run has no option -np\nHINT: did you mean --ntasks=2?",
    "run -np=2 x.py": "did you mean --ntasks=2?",
    "watch --interval 5": "hpcrun status --watch 5 shows a table every 5 s",
    "watch -n 5": "hpcrun status --watch 5 shows a table every 5 s",
    "watch 1 2": "HINT: hpcrun status 1 2 --watch",
    "why 1 2": "takes one JOB, and got more: 2\nHINT: for job in 1 2; do hpcrun why $job; done",
    "logs -n 5 1 2": "HINT: for job in 1 2; do hpcrun logs $job; done",
    "resubmit last --sweep lr=1,2": "hpcrun submit --sweep NAME=1..5 starts a sweep",
    "data mnist out --download": "hpcrun data downloads nothing",
    "hostfile --format mpich": "did you mean hydra?",
    "submit lenet5 --site slurm --container a/tf:2.1-gpu": "did you mean --container=docker://a/tf:2.1-gpu?",
    "submit lenet5 -x A = 4 --dry-run": "did you mean hpcrun submit lenet5 -x A=4 --dry-run?",
    "data split x four": "ERROR: N=four: not a whole number\n",
    "status --interval 5": "did you mean --watch=5?",
    "status --last 5": "--since 2d lists those of two days",
    "cancel -u me": "hpcrun cancel all cancels all your jobs",
    "cancel --name lenet5": "hpcrun cancel 1234 'lenet*'",
    "logs --since 1h": "the lines of a log have no times: --lines=50 prints the last 50 lines",
    "site show perlmuter": "HINT: did you mean perlmutter? hpcrun site list has all sites\n",
    "submit x.py --site nowhere": "HINT: known sites: alliance, ",
    "logs --stderr": "hpcrun logs prints stdout and stderr",
    "run --hosts a,b x.py": r"printf '%s\n' a b > hosts; then --hostfile=hosts",
    "run -H a,b x.py": r"printf '%s\n' a b > hosts; then --hostfile=hosts",
    "run --hosts hosts.txt x.py": "did you mean --hostfile=hosts.txt?",
    "run --wait x.py": "hpcrun run stays in the foreground",
    "run --sweep lr=1,2 x.py": "only hpcrun submit has it",
    "submit -H x.py": "HINT: --sbatch=--hold",
    "submit --hosts a,b x.py": "did you mean --nodelist=a,b?",
    "doctor --job": "did you mean --in-job?",
    "site init --name foo": "hpcrun site init mycluster",
    "site list lumi": "did you mean hpcrun site show lumi?",
    "site check --all": "did you mean hpcrun site check?",
    "prune --all": "did you mean hpcrun prune all?",
    "status -v": "hpcrun why JOB explains a job",
    "status --user me": "squeue --user=NAME lists any user's jobs",
    "watch --json": "hpcrun status JOB --json prints its state",
    "submit x.py -N 2 -p main low": "HINT: commas separate names: hpcrun submit x.py -N 2 -p main,low\n",
    "site list --verbose": "did you mean --json?",
    "--verbose status": "submit and run have --log-level=DEBUG",
    "-V": "did you mean --version?",
    "cleanup -n 5": "did you mean --dry-run?\n",
    "prune --days 30": "did you mean --older-than=30d?\n",
    "prune --hours=12": "did you mean --older-than=12h?\n",
    "status --days 2": "did you mean --since=2d?\n",
    "compare --all-fields": "did you mean --all?\n",
    "site show --jso lumi": "did you mean --json?\n",
    "data build --val 0.1": "did you mean --validation=0.1?\n",
    # an option in place of an argument
    "status --site local": "HINT: SITE:1234 is job 1234 of a site; HPCRUN_SITE=SITE selects it where several sites",
    "logs --cluster=styx": "HINT: SITE:1234 is job 1234 of a site",
    "site check --site lumi": "did you mean hpcrun site check lumi?\n",
    "site show --json --site=lumi": "did you mean hpcrun site show lumi --json?\n",
    "site test --site mycl": "did you mean hpcrun site test mycl?\n",
    "site test --cluster mycl -N 2": "did you mean hpcrun site test mycl -N 2?\n",
    "site test mycl --no-gpu -N 2": "HINT: hpcrun site test --help lists its options\n",
    "site remove --name lab": "did you mean hpcrun site remove lab?\n",
    "why --job 3": "did you mean hpcrun why 3?\n",
    "why --job": "did you mean hpcrun why JOB?\n",
    "predict x.png --job_id 3": "did you mean hpcrun predict 3 x.png?\n",
    "workload show --name lenet5": "did you mean hpcrun workload show lenet5?\n",
    "submit --workload lenet5 -N 2": "did you mean hpcrun submit lenet5 -N 2?\n",
    # an option in place of a value
    "submit lenet5 --account --dry-run": "--account has no value: --dry-run follows\nHINT: --account=NAME --dry",
    "submit lenet5 -A -N 2 --site slurm": "ERROR: -A has no value: -N follows\nHINT: -A NAME -N",
    "submit lenet5 -t --nodes=2": "HINT: -t TIME --nodes=2",
    "submit lenet5 --sbatch --nodes=2 --site slurm": "give it without --sbatch\nHINT: --nodes=2\n",
    # other batch systems
    "qsub -l nodes=2:ppn=4 x.py": "did you mean hpcrun submit --nodes=2 --ntasks-per-node=4 x.py?",
    "submit -l walltime=1:00:00 x.py": "did you mean --time=1:00:00?",
    "submit -l select=2:ncpus=16:mpiprocs=4:ngpus=2 -l walltime=3600 x.py": "=4 --gpus-per-node=2 --time=60?",
    "submit x.py -l h_vmem=8gb": "did you mean --mem=8G?",
    "submit x.py -pe mpi 8": "--ntasks=N sets the number of ranks",
    "sbatch --gres=gpu:2 -N 2 x.py --lr 1": "did you mean hpcrun submit --gpus-per-node=2 -N 2 x.py -- --lr 1?",
    "bsub -n 4 ./a.out": "did you mean hpcrun submit -n 4 -- ./a.out?",
    "submit sbatch -N 2 x.py": "got sbatch\nHINT: did you mean hpcrun submit -N 2 x.py?",
    "submit x.py --gpus=8": "did you mean --gpus-per-node=8? on several nodes: --nodes=2 --gpus-per-node=4",
    "submit x.py -n 8 -N 2 --gpus-per-task=1": "did you mean --gpus-per-node=4?",
    # a program's own options and arguments
    "submit lenet5 --local": "HINT: --site local starts the job on this machine, without Slurm",
    "submit x.py --args=--lr=1 -N 2": "arguments go after --: hpcrun submit x.py -N 2 -- --lr=1",
    "submit lenet5 -- --dry-run": "HINT: --dry-run is an option of hpcrun: put it before --",
    "submit lenet5 -- --nodes=2": "HINT: --nodes=2 is an option of hpcrun: put it before --",
    "submit lenet5 -- -N2": "HINT: -N2 is an option of hpcrun: put it before --",
    "submit lenet5 -- -name x": "HINT: hpcrun workload show lenet5 lists its options",
    "run mpirun -n 2 python x.py": "hpcrun starts the ranks: hpcrun run -n 2 x.py",
    "submit mpirun -n 2 ./a.out input": "hpcrun starts the ranks: hpcrun submit -n 2 -- ./a.out input",
    "submit srun python3 x.py": "hpcrun starts the ranks: hpcrun submit x.py",
    "run mpirun python -n 2 x.py": "hpcrun starts the ranks: hpcrun run -n 2 x.py",
    "run mpirun -n 2 python": "hpcrun starts the ranks: hpcrun run -n 2 SCRIPT",
    "run mpirun -n 2 python -- ./a.out": "hpcrun starts the ranks: hpcrun run -n 2 -- ./a.out",
    "submit mpirun -np 4 python x.py --lr 1": "hpcrun starts the ranks: hpcrun submit --ntasks=4 x.py -- --lr 1",
    "submit torchrun --standalone --nproc_per_node 4 x.py": "starts the ranks: hpcrun submit --gpus-per-node=4 x.py",
    "submit torchrun --nproc-per-node=4 -m pkg.train a": "submit --gpus-per-node=4 -- python -m pkg.train a",
    "submit accelerate launch x.py": "hpcrun starts the ranks: hpcrun submit x.py",
    "submit uv run x.py": "hpcrun submit x.py",
    "submit -N 2 python -m pkg.train": "any program goes after --: hpcrun submit -N 2 -- python -m pkg.train",
    "submit python -m torch.distributed.run --nproc_per_node=4 x.py": "Python: hpcrun submit --gpus-per-node=4 x.py",
    "submit python x.py --epochs 3 -N 2": "Python: hpcrun submit -N 2 x.py -- --epochs 3",
    "submit x.py --lr 0.1 -N 2": "hpcrun submit x.py -N 2 -- --lr 0.1",
    "submit docker run --gpus all img python x.py": "starts the container: hpcrun submit x.py --container IMAGE",
    "submit conda run -n tf python x.py": "jobs use the active environment: conda activate ENV; hpcrun submit x.py",
    "submit x.py --accelerators V100:2": "did you mean --gpus-per-node=V100:2?",
    "submit x.py --num_machines 2": "did you mean --nodes=2?",
    "submit lenet5 --sweep lr=[0.1,0.01]": "brackets around the values\nHINT: --sweep lr=0.1,0.01",
    "submit jupyter-notebook nbconvert nb.ipynb": "goes after --: hpcrun submit -- jupyter-notebook nbconvert nb.ipynb",
    "submit mpiexec -n 4 -ppn 2 -hosts a,b ./a.out in": "submit -n 4 --ntasks-per-node=2 --nodelist=a,b -- ./a.out in",
    "submit x.py --gpus=all": "did you mean --gpus-per-node=N?",
    "submit x.py --gres=gpu": "did you mean --gpus-per-node=1?",
    "submit lenet5 -d after=101 --site slurm": "did you mean --dependency=after:101?",
    "result last --metric loss": "hpcrun result shows all metrics",
    "cleanup -a": "did you mean --all?",
    "submit mpirun -np 8 --mca btl tcp,self a.out": "hpcrun submit --ntasks=8 -- a.out",
    "submit tarantella -n 4 -- x.py --lr 1": "hpcrun starts the ranks: hpcrun submit -n 4 x.py -- --lr 1",
    "submit lenet5 --mem=16 GB": "ERROR: --mem=16 GB: a size has no space\nHINT: --mem=16G",
    "submit lenet5 --sweep seed=1...5": "HINT: a range has two dots: --sweep seed=1..5",
    "submit /nope/x.py": "HINT: looked in /nope, which does not exist; bundled",
    "cancel -9 101": "hpcrun cancel gives the ranks time for a checkpoint",
    "submit lenet5 -N": "HINT: -N N; see",
    "submit bash job.sh -N 2": "it goes after --: hpcrun submit -N 2 -- bash job.sh",
    "submit x.py -x A 4": "did you mean hpcrun submit x.py -x A=4?",
    "submit --sweep lr 0.1 0.01 lenet5": "did you mean hpcrun submit --sweep lr=0.1,0.01 lenet5?",
    "submit lenet5 -e A=1": "did you mean -x A=1?",
    "submit lenet5 --bind /data": "in the site file binds a folder",
    "report last --pdf": "hpcrun report writes HTML",
    "config set site styx": "HPCRUN_SITE selects the site",
    "submit x.py --epochs 3": "hpcrun submit x.py -- --epochs 3",
    "submit x.py --epochs=3 -- more": "hpcrun submit x.py -- --epochs=3 more",
    "submit x.py data.csv": "hpcrun submit x.py -- data.csv",
    "submit ./a.out input -N 2": "it goes after --: hpcrun submit -N 2 -- ./a.out input",
    "submit lenet5 -x A=1 B=2": "repeat -x: hpcrun submit lenet5 -x A=1 -x B=2",
    "submit python x.py": "hpcrun starts scripts with Python: hpcrun submit x.py;",
    "run -n 2 python3 x.py": "hpcrun starts scripts with Python: hpcrun run -n 2 x.py;",
    # values
    "submit lenet5 --nodes two": "ERROR: --nodes=two: not a whole number",
    "submit lenet5 --nodes": "ERROR: hpcrun submit: '--nodes' needs a value",
    "submit lenet5 --nodes 1-4": "give one number, as --nodes=4",
    "submit lenet5 --sweep seed=1-5": "is one value\nHINT: a range is --sweep seed=1..5;",
    "submit lenet5 --sweep seed=1:9:2": "HINT: a range is --sweep seed=1..9..2;",
    "submit lenet5 --sweep lr=0.1:0.5": "HINT: list several: --sweep lr=0.1,0.5;",
    "submit help": "HINT: hpcrun submit --help explains the command",
    "submit lenet5 -w node[1-2 --site slurm": "ERROR: --nodelist: 'node[1-2' is not a nodelist: its brackets",
    "submit lenet5 --exclude n[9-1] --site slurm": "ERROR: --exclude: 'n[9-1]' is not a nodelist: the range 9-1",
    "cleanup --node n1": "hpcrun cleanup JOB cleans all nodes of the job",
    "resume 3 --time 10": "hpcrun resubmit JOB --time=2:00:00 starts it again with other resources",
    "logs 5 --lines x": "ERROR: --lines=x: not a whole number",
    "resubmit": "JOB is missing\nHINT: for example: hpcrun resubmit last",
    "site init": "NAME is missing\nHINT: for example: hpcrun site init mycluster",
    "site show a b": "ERROR: hpcrun site show got an unexpected argument: b",
    "submit lenet5 --partition": "HINT: --partition=NAME; see hpcrun submit --help",
    "submit lenet5 -t 2h --site slurm": "did you mean --time=2:00:00?",
    "submit lenet5 -t 1h30m --site slurm": "did you mean --time=1:30:00?",
    "submit lenet5 -t 3days --site slurm": "did you mean --time=3-00:00:00?",
    "submit lenet5 -t 1:12:00:00 --site slurm": "did you mean --time=1-12:00:00?",
    "submit lenet5 -N=2": "submit: -N=2: a short option and its value have no = between them\nHINT: -N 2,",
    "logs last -n=5": "HINT: -n 5, or --lines=5",
    "submit lenet5 -t soon --site slurm": "for example --time=1:30:00;",
    "submit lenet5 --mem 16GB --site slurm": "did you mean --mem=16G?",
    "submit lenet5 --mem 16 GB --site slurm": "HINT: --mem=16G",
    "submit lenet5 --gpus-per-node 4:a100 --site slurm": "did you mean --gpus-per-node=a100:4?",
    "submit lenet5 --gpus-per-node all --site slurm": "for example --gpus-per-node=4;",
    "submit lenet5 --mem 4.5G --site slurm": "did you mean --mem=4608M?",
    "submit lenet5 --mail-type always --site slurm": "did you mean --mail-type=ALL?",
    "submit lenet5 --mail-type end,failed --site slurm": "did you mean --mail-type=END,FAIL?",
    "submit lenet5 --mail-type sometimes --site slurm": "for example --mail-type=END,FAIL;",
    "submit lenet5 --sbatch hold --site slurm": "did you mean --sbatch=--hold?",
    "submit lenet5 --sbatch time=10 --site slurm": "give it without --sbatch\nHINT: --time=10\n",
    "submit lenet5 --sbatch output=x --site slurm": "hpcrun sets sbatch's --output itself; a run directory holds one",
    "submit lenet5 --gpus-per-node none --site slurm": "for example --gpus-per-node=4;",
    "submit lenet5 -p , --site slurm": "ERROR: --partition=,: must contain a name",
    "submit lenet5 -N 0 --site slurm": "for example --nodes=2;",
    "submit lenet5 -d 1234 --site slurm": "afterok:1234 waits until it has succeeded",
    "status --state done": "did you mean COMPLETED?",
    "prune --older-than 30": "30d are days",
    "run lenet5 --hostfile missing": "a hostfile has one host per line, as n1 or n1 slots=2",
}


@pytest.mark.parametrize("line", MISTAKES)
def test_a_mistake_is_one_error_that_says_what_to_type(cli, line):
    code, out, err = cli(*line.split())
    assert (code, out) == (2, "")
    assert err.startswith("ERROR: ")
    assert err.count("\n") == 2
    assert MISTAKES[line] in err


@pytest.mark.parametrize(("words", "message"), [
    (["submit", "lenet5", "-N", ""], "hpcrun submit: --nodes is empty\nHINT: --nodes=N; if the value comes from"),
    (["submit", "lenet5", "--site="], "ERROR: hpcrun submit: --site is empty\nHINT: --site=NAME; if"),
    (["submit", "lenet5", "--stage-in", "/data", "--stage-in", ""], "ERROR: hpcrun submit: --stage-in is empty\n"),
    (["submit", "x.py", "--nodes=2 -n 4"], "HINT: without quotes: --nodes=2 -n 4\n"),
    (["submit", ""], "ERROR: hpcrun submit: TARGET is empty\nHINT: hpcrun submit TARGET; if"),
    (["cancel", "5", ""], "ERROR: hpcrun cancel: JOB is empty\nHINT: hpcrun cancel JOB; if"),
    (["submit", "lenet5", "-x", ""], "ERROR: hpcrun submit: -x is empty\nHINT: -x KEY=VALUE; if"),
    (["prune", "--older-than", ""], "ERROR: hpcrun prune: --older-than is empty\n"),
    (["site", "show", ""], "ERROR: hpcrun site show: SITE is empty\n"),
    (["submit", "x.py", ""], "ERROR: hpcrun submit: an argument is empty\nHINT: leave it out; if"),
    (["submit", "x.py", "\u2013nodes", "2", "-\u2013", "a b"], "anew: hpcrun submit x.py --nodes 2 -- 'a b'\n"),
    (["submit", "x.py", "\u2014nodes=2", "\u2212N", "2"], "anew: hpcrun submit x.py --nodes=2 -N 2\n"),
    (["submit", "x.py", "-C", "\u201ca100", "v100\u201d"], """type them anew: hpcrun submit x.py -C 'a100 v100'\n"""),
    (["status", "\u2018lenet*\u2019"], "has characters of a web page or word processor (U+2018, U+2019)\nHINT: type"),
    (["submit\xa0x.py", "-N", "2"], "anew: hpcrun submit x.py -N 2\n"),
])  # fmt: skip
def test_empty_values_and_pasted_characters_are_explained(cli, words, message):
    code, out, err = cli(*words)
    assert (code, out) == (2, "")
    assert message in err


def test_arguments_and_files_may_have_any_characters(cli, tmp_path):
    (tmp_path / "\u2013x\xa0.py").write_text("")
    line = (
        "submit",
        "--site",
        "slurm",
        "--dry-run",
        str(tmp_path / "\u2013x\xa0.py"),
        "-x",
        "A=\u201cb\u201d",
        "--",
        "\u2013lr",
        "",
    )
    code, out, err = cli(*line)
    assert (code, "'\u2013lr' ''\n" in out) == (0, True), err


def test_a_terminal_shows_error_and_hint_in_colours(cli, monkeypatch):
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    monkeypatch.delenv("NO_COLOR", raising=False)
    expected = (
        "\x1b[1;31mERROR\x1b[0m: hpcrun has no command 'ps'\n\x1b[1;36mHINT\x1b[0m: did you mean hpcrun status?\n"
    )
    assert cli("ps")[2] == expected
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b" not in cli("ps")[2]


def test_a_group_without_a_command_prints_its_help(cli):
    for group in ((), ("site",), ("workload",)):
        code, out, err = cli(*group)
        assert (code, "COMMAND" in out + err) == (2, True)


@pytest.mark.parametrize(("path", "words"), [
    *[(path, " ".join(table)) for path, table in synonyms.ADVICE.items() if path.startswith("hpcrun")],
    ("hpcrun status", " ".join(synonyms.ADVICE[synonyms.JOB_COMMAND])),
    *[(path, " ".join(synonyms.ADVICE[synonyms.QUEUE_COMMAND])) for path in ("hpcrun submit", "hpcrun resubmit")],
    ("hpcrun submit", " ".join(f"--{name}" for name in synonyms.SBATCH_OPTIONS.split())),
])  # fmt: skip
def test_options_that_a_command_has_need_no_advice(cli, path, words):
    existing = [word for word in words.split() if f"has no option {word}\n" not in cli(*path.split()[1:], word)[2]]
    assert existing == []


def test_the_program_exits_with_the_code_of_the_error():
    program = [sys.executable, "-m", "hpcrun"]
    done = subprocess.run([*program, "ps"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "ERROR: hpcrun has no command 'ps'\nHINT: did you mean hpcrun status?\n"


def test_an_option_may_be_the_value_of_sbatch(cli):
    code, out, _ = cli("submit", "lenet5", "--site", "slurm", "--sbatch", "--hold", "--dry-run")
    assert (code, "#SBATCH --hold\n" in out) == (0, True)


def test_a_dry_run_that_the_program_gets_is_a_warning(cli, tmp_path):
    (tmp_path / "x.py").write_text("")
    warning = "WARNING: --dry-run after -- is an argument of the program"
    assert warning in cli("run", "--site", "local", str(tmp_path / "x.py"), "--", "--dry-run")[2]
    assert warning not in cli("run", "--site", "local", str(tmp_path / "x.py"), "--dry-run", "--", "--dry-run")[2]


def test_an_option_that_the_script_does_not_have_is_a_warning(cli, tmp_path):
    (tmp_path / "x.py").write_text('add_argument("--nodes")\n')
    line = ("submit", "--site", "slurm", str(tmp_path / "x.py"), "--dry-run", "--")
    assert "WARNING: -N after -- is an argument of the program" in cli(*line, "-N", "2", "--epochs", "3")[2]
    assert "after --" not in cli(*line, "--nodes", "2", "--epochs", "3")[2]


def test_several_variables_in_one_option_are_a_warning(cli):
    line = ("submit", "--site", "slurm", "--dry-run", "-x", "A=1,B=2", "--", "true")
    assert "WARNING: -x A=1,B=2 sets one variable; for B, repeat it: -x A=1 -x B=2\n" in cli(*line)[2]
    assert "repeat it: -x A=1 -x 'B=2 3'\n" in cli(*line[:-3], "A=1 B=2 3", "--", "true")[2]
    assert "sets one variable" not in cli(*line[:-3], "XLA_FLAGS=--a=1,--b=2", "--", "true")[2]


def test_a_notebook_and_a_quoted_command_line_are_explained(cli, tmp_path):
    (tmp_path / "x.ipynb").write_text("{}")
    assert "HINT: jupyter nbconvert --to script " in cli("submit", str(tmp_path / "x.ipynb"))[2]
    (tmp_path / "x.py").write_text("")
    script = str(tmp_path / "x.py")
    assert f"HINT: without quotes: hpcrun submit {script} -- --lr 1\n" in cli("submit", f"{script} --lr 1")[2]
    lines = {
        "lenet5 --epochs 3": "lenet5 -- --epochs 3",
        "python train.py --epochs 3": "train.py -- --epochs 3",
        "python3 -m train --epochs 3": "-- python3 -m train --epochs 3",
        "hostname -s": "-- hostname -s",
        "train.py ": "train.py",
    }
    for target, line in lines.items():
        assert f"HINT: without quotes: hpcrun submit {line}\n" in cli("submit", target)[2]
    assert "HINT: looked in" in cli("submit", " ")[2]
    assert "ERROR: there is no workload, folder or script '  '\nHINT: " in cli("submit", "  ")[2]
    assert "hpcrun run -n 2 'my prog.py'\n" in cli("run", "mpirun", "-n", "2", "my prog.py")[2]


def test_a_folder_and_a_script_of_sbatch_are_explained(cli, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("a.py", "train.py"):
        (tmp_path / "project").mkdir(exist_ok=True)
        (tmp_path / "project" / name).touch()
    assert "HINT: for a script in it: hpcrun submit project/train.py; a workload" in cli("submit", "project")[2]
    (tmp_path / "job.sh").write_text("#!/bin/bash\n#SBATCH -N 2  # two\n#SBATCH --gres=gpu:4\n#SBATCH -o x\nmake\n")
    expected = "reads no #SBATCH lines; any program goes after --: hpcrun submit -N 2 --gpus-per-node=4 -- bash job.sh"
    for line in ("submit job.sh", "sbatch job.sh", "submit sbatch job.sh"):
        assert expected in cli(*line.split())[2]
    (tmp_path / "job.pbs").write_text("#!/bin/bash\n#PBS -l nodes=2:ppn=4\nmpirun -np 8 python x.py --lr 1\n")
    expected = "starts what yours starts: hpcrun submit --nodes=2 --ntasks-per-node=2 --ntasks=8 x.py -- --lr 1\n"
    assert expected in cli("submit", "job.pbs", "--ntasks-per-node=2")[2]
    (tmp_path / "plot.R").write_text("#!/usr/bin/env Rscript\n")
    assert (
        "HINT: any program goes after --: hpcrun run -n 2 -- Rscript ./plot.R a\n"
        in cli("run", "./plot.R", "-n", "2", "--", "a")[2]
    )


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("solver.f90", "compile it, and name the program: hpcrun submit -- ./a.out"),
        ("main.nf", "nextflow submits jobs itself: nextflow run main.nf"),
        ("conf.yaml", "name the script that reads it: hpcrun submit SCRIPT -- conf.yaml"),
        ("tf.sif", "it is a container image: hpcrun submit SCRIPT --container tf.sif"),
        ("fit.jl", "any program goes after --: hpcrun submit -- julia fit.jl"),
    ],
)
def test_files_that_are_no_programs_are_explained(cli, tmp_path, monkeypatch, name, hint):
    monkeypatch.chdir(tmp_path)
    (tmp_path / name).touch()
    assert f"ERROR: {name} is not a Python script\nHINT: {hint}\n" == cli("submit", name)[2]
    (tmp_path / "net").mkdir()
    (tmp_path / "net" / "workload.toml").write_text('script = "x.py"\n')
    assert "HINT: did you mean entry?\n" in cli("submit", "net")[2]
    assert "HINT: name its folder: hpcrun submit net\n" in cli("submit", "net/workload.toml")[2]
    with pytest.raises(HpcrunError) as error:
        workload.find_workload(name)
    assert error.value.hint == hint


def test_a_site_file_may_be_misspelled(cli, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.toml").touch()
    assert "HINT: did you mean ./mine.toml?\n" in cli("site", "check", "./mine.tml")[2]
    assert f"HINT: did you mean {tmp_path}/mine.toml?\n" in cli("site", "check", f"{tmp_path}/mien.toml")[2]


def test_more_ranks_than_cores_by_far_are_a_warning_and_then_refused(cli, monkeypatch):
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 1})
    line = ("submit", "--site", "local", "--dry-run", "--", "true")
    assert "HINT: give --ntasks=2; --site=NAME submits to a cluster" in cli(*line[:4], "-n", "17", *line[4:])[2]
    assert "ranks would share" not in cli(*line[:4], "-n", "16", *line[4:])[2]
    code, out, err = cli(*line[:4], "-n", "400", *line[4:])
    assert (code, out) == (2, "")
    assert err.startswith("ERROR: 400 ranks would share the 2 cores of this host\nHINT: give --ntasks=2;")


@pytest.mark.parametrize(
    ("options", "program", "meant"),
    [
        ("-n 4", "mpirun --mca btl self ./a.out 3", "-n 4 -- ./a.out 3; for one mpirun: --ntasks=1"),
        ("-N 2 -p cpu", "srun -n 4 python x.py", "-N 2 -p cpu -n 4 x.py; for one srun: --ntasks=1"),
        ("-N 2 -n 4", "torchrun --nproc_per_node 2 x.py --lr 3",
         "-N 2 -n 4 --gpus-per-node=2 x.py -- --lr 3; for one torchrun a node: --ntasks-per-node=1"),
        ("-n 4 --sweep lr=1,2", "mpirun ./a.out", "-n 4 --sweep lr=1,2 -- ./a.out; for one mpirun: --ntasks=1"),
        ("-n 1", "mpirun -n 4 true", ""),
        ("-N 2 --ntasks-per-node 1", "torchrun --nproc-per-node 4 x.py", ""),
    ],
)  # fmt: skip
def test_several_ranks_start_no_launcher(cli, options, program, meant):
    _, _, err = cli("submit", "--site", "slurm", "--dry-run", *options.split(), "--", *program.split())
    assert (f"HINT: hpcrun starts the ranks: hpcrun submit --site slurm --dry-run {meant}\n" in err) == bool(meant)
    assert ("ERROR" in err) == bool(meant)


@pytest.mark.parametrize(
    ("words", "error", "hint"),
    [
        (["--", "python x.py"], "'python x.py' is a whole command line", "without the quotes: -- python x.py"),
        (["--", "source a; python x.py"], "is a whole command line in quotes", "-- bash -c 'source a; python x.py'"),
        (["--", "conda activate tf && python x.py"], "is a whole command line", "conda.env or venv in the site file"),
        (["-x", "PATH=$PATH:/opt", "--", "true"], "-x PATH=$PATH:/opt: the text is exported", '-x "PATH=$PATH:/opt"'),
        (["lenet5", "-n", "128", "--", "--batch-size", "64"], "and the job has 128", "-- --batch-size=128 or more, or"),
        (["lenet5", "-n", "3", "--", "--batch-size", "2"], "and the job has 3", "or request at most 2 ranks"),
        (["--", "sbatch", "-N", "2", "job.sh"], "each rank would request another job by sbatch", "submit -- ./job.sh"),
        (["mlp", "--", "--width", "0,1"], "--width: invalid int value: '0,1'", "hpcrun workload show mlp"),
        (["lenet5", "--", "--learning-rate", "0,1"], "invalid float value: '0,1'", "decimals follow a point: 0.1; "),
        (["resnet50", "--", "--xla", "True"], "resnet50: --xla True: the option takes no value", "write --xla\n"),
        (["resnet50", "--", "--xla=off"], "resnet50: --xla off: the option takes no value", "write --no-xla\n"),
    ],
)  # fmt: skip
def test_lines_that_no_job_can_follow_are_refused(cli, words, error, hint):
    code, out, err = cli("submit", "--site", "slurm", "--dry-run", *words)
    assert (code, out) == (2, "")
    message, _, advice = err.partition("\nHINT: ")
    assert message.startswith("ERROR: ")
    assert error in message
    assert hint in advice


@pytest.mark.parametrize(
    ("program", "meant"),
    [
        ("torchrun --nproc_per_node 4 x.py", "hpcrun submit x.py -N 2 --gpus-per-node=4 --launch=torchrun"),
        ("python -m torch.distributed.run x.py", "hpcrun submit x.py -N 2 --gpus-per-node=N --launch=torchrun"),
        ("deepspeed x.py", "hpcrun submit x.py -N 2 --gpus-per-node=N\n"),
        ("torchrun --nnodes=2 --rdzv-endpoint=n1:29500 x.py", ""),
    ],
)
def test_separate_trainings_on_the_nodes_are_a_warning(cli, program, meant):
    options = ("-N", "2", "--ntasks-per-node", "1")
    _, _, err = cli("submit", "--site", "slurm", "--dry-run", *options, "--", *program.split())
    assert ("which trains its own model" in err) == bool(meant)
    assert meant in err


def test_a_variable_that_no_shell_expands_is_a_warning(cli):
    _, _, err = cli("submit", "--site", "slurm", "--dry-run", "-x", "DATA=$HOME/data", "--", "true")
    assert "WARNING: -x DATA=$HOME/data: the text is exported as it is" in err
    assert 'HINT: in double quotes, your shell replaces them here: -x "DATA=$HOME/data"\n' in err
    assert "is exported" not in cli("submit", "--site", "slurm", "--dry-run", "-x", "PRICE=5$", "--", "true")[2]


@pytest.mark.parametrize("options", [("--dry-run",), ()])
def test_a_path_without_the_systems_folders_is_a_warning(cli, fake_slurm, options):
    line = ("submit", "--site", "slurm", *options)
    err = cli(*line, "-x", "PATH=/home/me/bin", "--", "true")[2]
    assert "WARNING: -x PATH=/home/me/bin lacks the folders of the system (/usr/bin, /bin): the job script adds" in err
    assert 'HINT: keep the folders that PATH has: -x "PATH=/home/me/bin:$PATH"\n' in err
    assert "lacks" not in cli(*line, "-x", "PATH=/home/me/bin:/usr/bin", "--", "true")[2]


def test_a_codec_that_the_ranks_do_not_use_is_a_warning(cli):
    line = ("submit", "--site", "slurm", "--dry-run", "-n", "2", "--compress", "ternary", "--virtual-workers", "4")
    warnings = cli(*line, "--framework", "torch", "--", "true")[2]
    assert "WARNING: --compress=ternary has no effect" in warnings
    assert "WARNING: --virtual-workers=4 has no effect" in warnings
    assert "has no effect" not in cli(*line, "lenet5")[2]


@pytest.mark.parametrize(
    ("options", "error", "hint"),
    [
        ("--compress=ternry", "--compress=ternry: hpcrun has no such codec", "did you mean ternary?"),
        ("--clip-factor=3", "--clip-factor has no effect without --compress=ternary", "give --compress=ternary, too"),
        ("--min-size=9 --compress=bf16", "without --compress=ternary or --compress=powersgd", "or omit --min-size"),
        ("--compress=ternary --clip-factor=-1", "--clip-factor=-1.0: not a number from 0", "2.5 clips gradients"),
        ("--compress=ternary --clip-factor=inf", "--clip-factor=inf: not a number from 0", "2.5 clips gradients"),
        ("--compress=powersgd --powersgd-rank=0", "--powersgd-rank=0: not a whole number from 1", "four columns"),
        ("--compress=ternary --float-every=-2", "--float-every=-2: not a whole number from 0", "0 none"),
        ("--compress=powersgd --float-first=-1", "--float-first=-1: not a whole number from 0", "the first 1000 steps"),
        (
            "--compress=auto --virtual-workers=2",
            "--compress=auto measures real ranks, and this job has --virtual-workers=2",
            "name a codec: none, fp16",
        ),
        (
            "--compress=auto -x HPCRUN_OVERLAP=1",
            "--compress=auto does not work with HPCRUN_OVERLAP=1",
            "leave out HPCRUN_OVERLAP or --compress=auto",
        ),
        (
            "--virtual-workers=2 -x HPCRUN_OVERLAP=0 -x HPCRUN_CUDA_AWARE=1",
            "--virtual-workers=2 does not work with HPCRUN_CUDA_AWARE=1",
            "leave out HPCRUN_CUDA_AWARE or --virtual-workers=2",
        ),
        (
            "--compress=powersgd -x HPCRUN_HIERARCHICAL=1",
            "--compress=powersgd does not work with HPCRUN_HIERARCHICAL=1",
            "leave out HPCRUN_HIERARCHICAL",
        ),
        ("--virtual-workers=0", "--virtual-workers=0: not a whole number from 1", "four ranks of a larger job"),
        (
            "--virtual-workers=3",
            "lenet5: --batch-size=64 does not divide among 6 workers (ranks: 2, --virtual-workers=3)",
            "-- --batch-size=66, or another --virtual-workers",
        ),
    ],
)
def test_wrong_options_of_codecs_are_refused(cli, options, error, hint):
    code, out, err = cli("submit", "--site", "slurm", "--dry-run", "-n", "2", *options.split(), "lenet5")
    assert (code, out) == (2, "")
    message, _, advice = err.partition("\nHINT: ")
    assert message.startswith("ERROR: ")
    assert error in message
    assert hint in advice


def test_a_file_that_is_no_site_file_is_refused(cli, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "job.sh").write_text("#!/bin/bash\n")
    code, _, err = cli("site", "check", "./job.sh")
    assert (code, err.partition("\n")[0]) == (2, "ERROR: ./job.sh is not a site file")
    assert "HINT: a site file ends in .toml; hpcrun site init writes one for this cluster\n" in err
