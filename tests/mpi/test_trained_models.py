"""Trained models are evaluated exactly, also while they are trained, and get a new last layer for other classes."""

import subprocess
import sys

import pytest

from tests.mpi.ranks import PROGRAMS, clean_environ, needs_mpi, run_keras, thorough
from tests.photos import write_digits

pytestmark = [pytest.mark.mpi, needs_mpi]


@pytest.mark.parametrize("ranks", [1, pytest.param(3, marks=thorough)])
def test_trained_models_are_evaluated_and_fine_tuned(tmp_path, ranks):
    write_digits(tmp_path / "images" / "validation", 103)
    outcome = run_keras(ranks, PROGRAMS / "trained_models.py", tmp_path / "images", HPCRUN_RUN_DIR=str(tmp_path))
    failed = [text[text.find("RESULT {") :] for text in outcome.stdout if '"failed": {}' not in text]
    assert failed == [], "\n".join([*failed, outcome.stderr]).replace("\\n", "\n")
    assert [result["size"] for result in outcome.results()] == [ranks] * ranks


FILL_DISK = """
import sys
from pathlib import Path
import keras
from hpcrun.train.followers import Follower
from hpcrun.train.outputs.saved_models import SaveModels

run = Path(sys.argv[1])
model = keras.Sequential([keras.Input((100,)), keras.layers.Dense(250)])  # 100 KB
model.compile("sgd", "mse")
saves = SaveModels(run)
saves.set_model(model)
with Follower(run, "slow", best=False) as follower:
    for epoch in range(3):
        saves.on_epoch_end(epoch)
    print(sorted(follower.kept_models()))
    try:
        (run / "filling").write_bytes(bytes(10**8))
    except OSError:
        saves.on_epoch_end(3)
    print([*follower.kept_models()], (run / "saved_model.json").read_text())
"""


def test_a_full_disk_takes_the_space_of_kept_models(tmp_path):
    lines = f'mount -t tmpfs -o size=4m tmpfs "{tmp_path}" || exit 99\nexec "$@"'
    command = ["unshare", "--user", "--map-root-user", "--mount", "bash", "-c", lines, "bash"]
    outcome = subprocess.run(
        [*command, sys.executable, "-c", FILL_DISK, tmp_path],
        env=clean_environ("/"),
        capture_output=True,
        text=True,
        check=False,
    )
    if outcome.returncode == 99 or "unshare" in outcome.stderr:
        pytest.skip(f"no private mounts on this host: {outcome.stderr}")
    assert "\n[1, 2, 3]\n[1] {" in outcome.stdout, outcome.stderr
    assert '"epoch": 4' in outcome.stdout
    assert "WARNING: the model" not in outcome.stderr
