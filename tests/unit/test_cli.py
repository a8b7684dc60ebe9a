"""The command line: options, messages and exit codes."""

import json
import os
import re
import subprocess
import sys

import pytest

from hpcrun.jobs import run_selection, runs


@pytest.mark.parametrize(
    "argv",
    [
        ["--help"],
        ["submit", "--help"],
        ["site", "list"],
        ["workload", "list"],
        ["status"],
        ["why"],
        ["compare"],
        ["hostfile"],
        ["cuda"],
    ],
)
def test_commands_start_without_heavy_imports(argv):
    assert not {"tensorflow", "keras", "mpi4py", "numpy", "submitit", "jinja2", "torch"} & imported_modules(*argv)


def test_a_dry_run_does_not_import_what_reads_runs():
    modules = imported_modules("submit", "lenet5", "--site", "slurm", "--dry-run")
    assert not {"hpcrun.jobs.runs", "hpcrun.jobs.safe_reading", "submitit", "numpy"} & modules
    assert "jinja2" in modules


def imported_modules(*argv):
    code = (
        "import sys; sys.argv = ['hpcrun', *sys.argv[1:]]\n"
        "from hpcrun.cli.main import main\n"
        "try: main()\nexcept SystemExit: pass\n"
        "print(*sys.modules, file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code, *argv], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return set(done.stderr.split("\n")[-2].split())


def test_dry_run_prints_only_the_script_and_writes_nothing(cli, isolated_home, monkeypatch):
    monkeypatch.setenv("SBATCH_PARTITION", "debug")
    monkeypatch.setenv("SBATCH_TIMELIMIT", "1")
    code, out, err = cli("submit", "--site", "slurm", "-N", "2", "--gpus-per-node", "4", "--dry-run", "--", "./a.out")
    assert code == 0
    assert out.startswith("#!/bin/bash\n#SBATCH")
    assert subprocess.run(["bash", "-n"], input=out, text=True, check=True)
    assert "slurm (--site)" in err
    assert "nodes=2, ntasks_per_node=4, gpus_per_node=4" in err
    assert "8, started by srun" in err
    assert "SBATCH_PARTITION, SBATCH_TIMELIMIT" in err
    assert not (isolated_home / "runs").exists()
    assert not (isolated_home / "state").exists()


def test_dry_run_with_json_prints_one_value(cli):
    code, out, _ = cli("submit", "--site", "slurm", "--dry-run", "--json", "--", "x")
    assert code == 0
    assert json.loads(out)["spec"]["argv"] == ["x"]


def test_script_has_only_the_options_that_were_set(cli):
    _, out, _ = cli("submit", "--site", "slurm", "--dry-run", "-t", "1-0", "--sbatch=--reservation=maint", "--", "x")
    directives = [line for line in out.splitlines() if line.startswith("#SBATCH") and "chdir" not in line]
    assert directives == [
        "#SBATCH --job-name=x",
        "#SBATCH --nodes=1",
        "#SBATCH --ntasks-per-node=1",
        "#SBATCH --time=1-0",
        "#SBATCH --reservation=maint",
    ]


@pytest.mark.parametrize("spelling", [["--n-per-node", "2"], ["--ntasks-per-node=2"]])
def test_option_names_of_tarantella_are_aliases(cli, spelling):
    _, out, _ = cli("submit", "--site", "slurm", "--dry-run", *spelling, "--devices-per-node", "2", "--", "x")
    assert "#SBATCH --ntasks-per-node=2\n" in out
    assert "#SBATCH --gpus-per-node=2\n" in out


@pytest.mark.parametrize("kilobytes", ["0", "512"])
def test_fusion_threshold_is_exported_only_if_given(cli, kilobytes):
    _, out, _ = cli("run", "--site", "local", "--fusion-threshold", kilobytes, "--dry-run", "--", "x")
    assert f" HPCRUN_FUSION_THRESHOLD_KB={kilobytes}\n" in out
    assert "FUSION" not in cli("run", "--site", "local", "--dry-run", "--", "x")[1]


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["-x", "node3", "--", "x"], ["-x node3", "--exclude=node3"]),
        (["-x", "A B=1", "--", "x"], ["'A B' is not a valid variable name"]),
        (["-x", "A=1", "B=2", "--", "x"], ["-x B=2"]),
        (
            ["--log-level", "LOUD", "--", "x"],
            ["--log-level=LOUD: this is not a log level", "DEBUG, INFO, WARNING, ERROR"],
        ),
        (["--fusion-threshold", "-1", "--", "x"], ["--fusion-threshold=-1", "in KB", "2048"]),
        (["--fusion-threshold", "2MB", "--", "x"], ["--fusion-threshold", "=2MB", "Size in KB"]),
        (["-x", "HPCRUN_RUN_DIR=/x", "--", "x"], ["HPCRUN_RUN_DIR is reserved for hpcrun"]),
        (["-x", "hpcrun_python=/x", "--", "x"], ["hpcrun_python is reserved for hpcrun"]),
        (["-x", "HPCRUN_FUSION_THRESHOLD_KB=1", "--", "x"], ["--fusion-threshold KB"]),
        (["-x", "HPCRUN_LOG_LEVEL=INFO", "--", "x"], ["--log-level LEVEL"]),
        (["--sbatch=--array=1-3", "--", "x"], ["--sbatch=--array=1-3", "one job"]),
        (["--sbatch=--nodes=2", "--", "x"], ["--nodes is an option of hpcrun"]),
        (["--sbatch=-H", "--", "x"], ["written --name or --name=value"]),
        (["./t.py", "--epochs", "3"], ["--epochs", "go after --"]),
        (["./t.py", "input"], ["got more: input", "hpcrun submit ./t.py -- input"]),
        (["-N", "2-4", "--", "x"], ["=2-4"]),
        (["--site", "limited", "-p", "gpu", "-N", "99", "--", "x"], ["--nodes=99 is more than partition gpu allows"]),
        (["--site", "limited", "-p", "gpu", "--mem", "1G", "--", "x"], ["sbatch option --mem is not allowed"]),
        (["-t", "soon", "--", "x"], ["--time=soon", "D-HH:MM:SS"]),
        (["--mem", "lots", "--", "x"], ["--mem=lots", "16G"]),
        (["-N", "0", "--", "x"], ["--nodes=0"]),
        (["--site", "stix", "--", "x"], ["no site 'stix'", "did you mean styx"]),
        ([], ["no workload, script or program was given"]),
        (["./nothere.py"], ["no workload, folder or script './nothere.py'"]),
        (["--site", "local", "-N", "2", "--", "x"], ["--nodes=2 is more than the 1 available"]),
    ],
)
def test_invalid_options_give_one_clear_error_and_create_nothing(cli, isolated_home, argv, words):
    sites = isolated_home / "config/hpcrun"
    sites.mkdir(parents=True)
    (sites / "limited.toml").write_text(
        'extends = "slurm"\nsbatch_forbidden = ["--mem"]\n[partitions.gpu]\nmax_nodes = 2\n'
    )
    code, out, err = cli("submit", *argv)
    assert code == 2
    assert out == ""
    assert err.startswith("ERROR: ")
    assert "HINT: " in err
    for word in words:
        assert word in err
    assert not (isolated_home / "runs").exists()


