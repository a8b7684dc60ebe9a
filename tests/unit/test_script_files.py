"""The user's modules that a script imports: hpcrun reads the framework from them, too."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

import hpcrun
from hpcrun.distribution import find_framework, trains_separate_models
from hpcrun.script_names import MAX_FILES, read_script

SETUP = "import torch.distributed\ndef begin():\n    torch.distributed.init_process_group()\n"


def write_project(folder, **texts):
    """Write a package ``lab`` with the packages ``core`` and ``train``, and files by name, with _ for /."""
    for package in ("lab", "lab/core", "lab/train"):
        (folder / package).mkdir(parents=True, exist_ok=True)
        (folder / package / "__init__.py").write_text("")
    for name, text in {"lab_core_setup": SETUP, **texts}.items():
        (folder / f"{name.replace('_', '/')}.py").write_text(text)


@pytest.mark.parametrize(
    "line",
    [
        "from lab.core.setup import begin",
        "import lab.core.setup as setup",
        "from ..core.setup import begin",
        "from ..core import setup",
        "from .near import begin",
        "from . import near",
        "from .deep import begin",
    ],
)
@pytest.mark.parametrize("options", [("-m",), ("-um",), ("-W", "ignore", "-m")])
def test_a_module_of_a_package_imports_its_other_modules(tmp_path, line, options):
    near, deep = "from ..core.setup import begin\n", "from .near import begin\n"
    write_project(tmp_path, lab_train_run=f"import torch\n{line}\n", lab_train_near=near, lab_train_deep=deep)
    assert find_framework(("python", *options, "lab.train.run"), tmp_path, "auto") == "torch"


@pytest.mark.parametrize("change", ["sys.path.insert(0, '..')", "sys.path.append(str(Path(__file__).parents[1]))", ""])
@pytest.mark.parametrize("source", [".", "src"])
def test_a_script_in_a_folder_of_the_project_adds_the_project_to_pythons_path(tmp_path, change, source):
    write_project(tmp_path / source)
    (tmp_path / "scripts").mkdir()
    text = f"import sys, torch\nfrom pathlib import Path\n{change}\nfrom lab.core.setup import begin\n"
    (tmp_path / "scripts/run.py").write_text(text)
    assert trains_separate_models(("python", "scripts/run.py"), tmp_path) == (not change)


def test_pythonpath_contains_the_users_modules(tmp_path, monkeypatch):
    write_project(tmp_path / "src", lab_train_run="import torch\nfrom lab.core import setup\n")
    (tmp_path / "run.py").write_text("import torch\nimport lab.train.run\n")
    programs = [("python", "run.py"), ("./run.py",), ("python", "-m", "lab.train.run")]
    assert [find_framework(argv, tmp_path, "auto") for argv in programs] == ["auto"] * 3
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path / 'src'}:/nonexistent")
    assert [find_framework(argv, tmp_path, "auto") for argv in programs] == ["torch"] * 3
    (tmp_path / "src/torch-2.0.dist-info").mkdir()  # a folder of installed packages, which may be large
    assert find_framework(("python", "run.py"), tmp_path, "auto") == "auto"


@pytest.mark.parametrize("text", ["from distributed import begin\n", "from .distributed import begin\n"])
def test_a_module_of_the_user_with_the_name_of_a_library(tmp_path, text):
    (tmp_path / "distributed.py").write_text("def begin():\n    pass\n")  # Dask has a package of this name
    (tmp_path / "train.py").write_text(f"import torch\n{text}begin.now()\n")
    assert trains_separate_models(("python", "train.py"), tmp_path)
    (tmp_path / "distributed.py").write_text(SETUP)
    assert find_framework(("python", "train.py"), tmp_path, "auto") == "torch"


@pytest.mark.parametrize(
    "line",
    [
        *(f"import_module({name!r})" for name in ("configs/x", "./configs/x.py", "/", ".", "..", "../x", "a..b", "")),
        f"import {'a' * 300}",
        f"from . import {'b' * 300}",
        f"from {'../' * 9} import x",  # not valid in any version of Python
    ],
)
def test_names_that_are_no_modules_are_not_looked_up(tmp_path, line):
    text = f"from importlib import import_module\n{line}\nimport torch.distributed\n"
    (tmp_path / "train.py").write_text(text)
    assert find_framework(("python", "train.py"), tmp_path, "auto") == "torch"


@pytest.mark.parametrize("name", [[], ["/"], ["../x"], [".."], ["a" * 300]])
@pytest.mark.parametrize("root", [True, False])
def test_a_command_line_with_an_odd_module_runs_no_script(tmp_path, name, root):
    assert find_framework(("python", "-m", *name), Path("/") if root else tmp_path, "auto") == "auto"


@pytest.fixture
def open_folder():
    """Return a folder that other users may enter, unlike those of pytest: root may enter locked folders."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        yield Path(name)


