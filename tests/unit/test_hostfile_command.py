"""The command ``hpcrun hostfile`` in a job."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
import typer
from typer.testing import CliRunner

from hpcrun.allocation import HOSTFILE_FORMATS, NODELIST_VARIABLES
from hpcrun.cli.hostfile import hostfile
from hpcrun.errors import HpcrunError
from tests.cluster.config import REPO


@pytest.fixture
def run(monkeypatch):
    for name in [*os.environ]:
        if name in NODELIST_VARIABLES or name.startswith("SLURM_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("SLURM_JOB_NODELIST", "n[2-3]")
    monkeypatch.setenv("SLURM_TASKS_PER_NODE", "2(x2)")
    monkeypatch.setenv("SLURM_NTASKS", "3")
    app = typer.Typer(rich_markup_mode=None)  # as in hpcrun's own app
    app.command()(hostfile)
    return lambda *argv: CliRunner().invoke(app, list(map(str, argv)))


def test_stdout_contains_only_the_hostfile(run):
    assert run().stdout == "n2\nn3\n"
    assert run("--format", "openmpi").stdout == "n2 slots=2\nn3 slots=1\n"
    assert run("--format", "hydra", "-n", 8).stdout == "n2:4\nn3:4\n"
    assert run("--format", "ranks", "--ntasks-per-node", 1).stdout == "n2\nn3\n"


def test_json_output_is_one_object(run):
    assert json.loads(run("--json").stdout) == {
        "source": "slurm",
        "hosts": [{"name": "n2", "tasks": 2}, {"name": "n3", "tasks": 1}],
    }


def test_a_hostfile_is_converted(run, tmp_path):
    mine = tmp_path / "mine"
    mine.write_text("a slots=2\nb\n")
    assert run("--hostfile", mine, "--format", "hydra").stdout == "a:2\nb:1\n"
    assert json.loads(run("--hostfile", mine, "--json").stdout)["source"] == "hostfile"


def test_a_dash_as_output_is_stdout(run, tmp_path):
    assert run("-o", "-").stdout == run().stdout
    assert not list(tmp_path.glob("-*"))


def test_the_output_file_is_replaced_atomically(run, tmp_path):
    hosts, bad = tmp_path / "hosts", tmp_path / "bad"
    result = run("-o", hosts)
    assert (result.exit_code, result.stdout, hosts.read_text()) == (0, "", "n2\nn3\n")
    os.link(hosts, tmp_path / "held")  # readers of the old file still see all of it
    assert run("-o", hosts, "--format", "hydra").exit_code == 0
    assert (hosts.read_text(), (tmp_path / "held").read_text()) == ("n2:2\nn3:1\n", "n2\nn3\n")
    bad.write_text("?\n")
    assert run("-o", hosts, "--hostfile", bad).exit_code != 0
    assert hosts.read_text() == "n2:2\nn3:1\n"
    assert {path.name for path in tmp_path.iterdir()} == {"hosts", "bad", "held"}


def test_output_to_a_link_or_pipe_keeps_the_link_or_pipe(run, tmp_path):
    link, pipe = tmp_path / "link", tmp_path / "pipe"
    (tmp_path / "real").write_text("old")
    link.symlink_to("real")
    assert run("-o", link).exit_code == 0
    assert link.is_symlink()
    assert (tmp_path / "real").read_text() == "n2\nn3\n"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDWR)
    try:
        assert run("-o", pipe).exit_code == 0
        assert pipe.is_fifo()
        assert os.read(reader, 100) == b"n2\nn3\n"
    finally:
        os.close(reader)


def test_invalid_options_cause_clear_errors(run, tmp_path):
    for argv, words in {
        ("-o", tmp_path / "no" / "hosts"): "cannot write",
        ("-o", tmp_path): "Is a directory",
        ("--format", "openmp"): "did you mean openmpi",
        ("-n", 9, "--ntasks-per-node", 4): "need 3 hosts",
    }.items():
        result = run(*argv)
        assert isinstance(result.exception, HpcrunError), argv
        assert words in str(result.exception)
        assert result.stdout == ""
    assert run("-n", 0).exit_code == 2
    assert [*tmp_path.iterdir()] == []


def test_help_lists_all_formats(run):
    help_text = run("--help").stdout
    assert all(name in help_text for name in HOSTFILE_FORMATS)
    assert "n1 slots=2    mpirun --hostfile (Open MPI)" in help_text


def test_the_command_imports_no_large_package():
    # Called as a function: from 0.29 on Typer imports pydantic by itself to read the command line.
    code = (
        "import sys; from hpcrun.cli.hostfile import hostfile;"
        "hostfile('hydra', output=None, source=None, nodes=None, ntasks=None, ntasks_per_node=None, json=True);"
        "print({'pydantic', 'jinja2', 'submitit', 'numpy', 'hpcrun.sites'} & set(sys.modules))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.splitlines()[1] == "set()"


def test_other_versions_of_packages_on_the_users_path_do_not_matter(tmp_path):
    for name in ("click", "typer", "secrets"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('the module of the user')\n")
    for path in (f"{tmp_path}:{REPO}", f"{REPO}:{tmp_path}"):
        environ = {**os.environ, "PYTHONPATH": path, "SLURM_JOB_NODELIST": "n[2-3]"}
        done = subprocess.run(
            [sys.executable, "-m", "hpcrun", "hostfile"], env=environ, capture_output=True, text=True, check=False
        )
        assert (done.stdout, done.stderr) == ("n2\nn3\n", "")
