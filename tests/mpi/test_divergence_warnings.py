"""Differences from one process that are detectable are announced once, by rank 0."""

import pytest

from tests.mpi.ranks import PROGRAMS, needs_mpi, run_keras

pytestmark = [pytest.mark.mpi, pytest.mark.thorough, needs_mpi]
MESSAGES = {
    "quiet": None,
    "warned": "WARNING: tape.gradient was given a loss per sample, of shape (",
    "announced": "INFO: the tf.data.Dataset draws random numbers in a map",
}


def test_differences_are_announced_once():
    outcome = run_keras(2, PROGRAMS / "divergence_warnings.py", timeout=400)
    assert outcome.code == 0, outcome.stderr + "\n".join(outcome.stdout).replace("\\n", "\n")
    first, second = outcome.stdout
    assert "WARNING" not in second
    assert "INFO" not in second
    cases = first.split("CASE ")[1:]
    assert len(cases) > 10
    for name, *lines in (case.splitlines() for case in cases):
        messages = [line for line in lines if line.startswith(("WARNING", "INFO: the tf.data"))]
        message = MESSAGES[name.split()[0]]
        assert len(messages) == (message is not None), (name, lines)
        assert all(line.startswith(message) for line in messages), (name, lines)
    assert "HINT: tape.gradient(tf.reduce_mean(loss), variables)" in first
    assert "AutoGraph" not in outcome.stderr
