"""XLA-compiled steps in real jobs on a real GPU, with libdevice set by the site and without.

Where there is no NVIDIA GPU, or neither TensorFlow nor JAX for one, these tests are skipped.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from hpcrun.cuda import locations

ROOT = Path(__file__).parents[2]
STEPS = {
    "tensorflow": """
import tensorflow as tf

gpus = tf.config.list_physical_devices("GPU")
assert gpus, "TensorFlow sees no GPU"

@tf.function(jit_compile=True)
def step(x):
    return tf.math.erf(tf.math.tanh(x)) ** x  # functions of libdevice

with tf.device("GPU:0"):
    print("RESULT", float(tf.reduce_sum(step(tf.fill([1000], 0.5)))))
""",
    "jax": """
import jax

assert jax.default_backend() == "gpu", "JAX sees no GPU"

@jax.jit
def step(x):
    return jax.scipy.special.erf(jax.numpy.tanh(x)) ** x  # functions of libdevice

print("RESULT", float(step(jax.numpy.full(1000, 0.5)).sum()))
""",
}
ASKS = {
    "tensorflow": "import tensorflow as tf; assert tf.test.is_built_with_cuda()",
    "jax": "import jax; assert jax.default_backend() == 'gpu'",
}


def find_library():
    """Return the library whose XLA uses the GPU, or an empty text."""
    if not Path("/dev/nvidiactl").exists():
        return ""
    calls = {
        name: subprocess.run([sys.executable, "-c", ask], capture_output=True, check=False)
        for name, ask in ASKS.items()
    }
    return next((name for name, done in calls.items() if done.returncode == 0), "")


LIBRARY = find_library()
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not LIBRARY, reason="no NVIDIA GPU here, or no TensorFlow or JAX that uses it"),
]


@pytest.fixture
def hpcrun(tmp_path):
    """Call hpcrun with runs of this test; return its exit code and output."""
    (tmp_path / "step.py").write_text(STEPS[LIBRARY])
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("HPCRUN_", "XLA_"))}
    folders = {"HPCRUN_RUN_ROOT": f"{tmp_path}/runs", "XDG_STATE_HOME": f"{tmp_path}/state", "PYTHONPATH": str(ROOT)}

    class Call:
        def __call__(self, *argv, **environ):
            command, env = [sys.executable, "-m", "hpcrun", *argv], {**clean, **folders, **environ}
            done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
            return done.returncode, done.stdout + done.stderr

        def job(self, keys="", **environ):
            (tmp_path / "site.toml").write_text(f'extends = "local"\n{keys}\n')
            line = ["submit", "--site", "./site.toml", "--gpus-per-node", "1", "--wait"]
            return self(*line, "--", sys.executable, "step.py", **environ)

    return Call()


def find_libdevice():
    """Return a libdevice.10.bc of this host."""
    prefix = Path(sys.prefix)
    packages = locations.find_site_packages(os.environ, sys.path, prefix)
    found = [place.libdevice for place in locations.find_locations(os.environ, packages, prefix) if place.libdevice]
    return found[0] if found else pytest.skip("no libdevice.10.bc on this machine")


def test_a_compiled_step_runs_with_default_settings(hpcrun):
    code, log = hpcrun.job()
    assert code == 0, log
    assert "RESULT" in log
    assert "hpcrun: XLA gets libdevice.10.bc" in log


def test_a_compiled_step_runs_with_libdevice_of_conda(hpcrun, tmp_path):
    """The site styx uses it for environments with $CONDA_PREFIX/lib/libdevice.10.bc."""
    (tmp_path / "conda/lib").mkdir(parents=True)
    (tmp_path / "conda/lib/libdevice.10.bc").write_bytes(find_libdevice().read_bytes())
    key = 'cuda.libdevice = ["${CONDA_PREFIX}/lib/libdevice.10.bc"]'
    code, log = hpcrun.job(key, CONDA_PREFIX=f"{tmp_path}/conda")
    assert code == 0, log
    assert "RESULT" in log
    assert f"libdevice.10.bc from {tmp_path}/conda/lib/libdevice.10.bc (cuda.libdevice)" in log


def test_why_explains_a_compiled_step_that_fails_without_search(hpcrun):
    code, log = hpcrun.job("cuda.search = false")
    assert "hpcrun: XLA gets" not in log
    if code:
        assert json.loads(hpcrun("why", "last", "--json")[1])["name"] in {"libdevice", "ptxas", "no-gpu"}, log


def test_why_explains_a_data_dir_without_libdevice(hpcrun, tmp_path):
    code, log = hpcrun.job(f'cuda = {{ data_dir = "{tmp_path}/nothing", search = false }}')
    assert f"--xla_gpu_cuda_data_dir={tmp_path}/nothing" in hpcrun("cuda", "--site", "./site.toml", "--json")[1]
    if code:
        assert json.loads(hpcrun("why", "last", "--json")[1])["name"] in {"libdevice", "ptxas"}, log
