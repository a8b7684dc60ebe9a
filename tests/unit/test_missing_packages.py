"""Names of hpcrun.train that need a package which is not installed."""

import os
import subprocess
import sys

import pytest

PROGRAM = """
import sys

class WithoutTensorFlow:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "tensorflow":
            raise ModuleNotFoundError(f"No module named {name!r}", name="tensorflow")

sys.meta_path.insert(0, WithoutTensorFlow())
import hpcrun.train

try:
    hpcrun.train.%s
except hpcrun.train.HpcrunError as error:
    print(f"{error.message} | {error.hint}")
"""


@pytest.mark.parametrize(
    ("name", "hint"),
    [("dataset", "Model.fit(x, y, batch_size=...) splits arrays"), ("images", "pip install 'hpcrun-slurm[train-cpu]'")],
)
def test_a_name_that_needs_tensorflow_says_so(name, hint):
    command = [sys.executable, "-c", PROGRAM % name]
    done = subprocess.run(command, env={**os.environ, "KERAS_BACKEND": "numpy"}, capture_output=True, text=True)
    assert done.stdout.startswith(f"hpcrun.train.{name} needs tensorflow, which is not installed | {hint}"), done
