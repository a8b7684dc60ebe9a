"""The workload `strategies` in one process; tests/slurm/test_strategies.py runs it on several hosts."""

import json

import numpy as np
import pytest

from tests.mpi.ranks import PROGRAMS, needs_mpi, run_keras

pytestmark = [pytest.mark.mpi, needs_mpi]


def test_strategies_take_the_same_steps_and_continue_from_a_checkpoint(tmp_path):
    small = "--dataset synthetic --samples 64 --batch-size 16"
    for name in ("mirrored", "one", "resumed"):
        (tmp_path / name).mkdir()
    runs = [
        f"{tmp_path}/mirrored --strategy mirrored --epochs 2 {small}",
        f"{tmp_path}/one --strategy one --epochs 2 {small}",
        f"{tmp_path}/resumed --strategy one --epochs 1 {small}",
        f"{tmp_path}/resumed --strategy one --epochs 2 {small}",
    ]
    outcome = run_keras(1, PROGRAMS / "strategies.py", *runs, HPCRUN_HEARTBEAT_SECONDS="0")
    assert outcome.code == 0, outcome.stderr
    epochs = {name: read_epochs(tmp_path / name) for name in ("mirrored", "one", "resumed")}
    assert [entry["epoch"] for entry in epochs["resumed"]] == [1, 2]
    for key in ("loss", "accuracy", "val_loss", "val_accuracy"):
        values = [[entry[key] for entry in entries] for entries in epochs.values()]
        np.testing.assert_allclose(values[0], values[1], rtol=1e-4)
        np.testing.assert_allclose(values[1], values[2], rtol=1e-4)
    result = json.loads((tmp_path / "mirrored/result.json").read_text())
    assert (result["strategy"], result["replicas"], result["ranks"]) == ("mirrored", 2, 1)
    assert result["images_per_second"] > 0
    assert result["loss"] == epochs["mirrored"][-1]["loss"]


def read_epochs(folder):
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
