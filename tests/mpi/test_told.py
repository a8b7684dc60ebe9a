"""What differs from one process, and can be seen before it does, is told once, by rank 0; and nothing else is."""

import pytest

from tests.mpi.ranks import PROGRAMS, needs_mpi, run

pytestmark = [pytest.mark.mpi, needs_mpi]
WORDS = {
    "quiet": None,
    "warned": "WARNING: tape.gradient was given a loss for every sample, of shape (",
    "told": "INFO: the tf.data.Dataset draws random numbers in a map",
}


def test_what_would_differ_is_told():
    outcome = run(2, PROGRAMS / "told.py", timeout=400)
    assert outcome.code == 0, outcome.stderr + "\n".join(outcome.stdout).replace("\\n", "\n")
    first, second = outcome.stdout
    assert "WARNING" not in second
    assert "INFO" not in second
    cases = first.split("CASE ")[1:]
    assert len(cases) > 10
    for name, *lines in (case.splitlines() for case in cases):
        told = [line for line in lines if line.startswith(("WARNING", "INFO: the tf.data"))]
        words = WORDS[name.split()[0]]
        assert len(told) == (words is not None), (name, lines)
        assert all(line.startswith(words) for line in told), (name, lines)
    assert "HINT: tape.gradient(tf.reduce_mean(loss), variables)" in first
    assert "AutoGraph" not in outcome.stderr
