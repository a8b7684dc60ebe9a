"""Callbacks, saving, checkpoints and failures of models with pipeline stages."""

import numpy as np
import pytest

from tests.mpi.ranks import PROGRAMS, needs_mpi, run_keras, thorough

pytestmark = [pytest.mark.mpi, needs_mpi]


@pytest.mark.parametrize("ranks", [2, pytest.param(4, marks=thorough)])
def test_callbacks_and_files_have_the_whole_model(tmp_path, ranks):
    one_process = tmp_path / "one"
    one_process.mkdir()
    (expected,) = run_keras(0, PROGRAMS / "pipeline_features.py", one_process, 1).results()
    results = run_keras(ranks, PROGRAMS / "pipeline_features.py", tmp_path, 2).results()
    assert len(results) == ranks
    for result in results:
        for name in ("history", "evaluation"):
            for key, value in expected[name].items():
                assert result[name][key] == pytest.approx(value, abs=1e-5), key
        for name in ("sums", "weights"):
            assert result[name] == pytest.approx(expected[name], abs=1e-4), name
        assert max(result["distances"]) < 1e-6
        assert max(result["other structures"].values()) < 1e-6
        assert result["steps"] == expected["steps"] == 15
        assert result["present"] < expected["present"]
    if ranks == 2:  # with replicas, batch losses are those of a replica's samples
        assert results[0]["batch losses"] == pytest.approx(expected["batch losses"], abs=1e-5)
    assert max(results[0]["saved"]) < 1e-6
    assert results[0]["saved steps"] == 15
    assert results[0]["saved slots"] == [True, 2 * 8]
    assert (tmp_path / "done").exists()
    assert (tmp_path / "log.csv").read_text().count("\n") == 4


@pytest.mark.parametrize("ranks", [2, pytest.param(4, marks=thorough)])
def test_compile_changes_the_trainable_weights_and_the_metrics(ranks):
    (expected,) = run_keras(0, PROGRAMS / "pipeline_changes.py", 1).results()
    assert [sorted(logs) for logs in expected["logs"]] == [
        ["accuracy", "loss"], ["loss"], ["accuracy", "loss", "sparse_top_k_categorical_accuracy"],
    ]  # fmt: skip
    results = run_keras(ranks, PROGRAMS / "pipeline_changes.py", 2).results()
    assert len(results) == ranks
    for result in results:
        assert result["batch"] == pytest.approx(expected["batch"], abs=1e-5)
        assert result["weights"] == pytest.approx(expected["weights"], abs=1e-4)
        for logs, expected_logs in zip(result["logs"], expected["logs"], strict=True):
            assert logs == pytest.approx(expected_logs, abs=1e-5)
        assert result["kept"] == result["expected"]  # not the state of earlier optimizers


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param((2, 2), (0, 1), id="2 stages, then 1 process"),
        pytest.param((0, 1), (4, 2), id="1 process, then 2 stages and 2 replicas", marks=thorough),
        pytest.param((4, 2), (3, 3), id="2 stages and 2 replicas, then 3 stages", marks=thorough),
    ],
)
def test_another_number_of_stages_resumes(tmp_path, before, after):
    program = PROGRAMS / "pipeline_resuming.py"
    expected = run_keras(0, program, tmp_path / "whole", 1, 4).results()[0]
    run_keras(before[0], program, tmp_path / "parts", before[1], 2).results()
    for result in run_keras(after[0], program, tmp_path / "parts", after[1], 4).results():
        assert result["loss"] == pytest.approx(expected["loss"], abs=1e-5)
        for weight, expected_weight in zip(result["weights"], expected["weights"], strict=True):
            np.testing.assert_allclose(weight, expected_weight, atol=2e-5)
