"""The workload transformer learns a text, on any number of ranks, stops and resumes, and has the sizes of its names."""

import importlib
import json
import math
import re
import signal
from collections import Counter

import numpy as np
import pytest

from hpcrun.errors import HpcrunError
from tests.mpi.ranks import PROGRAMS, ROOT, needs_mpi, run, thorough

pytestmark = [pytest.mark.mpi, needs_mpi]
WORKLOAD = ROOT / "workloads/transformer"
TRAIN = WORKLOAD / "train.py"
TINY = ["--depth", 1, "--width", 32, "--heads", 2, "--context", 32, "--learning-rate", 0.01]


def read_metrics(run_dir):
    return [json.loads(line) for line in (run_dir / "metrics.jsonl").read_text().splitlines()]


def train(ranks, run_dir, *options):
    run_dir.mkdir(exist_ok=True)
    done = run(ranks, TRAIN, *TINY, *options, HPCRUN_RUN_DIR=str(run_dir))
    assert done.code == 0, done.stderr
    return done


def read_sample(done):
    return done.stdout[0].partition("a text of the model:\n")[2].partition("\nresult  ")[0]


@pytest.fixture
def words(tmp_path):
    """Return a file of 4,000 bytes, in which a few words repeat in random order."""
    draw = np.random.default_rng(0)
    text = " ".join(draw.choice(["Slurm", "trains", "a", "model", "on", "many", "ranks"], 1000))
    (tmp_path / "words.txt").write_text(text[:4000])
    return tmp_path / "words.txt"


@thorough
def test_it_learns_the_default_text(tmp_path):
    done = train(2, tmp_path, "--epochs", 1, "--batch-size", 64, "--sample", 20)
    result = json.loads((tmp_path / "result.json").read_text())
    (epoch,) = read_metrics(tmp_path)
    assert result["bits_per_byte"] == pytest.approx(epoch["val_loss"] / math.log(2))
    assert result["perplexity"] == pytest.approx(2 ** result["bits_per_byte"])
    assert result["tokens_per_second"] == pytest.approx(32 * epoch["images_per_second"])
    assert (result["ranks"], result["size"], result["saved_model"]["best_epoch"]) == (2, "1m", 1)
    from pydoc_data.topics import topics

    frequencies = Counter("\n\n".join(topics.values()).encode())
    entropy = -sum(n / frequencies.total() * math.log2(n / frequencies.total()) for n in frequencies.values())
    assert result["bits_per_byte"] < entropy - 0.5, "it learned more than the frequencies of the bytes"
    assert len(read_sample(done)) == 20
    assert len((tmp_path / "labels.txt").read_text().splitlines()) == 256


@thorough
def test_two_ranks_train_as_one_does(words, tmp_path):
    options = ["--text", words, "--epochs", 3, "--batch-size", 10]
    train(1, tmp_path / "one", *options)
    train(2, tmp_path / "two", *options)
    one, two = (read_metrics(tmp_path / name) for name in ("one", "two"))
    assert one[-1]["val_loss"] < 0.7 * one[0]["val_loss"]
    for key in ("loss", "accuracy", "val_loss", "val_accuracy"):
        assert [epoch[key] for epoch in two] == pytest.approx([epoch[key] for epoch in one], rel=1e-4), key


@thorough
@pytest.mark.parametrize("ranks", [2, 4])  # one replica and two
def test_stages_train_as_one_rank_does(words, tmp_path, ranks):
    options = ["--text", words, "--epochs", 2, "--batch-size", 10, "--sample", 10]
    one = train(1, tmp_path / "one", *options)
    stages = train(ranks, tmp_path / "stages", *options, "--stages", 2, "--micro-batches", 2)
    assert f"2 stages, {ranks // 2} replica" in stages.stdout[0]
    whole, divided = (read_metrics(tmp_path / name) for name in ("one", "stages"))
    for key in ("loss", "accuracy", "val_loss", "val_accuracy"):
        assert [epoch[key] for epoch in divided] == pytest.approx([epoch[key] for epoch in whole], rel=1e-4), key
    assert read_sample(stages) == read_sample(one)
    import keras

    tokens = np.frombuffer(words.read_bytes()[:320], np.uint8).reshape(10, 32)
    expected, found = (
        keras.models.load_model(tmp_path / name / "model.keras").predict(tokens, verbose=0)
        for name in ("one", "stages")
    )
    # Not the weights: a bias of the keys changes no output, so that Adam amplifies the rounding of its gradient of 0.
    np.testing.assert_allclose(found, expected, atol=1e-3)


