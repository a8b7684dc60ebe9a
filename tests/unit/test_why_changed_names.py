"""Names that releases of libraries removed or added, from the tables in ``why/changes``."""

import re
import tomllib
from pathlib import Path

import pytest

from hpcrun.why import changed_names
from hpcrun.why.changed_names import describe_change, find_change
from hpcrun.why.python_error import PythonError

TABLES = sorted(Path(changed_names.__file__).with_name("changes").glob("*.toml"))


def exception(error, *, raised_in="/home/u/train.py", code="x"):
    return PythonError("log", error, "/home/u/train.py", "1", 0, 1, 1, raised_in=raised_in, code=code)


@pytest.mark.parametrize(("error", "code", "words"), [
    ("cannot import name 'builder' from 'google.protobuf.internal'", "", "pip install -U 'protobuf>=3.20'"),
    ("module 'jax' has no attribute 'tree_map'", "", "write jax.tree.map"),
    ("module 'tensorflow._api.v2.train' has no attribute 'AdamOptimizer'", "", "write tf.keras.optimizers.Adam"),
    ("module 'tensorflow.keras.layers' has no attribute 'MultiHeadAttention'", "", "keras>=2.4"),
    ("'module' object has no attribute 'AdamOptimizer'", "tf.train.AdamOptimizer()", "tf.keras.optimizers.Adam"),
    ("cannot import name 'convolutional'", "from keras.layers import convolutional", "from keras.layers import"),
    ("No module named 'keras.layers.convolutional'", "", "from keras.layers import"),
    ("No module named 'tensorflow.contrib.slim'", "", "tf_slim"),
    ("module 'collections' has no attribute 'Mapping'", "", "write collections.abc.Mapping"),
    ("'DataFrame' object has no attribute 'iteritems'", "", "write .items()"),
    ("Trainer.__init__() got an unexpected keyword argument 'gpus'", "", "accelerator='gpu', devices=N"),
    ("__init__() got an unexpected keyword argument 'gpus'", "pl.Trainer(gpus=2)", "accelerator='gpu', devices=N"),
    ("('Keyword argument not understood:', 'input')", "Model(input=x)", "write Model(inputs=..., outputs=...)"),
    ("Unrecognized keyword arguments passed to LSTM: {'time_major': False}", "", "transpose the data"),
])  # fmt: skip
def test_a_changed_name_is_found(error, code, words):
    assert words in find_change(error, code).describe_fix("")


@pytest.mark.parametrize("error", [
    "module 'odd' has no attribute 'gcd'", "cannot import name 'odd' from 'numpy'", "No module named 'odd.six'",
    "'Odd' object has no attribute 'append'", "f() got an unexpected keyword argument 'gpus'",
])  # fmt: skip
def test_another_name_is_unknown(error):
    assert find_change(error) is None
    assert not describe_change(error, None)


def test_a_package_that_uses_the_name_is_to_be_upgraded():
    error = "module 'jax' has no attribute 'api'"
    library = exception(f"AttributeError: {error}", raised_in="/env/lib/python3.9/site-packages/flax/linen/module.py")
    assert describe_change(error, library)["write"].startswith("upgrade flax, which was written for an older JAX")
    assert describe_change(error, exception(f"AttributeError: {error}"))["write"].startswith("write jax.NAME")
    assert "the traceback's last file" in describe_change(error, None)["write"]


def test_the_argument_of_a_call_in_the_program_is_to_be_changed_there():
    error = "('Keyword argument not understood:', 'input')"
    keras = "/env/lib/python3.9/site-packages/keras/generic_utils.py"
    raised = exception(f"TypeError: {error}", raised_in=keras, code="m = Model(input = x)")
    assert describe_change(error, raised)["write"].startswith("write Model(inputs=")


@pytest.mark.parametrize("file", TABLES, ids=lambda file: file.stem)
def test_tables_have_the_form_that_is_described(file):
    for library, section in tomllib.loads(file.read_text()).items():
        kinds = {kind: changes for kind, changes in section.items() if isinstance(changes, dict) and kind != "older"}
        assert set(kinds) <= {"names", "arguments", "attributes"}, library
        for changes in kinds.values():
            for change, entries in changes.items():
                assert re.fullmatch(r"(?:removed|added) \d+(?:\.\d+)*", change), (library, change)
                assert entries, (library, change)
                for names in entries:
                    names_are_valid = all(re.fullmatch(r"[\w.*]+", name.strip()) for name in names.split("|"))
                    assert names_are_valid, (library, names)
