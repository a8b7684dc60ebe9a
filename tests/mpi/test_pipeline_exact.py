"""Pipeline stages give the same weights, logs, evaluations and predictions as one process."""

import pytest

from tests.mpi.ranks import PROGRAMS, needs_mpi, run_keras, thorough

pytestmark = [pytest.mark.mpi, needs_mpi]

QUICK_CASES = ("momentum", "clipped words")
DIFFERENT_CASES = ("clipping by the global norm", "overflow", "words", *QUICK_CASES)
OTHER_CASES = (
    "SGD", "Adam", "AdamW and a schedule", "Nadam", "Adafactor", "sum", "sample weights", "activity", "loss scale",
)  # fmt: skip


@pytest.fixture(scope="module")
def reference(tmp_path_factory):
    """Return a function that returns the file of the results of one process."""
    folder = tmp_path_factory.mktemp("pipeline")

    def file_of(cases):
        file = folder / f"{cases[0]}.npz"
        if not file.exists():
            done = run_keras(0, PROGRAMS / "pipeline_reference.py", file, *cases)
            assert done.code == 0, done.stderr
        return file

    return file_of


@pytest.mark.parametrize(
    ("ranks", "stages", "micro_batches", "schedule", "recompute", "lazy", "cases"),
    [
        pytest.param(4, 2, 3, "1f1b", 0, 0, QUICK_CASES, id="2 stages, 2 replicas"),
        pytest.param(4, 2, 3, "1f1b", 0, 0, DIFFERENT_CASES, id="2 stages, 2 replicas, more", marks=thorough),
        pytest.param(2, 2, 3, "1f1b", 0, 1, OTHER_CASES, id="2 stages", marks=thorough),
        pytest.param(4, 4, 8, "1f1b", 0, 1, DIFFERENT_CASES, id="4 stages", marks=thorough),
        pytest.param(2, 2, 4, "gpipe", 1, 0, DIFFERENT_CASES, id="gpipe, recompute", marks=thorough),
        pytest.param(3, 3, 2, "1f1b", 1, 1, DIFFERENT_CASES, id="fewer micro-batches than stages", marks=thorough),
    ],
)
def test_stages_equal_one_process(reference, ranks, stages, micro_batches, schedule, recompute, lazy, cases):
    arguments = (stages, micro_batches, schedule, recompute, lazy, *cases)
    results = run_keras(ranks, PROGRAMS / "pipeline_exact.py", reference(cases), *arguments).results()
    assert len(results) == ranks
    for result in results:
        assert set(result["distances"]) == set(cases)
        assert {case: distance for case, distance in result["distances"].items() if not distance < 2e-5} == {}
        assert {case: distance for case, distance in result["logs"].items() if not distance < 2e-5} == {}
        assert all(kept < total for kept, total in result["kept"].values())  # no rank has the whole model


def test_messages_from_the_memory_of_tensors(reference):
    arguments = (2, 3, "1f1b", 0, 0, *QUICK_CASES)
    program, file = PROGRAMS / "pipeline_exact.py", reference(QUICK_CASES)
    results = run_keras(2, program, file, *arguments, HPCRUN_CUDA_AWARE="1").results()
    assert len(results) == 2
    assert max(distance for result in results for distance in result["distances"].values()) < 2e-5
    results = run_keras(2, PROGRAMS / "pipeline_messages.py").results()
    assert results == [{"0": [True, ["ndarray"]], "1": [True, ["EagerTensor"]]}] * 2  # through the host, and not


@thorough
@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize(("precision", "rounding"), [("mixed_float16", 0.005), ("mixed_bfloat16", 0.03)])
def test_mixed_precision_equals_a_loop_of_the_same_micro_batches(precision, rounding, ranks):
    results = run_keras(ranks, PROGRAMS / "pipeline_precision.py", precision, 2).results()
    assert len(results) == ranks
    for result in results:
        assert result["relative distance"] < rounding
        assert result["state"] == result["expected state"]
        if precision == "mixed_float16":
            assert 1 < result["state"][0] < 9  # a step is skipped on all stages, or on none
        else:
            assert result["state"] == [9, 1.0]