def test_hostfile_must_exist(cli, tmp_path):
    code, _, err = cli("run", "--hostfile", str(tmp_path / "none"), "--", "x")
    assert code == 2
    assert str(tmp_path / "none") in err


@pytest.mark.parametrize(
    ("variable", "words"), [("HPCRUN_RUN_ROOT", "run_root in the site file"), ("XDG_STATE_HOME", "XDG_STATE_HOME")]
)
def test_error_names_a_folder_that_cannot_be_created(cli, monkeypatch, variable, words):
    monkeypatch.setenv(variable, "/proc/nowhere")
    code, _, err = cli("submit", "--site", "local", "--", "true")
    assert code == 2
    assert "/proc/nowhere" in err
    assert words in err


def test_arguments_with_special_characters_reach_the_program(cli, isolated_home, monkeypatch):
    monkeypatch.setenv("HPCRUN_RUN_ROOT", f"{isolated_home}/runs 'x' \u00e9")
    odd = ["two words", "$HOME", "it's", "\udce9", ""]
    code, out, err = cli("run", "--site", "local", "-J", "a/b c", "--", "printf", "<%s>", *odd)
    assert code == 0, err
    assert "<two words><$HOME><it's><" in out
    assert run_selection.select_one("a/b c").directory.name.startswith("a-b-c-")


