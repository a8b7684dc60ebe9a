"""``hpcrun export`` to formats of other programs."""

import subprocess
import sys

import pytest

from tests.mpi.ranks import needs_mpi

pytestmark = [pytest.mark.mpi, needs_mpi]

SAVE = """
import keras
keras.utils.set_random_seed(1)
layers = [keras.Input((8, 8, 3), dtype="uint8"), keras.layers.Rescaling(1 / 255), keras.layers.Flatten()]
keras.Sequential([*layers, keras.layers.Dense(5, activation="softmax")]).save("m.keras")
"""

COMPARE = """
import keras, numpy, onnxruntime
x = numpy.random.default_rng(0).integers(256, size=(3, 8, 8, 3), dtype="uint8")
session = onnxruntime.InferenceSession("m.onnx")
found = session.run(None, {session.get_inputs()[0].name: x})[0]
numpy.testing.assert_allclose(found, keras.models.load_model("m.keras").predict(x), rtol=1e-5)
"""


def test_an_onnx_model_predicts_the_same(tmp_path):
    for words in (["-c", SAVE], ["-m", "hpcrun", "export", "m.keras", "--format", "onnx", "-o", "m.onnx"]):
        subprocess.run([sys.executable, *words], cwd=tmp_path, check=True)
    subprocess.run([sys.executable, "-c", COMPARE], cwd=tmp_path, check=True)
