"""Schedules of pipeline stages: complete, free of deadlocks, and as fast and as small as the theory says."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpcrun.train.pipeline.schedule import (
    SCHEDULES,
    Action,
    actions,
    bubble,
    held_micro_batches,
    step_seconds,
)

sizes = st.integers(1, 8)


@given(st.sampled_from(SCHEDULES), sizes, st.integers(1, 20), st.data())
def test_every_micro_batch_goes_forward_and_then_back(schedule, stages, micro_batches, data):
    order = actions(schedule, stages, micro_batches, data.draw(st.integers(0, stages - 1)))
    for number in range(micro_batches):
        assert order.count(Action(True, number)) == order.count(Action(False, number)) == 1
        assert order.index(Action(True, number)) < order.index(Action(False, number))
    assert len(order) == 2 * micro_batches


@given(sizes, st.integers(1, 20), st.data())
def test_1f1b_holds_no_more_micro_batches_than_stages_follow(stages, micro_batches, data):
    stage = data.draw(st.integers(0, stages - 1))
    assert held_micro_batches("1f1b", stages, micro_batches, stage) == min(stages - stage, micro_batches)
    assert held_micro_batches("gpipe", stages, micro_batches, stage) == micro_batches


@given(st.sampled_from(SCHEDULES), sizes, st.integers(1, 20))
def test_equal_stages_idle_as_long_as_the_theory_says(schedule, stages, micro_batches):
    seconds = step_seconds(schedule, micro_batches, [1.0] * stages, [2.0] * stages)
    assert 1 - 3 * micro_batches / seconds == pytest.approx(bubble(stages, micro_batches))


@given(st.sampled_from(SCHEDULES), st.integers(1, 20), st.lists(st.floats(0.1, 10), min_size=1, max_size=8))
def test_a_step_is_no_faster_than_its_slowest_stage(schedule, micro_batches, seconds):
    step = step_seconds(schedule, micro_batches, seconds, seconds)
    assert step >= 2 * micro_batches * max(seconds) * (1 - 1e-9)
    assert step <= 2 * micro_batches * sum(seconds) * (1 + 1e-9)
