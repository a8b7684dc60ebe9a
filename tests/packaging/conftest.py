"""Fixtures of the packaging tests: the wheel, the source distribution, and a folder outside the checkout."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def dist(tmp_path_factory):
    """Build the source distribution and the wheel, and return their folder."""
    folder = tmp_path_factory.mktemp("dist")
    build = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder), str(ROOT)]
    subprocess.run(build, check=True, capture_output=True)
    return folder


@pytest.fixture(scope="session")
def wheel(dist):
    return next(dist.glob("*.whl"))


@pytest.fixture
def run_outside(tmp_path):
    """Return a function that runs a program in an empty folder with a clean environment; pip's settings stay."""
    empty = tmp_path / "empty"
    empty.mkdir()
    own = ("HPCRUN_", "SLURM_", "SBATCH_", "XDG_", "PYTHON", "VIRTUAL_ENV", "PIPX_", "UV_TOOL", "UV_PROJECT")
    clean = {name: value for name, value in os.environ.items() if not name.startswith(own)}
    clean |= {"HOME": str(tmp_path), "PATH": "/usr/local/bin:/usr/bin:/bin"}

    def call(*argv, check=True, **environment):
        environment = {**clean, **environment}
        words = list(map(str, argv))
        done = subprocess.run(words, cwd=empty, env=environment, capture_output=True, text=True, check=False)
        assert not check or done.returncode == 0, done.stdout + done.stderr
        assert list(empty.iterdir()) == []
        return done

    return call
