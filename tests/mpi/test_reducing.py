"""Half-width wires, sums host by host and groups that overlap with the backward pass give everybody's mean gradient."""

import pytest

from tests.mpi.ranks import PROGRAMS, needs_mpi, run

pytestmark = [pytest.mark.mpi, needs_mpi]


@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
def test_ranks_sum_gradients(ranks):
    outcome = run(ranks, PROGRAMS / "reducing.py")
    failed = [text[text.find("RESULT {") :] for text in outcome.stdout if "RESULT {" in text]
    assert failed == ["RESULT {}\n"] * ranks, "\n".join(failed).replace("\\n", "\n") or outcome.stderr
