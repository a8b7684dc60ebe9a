"""Failures of pipeline stages end all ranks in seconds, and are named; wrong use is refused with what to do."""

import pytest

from tests.mpi.ranks import PROGRAMS, needs_mpi, run_keras

pytestmark = [pytest.mark.mpi, needs_mpi]


@pytest.mark.parametrize(
    ("reason", "ranks", "messages"),
    [
        ("layer", 2, ["[rank 1/2", "this layer is broken", "on stage 1 of 2"]),
        ("loss", 2, ["pipeline stages cannot normalize a loss", "HINT: give sample_weight and the default reduction"]),
        ("optimizer", 2, ["the optimizer Adam has use_ema=True", "HINT: leave out use_ema"]),
        (
            "early data",
            2,
            ["it was made before hpcrun.train.Model(model, stages=...)", "HINT: make the data set after"],
        ),
        ("ranks", 3, ["stages=2 does not divide 3 ranks", "HINT: start a multiple of 2 ranks"]),
    ],
)
def test_errors_say_what_to_do(reason, ranks, messages):
    done = run_keras(ranks, PROGRAMS / "pipeline_failing.py", reason, HPCRUN_STALL_SECONDS="200")
    assert done.code != 0
    for message in messages:
        assert message in done.stderr


def test_a_stage_that_dies_ends_the_others():
    done = run_keras(2, PROGRAMS / "pipeline_failing.py", "death", HPCRUN_STALL_SECONDS="200")
    assert done.code != 0
    assert done.seconds < 100
