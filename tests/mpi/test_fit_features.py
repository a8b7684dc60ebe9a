"""Shuffles, metrics, callbacks, saving, custom loops and refusals of `fit`."""

import pytest

from tests.mpi.ranks import PROGRAMS, needs_mpi, run_keras, thorough

pytestmark = [pytest.mark.mpi, needs_mpi]


@pytest.mark.parametrize("ranks", [2, pytest.param(3, marks=thorough)])  # more ranks than samples in some last batches
def test_fit_features(tmp_path, ranks):
    outcome = run_keras(ranks, PROGRAMS / "fit_features.py", tmp_path, timeout=900)
    failed = [text[text.find("RESULT {") :] for text in outcome.stdout if "RESULT {" in text]
    assert failed == ["RESULT {}\n"] * ranks, "\n".join(failed).replace("\\n", "\n")
    assert "AutoGraph" not in outcome.stderr  # AutoGraph would slow down custom loops
