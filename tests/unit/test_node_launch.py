"""--launch: programs that start the ranks of each node."""

import sys

import pytest

TORCH = "import torch.distributed as dist\ndist.init_process_group()\n"
SITE = 'extends = "slurm"\nlimits.gpus_per_node = 4\n'


@pytest.fixture
def submit(tmp_path, monkeypatch, cli):
    """Return a function that makes a dry run of a script; it returns the exit code, the script's end and messages."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text(TORCH)
    (tmp_path / "c.toml").write_text(SITE)

    def call(*argv, program=("train.py",)):
        target = program[:1] if program[0] != "--" else ()
        code, out, err = cli("submit", *target, "--site", "./c.toml", *argv, "--dry-run", *program[len(target) :])
        return code, out, err

    return call


def launch_line(script):
    """Return the words of the launcher and the program, with the job's Python as PYTHON."""
    line = script.partition("hpcrun_launch ")[2].partition(" -- ")[2].replace("\\\n", " ")
    return " ".join(line.replace(sys.executable, "PYTHON").split())


def test_torchrun_starts_the_ranks_of_each_node(submit, tmp_path):
    code, out, err = submit(
        "-N", "2", "--gpus-per-node", "4", "-c", "8", "--launch", "torchrun", program=("train.py", "--", "--lr", "1")
    )
    assert code == 0, err
    assert "launch     torchrun starts 4 ranks on each of 2 nodes\n" in err
    assert "framework  " not in err
    assert "ranks      8" in err
    assert launch_line(out) == (
        "srun --ntasks=2 --nodes=2 --ntasks-per-node=1 --cpus-per-task=32 --mpi=pmi2 --kill-on-bad-exit=1 @rank "
        "PYTHON -m torch.distributed.run --nnodes=2 --nproc-per-node=4 --max-restarts=0 "
        '--rdzv-backend=c10d --rdzv-endpoint="$hpcrun_master:$hpcrun_port" '
        f"{tmp_path}/train.py --lr 1"
    )
    assert "\nhpcrun_hostfile plain --nodes 2 --ntasks-per-node 1\nhpcrun_rendezvous\nhpcrun_launch " in out
    for option in ("--nodes=2", "--ntasks-per-node=1", "--cpus-per-task=32", "--gpus-per-node=4"):
        assert f"#SBATCH {option}\n" in out
    assert "--gpus 0,1,2,3 --gpus-per-rank 4" in out
    assert " --framework none " in out
    assert "SIGQUIT,SIGUSR2" in out  # torchrun forwards the signal before the time limit
    assert "# train on site c: 8 ranks by torchrun." in out


def test_accelerate_starts_the_ranks_of_each_node(submit, tmp_path):
    code, out, err = submit("-N", "2", "--ntasks-per-node", "4", "--launch", "accelerate", "--no-gpu")
    assert code == 0, err
    assert launch_line(out) == (
        "srun --ntasks=2 --nodes=2 --ntasks-per-node=1 --cpus-per-task=4 --mpi=pmi2 --kill-on-bad-exit=1 @rank "
        "PYTHON -m accelerate.commands.launch --multi_gpu --num_machines=2 --num_processes=8 --machine_rank=0 "
        '--max_restarts=0 --rdzv_backend=c10d --main_process_ip="$hpcrun_master" --main_process_port="$hpcrun_port" '
        f"{tmp_path}/train.py"
    )


def test_nodes_starts_one_process_on_each(submit, tmp_path):
    (tmp_path / "train.py").write_text("import jax\njax.distributed.initialize()\n")
    code, out, err = submit("-N", "2", "--gpus-per-node", "4", "--launch", "nodes")
    assert code == 0, err
    assert "launch     one process on each of 2 nodes, with the cores and GPUs of 4 ranks\nframework  jax; " in err
    assert "--ranks 2 " in out
    assert "--gpus 0,1,2,3 --gpus-per-rank 4" in out
    assert "hpcrun_rendezvous" not in out
    assert launch_line(out).endswith(f"@rank PYTHON {tmp_path}/train.py")


def test_sweeps_modules_and_one_node(submit, tmp_path):
    _, out, err = submit("-N", "1", "-n", "2", "--no-gpu", "--launch", "torchrun", "--sweep", "lr=1,2")
    assert "launch     torchrun starts 2 ranks\n" in err
    assert '--rdzv-endpoint="$hpcrun_master:$hpcrun_port" "${hpcrun_program[@]:1}"' in launch_line(out)
    program = ("--", "python3", "-u", "-m", "train", "--lr", "1")
    _, out, _ = submit("-N", "1", "-n", "2", "--no-gpu", "--launch", "torchrun", program=program)
    assert "python3 -m torch.distributed.run --nnodes=1 --nproc-per-node=2 " in launch_line(out)
    assert launch_line(out).endswith(" -m train --lr 1")


@pytest.mark.parametrize(
    ("text", "argv", "message"),
    [
        ("import hpcrun.train\n", ["torchrun"], "the framework of this script is hpcrun\nHINT: leave --launch"),
        ("import hpcrun.train\n", ["nodes"], "one process per node, but the framework of this script is hpcrun"),
        ("import horovod.torch\n", ["accelerate"], "but the framework of this script is horovod"),
        (TORCH, ["mpi"], "--launch=mpi: hpcrun cannot start ranks by this\nHINT: the choices: ranks, nodes, torchrun"),
        (TORCH, ["torchrum"], "--launch=torchrum: hpcrun cannot start ranks by this\nHINT: did you mean torchrun? the"),
        (TORCH, ["torchrun", "-n", "3"], "3 ranks on 2 nodes: --launch needs the same number on each node\nHINT: -N 2"),
    ],
)  # fmt: skip
def test_impossible_launch_is_refused(submit, tmp_path, text, argv, message):
    (tmp_path / "train.py").write_text(text)
    code, out, err = submit("-N", "2", "--no-gpu", "--launch", *argv)
    assert (code, out) == (2, "")
    assert message in err


def test_torchrun_starts_python_scripts_only(submit):
    code, _, err = submit("-N", "2", "--no-gpu", "--launch", "torchrun", program=("--", "./a.out", "x"))
    assert (code, "--launch=torchrun starts Python scripts, but the program is ./a.out x" in err) == (2, True)


def test_a_workload_has_defaults_of_these_options(submit, tmp_path):
    (tmp_path / "mynet").mkdir()
    (tmp_path / "mynet/train.py").write_text("")
    file = tmp_path / "mynet/workload.toml"
    file.write_text('framework = "torch"\nlaunch = "torchrun"\ngpus_visible = "rank"\nstrict = true\n')
    argv = ("-N", "2", "--gpus-per-node", "4")
    _, out, _ = submit(*argv, program=("./mynet",))
    assert "torch.distributed.run" in out
    _, out, err = submit(*argv, "--launch", "ranks", program=("./mynet",))
    assert "framework  torch; " in err
    assert (" --gpus-per-rank 1 " in out, " --strict" in out) == (True, True)
    file.write_text('framework = "tourch"\n')
    code, _, err = submit(*argv, program=("./mynet",))
    assert (code, "mynet/workload.toml: --framework=tourch: hpcrun does not know" in err) == (2, True)
    file.write_text("strict = 1\n")
    assert "workload.toml: strict = 1 is not a boolean" in submit(*argv, program=("./mynet",))[2]


def test_a_site_can_make_all_jobs_strict(submit, tmp_path):
    assert " --strict" not in submit("-N", "2", "--no-gpu")[1]
    (tmp_path / "c.toml").write_text(f"{SITE}strict = true\n")
    assert " --strict" in submit("-N", "2", "--no-gpu")[1]
