"""Gradients of token and position embeddings reach each of Keras's optimizers as in one process."""

import pytest

from tests.mpi.ranks import PROGRAMS, needs_mpi, run_keras

pytestmark = [pytest.mark.mpi, pytest.mark.thorough, needs_mpi]
PROGRAM = PROGRAMS / "embeddings.py"


@pytest.mark.parametrize(("what", "ranks"), [("some_optimizers", 3), ("clipping", 3)])
def test_ranks_equal_one_process(what, ranks):
    assert_passed(run_keras(ranks, PROGRAM, f"check_{what}", timeout=1500))


def test_all_optimizers_and_the_warning_for_inexact_gradients():
    checks = ["check_all_optimizers", "check_as_dense", "check_eager_warning"]  # they share results of one process
    outcome = run_keras(2, PROGRAM, *checks, timeout=1500)
    assert_passed(outcome)
    warnings = [line for line in outcome.stdout[0].splitlines() if line.startswith("WARNING")]
    assert any("HPCRUN_SPARSE_AS_DENSE=1 adds up the rows of an embedding before Adam " in line for line in warnings)
    assert not any("before SGD" in line or "before Lion" in line for line in warnings)
    assert sum("leave run_eagerly=True out" in line for line in warnings) == 1
    assert "WARNING" not in outcome.stdout[1]


def assert_passed(outcome):
    failed = [text[text.find("RESULT {") :] for text in outcome.stdout if '"failed": {}' not in text]
    assert failed == [], "\n".join([*failed, outcome.stderr]).replace("\\n", "\n")
    assert outcome.code == 0
