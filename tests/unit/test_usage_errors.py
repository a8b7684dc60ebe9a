"""Typical mistakes on the command line: each is one error that says what to type."""

import subprocess
import sys

import pytest

MISTAKES = {
    # commands of other programs, and misspelled ones
    "ps": "did you mean hpcrun status?",
    "ls": "did you mean hpcrun status?",
    "squeue": "did you mean hpcrun status?",
    "kill 5": "did you mean hpcrun cancel?",
    "tail 5": "did you mean hpcrun logs?",
    "sbatch job.sh": "did you mean hpcrun submit?",
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
    "cancel --all": "did you mean hpcrun cancel all?",
    "logs --tail 20": "did you mean --lines=20?",
    "result --format json": "did you mean --json?",
    # options of Slurm, other launchers and habit, and misspelled ones
    "submit lenet5 --gpus 4": "did you mean --gpus-per-node=4?",
    "submit lenet5 -G 4": "did you mean --gpus-per-node=4?",
    "submit lenet5 --gres gpu:a100:4": "did you mean --gpus-per-node=a100:4?",
    "submit lenet5 --gres=gpu:4": "did you mean --gpus-per-node=4?",
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
    "submit lenet5 --array=1-5": "--sweep NAME=1..5 runs a task for each value",
    "submit lenet5 -a 1-5": "--sweep NAME=1..5 runs a task for each value",
    "submit lenet5 --wrap ./a.out": "any command goes after --: hpcrun submit -- COMMAND",
    "submit lenet5 --chdir /tmp": "cd there first",
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
    "status --interval 5": "did you mean --watch=5?",
    "status --last 5": "--since 2d lists those of two days",
    "cancel -u me": "hpcrun cancel all cancels all your jobs",
    "cancel --name lenet5": "hpcrun cancel 1234 'lenet*'",
    "logs --stderr": "it prints stdout and stderr",
    "run --hosts a,b x.py": "did you mean --hostfile=a,b?",
    "submit --hosts a,b x.py": "did you mean --nodelist=a,b?",
    "doctor --job": "did you mean --in-job?",
    "site init --name foo": "hpcrun site init mycluster",
    "site list lumi": "did you mean hpcrun site show lumi?",
    "site check --all": "did you mean hpcrun site check?",
    "prune --all": "did you mean hpcrun prune all?",
    "status -v": "hpcrun why JOB explains a job",
    "status --user me": "squeue --user=NAME lists any user's jobs",
    "site list --verbose": "did you mean --json?",
    "--verbose status": "submit and run have --log-level=DEBUG",
    "-V": "did you mean --version?",
    # an option in place of a value
    "submit lenet5 --account --dry-run": "--account has no value: --dry-run follows\nHINT: --account=NAME --dry",
    "submit lenet5 -t --nodes=2": "HINT: -t TIME --nodes=2",
    "submit lenet5 --sbatch --nodes=2 --site slurm": "give it without --sbatch\nHINT: for example --sbatch=--reserv",
    # a program's own options and arguments
    "submit lenet5 -- --dry-run": "HINT: --dry-run is an option of hpcrun: put it before --",
    "run mpirun -n 2 python x.py": "hpcrun starts the ranks: hpcrun run -n 2 x.py",
    "submit mpirun -n 2 ./a.out input": "hpcrun starts the ranks: hpcrun submit -n 2 -- ./a.out input",
    "submit srun python3 x.py": "hpcrun starts the ranks: hpcrun submit x.py",
    "config set site styx": "HPCRUN_SITE chooses the site",
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
    "submit lenet5 --sweep seed=1-5": "a sweep's range of whole numbers is 1..5;",
    "logs 5 --lines x": "ERROR: --lines=x: not a whole number",
    "resubmit": "JOB is missing\nHINT: for example: hpcrun resubmit last",
    "site init": "NAME is missing\nHINT: for example: hpcrun site init mycluster",
    "site show a b": "ERROR: hpcrun site show got an unexpected argument: b",
    "submit lenet5 --partition": "HINT: --partition=VALUE; see hpcrun submit --help",
    "submit lenet5 -t 2h --site slurm": "did you mean --time=2:00:00?",
    "submit lenet5 -t 1h30m --site slurm": "did you mean --time=1:30:00?",
    "submit lenet5 -t 3days --site slurm": "did you mean --time=3-00:00:00?",
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
    "submit lenet5 -N 0 --site slurm": "for example --nodes=2;",
    "submit lenet5 -d 1234 --site slurm": "afterok:1234 waits until it has succeeded",
    "status --state done": "did you mean COMPLETED?",
    "prune --older-than 30": "30d are days",
    "run lenet5 --hostfile missing": "it has one host a line, as n1 or n1 slots=2",
}


@pytest.mark.parametrize("line", MISTAKES)
def test_a_mistake_is_one_error_that_says_what_to_type(cli, line):
    code, out, err = cli(*line.split())
    assert (code, out) == (2, "")
    assert err.startswith("ERROR: ")
    assert err.count("\n") == 2
    assert MISTAKES[line] in err


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


def test_a_notebook_and_a_quoted_command_line_are_explained(cli, tmp_path):
    (tmp_path / "x.ipynb").write_text("{}")
    assert "HINT: jupyter nbconvert --to script " in cli("submit", str(tmp_path / "x.ipynb"))[2]
    assert "HINT: without quotes: hpcrun submit lenet5 -- --epochs 3\n" in cli("submit", "lenet5 --epochs 3")[2]
