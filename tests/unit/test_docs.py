"""The examples in README and docs work as they are printed."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from hpcrun.cli.main import main
from hpcrun.sites import find

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def blocks(language):
    fence = re.compile(rf"^```{language}\n(.*?)^```", re.MULTILINE | re.DOTALL)
    return [
        pytest.param(block, id=f"{page.stem}-{number}")
        for page in PAGES
        for number, block in enumerate(fence.findall(page.read_text()))
    ]


def commands():
    for param in blocks("console"):
        for line in param.values[0].splitlines():
            for command in line.removeprefix("$ ").split("#")[0].split(";"):
                if line.startswith("$ ") and command.strip().startswith("hpcrun "):
                    yield command.strip()


@pytest.mark.parametrize("command", list(dict.fromkeys(commands())))
def test_every_command_in_the_docs_is_understood(command, tmp_path, monkeypatch, capsys):
    """Commands that would submit are dry runs here; those on jobs find a finished one."""
    argv = shlex.split(command)
    (tmp_path / "train.py").write_text("")
    (tmp_path / "hosts").write_text("localhost\n")
    monkeypatch.chdir(tmp_path)

    def call(*argv):
        monkeypatch.setattr(sys, "argv", list(argv))
        with pytest.raises(SystemExit) as done:
            main()
        return done.value.code or 0

    if argv[1] in {"submit", "run"}:
        # a local machine has one node; the docs speak of clusters
        site = [] if "--site" in argv or argv[1] == "run" else ["--site", "slurm"]
        code = call("hpcrun", argv[1], *site, "--dry-run", *argv[2:])
    else:
        if argv[1] not in {"site", "workload"}:
            result = """echo '{"loss": 1}' >"$HPCRUN_RUN_DIR/result.json"; sleep 0.1"""
            wait = [] if argv[1] == "cancel" else ["--wait"]
            call("hpcrun", "submit", "--site", "local", *wait, "--", "sh", "-c", result)
        code = call(*argv)
    shown = capsys.readouterr()
    page = "".join(page.read_text() for page in PAGES)
    if expected := re.search(rf"^\$ {re.escape(command)}\n(ERROR.*\nHINT.*\n)", page, re.MULTILINE):
        assert (code, shown.err) == (2, expected[1])
    else:
        assert code == 0, shown.err


@pytest.mark.parametrize("block", blocks("toml"))
def test_every_site_file_in_the_docs_is_valid(block, tmp_path):
    (tmp_path / "mycluster.toml").write_text(block)
    assert find.load(str(tmp_path / "mycluster.toml")).site.partitions["gpu"].gpus_per_node == 4


@pytest.mark.mpi
def test_the_training_example_runs(tmp_path):
    """tests/mpi/test_run.py runs it on ranks, and the examples that continue it."""
    example = training_examples()[0]
    (tmp_path / "train.py").write_text(example)
    done = subprocess.run([sys.executable, "train.py"], cwd=tmp_path, check=True, capture_output=True, text=True)
    assert (tmp_path / "model.keras").exists()
    assert "epoch 2/2" in done.stdout
    assert done.stderr == ""


def test_the_change_shown_is_the_examples():
    (change,) = blocks("diff")
    lines = iter(training_examples()[0].splitlines())
    assert all(line[1:] in lines for line in change.values[0].splitlines())  # in this order
    assert sum(line.startswith("+") and len(line) > 1 for line in change.values[0].splitlines()) == 3


def training_examples():
    return [param.values[0] for param in blocks("python") if param.id.startswith("training-")]


def test_the_pages_link_to_files_that_exist():
    for page in PAGES:
        for link in re.findall(r"\]\((?!http)([^)#]+)\)", page.read_text()):
            assert (page.parent / link).exists(), f"{page.name}: {link}"
