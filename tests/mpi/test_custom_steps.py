"""Custom training steps: Keras's guide and examples."""

import pytest

from tests.mpi.ranks import PROGRAMS, needs_mpi, run_keras

pytestmark = [pytest.mark.mpi, pytest.mark.thorough, needs_mpi]


@pytest.mark.parametrize("ranks", [1, 3])
def test_custom_steps(ranks):
    outcome = run_keras(ranks, PROGRAMS / "custom_steps.py", timeout=600)
    failed = [text[text.find("RESULT {") :] for text in outcome.stdout if "RESULT {" in text]
    assert failed == ["RESULT {}\n"] * ranks, "\n".join(failed).replace("\\n", "\n") + outcome.stderr