def test_status_result_logs_and_cancel_of_one_job(cli, tmp_path):
    script = """echo '{"test_accuracy": 0.9876, "ranks": 1}' >"$HPCRUN_RUN_DIR/result.json"; echo hello"""
    code, out, _ = cli("submit", "--site", "local", "--wait", "-J", "first", "--json", "--", "sh", "-c", script)
    facts = json.loads(out)
    assert (code, facts["state"], facts["exit_code"]) == (0, "COMPLETED", 0)
    for selector in (facts["job_id"], "last", "first", facts["run_dir"]):
        status = json.loads(cli("status", selector, "--json")[1])
        assert (status["state"], status["job_id"], status["exit_code"]) == ("COMPLETED", facts["job_id"], 0)
    assert "first" in cli("status")[1]
    assert "0.9876" in cli("result", "first")[1]
    assert json.loads(cli("result", "--json")[1])["ranks"] == 1
    assert cli("logs")[1].endswith("hello\n")
    assert cli("logs", "--rank", "0")[1] == "hello\n"
    code, _, err = cli("logs", "--rank", "3")
    assert (code, "no log of rank 3; it has that of rank 0" in err) == (2, True)
    code, _, err = cli("cancel", "last")
    assert (code, "has ended already: COMPLETED" in err) == (1, True)


@pytest.mark.parametrize("command", ["status", "logs", "result", "cancel"])
def test_unknown_job_is_an_error(cli, command):
    code, _, err = cli(command, "1234")
    assert code == 2
    assert "there are no runs yet" in err


def test_result_explains_why_a_job_has_none(cli):
    cli("submit", "--site", "local", "--wait", "--", "false")
    code, _, err = cli("result")
    assert code == 1
    assert "the ranks ended with exit code 1" in err


def test_job_name_selects_the_newest_run(cli):
    for word in ("one", "two"):
        cli("submit", "--site", "local", "--wait", "-J", "same", "--", "echo", word)
    assert cli("logs", "same")[1].endswith("two\n")
    assert len(list(runs.list_runs())) == 2


def test_site_commands(cli, tmp_path):
    _, out, err = cli("site", "list")
    assert {"local", "slurm", "styx"} <= {line.split()[0] for line in out.splitlines() if line.strip()}
    assert "used here: " in err
    assert json.loads(cli("site", "schema")[1])["properties"]["launcher"]
    assert cli("site", "check")[0] == 0
    bad = tmp_path / "bad.toml"
    bad.write_text("lancher = 'srun'\n")
    code, _, err = cli("site", "check", str(bad.parent))  # all site files of a folder
    assert (code, f"{bad}:" in err) == (1, True)
    code, _, err = cli("site", "check", str(bad))
    assert code == 1
    assert f"{bad}:1: unknown key lancher; did you mean launcher?" in err


@pytest.mark.parametrize(("visible", "here"), [("0", "1 GPUs"), ("", "no GPUs")])
def test_more_gpus_than_the_host_has_are_refused(cli, monkeypatch, visible, here):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    code, out, err = cli("run", "--site", "local", "--gpus-per-node", "2", "--dry-run", "--", "x")
    assert (code, out) == (2, "")
    assert f"--gpus-per-node=2: a node of this site has {here}\nHINT: --no-gpu runs the ranks on the CPU" in err
    code, out, _ = cli("run", "--site", "local", "--gpus-per-node", "2", "--no-gpu", "--dry-run", "--", "x")
    assert (code, "-n 2 " in out, "export CUDA_VISIBLE_DEVICES=\n" in out) == (0, True, True)


