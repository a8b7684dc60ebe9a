"""Each callback runs on its ranks."""

import pytest

from tests.mpi.ranks import PROGRAMS, needs_mpi, run_keras

pytestmark = [pytest.mark.mpi, needs_mpi]


@pytest.mark.parametrize("ranks", [pytest.param(1, marks=pytest.mark.thorough), 2])
def test_callbacks_run_on_their_ranks(tmp_path, ranks):
    outcome = run_keras(ranks, PROGRAMS / "callbacks.py", tmp_path)
    failed = [text[text.find("RESULT {") :] for text in outcome.stdout if '"failed": {}' not in text]
    assert failed == [], "\n".join([*failed, outcome.stderr]).replace("\\n", "\n")
    assert [result["size"] for result in outcome.results()] == [ranks] * ranks
