"""Shuffles, metrics, callbacks, saving, custom loops and refusals."""

import pytest

from tests.mpi.ranks import PROGRAMS, needs_mpi, run

pytestmark = [pytest.mark.mpi, needs_mpi]


def test_around_the_training_step(tmp_path):
    ranks = 3  # no power of two, and more than the last samples of some batches
    outcome = run(ranks, PROGRAMS / "around.py", tmp_path)
    failed = [text[text.find("RESULT {") :] for text in outcome.stdout if "RESULT {" in text]
    assert failed == ["RESULT {}\n"] * ranks, "\n".join(failed).replace("\\n", "\n")
    assert "AutoGraph" not in outcome.stderr  # which rewrites what a loop calls, and makes it slow
