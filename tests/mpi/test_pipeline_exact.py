"""Pipeline stages give the same weights, logs, evaluations and predictions as one process."""

import pytest

from tests.mpi.ranks import PROGRAMS, needs_mpi, run_keras, thorough

pytestmark = [pytest.mark.mpi, needs_mpi]


@pytest.fixture(scope="module")
def reference(tmp_path_factory):
    file = tmp_path_factory.mktemp("pipeline") / "one_process.npz"
    done = run_keras(0, PROGRAMS / "pipeline_reference.py", file)
    assert done.code == 0, done.stderr
    return file


@pytest.mark.parametrize(
    ("ranks", "stages", "micro_batches", "schedule", "recompute", "lazy"),
    [
        pytest.param(2, 2, 3, "1f1b", 0, 1, id="2 stages"),
        pytest.param(4, 2, 3, "1f1b", 0, 0, id="2 stages, 2 replicas"),
        pytest.param(4, 4, 8, "1f1b", 0, 1, id="4 stages", marks=thorough),
        pytest.param(2, 2, 4, "gpipe", 1, 0, id="gpipe, recompute"),
        pytest.param(3, 3, 2, "1f1b", 1, 1, id="fewer micro-batches than stages", marks=thorough),
    ],
)
def test_stages_equal_one_process(reference, ranks, stages, micro_batches, schedule, recompute, lazy):
    arguments = (stages, micro_batches, schedule, recompute, lazy)
    results = run_keras(ranks, PROGRAMS / "pipeline_exact.py", reference, *arguments).results()
    assert len(results) == ranks
    for result in results:
        assert {case: distance for case, distance in result["distances"].items() if not distance < 2e-5} == {}
        assert {case: distance for case, distance in result["logs"].items() if not distance < 2e-5} == {}
        assert all(kept < total for kept, total in result["kept"].values())  # no rank has the whole model
