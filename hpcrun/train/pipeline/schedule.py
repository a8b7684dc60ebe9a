"""Schedules: the order in which a stage computes the forward and backward passes of the micro-batches of a step.

GPipe (Huang et al., arXiv:1811.06965) computes all forward passes first. 1F1B (PipeDream-Flush: Narayanan et al.,
arXiv:2006.09503) computes a backward pass as soon as it can, so that stage k of p holds the activations of at most
p - k micro-batches. Both idle for (p - 1) / (m + p - 1) of a step of m micro-batches if all stages take equal times.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from hpcrun.errors import HpcrunError

if TYPE_CHECKING:
    from collections.abc import Sequence

SCHEDULES = ("1f1b", "gpipe")


class Action(NamedTuple):
    """A forward or backward pass of one micro-batch.

    Attributes:
        is_forward: Whether this is the forward pass.
        micro_batch: Number of the micro-batch, from 0.
    """

    is_forward: bool
    micro_batch: int


def actions(schedule: str, stages: int, micro_batches: int, stage: int) -> list[Action]:
    """Return the actions of a stage in a training step, in their order.

    Args:
        schedule: "1f1b" or "gpipe".
        stages: Number of stages.
        micro_batches: Number of micro-batches.
        stage: Number of the stage, from 0.
    """
    forward = [Action(True, number) for number in range(micro_batches)]
    backward = [Action(False, number) for number in range(micro_batches)]
    ahead = micro_batches if schedule == "gpipe" else min(stages - stage - 1, micro_batches)
    pairs = zip(forward[ahead:], backward, strict=False)
    remaining = backward[micro_batches - ahead :]
    return [*forward[:ahead], *(action for pair in pairs for action in pair), *remaining]


def held_micro_batches(schedule: str, stages: int, micro_batches: int, stage: int) -> int:
    """Return the maximum number of micro-batches whose activations a stage holds at the same time."""
    held = most = 0
    for action in actions(schedule, stages, micro_batches, stage):
        held += 1 if action.is_forward else -1
        most = max(most, held)
    return most


def step_seconds(
    schedule: str, micro_batches: int, forward_seconds: Sequence[float], backward_seconds: Sequence[float]
) -> float:
    """Simulate a step without communication costs, and return its duration in seconds.

    Args:
        schedule: "1f1b" or "gpipe".
        micro_batches: Number of micro-batches.
        forward_seconds: Duration of a micro-batch's forward pass on each stage.
        backward_seconds: Duration of a micro-batch's backward pass on each stage.

    Raises:
        HpcrunError: The schedule is a deadlock, which would be a defect of this module.
    """
    stages = len(forward_seconds)
    pending = [actions(schedule, stages, micro_batches, stage) for stage in range(stages)]
    clocks, ends = [0.0] * stages, dict[tuple[bool, int, int], float]()
    while any(pending):
        progress = False
        for stage in range(stages):
            while pending[stage]:
                is_forward, number = pending[stage][0]
                neighbour = stage - 1 if is_forward else stage + 1
                needs_message = 0 <= neighbour < stages
                if needs_message and (is_forward, number, neighbour) not in ends:
                    break
                arrival = ends[is_forward, number, neighbour] if needs_message else 0.0
                seconds = (forward_seconds if is_forward else backward_seconds)[stage]
                clocks[stage] = max(clocks[stage], arrival) + seconds
                ends[is_forward, number, stage] = clocks[stage]
                del pending[stage][0]
                progress = True
        if not progress:
            raise HpcrunError(f"the schedule {schedule} never ends with {stages} stages")
    return max(clocks)


def bubble(stages: int, micro_batches: int) -> float:
    """Return the fraction of a step in which equal stages idle: (p - 1) / (m + p - 1)."""
    return (stages - 1) / (micro_batches + stages - 1)
