"""Unsupported calls are refused on all ranks, with the same message."""

import pytest

from tests.mpi.ranks import PROGRAMS, needs_mpi, run_keras

pytestmark = [pytest.mark.mpi, needs_mpi]


def test_refusals():
    outcome = run_keras(2, PROGRAMS / "refusals.py")
    assert outcome.results() == [{}, {}], "\n".join([*outcome.stdout, outcome.stderr]).replace("\\n", "\n")
