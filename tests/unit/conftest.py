"""Unit tests see no configuration, index, allocation or run directory but their own."""

import fcntl
import os
import sys
import tempfile
from pathlib import Path

import pytest

from hpcrun.cli.main import main
from tests.unit.fake_slurm import FakeSlurm


@pytest.fixture(scope="session")
def own_cache(tmp_path_factory):
    """A cache of this process's tests, who share it, but with nobody else: compiling templates anew takes long."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(autouse=True)
def isolated_home(tmp_path_factory, own_cache, monkeypatch):
    """Folders and environment of this test's own."""
    home = tmp_path_factory.mktemp("home")
    for name in list(os.environ):
        if name.startswith(("SLURM_", "SBATCH_", "HPCRUN_", "CARME_", "PBS_", "LSB_", "OAR_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(home / "config"))
    monkeypatch.setenv("XDG_STATE_HOME", str(home / "state"))
    monkeypatch.setenv("XDG_DATA_HOME", str(home / "data"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(own_cache))
    monkeypatch.setenv("HPCRUN_RUN_ROOT", str(home / "runs"))
    return home


@pytest.fixture
def shared_memory():
    """Tests in several processes that look for what jobs left in /dev/shm take turns: each would remove the others'."""
    with Path(tempfile.gettempdir(), f"hpcrun-tests-{os.getuid()}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@pytest.fixture
def cli(capsys, monkeypatch):
    """Call hpcrun with arguments, for its exit code, output and errors."""

    def call(*argv):
        monkeypatch.setattr(sys, "argv", ["hpcrun", *argv])
        with pytest.raises(SystemExit) as done:
            main()
        out, err = capsys.readouterr()
        return done.value.code or 0, out, err

    return call


@pytest.fixture
def fake_slurm(tmp_path, monkeypatch):
    """Slurm's commands, pretended."""
    folder = tmp_path / "slurm-bin"
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    return FakeSlurm(folder)