def test_the_plan_has_every_parameter_and_trains_nothing(tmp_path):
    done = run(1, TRAIN, "--size", "10m", "--stages", 4, "--plan", HPCRUN_RUN_DIR=str(tmp_path))
    assert done.code == 0, done.stderr
    table = re.findall(r"^ +[0-3]  \w+ +\w+ +([\d,]+) ", done.stdout[0], re.MULTILINE)
    assert sum(int(parameters.replace(",", "")) for parameters in table) == 10_069_376
    assert not (tmp_path / "metrics.jsonl").exists()


@thorough
def test_a_stopped_training_resumes_exactly(words, tmp_path):
    options = ["--text", words, "--epochs", 2, "--batch-size", 10, "--dropout", 0.1]
    train(2, tmp_path / "whole", *options)
    (tmp_path / "cut").mkdir()
    program = [PROGRAMS / "stop_after.py", 15, TRAIN]  # of 12 steps in each epoch
    stopped = run(2, *program, *TINY, *options, HPCRUN_RUN_DIR=str(tmp_path / "cut"))
    assert stopped.code == 128 + signal.SIGTERM, stopped.stderr
    assert len(read_metrics(tmp_path / "cut")) == 1
    train(2, tmp_path / "cut", *options)
    whole, cut = (read_metrics(tmp_path / name) for name in ("whole", "cut"))
    assert [epoch["epoch"] for epoch in cut] == [1, 2]
    for key in ("loss", "accuracy", "val_loss", "val_accuracy"):
        assert [epoch[key] for epoch in cut] == [epoch[key] for epoch in whole], key


@thorough
@pytest.mark.parametrize("options", [["--precision", "mixed_bfloat16"], ["--precision", "mixed_float16"], ["--xla"]])
def test_other_precisions_and_xla_train_nearly_alike(words, tmp_path, options):
    train(2, tmp_path / "plain", "--text", words, "--epochs", 2, "--batch-size", 10)
    train(2, tmp_path / "other", "--text", words, "--epochs", 2, "--batch-size", 10, *options)
    plain, other = (read_metrics(tmp_path / name)[-1]["val_loss"] for name in ("plain", "other"))
    assert other == pytest.approx(plain, rel=0.02)


@pytest.mark.parametrize(
    ("name", "parameters"), [("1m", 1e6), ("10m", 1e7), ("100m", 1e8), ("350m", 3.5e8), ("1b", 1e9)]
)
def test_a_size_has_the_parameters_of_its_name(monkeypatch, name, parameters):
    import keras

    monkeypatch.syspath_prepend(WORKLOAD)
    networks = importlib.import_module("networks")
    with keras.StatelessScope(initialize_variables=False):  # no memory for the weights
        network = networks.build(networks.choose_size(name), 128)
    assert network.count_params() == pytest.approx(parameters, rel=0.02)


def test_width_and_heads_fit_each_other(monkeypatch):
    monkeypatch.syspath_prepend(WORKLOAD)
    networks = importlib.import_module("networks")
    for given, expected in (
        ({}, (320, 5)),
        ({"width": 512}, (512, 4)),
        ({"width": 127}, (127, 1)),
        ({"heads": 6}, (324, 6)),
        ({"width": 96, "heads": 12}, (96, 12)),
    ):
        assert networks.choose_size("10m", **given)[1:3] == expected
    with pytest.raises(HpcrunError, match="--width=100 is not a multiple of --heads=8"):
        networks.choose_size("10m", width=100, heads=8)


def test_the_prediction_depends_on_earlier_bytes_only(monkeypatch):
    import keras

    monkeypatch.syspath_prepend(WORKLOAD)
    networks = importlib.import_module("networks")
    network = networks.build(networks.choose_size("1m", depth=1, width=8, heads=1), 6)
    tokens = np.array([[1, 2, 3, 4, 5, 6], [1, 2, 3, 0, 0, 0]])
    one, other = keras.ops.convert_to_numpy(network(tokens))
    np.testing.assert_allclose(one[:3], other[:3], rtol=1e-4, atol=1e-5)
    assert np.abs(one[3:] - other[3:]).min() > 0


def test_a_users_error_has_no_traceback():
    done = run(0, TRAIN, "--width", 33, "--heads", 2)
    assert done.code == 2
    assert "--width=33 is not a multiple of --heads=2\nHINT: --width=34, or another --heads" in done.stderr
    assert "Traceback" not in done.stderr
