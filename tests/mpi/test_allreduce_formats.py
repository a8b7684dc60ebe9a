"""Codecs of 16 bits, hierarchical sums and overlap with the backward pass give the mean gradient of all ranks."""

import pytest

from tests.mpi.ranks import PROGRAMS, needs_mpi, run_keras, thorough

pytestmark = [pytest.mark.mpi, needs_mpi]
CHECKS_WITHOUT_TRAINING = [
    "check_rounding_codecs",
    "check_each_step_reduces_the_same_chunks",
    "check_reductions_are_reproducible",
    "check_shares_are_not_rounded",
    "check_halves_round_to_even",
    "check_infinity_and_nan",
    "check_float64",
    "check_groups",
    "check_numpy_function",
    "check_refusals",
]


@pytest.mark.parametrize(
    ("ranks", "checks"),
    [(3, CHECKS_WITHOUT_TRAINING), pytest.param(1, [], marks=thorough), pytest.param(4, [], marks=thorough)],
    ids=["3", "1-all", "4-all"],
)
def test_allreduce_formats(ranks, checks):
    assert_passed(run_keras(ranks, PROGRAMS / "allreduce_formats.py", *checks), ranks)


@thorough
def test_torch_passes_tensors_to_mpi():
    ranks = 3
    checks = ["check_rounding_codecs", "check_cuda_aware_tensors"]
    assert_passed(run_keras(ranks, PROGRAMS / "allreduce_formats.py", *checks, backend="torch"), ranks)


def assert_passed(outcome, ranks):
    failed = [text[text.find("RESULT {") :] for text in outcome.stdout if "RESULT {" in text]
    assert failed == ["RESULT {}\n"] * ranks, "\n".join(failed).replace("\\n", "\n") or outcome.stderr
