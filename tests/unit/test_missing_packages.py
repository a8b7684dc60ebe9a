"""Names of hpcrun.train that need a package which is not installed."""

import subprocess
import sys

import pytest

PROGRAM = """
import sys

class Without:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "{package}":
            raise ModuleNotFoundError(f"No module named {{name!r}}", name="{package}")

sys.meta_path.insert(0, Without())
import hpcrun.train

try:
    hpcrun.train.{name}
except hpcrun.train.HpcrunError as error:
    print(f"{{error.message}} | {{error.hint}}")
"""


@pytest.mark.parametrize(
    ("package", "name", "hint"),
    [
        ("tensorflow", "dataset", "Model.fit(x, y, batch_size=...) splits arrays"),
        ("keras", "Model", "pip install 'hpcrun-slurm[train-cpu]', or [train-gpu] for GPUs"),
    ],
)
def test_a_name_says_which_package_it_needs(monkeypatch, package, name, hint):
    monkeypatch.setenv("KERAS_BACKEND", "tensorflow")
    command = [sys.executable, "-c", PROGRAM.format(package=package, name=name)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.startswith(f"hpcrun.train.{name} needs {package}, which is not installed | {hint}"), done
