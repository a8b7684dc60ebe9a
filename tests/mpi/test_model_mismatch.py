"""Different losses, activations and learning rates on the ranks are one clear error."""

import pytest

from tests.mpi.ranks import PROGRAMS, needs_mpi, run_keras

pytestmark = [pytest.mark.mpi, pytest.mark.thorough, needs_mpi]


def test_only_models_that_differ_between_ranks_are_refused():
    outcome = run_keras(2, PROGRAMS / "model_mismatch.py", timeout=900)
    failed = [text[text.find("RESULT {") :] for text in outcome.stdout if "RESULT {}" not in text]
    assert failed == [], "\n".join([*failed, outcome.stderr]).replace("\\n", "\n")
    assert outcome.code == 0
