"""Installation with pip, pipx and uv, from the wheel and from a checkout; dependencies come from PyPI."""

import shutil
import subprocess
import sys
import venv
from pathlib import Path

import pytest

import hpcrun
from tests.packaging.conftest import ROOT

pytestmark = pytest.mark.thorough


@pytest.fixture(scope="module")
def tools(tmp_path_factory):
    """Install pipx and uv from PyPI, and return the folder of their programs."""
    folder = tmp_path_factory.mktemp("tools")
    venv.create(folder, with_pip=False)
    install = [sys.executable, "-m", "pip", "--python", folder / "bin/python", "install", "--quiet", "pipx", "uv"]
    done = subprocess.run(install, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"PyPI is not reachable: {done.stderr.strip().splitlines()[-1]}")
    return folder / "bin"


@pytest.fixture
def checkout(tmp_path):
    """Copy the tracked files, as in a clone."""
    folder = tmp_path / "clone"
    listed = subprocess.run(["git", "-C", ROOT, "ls-files", "-z"], capture_output=True, text=True, check=True)
    for name in filter(None, listed.stdout.split("\0")):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, folder / name)
    return folder


def check_installation(run_outside, program, python, data):
    """Check that an installed hpcrun prints its version and renders a script."""
    assert run_outside(program, "--version").stdout == f"hpcrun {hpcrun.__version__}\n"
    for command in ([program], [python, "-m", "hpcrun"]):
        script = run_outside(*command, "submit", "lenet5", "--dry-run", "--site", "local").stdout
        assert f"{data}/workloads/lenet5/train.py" in script


def pip_install(folder):
    venv.create(folder, with_pip=False)
    return [sys.executable, "-m", "pip", "--python", folder / "bin/python", "install", "--quiet"]


def test_pip_install_of_the_wheel(tools, wheel, run_outside, tmp_path):
    run_outside(*pip_install(tmp_path / "venv"), wheel)
    (packages,) = (tmp_path / "venv").glob("lib/python*/site-packages")
    program = tmp_path / "venv/bin/hpcrun"
    check_installation(run_outside, program, tmp_path / "venv/bin/python", packages / "hpcrun/_data")
    light = run_outside(program, "submit", "lenet5", "--site", "local", check=False)
    assert light.returncode == 2
    assert "lenet5 needs tensorflow, keras, mpi4py, sklearn" in light.stderr
    assert "HINT: pip install 'hpcrun-slurm[train-gpu]'" in light.stderr


@pytest.mark.parametrize("editable", [False, True])
def test_pip_install_of_a_checkout(tools, checkout, run_outside, tmp_path, editable):
    before = {file for file in checkout.rglob("*") if "__pycache__" not in file.parts}
    run_outside(*pip_install(tmp_path / "venv"), *["--editable"] * editable, checkout)
    (packages,) = (tmp_path / "venv").glob("lib/python*/site-packages")
    data = checkout if editable else packages / "hpcrun/_data"
    check_installation(run_outside, tmp_path / "venv/bin/hpcrun", tmp_path / "venv/bin/python", data)
    assert {file for file in checkout.rglob("*") if "__pycache__" not in file.parts} == before


def other_python(version):
    """Return an interpreter of another version, also one of pyenv; skip the test if there is none."""
    places = map(str, Path.home().glob(f".pyenv/versions/{version}.*/bin/python"))
    for python in filter(None, [shutil.which(f"python{version}"), *places]):
        if subprocess.run([python, "--version"], capture_output=True, check=False).returncode == 0:
            return python
    return pytest.skip(f"no Python {version} on this machine")


OTHER_VERSIONS = {"3.11", "3.12", "3.13"} - {f"3.{sys.version_info.minor}"}


@pytest.mark.parametrize("version", sorted(OTHER_VERSIONS))
def test_pip_install_with_other_pythons(tools, wheel, run_outside, tmp_path, version):
    run_outside(other_python(version), "-m", "venv", "--without-pip", tmp_path / "venv")
    python = tmp_path / "venv/bin/python"
    run_outside(sys.executable, "-m", "pip", "--python", python, "install", "--quiet", wheel)
    (packages,) = (tmp_path / "venv").glob("lib/python*/site-packages")
    check_installation(run_outside, tmp_path / "venv/bin/hpcrun", python, packages / "hpcrun/_data")


def test_pipx_install(tools, wheel, run_outside, tmp_path):
    home = {"PIPX_HOME": str(tmp_path / "pipx"), "PIPX_BIN_DIR": str(tmp_path / "bin")}
    run_outside(tools / "pipx", "install", "--python", sys.executable, wheel, **home)
    environment = tmp_path / "pipx/venvs/hpcrun-slurm"
    (packages,) = environment.glob("lib/python*/site-packages")
    check_installation(run_outside, tmp_path / "bin/hpcrun", environment / "bin/python", packages / "hpcrun/_data")


def test_uv_tool_install(tools, wheel, run_outside, tmp_path):
    home = {"UV_TOOL_DIR": str(tmp_path / "uv"), "UV_TOOL_BIN_DIR": str(tmp_path / "bin")}
    home |= {"UV_CACHE_DIR": str(tmp_path / "cache"), "UV_PYTHON_DOWNLOADS": "never"}
    run_outside(tools / "uv", "tool", "install", "--python", sys.executable, wheel, **home)
    environment = tmp_path / "uv/hpcrun-slurm"
    (packages,) = environment.glob("lib/python*/site-packages")
    check_installation(run_outside, tmp_path / "bin/hpcrun", environment / "bin/python", packages / "hpcrun/_data")


@pytest.mark.parametrize("wheel_last", [False, True])
def test_pip_install_beside_the_other_project_named_hpcrun(tools, wheel, run_outside, tmp_path, wheel_last):
    pip = pip_install(tmp_path / "venv")
    both = [["--no-deps", "hpcrun==0.1.11"], [wheel]]  # its dependencies change nothing
    for one in both if wheel_last else reversed(both):
        run_outside(*pip, *one)
    done = run_outside(tmp_path / "venv/bin/hpcrun", "submit", "lenet5", "--dry-run", check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert "and PyPI's hpcrun 0.1.11, another project" in done.stderr
    hint = done.stderr.partition("HINT: ")[2].strip()
    uninstall = hint.partition(";")[0].removeprefix("python -m pip uninstall ").split()
    run_outside(*pip[:-2], "uninstall", *uninstall)
    run_outside(*pip, wheel)
    assert run_outside(tmp_path / "venv/bin/hpcrun", "--version").stdout == f"hpcrun {hpcrun.__version__}\n"
