"""16-bit wire formats, hierarchical sums and overlap with the backward pass give the mean gradient of all ranks."""

import pytest

from tests.mpi.ranks import PROGRAMS, needs_mpi, run_keras, thorough

pytestmark = [pytest.mark.mpi, needs_mpi]


@pytest.mark.parametrize("ranks", [pytest.param(1, marks=thorough), 3, pytest.param(4, marks=thorough)])
def test_allreduce_formats(ranks):
    assert_passed(run_keras(ranks, PROGRAMS / "allreduce_formats.py"), ranks)


@thorough
def test_torch_passes_tensors_to_mpi():
    ranks = 3
    checks = ["check_wire_formats", "check_cuda_aware_tensors"]
    assert_passed(run_keras(ranks, PROGRAMS / "allreduce_formats.py", *checks, backend="torch"), ranks)


def assert_passed(outcome, ranks):
    failed = [text[text.find("RESULT {") :] for text in outcome.stdout if "RESULT {" in text]
    assert failed == ["RESULT {}\n"] * ranks, "\n".join(failed).replace("\\n", "\n") or outcome.stderr
