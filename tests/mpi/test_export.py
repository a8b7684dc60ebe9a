"""``hpcrun export`` to formats of other programs."""

import subprocess
import sys

import pytest

from tests.mpi.ranks import needs_mpi, thorough

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


@thorough
def test_an_onnx_model_predicts_the_same(tmp_path):
    for words in (["-c", SAVE], ["-m", "hpcrun", "export", "m.keras", "--format", "onnx", "-o", "m.onnx"]):
        subprocess.run([sys.executable, *words], cwd=tmp_path, check=True)
    subprocess.run([sys.executable, "-c", COMPARE], cwd=tmp_path, check=True)


@thorough
def test_a_file_of_other_names_is_kept(tmp_path):
    subprocess.run([sys.executable, "-c", SAVE], cwd=tmp_path, check=True)
    (tmp_path / "labels.txt").write_text("a\nb\nc\nd\né\n")
    names = tmp_path / "own.labels.txt"
    names.write_text("mine\n")
    export = [sys.executable, "-m", "hpcrun", "export", "m.keras", "--format", "keras", "-o", "own.keras"]
    done = subprocess.run(export, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, f"ERROR: {names} exists\nHINT: " in done.stderr) == (2, True), done.stderr
    assert (names.read_text(), (tmp_path / "own.keras").exists()) == ("mine\n", False)
    names.write_text("a\nb\nc\nd\né\n")
    subprocess.run(export, cwd=tmp_path, check=True)
    assert (tmp_path / "own.keras").exists()


@pytest.mark.thorough
@pytest.mark.parametrize(("name", "how"), [("m", "savedmodel"), ("n.keras", "keras"), ("m.onnx", "onnx")])
def test_a_full_disk_is_one_error(tmp_path, name, how):
    subprocess.run([sys.executable, "-c", SAVE], cwd=tmp_path, check=True)
    (tmp_path / "disk").mkdir()
    lines = 'mount -t tmpfs -o size=4k tmpfs disk || exit 99\n"$@"; code=$?; ls -A disk; exit $code'
    command = ["unshare", "--user", "--map-root-user", "--mount", "bash", "-c", lines, "bash"]
    export = [sys.executable, "-m", "hpcrun", "export", "m.keras", "--format", how, "-o", f"disk/{name}"]
    done = subprocess.run([*command, *export], cwd=tmp_path, capture_output=True, text=True, check=False)
    if done.returncode == 99 or "unshare" in done.stderr:
        pytest.skip(f"no private mounts on this host: {done.stderr}")
    assert (done.returncode, done.stdout) == (2, "")
    error = f"ERROR: {tmp_path}/disk/{name}: No space left on device\nHINT: free some disk space, or give another PATH"
    assert error in done.stderr