def test_a_folder_in_pythonpath_that_may_not_be_entered(open_folder, monkeypatch):
    write_project(open_folder, lab_train_run="import torch\nfrom lab.core import setup\n")
    (open_folder / "run.py").write_text("import locked.model, lab.train.run\n")
    (open_folder / "locked").mkdir(mode=0)
    code = (
        "import os; from pathlib import Path; from hpcrun.distribution import find_framework as find\n"
        "if os.getuid() == 0: os.setresuid(65534, 65534, 65534)\n"
        "print(*(find(('python', *argv), Path.cwd(), 'auto') for argv in (['run.py'], ['-m', 'lab.train.run'])))"
    )
    folders = f"{Path(hpcrun.__file__).parents[1]}:{open_folder}/locked:{open_folder}/locked/deep"
    monkeypatch.setenv("PYTHONPATH", folders)
    process = subprocess.run([sys.executable, "-c", code], cwd=open_folder, capture_output=True, text=True, check=False)
    assert (process.stdout, process.stderr) == ("torch torch\n", "")


def test_of_many_modules_the_same_ones_are_read_each_time(tmp_path):
    names = [f"m{number:03}" for number in range(150)]
    for name in names:
        (tmp_path / f"{name}.py").write_text(f"'text of {name}'\n")
    (tmp_path / "train.py").write_text(f"import {', '.join(reversed(names))}\n")
    texts = read_script(("python", "train.py"), tmp_path).texts
    assert texts == {f"text of {name}" for name in names[: MAX_FILES - 1]}  # all but the script itself


def write_library(folder):
    """Write the parts of PyTorch that hpcrun must not read as the user's: torch itself imports torch.distributed."""
    (folder / "torch").mkdir(parents=True)
    (folder / "torch/__init__.py").write_text("import torch.distributed\n")
    (folder / "helpers.py").write_text("import torch.distributed\n")


@pytest.mark.parametrize(
    ("folder", "entry", "users"),
    [
        ("lib/python3.11/site-packages", "", False),
        ("lib/python3/dist-packages", "", False),
        ("lib/torch-2.0-py3.11.egg", "", False),
        ("lib", "torch-2.0.dist-info", False),
        ("lib", "torch-2.0-py3.11.egg-info", False),
        ("lib", "torch-2.0.egg", False),
        ("lib", "easy-install.pth", False),
        ("lib", "lab.egg-info", True),  # pip install -e
        ("lib", "model-2.pth", True),  # weights of PyTorch
        ("lib", "", True),
    ],
)
def test_installed_packages_are_not_the_users(tmp_path, monkeypatch, folder, entry, users):
    write_library(tmp_path / folder)
    (tmp_path / folder / (entry or "notes")).mkdir()
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / folder))
    (tmp_path / "train.py").write_text("import helpers\n")
    assert find_framework(("python", "train.py"), tmp_path, "auto") == ("torch" if users else "auto")


def test_a_library_is_the_users_only_in_the_scripts_own_folder(tmp_path, monkeypatch):
    write_library(tmp_path / "torch-2.0")  # such as a build of PyTorch from source
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "torch-2.0"))
    (tmp_path / "train.py").write_text("import torch\n")
    assert trains_separate_models(("python", "train.py"), tmp_path)
    (tmp_path / "torch-2.0/train.py").write_text("import torch\n")
    assert find_framework(("python", "torch-2.0/train.py"), tmp_path, "auto") == "auto"
    (tmp_path / "torch-2.0/torch/__init__.py").write_text("import horovod\n")
    assert find_framework(("python", "torch-2.0/train.py"), tmp_path, "auto") == "horovod"


def test_each_path_is_checked_once(tmp_path, monkeypatch):
    imports = "import os, sys, json, numpy, scipy, torch.nn\nfrom .m0 import x\nfrom lab.m1 import y\n"
    (tmp_path / "lab").mkdir()
    for number in range(30):
        (tmp_path / f"lab/m{number}.py").write_text(imports)
    (tmp_path / "train.py").write_text("".join(f"import lab.m{number}\n" for number in range(30)))
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}/one:{tmp_path}/two")
    paths, stat = [], os.stat

    def recorded_stat(path, *args, **options):
        paths.append(str(path))
        return stat(path, *args, **options)

    with monkeypatch.context() as patch:
        patch.setattr(os, "stat", recorded_stat)
        read_script(("python", "train.py"), tmp_path)
    assert len(paths) < 200  # 100 for the modules: each may be a file or folder, and is read


def test_a_module_with_the_name_of_one_of_pythons_is_the_users_in_the_scripts_folder(tmp_path):
    (tmp_path / "code").mkdir()
    (tmp_path / "code/begin.py").write_text(SETUP)
    (tmp_path / "train.py").write_text("import code.begin\n")
    assert find_framework(("python", "train.py"), tmp_path, "auto") == "auto"  # Python's module comes first
    (tmp_path / "code/__init__.py").write_text("")
    assert find_framework(("python", "train.py"), tmp_path, "auto") == "torch"
