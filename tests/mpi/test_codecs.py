"""Codecs that compress gradients by layer: what they send, what they keep, and that training goes on with them."""

import pytest

from tests.mpi.ranks import PROGRAMS, needs_mpi, run_keras, thorough

pytestmark = [pytest.mark.mpi, needs_mpi]


@pytest.mark.parametrize(
    "ranks",
    [2, *(pytest.param(ranks, marks=thorough) for ranks in (1, 3, 4))],  # 2 and 3 send codes, 4 their sums
)
def test_codecs(ranks):
    assert run_keras(ranks, PROGRAMS / "gradient_codecs.py").results() == [{}] * ranks


@thorough
@pytest.mark.parametrize("backend", ["jax", "torch"])
def test_training_on_other_backends(backend):
    assert run_keras(2, PROGRAMS / "gradient_codecs.py", "check_training", backend=backend).results() == [{}] * 2
