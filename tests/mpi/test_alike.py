"""Losses, activations and learning rates that differ from rank to rank are one clear error."""

import pytest

from tests.mpi.ranks import PROGRAMS, needs_mpi, run

pytestmark = [pytest.mark.mpi, needs_mpi]


def test_models_that_differ_are_refused_and_no_others():
    outcome = run(2, PROGRAMS / "alike.py", timeout=900)
    failed = [text[text.find("RESULT {") :] for text in outcome.stdout if "RESULT {}" not in text]
    assert failed == [], "\n".join([*failed, outcome.stderr]).replace("\\n", "\n")
    assert outcome.code == 0
