"""An interrupted training that is resumed ends with the same bits as an uninterrupted one."""

import json

import numpy as np
import pytest

from hpcrun.data.build import Options, build
from hpcrun.data.synthetic import make_images
from tests.mpi.ranks import PROGRAMS, needs_mpi, run_keras, thorough

pytestmark = [pytest.mark.mpi, needs_mpi]

SIGUSR2 = 12


def train(folder, ranks, *words, backend="tensorflow", codec="none", workers=1, data=""):
    program, environ = PROGRAMS / "resuming.py", {"HPCRUN_RUN_DIR": str(folder), "HPCRUN_COMPRESS": codec}
    environ |= {"HPCRUN_VIRTUAL_WORKERS": str(workers)}
    environ |= {"HPCRUN_MIN_SIZE": "8", "HPCRUN_POWERSGD_RANK": "1", "HPCRUN_ERROR_FEEDBACK": "1"}
    return run_keras(ranks, program, *words, backend=backend, **environ, HPCRUN_DATA=str(data))


def recorded_epochs(folder):
    """Return the `fit` and epoch of each line of metrics.jsonl."""
    lines = map(json.loads, (folder / "metrics.jsonl").read_text().splitlines())
    return [(line.get("fit", 0), line["epoch"]) for line in lines]


def compare(tmp_path, ranks, words, at, rank=0, **how):
    (tmp_path / "whole").mkdir()
    (tmp_path / "cut").mkdir()
    files = [tmp_path / f"{name}.npz" for name in ("whole", "cut")]
    whole = train(tmp_path / "whole", ranks, *words, f"file={files[0]}", **how).results()
    cut = train(tmp_path / "cut", ranks, *words, f"at={at}", f"rank={rank}", **how)
    assert cut.code == 128 + SIGUSR2, cut.stderr
    assert cut.stderr.count("stopped by SIGUSR2 in epoch") == 1
    assert "to go on, start it again: it reads " in cut.stderr
    assert "Traceback" not in cut.stderr
    resumed = train(tmp_path / "cut", ranks, *words, f"file={files[1]}", **how)
    found = resumed.results()
    assert "fit-1.npz" in resumed.stdout[0]
    assert found == whole
    assert recorded_epochs(tmp_path / "cut") == recorded_epochs(tmp_path / "whole")
    with np.load(files[0]) as one, np.load(files[1]) as other:
        for name in one:
            np.testing.assert_allclose(other[name], one[name], rtol=0, atol=0)


@pytest.mark.parametrize(
    ("source", "ranks", "at", "rank"),
    [
        ("arrays", 1, "2.1", 0),
        pytest.param("arrays", 2, "2.1", 1, marks=thorough),  # on a rank other than the one that writes
        pytest.param("arrays", 2, "1.test", 0, marks=thorough),  # during validation
        pytest.param("filtered", 3, "1.2", 2, marks=thorough),
        pytest.param("repeated", 2, "2.1", 0, marks=thorough),
        pytest.param("generator", 2, "1.4", 0, marks=thorough),  # the last batch of an epoch
    ],
)
def test_resume_on_tensorflow(tmp_path, source, ranks, at, rank):
    compare(tmp_path, ranks, [f"source={source}"], at, rank)


@thorough
def test_resume_in_shards_with_augmentation(tmp_path):
    images = {"train": 21}
    build(make_images(tmp_path, images, 3, 12), tmp_path / "records", Options({"train": 2}), 1, lambda *_: None)
    compare(tmp_path, 2, ["source=images"], "2.3", 1, data=tmp_path / "records")


@thorough
@pytest.mark.parametrize("codec", ["none", "ternary", "powersgd"])  # the last two have a state on each rank
def test_resume_with_two_optimizers(tmp_path, codec):
    compare(tmp_path, 2, ["model=in turn"], "2.1", codec=codec)


@thorough
@pytest.mark.parametrize("codec", ["ternary", "powersgd"])
def test_resume_with_virtual_workers(tmp_path, codec):
    compare(tmp_path, 2, [], "2.1", 1, codec=codec, workers=2)


@thorough
@pytest.mark.parametrize("backend", ["jax", "torch"])
def test_resume_on_other_backends(tmp_path, backend):
    compare(tmp_path, 2, [], "2.1", 1, backend=backend)


@thorough
def test_resume_with_another_number_of_ranks(tmp_path):
    (tmp_path / "a").mkdir()
    assert train(tmp_path / "a", 2, "at=1.2").code == 128 + SIGUSR2
    found = train(tmp_path / "a", 3).results()
    assert len(found) == 3
    assert found[0]["epochs"] == [0, 1, 2, 3]


@thorough
def test_repeated_epochs_are_recorded_once(tmp_path):
    assert train(tmp_path, 2, "at=2.1", "signal=9").code != 0  # without time for a checkpoint
    before = recorded_epochs(tmp_path)
    assert len(before) > 2
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write('{"mine": 1}\n{"half')
    train(tmp_path, 2).results()
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert {"mine": 1} in lines
    epochs = [(line.get("fit", 0), line["epoch"]) for line in lines if "epoch" in line]
    assert sorted(set(epochs)) == epochs
    assert set(before) < set(epochs)


def test_a_full_disk_does_not_end_training(tmp_path):
    (tmp_path / "checkpoints").write_text("a file where the folder should be")
    outcome = train(tmp_path, 1, "epochs=1")
    assert len(outcome.results()) == 1
    assert f"WARNING: no checkpoint in {tmp_path}/checkpoints/fit-0.npz: " in outcome.stderr


@pytest.mark.parametrize("stages", [1, 2])
def test_the_first_batch_does_not_choose_the_graph(tmp_path, stages):
    """A graph for one batch size may round differently, and a resumed training may start with a smaller batch."""
    sizes = run_keras(stages, PROGRAMS / "traced_sizes.py", str(stages), HPCRUN_RUN_DIR=str(tmp_path)).results()
    assert sizes[-1]
    assert {size for of_rank in sizes for size in of_rank} == {None}
