"""Errors of the child processes in which hpcrun uses Keras, and of saved models."""

import errno
import json
import subprocess
import sys
from typing import Any

import pytest

from hpcrun.errors import HpcrunError
from hpcrun.train.saved_model import load_model

PROGRAM = """
from hpcrun.train.host_program import serve

def answer(request, progress):
    raise OSError(request["errno"], "reason", "/tmp/x")

serve(answer)
"""


@pytest.mark.parametrize(("number", "hint"), [
    (errno.ENOSPC, "free some disk space, or set TMPDIR to a folder that has some"),
    (errno.EACCES, None),
])  # fmt: skip
def test_a_full_disk_has_a_hint(number, hint):
    request = json.dumps({"errno": number})
    done = subprocess.run([sys.executable, "-c", PROGRAM], input=request, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == {"error": "/tmp/x: reason", "hint": hint}


class Models:
    """Stands for a Keras that raises an exception when it loads a model."""

    def __init__(self, error):
        self.error = error

    def load_model(self, *_, **__):
        raise self.error


@pytest.fixture
def load(monkeypatch, tmp_path):
    """Return a function that loads a model with a Keras that raises an exception."""
    (tmp_path / "m.keras").touch()

    def call(error):
        keras: Any = type(sys)("keras")
        keras.models = Models(error)
        monkeypatch.setitem(sys.modules, "keras", keras)
        monkeypatch.setitem(sys.modules, "hpcrun.train.normalization", type(sys)("normalization"))
        return load_model(tmp_path / "m.keras")

    return call


def test_a_model_that_keras_cannot_load_names_the_exception(load):
    with pytest.raises(HpcrunError, match=r"Keras cannot load this model: KeyError: 'config'\nHINT: the file is damag"):
        load(KeyError("config"))


def test_a_package_that_keras_needs_is_not_a_damaged_file(load):
    with pytest.raises(ImportError, match="h5py"):
        load(ImportError("no h5py", name="h5py"))
