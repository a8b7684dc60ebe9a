"""Shuffles, metrics, callbacks, saving, custom loops and refusals."""

import pytest

from tests.mpi.ranks import PROGRAMS, needs_mpi, run, thorough

pytestmark = [pytest.mark.mpi, needs_mpi]


@pytest.mark.parametrize("ranks", [2, pytest.param(3, marks=thorough)])  # more than the last samples of some batches
def test_around_the_training_step(tmp_path, ranks):
    outcome = run(ranks, PROGRAMS / "around.py", tmp_path, timeout=600)
    failed = [text[text.find("RESULT {") :] for text in outcome.stdout if "RESULT {" in text]
    assert failed == ["RESULT {}\n"] * ranks, "\n".join(failed).replace("\\n", "\n")
    assert "AutoGraph" not in outcome.stderr  # which rewrites what a loop calls, and makes it slow
