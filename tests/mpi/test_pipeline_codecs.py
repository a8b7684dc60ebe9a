"""Replicas of pipeline stages send their gradients in each codec, and keep equal weights, also after a restart."""

import math

import numpy as np
import pytest

from tests.mpi.ranks import PROGRAMS, needs_mpi, run_keras, thorough

pytestmark = [pytest.mark.mpi, needs_mpi, thorough]


@pytest.fixture(scope="module")
def one_process(tmp_path_factory):
    folder = tmp_path_factory.mktemp("one")
    return run_keras(0, PROGRAMS / "pipeline_codecs.py", folder, 1).results()[0]


def distance(result, expected):
    pairs = zip(result["weights"], expected["weights"], strict=True)
    return max(np.abs(np.subtract(*pair)).max() for pair in pairs)


@pytest.mark.parametrize(
    ("codec", "largest_distance", "has_state"),
    [
        ("none", 2e-5, False),
        ("fp16", 1e-3, False),
        ("bf16", 2e-2, False),
        ("ternary", math.inf, True),
        ("powersgd", math.inf, True),
    ],
)
def test_replicas_keep_equal_weights(tmp_path, one_process, codec, largest_distance, has_state):
    results = run_keras(4, PROGRAMS / "pipeline_codecs.py", tmp_path, 2, HPCRUN_COMPRESS=codec).results()
    assert len(results) == 4
    first, second, *other_replica = results
    assert [result["own"] for result in other_replica] == [first["own"], second["own"]]
    assert first["own"] != second["own"]
    for result in results:
        assert result["after a restart"] < 1e-6
        assert result["after another cut"] < (largest_distance if not has_state else 0.5)
        assert bool(result["codec state"]) == has_state
        assert (codec == "none") == (distance(result, one_process) < 2e-5)
        assert distance(result, one_process) < largest_distance
        assert result["loss"] < 1.05  # log(3) = 1.10 is that of guessing
