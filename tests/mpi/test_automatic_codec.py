"""The codec that `--compress auto` measures and chooses."""

import pytest

from tests.mpi.ranks import PROGRAMS, needs_mpi, run_keras, thorough

pytestmark = [pytest.mark.mpi, needs_mpi]


@pytest.mark.parametrize("ranks", [2, pytest.param(3, marks=thorough)])
def test_the_choice_of_a_codec(ranks):
    assert run_keras(ranks, PROGRAMS / "automatic_codec.py").results() == [{}] * ranks
