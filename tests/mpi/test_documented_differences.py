"""The differences between ranks and one process that docs/exactness.md lists."""

import numpy as np
import pytest

from tests.mpi.ranks import PROGRAMS, needs_mpi, run_keras

pytestmark = [pytest.mark.mpi, pytest.mark.thorough, needs_mpi]


def test_documented_differences():
    ranks = 3
    program = PROGRAMS / "documented_differences.py"
    one, *several = (result for n in (1, ranks) for result in run_keras(n, program, timeout=400).results())
    assert [result["failed"] for result in several] == [{}] * ranks, several[0]["failed"]
    for result in several:
        np.testing.assert_allclose(result["shuffled"], one["shuffled"], rtol=0, atol=2e-6)
