"""Failures of pipeline stages end all ranks in seconds, and are named; wrong use is refused with what to do."""

import platform
import re

import pytest

from tests.mpi.ranks import PROGRAMS, needs_mpi, run_keras, thorough

pytestmark = [pytest.mark.mpi, needs_mpi]


@pytest.mark.parametrize(
    ("reason", "ranks", "messages"),
    [
        ("layer", 2, ["[rank 1/2", "this layer is broken", "on stage 1 of 2"]),
        ("loss", 2, ["pipeline stages cannot normalize a loss", "HINT: give sample_weight and the default reduction"]),
        ("eager function", 2, ["the layer 'fragile' calls tf.py_function", "HINT: write it with operations"]),
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
    assert "stage 0 (rank 0): middle to middle; stage 1 (rank 1): fragile to dense" in done.stdout[0]


@thorough
@pytest.mark.parametrize(
    ("reason", "ranks", "what"),
    [
        ("hang", 2, "did not arrive, is at pipeline_failing.py:"),
        ("stop", 4, "does not answer: its process is stopped or busy outside of Python, or its host is out of reach"),
    ],
)
def test_a_stage_that_hangs_is_named(reason, ranks, what):
    done = run_keras(ranks, PROGRAMS / "pipeline_failing.py", reason, HPCRUN_STALL_SECONDS="10")
    assert done.code == 1
    assert done.seconds < 100
    assert done.stderr.count("error: no progress for 10 s\n") == 1
    stage = "stage 1 of 2" if ranks == 2 else "stage 1 of 2, replica 0"
    (line,) = re.findall(r"^  rank 1 \((.*)", done.stderr, re.MULTILINE)
    assert line.startswith(f"host {platform.node()}, pid ")
    assert f", {stage}): {what}" in line
    if reason == "hang":
        assert "; it last began the forward pass of micro-batch 1 of training step 3" in line
    message = "waiting in a message of a pipeline stage: gradients of micro-batch 1 from stage 1 (rank 1), at "
    assert message in done.stderr
