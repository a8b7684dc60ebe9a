"""How often Slurm is asked while somebody waits."""

import json
import time
from itertools import pairwise

import pytest

from hpcrun.jobs.poll_backoff import PollBackoff
from hpcrun.jobs.runs import Run


@pytest.fixture
def clock(monkeypatch):
    """Return seconds that a test sets."""
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    return now


def run_of(folder, scheduler="slurm", **site):
    folder.mkdir()
    (folder / "job.json").write_text(json.dumps({"scheduler": scheduler, "site": site}))
    return Run(folder)


def poll_times(clock, pace, seconds, **urgent):
    """Return the times at which a poll was due, within a number of seconds."""
    times, begin = [], clock[0]
    for _ in range(4 * seconds):
        if pace.is_due(**urgent):
            times.append(clock[0] - begin)
        clock[0] += 0.25
    return times


def test_slurm_is_polled_less_often_while_nothing_changes(clock, tmp_path):
    own = PollBackoff([run_of(tmp_path / "a")])
    assert own.is_due()
    own.reset()
    times = poll_times(clock, own, 3600)
    pauses = [after - before for before, after in pairwise(times)]
    assert pauses == sorted(pauses)
    assert (pauses[0], pauses[-1]) == (2, 60)
    assert len(times) < 100
    own.reset()
    assert {after - before for before, after in pairwise(poll_times(clock, own, 15))} == {2}
    poll_times(clock, own, 3600)
    assert {after - before for before, after in pairwise(poll_times(clock, own, 15, urgent=True))} == {2}


def test_local_jobs_are_polled_at_a_constant_interval(clock, tmp_path):
    times = poll_times(clock, PollBackoff([run_of(tmp_path / "a", "local")]), 600)
    assert {after - before for before, after in pairwise(times)} == {2}


def test_a_site_sets_the_minimum_polling_interval(clock, tmp_path):
    slow = PollBackoff([run_of(tmp_path / "a"), run_of(tmp_path / "b", poll_seconds=60)])
    assert poll_times(clock, slow, 200, urgent=True) == [0, 60, 120, 180]