def test_site_without_gpus_refuses_gpus(cli, tmp_path):
    (tmp_path / "c.toml").write_text('extends = "slurm"\nlimits.gpus_per_node = 0\n')
    line = ["submit", "lenet5", "--site", str(tmp_path / "c.toml"), "--nodes", "2", "--dry-run"]
    code, out, err = cli(*line, "--gpus-per-node", "4")
    assert (code, out) == (2, "")
    assert "--gpus-per-node=4: the site has no GPUs\nHINT: leave it out, or give --no-gpu" in err
    code, _, err = cli(*line)
    assert (code, err.count("WARNING")) == (0, 1)
    says = "site c has no GPUs: lenet5 runs on CPU cores (ranks: 1 a node); --no-gpu silences this"
    assert says in err
    assert "WARNING" not in cli(*line, "--gpus-per-node", "4", "--no-gpu")[2]


@pytest.mark.parametrize(
    ("words", "warned"),
    [
        (["lenet5", "--ntasks", "2"], True),
        (["./train.py", "-N", "2"], True),
        (["lenet5", "--no-gpu"], False),
        (["lenet5", "--gpus-per-node", "2"], False),
        (["lenet5", "--sbatch=--gres=gpu:2"], False),
        (["allreduce", "-N", "2"], False),
        (["-N", "2", "--", "hostname"], False),
        (["-N", "2", "--", "python", "train.py"], True),
        (["-N", "2", "--", "python", "prepare.py"], False),
    ],
)
def test_warning_if_training_runs_on_cpus_by_default(cli, words, warned, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("import keras\n")
    (tmp_path / "prepare.py").write_text("import csv\n")
    code, _, err = cli("submit", "--site", "slurm", "--dry-run", *words)
    says = "WARNING: no GPUs were requested, and site slurm does not set the number of GPUs per node: "
    assert (code, says in err) == (0, warned), err
    assert not warned or "runs on CPU cores (ranks: " in err


def test_gpus_of_this_host_are_used_or_a_warning_is_printed(cli, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    _, _, err = cli("submit", "lenet5", "--site", "local", "--ntasks", "2", "--dry-run")
    assert "WARNING: this host has no GPUs: lenet5 runs on CPU cores (ranks: 2); --no-gpu silences this\n" in err
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1,2")
    _, out, err = cli("run", "--site", "local", "--dry-run", "lenet5")
    assert "WARNING" not in err
    assert "-n 3 " in out
    _, out, err = cli("run", "--site", "local", "--no-gpu", "--dry-run", "lenet5")
    assert "WARNING" not in err
    assert "export CUDA_VISIBLE_DEVICES=\n" in out


def test_the_line_of_a_partitions_launcher_is_named(cli, tmp_path):
    (tmp_path / "c.toml").write_text('extends = "slurm"\n[partitions.a]\n[partitions.b]\nlauncher = "mpirun"\n')
    _, _, err = cli("submit", "--site", str(tmp_path / "c.toml"), "-p", "b", "-N", "2", "--dry-run", "--", "x")
    assert f'ERROR: {tmp_path}/c.toml:4: launcher = "mpirun" starts programs of openmpi' in err


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('launcher = "mpirun"\nmpi.library = "mpich"', 'launcher = "mpirun" starts programs of openmpi, openmpi4, but'),
        (
            'launcher = "mpiexec"\nmpi.library = "openmpi"',
            'launcher = "mpiexec" starts programs of mpich, intel, mvapich, but',
        ),
        ('launcher = "mpiexec"\nmpi.library = "cray-mpich"', 'set launcher = "srun"'),
        ('launcher = "srun"\nmpi = { library = "mpich", type = "pmix" }', 'set mpi.type = "pmi2"'),
        ('launcher = "srun"\nmpi = { library = "openmpi", type = "pmi2" }', 'set mpi.type = "pmix"'),
    ],
)
def test_launcher_that_does_not_match_the_mpi_library_is_refused(cli, tmp_path, text, says):
    (tmp_path / "c.toml").write_text(f"{text}\n")
    code, out, err = cli("submit", "--site", str(tmp_path / "c.toml"), "-N", "2", "--dry-run", "--", "x")
    assert (code, out, f"{tmp_path}/c.toml:" in err, says in err, "HINT: " in err) == (2, "", True, True, True), err


