"""Half-width wires, sums host by host and groups that overlap with the backward pass give everybody's mean gradient."""

import pytest

from tests.mpi.ranks import PROGRAMS, needs_mpi, python_of, run, thorough

pytestmark = [pytest.mark.mpi, needs_mpi]


@pytest.mark.parametrize("ranks", [pytest.param(1, marks=thorough), 3, pytest.param(4, marks=thorough)])
def test_ranks_sum_gradients(ranks):
    passes(run(ranks, PROGRAMS / "reducing.py"), ranks)


@thorough
def test_torch_hands_its_tensors_to_mpi():
    ranks = 3
    checks = ["check_wires", "check_tensors_handed_over"]
    passes(run(ranks, PROGRAMS / "reducing.py", *checks, python=python_of("torch"), KERAS_BACKEND="torch"), ranks)


def passes(outcome, ranks):
    failed = [text[text.find("RESULT {") :] for text in outcome.stdout if "RESULT {" in text]
    assert failed == ["RESULT {}\n"] * ranks, "\n".join(failed).replace("\\n", "\n") or outcome.stderr
