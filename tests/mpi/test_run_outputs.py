"""What a training with `run_callbacks` leaves in its run directory."""

import csv
import json
import re

import pytest

from hpcrun.train.outputs.time_shares import StepTimes, describe
from tests.mpi.ranks import PROGRAMS, needs_mpi, run_keras, thorough

pytestmark = [pytest.mark.mpi, needs_mpi]

SIGUSR2 = 12
LINE = re.compile(
    r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{6}: step (\d+), loss = (\d+\.\d\d) \([\d.]+ examples/sec; [\d.]+ sec/batch\)"
)


def train(folder, ranks, *words, backend="tensorflow"):
    folder.mkdir(exist_ok=True)
    return run_keras(ranks, PROGRAMS / "run_outputs.py", *words, backend=backend, HPCRUN_RUN_DIR=str(folder))


@thorough
@pytest.mark.parametrize("backend", ["tensorflow", "jax"])
def test_a_restart_keeps_the_best_model_and_the_metrics(tmp_path, backend):
    stopped = train(tmp_path, 2, "stop=2", backend=backend)
    assert stopped.code == 128 + SIGUSR2, stopped.stderr
    resumed = train(tmp_path, 2, backend=backend)
    found = resumed.results()[0]
    losses = found["val_loss"]
    assert losses[0] == min(losses) < losses[-1]
    assert found["record"] == {
        "epoch": 4, "file": "model.keras", "best": "best.keras", "best_epoch": 1, "metric": "val_loss",
        "best_value": losses[0], "labels": "labels.txt", "image_size": 8, "scaling": "in the model",
    }  # fmt: skip
    # Validation and the saved models use the same weights: the moving averages.
    assert found["best"] == pytest.approx(losses[0], rel=1e-5)
    assert found["model"] == pytest.approx(losses[-1], rel=1e-5)
    for average, expected in found["averages"]:
        assert average == pytest.approx(expected)
    assert (tmp_path / "labels.txt").read_text() == "a\nb b\nc  c\n"
    assert not list(tmp_path.glob(".*"))

    epochs = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    with (tmp_path / "metrics.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [{key: float(value) for key, value in row.items()} for row in rows] == epochs
    tags = found["scalars"]
    assert {"loss", "val_accuracy", "images_per_second"} <= set(tags)
    assert tags["loss"] == pytest.approx({str(epoch["epoch"]): epoch["loss"] for epoch in epochs})

    lines = LINE.findall(stopped.stdout[0] + resumed.stdout[0])
    assert [int(step) for step, _ in lines] == [3, 6, 9, 12, 15, 18, 21, 24]  # stopped after step 13
    for number in (0, 1, 3):  # the line for step 15 lacks step 13
        mean = (float(lines[2 * number][1]) + float(lines[2 * number + 1][1])) / 2
        assert mean == pytest.approx(epochs[number]["loss"], abs=0.011)
    assert not LINE.search(resumed.stdout[1])

    result = json.loads((tmp_path / "result.json").read_text())
    assert result["saved_model"]["best"] == "best.keras"
    assert sum(result["time_shares"].values()) == pytest.approx(1, abs=0.01)
    assert f"{result['bottleneck']} was the bottleneck: " in resumed.stdout[0]


def test_nan_ends_the_training_and_names_step_and_layer(tmp_path):
    outcome = train(tmp_path, 1, "break=1.2")
    assert outcome.code == 1
    assert "error: the loss is " in outcome.stderr
    layer = "the first output that is not finite is that of layer second\nHINT: lower the learning rate"
    assert f" at step 3 of epoch 2 (step 9 of the training): {layer}" in outcome.stderr
    assert "Traceback" not in outcome.stderr
    assert json.loads((tmp_path / "saved_model.json").read_text())["epoch"] == 1


def test_a_new_folder_has_the_model_with_the_smallest_error(tmp_path):
    outcome = train(tmp_path, 1, "layer=saved")
    assert outcome.code == 0, outcome.stderr
    record = json.loads((tmp_path / "new/deep/saved_model.json").read_text())
    assert (record["epoch"], record["best_epoch"], record["metric"]) == (2, 1, "val_mae")
    assert len((tmp_path / "new/deep/metrics.csv").read_text().splitlines()) == 3


def test_a_layer_that_cannot_be_saved_does_not_end_the_training(tmp_path):
    outcome = train(tmp_path, 1, "layer=unsaved")
    assert outcome.code == 0, outcome.stderr
    assert outcome.stderr.count("WARNING: the model is not saved in ") == 2
    assert "epoch 2/2 " in outcome.stdout[0]


@pytest.mark.parametrize(("ranks", "sentence"), [
    ([(10, 1, 0)], "compute was the bottleneck: 90% of the step time, data 10%"),
    ([(10, 6, 1), (10, 6, 1)], "data was the bottleneck: 60% of the step time, compute 30%, network 10%"),
    ([(10, 1, 5), (10, 0, 6)], "network was the bottleneck: 50% of the step time, compute 40%, data 10%"),
    ([(10, 0, 6), (10, 7, 1), (10, 0, 4)],
     ("data was the bottleneck: 70% of the step time, compute 20%, network 10%; "
      "the other ranks waited 40% of the time for rank 1")),
])  # fmt: skip
def test_the_slowest_rank_tells_the_bottleneck(ranks, sentence):
    assert describe([StepTimes(*times) for times in ranks])[1] == sentence