def test_version(cli):
    assert cli("--version")[1].startswith("hpcrun 0.")


@pytest.mark.parametrize(
    ("words", "completions"),
    [("hpcrun sub", "submit"), ("hpcrun submit len", "lenet5"), ("hpcrun submit --site sty", "styx")],
)
def test_shell_completion_of_commands_workloads_and_sites(words, completions):
    environment = {**os.environ, "_HPCRUN_COMPLETE": "complete_bash", "COMP_WORDS": words}
    environment["COMP_CWORD"] = str(words.count(" "))
    done = subprocess.run(
        [sys.executable, "-m", "hpcrun"], env=environment, capture_output=True, text=True, check=False
    )
    assert done.stdout.split() == [completions]


def test_single_partition_is_the_default_and_several_need_a_choice(cli, isolated_home):
    file = isolated_home / "s.toml"
    file.write_text('extends = "slurm"\n[partitions.gpu]\nmax_nodes = 2\ngpus_per_node = 4\n')
    _, out, err = cli("submit", "--site", str(file), "-N", "2", "--dry-run", "--", "true")
    assert "#SBATCH --partition=gpu\n#SBATCH --gpus-per-node=4\n" in out
    assert "WARNING" not in err
    _, _, err = cli("run", "--site", str(file), "--dry-run", "--", "x")
    assert "has no effect" not in err
    file.write_text('extends = "slurm"\n[partitions.gpu]\nmax_nodes = 2\n[partitions.cpu]\nmax_nodes = 2\n')
    _, _, err = cli("submit", "--site", str(file), "-N", "2", "--dry-run", "--", "x")
    assert "WARNING: no partition was chosen" in err


def test_error_of_the_first_failed_rank_is_quoted(cli, tmp_path):
    script = tmp_path / "boom.py"
    script.write_text("import os\nif os.environ['HPCRUN_RANK'] == '1':\n    raise ValueError('bad batch')\n")
    code, _, err = cli("run", "--site", "local", "-n", "2", str(script))
    assert code == 1
    assert "rank 1's log ends" in err
    assert "ValueError: bad batch" in err


@pytest.mark.parametrize("length", [240, 300])
def test_the_run_directory_has_the_beginning_of_a_long_name(cli, fake_slurm, length):
    fake_slurm.replace_command("sbatch", "echo 7")
    code, _, err = cli("submit", "--site", "slurm", "-J", "n" * length, "--sweep", "lr=1,2", "--", "true")
    assert code == 0, err
    assert [row["name"] for row in json.loads(cli("status", "7", "--json")[1])] == ["n" * length] * 2


def test_run_directory_of_a_script_run_by_hand_is_found(cli, isolated_home):
    _, out, err = cli(
        "submit", "--site", "local", "--dry-run", "--", "sh", "-c", "echo '{\"loss\": 2}' >$HPCRUN_RUN_DIR/result.json"
    )
    subprocess.run(["bash"], input=out, text=True, check=True, capture_output=True)
    directory = next(line for line in err.splitlines() if line.startswith("directory")).split()[1]
    assert "loss" in cli("result", directory)[1]


def test_lab_shares_a_site_in_a_folder(cli, tmp_path, monkeypatch):
    (tmp_path / "ours.toml").write_text('extends = "slurm"\ndescription = "our cluster"\n')
    monkeypatch.setenv("HPCRUN_SITE_PATH", str(tmp_path))
    assert "our cluster" in cli("site", "list")[1]
    _, _, err = cli("submit", "--site", "ours", "--dry-run", "--", "x")
    assert "ours (--site)" in err


@pytest.mark.parametrize("command", [
    "submit", "run", "resubmit", "doctor", "cuda", "logs", "status", "watch", "cleanup", "prune", "site test",
    "site init", "site add", "site update", "site schema",
])  # fmt: skip
def test_options_have_a_metavar(cli, command):
    code, out, _ = cli(*command.split(), "--help")
    options = [line for line in out.splitlines() if line.strip("\u2502 ").startswith("-")]
    assert (code, [line for line in options if re.search(r"<(int|str|float|path)>", line)]) == (0, [])
