"""Custom training steps: Keras's guide and examples."""

import pytest

from tests.mpi.ranks import PROGRAMS, needs_mpi, run_keras

pytestmark = [pytest.mark.mpi, pytest.mark.thorough, needs_mpi]


CHECKS_OF_ONE_RANK = [
    "check_custom_batch_structure",
    "check_custom_step_targets",
]  # where models are built unlike Keras


@pytest.mark.parametrize(("ranks", "checks"), [(1, CHECKS_OF_ONE_RANK), (2, [])])
def test_custom_steps(ranks, checks):
    outcome = run_keras(ranks, PROGRAMS / "custom_steps.py", *checks, timeout=600)
    failed = [text[text.find("RESULT {") :] for text in outcome.stdout if "RESULT {" in text]
    assert failed == ["RESULT {}\n"] * ranks, "\n".join(failed).replace("\\n", "\n") + outcome.stderr
