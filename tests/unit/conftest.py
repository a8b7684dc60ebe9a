"""Fixtures of unit tests: private configuration, index, run directories, and fake Slurm commands."""

import fcntl
import io
import os
import shutil
import sys
import tempfile
from pathlib import Path

import pytest

from hpcrun.cli.main import main
from tests.unit.fake_slurm import FakeSlurm

SLURM_COMMANDS = ("sbatch", "scancel", "squeue", "sacct", "sacctmgr", "scontrol", "sinfo", "sprio", "srun")


@pytest.fixture(scope="session")
def shared_cache(tmp_path_factory):
    """Return a cache folder that the tests of this process share, because compiling templates is slow."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="session")
def unconfigured_slurm(tmp_path_factory):
    """Return a folder with the Slurm commands of this host that fail at once.

    Installed commands without a slurm.conf look for one by DNS, which takes seconds now and then.
    """
    folder = tmp_path_factory.mktemp("unconfigured-slurm")
    for name in filter(shutil.which, SLURM_COMMANDS):
        (folder / name).write_text(f"#!/bin/sh\necho '{name}: fatal: no configuration' >&2\nexit 1\n")
        (folder / name).chmod(0o755)
    return folder


@pytest.fixture(autouse=True)
def isolated_home(tmp_path_factory, shared_cache, unconfigured_slurm, monkeypatch):
    """Give the test a private home folder, as current folder, and an environment without schedulers."""
    home = tmp_path_factory.mktemp("home")
    monkeypatch.chdir(home)  # in a Git repository, each submission would record its state
    for name in list(os.environ):
        if name.startswith(("SLURM_", "SBATCH_", "HPCRUN_", "CARME_", "PBS_", "LSB_", "OAR_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("PATH", f"{unconfigured_slurm}:{os.environ['PATH']}")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(home / "config"))
    monkeypatch.setenv("XDG_STATE_HOME", str(home / "state"))
    monkeypatch.setenv("XDG_DATA_HOME", str(home / "data"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(shared_cache))
    monkeypatch.setenv("HPCRUN_RUN_ROOT", str(home / "runs"))
    return home


@pytest.fixture
def shared_memory():
    """Lock /dev/shm: tests in other processes would remove the segments of this test's jobs."""
    with Path(tempfile.gettempdir(), f"hpcrun-tests-{os.getuid()}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@pytest.fixture
def cli(capsys, monkeypatch):
    """Return a function that calls hpcrun, and returns its exit code, output and errors."""

    def call(*argv):
        monkeypatch.setattr(sys, "argv", ["hpcrun", *argv])
        with pytest.raises(SystemExit) as exit_info:
            main()
        out, err = capsys.readouterr()
        return exit_info.value.code or 0, out, err

    return call


@pytest.fixture
def terminal(monkeypatch):
    """Return a function that makes stdout a terminal of some width, without colours, and returns it."""

    class Terminal(io.StringIO):
        encoding = "utf-8"

        def isatty(self):
            return True

    def open_terminal(width):
        monkeypatch.setenv("COLUMNS", str(width))
        monkeypatch.setenv("NO_COLOR", "1")
        screen = Terminal()
        monkeypatch.setattr("sys.stdout", screen)
        return screen

    return open_terminal


@pytest.fixture
def layers(tmp_path, monkeypatch):
    """Empty lab, user and project layers above the shipped one."""
    folders = {"lab": tmp_path / "lab", "user": tmp_path / "config" / "hpcrun", "project": tmp_path / "p" / ".hpcrun"}
    for folder in folders.values():
        folder.mkdir(parents=True)
    monkeypatch.setenv("HPCRUN_SITE_PATH", str(folders["lab"]))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.delenv("HPCRUN_SITE", raising=False)
    monkeypatch.chdir(tmp_path / "p")
    return folders


@pytest.fixture
def fake_slurm(tmp_path, monkeypatch):
    """Return fake Slurm commands, first on PATH."""
    folder = tmp_path / "slurm-bin"
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    return FakeSlurm(folder)
