"""N ranks give the same weights, logs, evaluations and predictions as one process."""

import pytest

from tests.mpi.ranks import PROGRAMS, needs_mpi, run_keras, thorough

pytestmark = [pytest.mark.mpi, needs_mpi]


@pytest.fixture(scope="module")
def reference(tmp_path_factory):
    file = tmp_path_factory.mktemp("truth") / "truth.npz"
    done = run_keras(0, PROGRAMS / "reference.py", file)
    assert done.code == 0, done.stderr
    return file


@pytest.mark.parametrize("ranks", [pytest.param(1, marks=thorough), 2, pytest.param(3, marks=thorough)])
def test_ranks_equal_one_process(reference, ranks):
    results = run_keras(ranks, PROGRAMS / "exact.py", reference).results()
    assert len(results) == ranks
    for result in results:
        assert result["sharded"]
        assert {case: distance for case, distance in result["distances"].items() if not distance < 2e-6} == {}
