"""Shuffles, metrics, callbacks, saving, custom loops and refusals of `fit`."""

import pytest

from tests.mpi.ranks import PROGRAMS, needs_mpi, run_keras, thorough

pytestmark = [pytest.mark.mpi, needs_mpi]

CHEAP_CHECKS = [
    "check_reducer",
    "check_world",
    "check_sample_and_class_weights",
    "check_shuffles",
    "check_all_ranks_stop_together",
    "check_saving",
    "check_resuming",
    "check_custom_loop",
    "check_callbacks_of_predict",
    "check_refusals",
]


@pytest.mark.parametrize(
    ("ranks", "checks"),
    [(2, CHEAP_CHECKS), pytest.param(3, [], marks=thorough)],  # with 3, more ranks than samples in some last batches
    ids=["cheap", "all"],
)
def test_fit_features(tmp_path, ranks, checks):
    outcome = run_keras(ranks, PROGRAMS / "fit_features.py", tmp_path, *checks, timeout=900)
    failed = [text[text.find("RESULT {") :] for text in outcome.stdout if "RESULT {" in text]
    assert failed == ["RESULT {}\n"] * ranks, "\n".join(failed).replace("\\n", "\n")
    assert "AutoGraph" not in outcome.stderr  # AutoGraph would slow down custom loops
