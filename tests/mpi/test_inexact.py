"""What docs/exactness.md says of losses, layers and figures that ranks compute in another way than one process."""

import numpy as np
import pytest

from tests.mpi.ranks import PROGRAMS, needs_mpi, run

pytestmark = [pytest.mark.mpi, pytest.mark.thorough, needs_mpi]


def test_what_is_exact_and_what_is_not():
    ranks = 3
    one, *several = (result for n in (1, ranks) for result in run(n, PROGRAMS / "inexact.py", timeout=400).results())
    assert [result["failed"] for result in several] == [{}] * ranks, several[0]["failed"]
    for result in several:
        np.testing.assert_allclose(result["shuffled"], one["shuffled"], rtol=0, atol=2e-6)
