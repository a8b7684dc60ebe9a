"""A rank's sign of life comes again and again, whatever its script is in the middle of."""

import atexit
import json

import pytest

from hpcrun.train.ranks import heartbeat, waiting
from hpcrun.train.ranks.heartbeat import Heartbeat
from tests.waiting import wait_until


@pytest.fixture
def beats(tmp_path):
    """Start a rank's heartbeat; return a function that waits for the next sign of life."""
    file = tmp_path / "rank-0.json"
    one = Heartbeat(file, 0, "n1", 0.01)
    one.start(after=0)

    def following():
        file.unlink(missing_ok=True)
        return wait_until(lambda: file.exists() and json.loads(file.read_text()))

    yield following
    one.end()
    atexit.unregister(one.end)
    heartbeat.set_details(dict)


def test_it_goes_on_where_figures_cannot_be_told(beats):
    def fails():
        raise RuntimeError("dictionary changed size during iteration")

    heartbeat.set_details(fails)
    assert beats()["host"] == "n1"


def test_it_goes_on_after_one_that_could_not_be_written(beats):
    asked = []

    def logs():
        asked.append(1)
        return {"loss": object() if len(asked) == 1 else 0.5}

    heartbeat.set_details(logs)
    wait_until(lambda: len(asked) > 1)
    assert beats()["loss"] == 0.5


def test_a_mark_that_others_see_has_begun(monkeypatch):
    told = []

    def clock():
        mark = waiting.current_wait()
        told.append(mark is None or mark.began)
        return 7.0

    monkeypatch.setattr(waiting, "perf_counter", clock)
    with waiting.waiting("barrier()"):
        mark = waiting.current_wait()
        assert mark is not None
        assert mark.began == 7.0
    assert told[0] is True
