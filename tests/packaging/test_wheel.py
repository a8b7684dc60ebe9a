"""The wheel: its files, and an installation in an empty virtual environment."""

import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile

import pytest

import hpcrun
from tests.packaging.conftest import ROOT

PACKAGED_FOLDERS = ("hpcrun/", "templates/", "workloads/", "site-configs/")


def list_tracked_files():
    listed = subprocess.run(["git", "-C", ROOT, "ls-files", "-z"], capture_output=True, text=True, check=True)
    return {name for name in listed.stdout.split("\0") if name and (ROOT / name).exists()}


def test_wheel_has_exactly_the_files_of_the_package_and_its_data(wheel):
    assert wheel.name == f"hpcrun_slurm-{hpcrun.__version__}-py3-none-any.whl"
    names = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    expected = {name for name in list_tracked_files() if name.startswith(PACKAGED_FOLDERS)}
    assert names == {name if name.startswith("hpcrun/") else f"hpcrun/_data/{name}" for name in expected}


def test_source_distribution_includes_the_tests(dist):
    (file,) = dist.glob("hpcrun_slurm-*.tar.gz")
    with tarfile.open(file) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {name for name in list_tracked_files() if not name.startswith(".")} <= names


@pytest.fixture
def installed_packages(wheel, tmp_path):
    """Install the wheel without downloads, with the dependencies of this environment; return its site-packages."""
    folder = tmp_path / "venv"
    venv.create(folder, with_pip=False)
    python = folder / "bin/python"
    install = ["-m", "pip", "--python", python, "install", "--quiet", "--no-index", "--no-deps", wheel]
    subprocess.run([sys.executable, *install], check=True, capture_output=True)
    (packages,) = folder.glob("lib/python*/site-packages")
    (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return packages


def test_installed_hpcrun_runs_from_an_empty_directory(installed_packages, run_outside, tmp_path):
    program = tmp_path / "venv/bin/hpcrun"
    assert run_outside(program, "--version").stdout == f"hpcrun {hpcrun.__version__}\n"
    assert "lenet5" in run_outside(program, "workload", "list").stdout
    assert "styx" in run_outside(program, "site", "list").stdout
    for command in ([program], [tmp_path / "venv/bin/python", "-m", "hpcrun"]):
        script = run_outside(*command, "submit", "lenet5", "--dry-run", "--site", "local").stdout
        assert f"{installed_packages}/hpcrun/_data/workloads/lenet5/train.py" in script


def test_installation_beside_another_hpcrun_is_one_clear_error(installed_packages, run_outside, tmp_path):
    (installed_packages / "hpcrun-0.1.11.dist-info").mkdir()
    (installed_packages / "hpcrun/__init__.py").write_text("")  # as PyPI's hpcrun has it
    for command in ([tmp_path / "venv/bin/hpcrun"], [tmp_path / "venv/bin/python", "-m", "hpcrun"]):
        done = run_outside(*command, "submit", "lenet5", "--dry-run", check=False)
        assert (done.returncode, done.stdout) == (2, "")
        assert (
            "two distributions of a package hpcrun: hpcrun-slurm, which this is, and PyPI's hpcrun 0.1.11"
            in done.stderr
        )
        assert (
            "HINT: python -m pip uninstall -y hpcrun hpcrun-slurm; python -m pip install hpcrun-slurm\n" in done.stderr
        )
