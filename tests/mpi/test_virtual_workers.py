"""Virtual workers: a rank that stands for several gets the results of these ranks."""

import pytest

from tests.mpi.ranks import PROGRAMS, needs_mpi, run_keras, thorough

pytestmark = [pytest.mark.mpi, needs_mpi]
PROGRAM = PROGRAMS / "virtual_workers.py"


@pytest.mark.parametrize(
    ("ranks", "checks"),
    [
        (2, ["check_weights_equal_those_without_workers"]),
        pytest.param(2, [], marks=thorough),
        pytest.param(1, [], marks=thorough),
    ],
)
def test_virtual_workers(ranks, checks):
    assert run_keras(ranks, PROGRAM, *checks).results() == [{}] * ranks


@pytest.mark.parametrize("codec", ["ternary", pytest.param("bf16", marks=thorough)])
def test_weights_have_the_bits_of_a_job_with_as_many_ranks(codec):
    runs = [run_keras(ranks, PROGRAM, "train", 4 // ranks, codec).results() for ranks in (1, 2, 4)]
    assert len({tuple(weights) for results in runs for weights in results}) == 1


@thorough
def test_jax_has_no_virtual_workers():
    ended = run_keras(1, PROGRAM, "train", 2, "none", backend="jax")
    assert ended.code != 0
    assert "virtual workers need TensorFlow or PyTorch, and Keras uses JAX\nHINT: set KERAS_BACKEND=tensorflow" in (
        ended.stderr
    )


@thorough
def test_virtual_workers_on_pytorch():
    assert run_keras(2, PROGRAM, backend="torch").results() == [{}] * 2
