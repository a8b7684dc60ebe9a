"""Trained models are evaluated exactly, also while they are trained, and get a new last layer for other classes."""

import pytest

from tests.mpi.ranks import PROGRAMS, needs_mpi, run_keras, thorough
from tests.photos import write_digits

pytestmark = [pytest.mark.mpi, needs_mpi]


@pytest.mark.parametrize("ranks", [1, pytest.param(3, marks=thorough)])
def test_trained_models_are_evaluated_and_fine_tuned(tmp_path, ranks):
    write_digits(tmp_path / "images" / "validation", 103)
    outcome = run_keras(ranks, PROGRAMS / "trained_models.py", tmp_path / "images", HPCRUN_RUN_DIR=str(tmp_path))
    failed = [text[text.find("RESULT {") :] for text in outcome.stdout if '"failed": {}' not in text]
    assert failed == [], "\n".join([*failed, outcome.stderr]).replace("\\n", "\n")
    assert [result["size"] for result in outcome.results()] == [ranks] * ranks
