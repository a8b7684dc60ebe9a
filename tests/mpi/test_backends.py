"""Keras on TensorFlow, JAX and PyTorch: N ranks give the results of one process of plain Keras."""

import pytest

from tests.mpi.ranks import PROGRAMS, needs_mpi, run_keras

pytestmark = [pytest.mark.mpi, pytest.mark.thorough, needs_mpi]


@pytest.mark.parametrize(
    ("backend", "ranks"),
    [("tensorflow", 2), ("jax", 2), ("torch", 3)],
)
def test_ranks_equal_one_process(backend, ranks):
    outcome = run_keras(ranks, PROGRAMS / "backends.py", backend=backend, timeout=500)
    failed = [text[text.find("RESULT {") :] for text in outcome.stdout if "RESULT {" in text]
    assert failed == ["RESULT {}\n"] * ranks, "\n".join(failed).replace("\\n", "\n") or outcome.stderr
