"""Synchronized batch normalization: N ranks equal one process with the whole batch."""

import pytest

from tests.mpi.ranks import PROGRAMS, needs_mpi, run_keras

pytestmark = [pytest.mark.mpi, pytest.mark.thorough, needs_mpi]


@pytest.mark.parametrize(
    ("backend", "ranks", "checks"),
    [
        ("tensorflow", 1, ["check_forward_and_backward", "check_fit"]),
        ("tensorflow", 3, []),
        ("jax", 2, []),
        ("torch", 3, []),
    ],
)
def test_ranks_equal_one_process(tmp_path, backend, ranks, checks):
    program = PROGRAMS / "normalization.py"
    outcome = run_keras(ranks, program, tmp_path, *checks, backend=backend, timeout=400)
    failed = [text[text.find("RESULT {") :] for text in outcome.stdout if '"failed": {}' not in text]
    assert failed == [], "\n".join([*failed, outcome.stderr]).replace("\\n", "\n")
    assert outcome.code == 0
    assert [result["size"] for result in outcome.results()] == [ranks] * ranks
