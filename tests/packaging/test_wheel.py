"""The wheel works by itself: built, installed into an empty environment, run from an empty directory."""

import os
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("dist")
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder), str(ROOT)]
    subprocess.run(build, check=True, capture_output=True)
    return next(folder.glob("*.whl"))


def test_the_wheel_carries_the_data_and_nothing_else(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.split("/")[0] for name in names} == {
        "hpcrun",
        wheel.name.removesuffix("-py3-none-any.whl") + ".dist-info",
    }
    for name in (
        "templates/base.sh.j2",
        "workloads/lenet5/train.py",
        "site-configs/styx.toml",
        "site-configs/site.schema.json",
    ):
        assert f"hpcrun/_data/{name}" in names
    read = ("why/failures.toml", "why/pending.toml", "report/page.html.j2", "survey/site.toml.j2")
    assert {f"hpcrun/{name}" for name in read} <= set(names)


def test_an_installed_hpcrun_runs_from_an_empty_directory(wheel, tmp_path):
    venv.create(tmp_path / "venv", with_pip=False)
    python = tmp_path / "venv/bin/python"
    install = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", str(wheel)]
    subprocess.run(install, check=True, capture_output=True)
    empty = tmp_path / "empty"
    empty.mkdir()
    clean = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}

    how = {"cwd": empty, "env": clean, "capture_output": True, "text": True}

    def command(*argv):
        return [str(tmp_path / "venv/bin/hpcrun"), *argv]

    def hpcrun(*argv):
        return subprocess.run(command(*argv), **how, check=True).stdout

    assert "lenet5" in hpcrun("workload", "list")
    assert "styx" in hpcrun("site", "list")
    script = hpcrun("submit", "lenet5", "--dry-run")
    assert f"{tmp_path}/venv" in script
    assert "_data/workloads/lenet5/train.py" in script
    assert list(empty.iterdir()) == []
    light = subprocess.run(command("submit", "lenet5", "--site", "local"), **how, check=False)
    assert light.returncode == 2
    assert "lenet5 imports tensorflow, keras, mpi4py, sklearn" in light.stderr
    assert "pip install 'hpcrun[train]'" in light.stderr
