"""Heartbeats continue whatever the script of a rank does."""

import atexit
import json

import pytest

from hpcrun.run import heartbeat_thread, waiting
from hpcrun.run.heartbeat_thread import HeartbeatThread
from tests.waiting import wait_until


@pytest.fixture
def next_heartbeat(tmp_path):
    """Start a rank's heartbeat; return a function that waits for the next one."""
    file = tmp_path / "rank-0.json"
    writer = HeartbeatThread(file, 0, "n1", 0.01)
    writer.start(delay=0)

    def call():
        file.unlink(missing_ok=True)
        return wait_until(lambda: file.exists() and json.loads(file.read_text()))

    yield call
    writer.end()
    atexit.unregister(writer.end)
    heartbeat_thread.set_details(dict)


def test_heartbeats_continue_without_details(next_heartbeat):
    def fails():
        raise RuntimeError("dictionary changed size during iteration")

    heartbeat_thread.set_details(fails)
    assert next_heartbeat()["host"] == "n1"


def test_heartbeats_say_what_a_rank_does_before_its_training(next_heartbeat):
    with heartbeat_thread.activity("imports TensorFlow"):
        wait_until(lambda: next_heartbeat().get("activity") == "imports TensorFlow")  # one may be half made
        wait_until(lambda: next_heartbeat()["activity_seconds"] > 0)
    wait_until(lambda: "activity" not in next_heartbeat())


def test_heartbeats_continue_after_a_failed_write(next_heartbeat):
    calls = []

    def logs():
        calls.append(1)
        return {"loss": object() if len(calls) == 1 else 0.5}

    heartbeat_thread.set_details(logs)
    wait_until(lambda: len(calls) > 1)
    assert next_heartbeat()["loss"] == 0.5


def test_a_visible_mark_has_a_start_time(monkeypatch):
    marks = []

    def clock():
        mark = waiting.current_wait()
        marks.append(mark is None or mark.start_time)
        return 7.0

    monkeypatch.setattr(waiting, "perf_counter", clock)
    with waiting.waiting("barrier()"):
        mark = waiting.current_wait()
        assert mark is not None
        assert mark.start_time == 7.0
    assert marks[0] is True
