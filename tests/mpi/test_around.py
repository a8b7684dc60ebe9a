"""Shuffles, metrics, callbacks, saving, custom loops and refusals, on two and three ranks."""

import pytest

from tests.mpi.ranks import PROGRAMS, needs_mpi, run

pytestmark = [pytest.mark.mpi, needs_mpi]


@pytest.mark.parametrize("ranks", [2, 3])
def test_around_the_training_step(ranks, tmp_path):
    outcome = run(ranks, PROGRAMS / "around.py", tmp_path)
    failed = [text[text.find("RESULT {") :] for text in outcome.stdout if "RESULT {" in text]
    assert failed == ["RESULT {}\n"] * ranks, "\n".join(failed).replace("\\n", "\n")
