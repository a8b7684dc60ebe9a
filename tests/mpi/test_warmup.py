"""Learning rate warm-up: the rate of every step, momentum correction, resuming."""

import pytest

from tests.mpi.ranks import PROGRAMS, needs_mpi, run_keras

pytestmark = [pytest.mark.mpi, pytest.mark.thorough, needs_mpi]


@pytest.mark.parametrize(("backend", "ranks"), [("tensorflow", 2), ("jax", 2)])
def test_rates_and_momentum(tmp_path, backend, ranks):
    program = PROGRAMS / "warmup.py"
    outcome = run_keras(ranks, program, tmp_path, backend=backend, timeout=400)
    failed = [text[text.find("RESULT {") :] for text in outcome.stdout if '"failed": {}' not in text]
    assert failed == [], "\n".join([*failed, outcome.stderr]).replace("\\n", "\n")
    assert [result["size"] for result in outcome.results()] == [ranks] * ranks
