"""Keras on TensorFlow, JAX and PyTorch: N ranks give the results of one process of plain Keras."""

import pytest

from tests.mpi.ranks import PROGRAMS, backend_python, needs_mpi, run

pytestmark = [pytest.mark.mpi, pytest.mark.thorough, needs_mpi]


@pytest.mark.parametrize(
    ("backend", "ranks"),
    [("tensorflow", 2), ("jax", 2), ("torch", 3)],
)
def test_ranks_equal_one_process(backend, ranks):
    python = backend_python(backend)
    outcome = run(ranks, PROGRAMS / "backends.py", python=python, timeout=500, KERAS_BACKEND=backend)
    failed = [text[text.find("RESULT {") :] for text in outcome.stdout if "RESULT {" in text]
    assert failed == ["RESULT {}\n"] * ranks, "\n".join(failed).replace("\\n", "\n") or outcome.stderr
