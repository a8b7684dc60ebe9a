"""The wheel works by itself: built, installed into an empty environment, run from an empty directory."""

import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile

import pytest

import hpcrun
from tests.packaging.conftest import ROOT

WHERE = ("hpcrun/", "templates/", "workloads/", "site-configs/")


def tracked():
    listed = subprocess.run(["git", "-C", ROOT, "ls-files", "-z"], capture_output=True, text=True, check=True)
    return {name for name in listed.stdout.split("\0") if name and (ROOT / name).exists()}


def test_the_wheel_carries_all_that_the_package_and_its_data_have_and_nothing_else(wheel):
    assert wheel.name == f"hpcrun_slurm-{hpcrun.__version__}-py3-none-any.whl"
    names = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    ours = {name for name in tracked() if name.startswith(WHERE)}
    assert names == {name if name.startswith("hpcrun/") else f"hpcrun/_data/{name}" for name in ours}


def test_the_source_distribution_carries_the_tests_too(dist):
    (file,) = dist.glob("hpcrun_slurm-*.tar.gz")
    with tarfile.open(file) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {name for name in tracked() if not name.startswith(".")} <= names


@pytest.fixture
def installed(wheel, tmp_path):
    """An environment with the wheel, whose dependencies are those of this one: nothing is downloaded."""
    folder = tmp_path / "venv"
    venv.create(folder, with_pip=False)
    python = folder / "bin/python"
    install = ["-m", "pip", "--python", python, "install", "--quiet", "--no-index", "--no-deps", wheel]
    subprocess.run([sys.executable, *install], check=True, capture_output=True)
    (packages,) = folder.glob("lib/python*/site-packages")
    (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return packages


def test_an_installed_hpcrun_runs_from_an_empty_directory(installed, outside, tmp_path):
    program = tmp_path / "venv/bin/hpcrun"
    assert outside(program, "--version").stdout == f"hpcrun {hpcrun.__version__}\n"
    assert "lenet5" in outside(program, "workload", "list").stdout
    assert "styx" in outside(program, "site", "list").stdout
    for command in ([program], [tmp_path / "venv/bin/python", "-m", "hpcrun"]):
        script = outside(*command, "submit", "lenet5", "--dry-run", "--site", "local").stdout
        assert f"{installed}/hpcrun/_data/workloads/lenet5/train.py" in script


def test_beside_another_hpcrun_there_is_one_clear_error(installed, outside, tmp_path):
    (installed / "hpcrun-0.1.11.dist-info").mkdir()
    (installed / "hpcrun/__init__.py").write_text("")  # as PyPI's hpcrun has it
    for command in ([tmp_path / "venv/bin/hpcrun"], [tmp_path / "venv/bin/python", "-m", "hpcrun"]):
        done = outside(*command, "submit", "lenet5", "--dry-run", check=False)
        assert (done.returncode, done.stdout) == (2, "")
        assert (
            "two distributions of a package hpcrun: hpcrun-slurm, which this is, and PyPI's hpcrun 0.1.11"
            in done.stderr
        )
        assert (
            "HINT: python -m pip uninstall -y hpcrun hpcrun-slurm; python -m pip install hpcrun-slurm\n" in done.stderr
        )
