"""Training steps of a model's own: Keras's guide to them, and what its examples do."""

import pytest

from tests.mpi.ranks import PROGRAMS, needs_mpi, run

pytestmark = [pytest.mark.mpi, pytest.mark.thorough, needs_mpi]


@pytest.mark.parametrize("ranks", [1, 3])
def test_steps_of_a_models_own(ranks):
    outcome = run(ranks, PROGRAMS / "own_steps.py", timeout=600)
    failed = [text[text.find("RESULT {") :] for text in outcome.stdout if "RESULT {" in text]
    assert failed == ["RESULT {}\n"] * ranks, "\n".join(failed).replace("\\n", "\n") + outcome.stderr
