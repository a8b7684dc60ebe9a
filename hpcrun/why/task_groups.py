"""Groups of a sweep's tasks whose explanations differ only in numbers."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from hpcrun.frozen import frozen
from hpcrun.jobs.sweep_tasks import abbreviate_task_ids

if TYPE_CHECKING:
    from collections.abc import Iterable

    from hpcrun.jobs.runs import Run
    from hpcrun.why.explanation import Explanation

_PLURAL_OUTCOMES = {
    "runs": "run",
    "starts": "start",
    "waits": "wait",
    "has no known state": "have no known state",
    "never became a job": "never became jobs",
}

_NUMBER = re.compile(r"(?<!exit code )(?<!\d)(0x[0-9a-f]+|\d+(?:\.\d+)*(?:e[+-]?\d+)?)")
"""Matches a number that may differ between tasks of a group, but not an exit code."""


@frozen
class TaskGroup:
    """Tasks with the same explanation.

    Attributes:
        explanations: The explanations of the tasks; the first explanation represents the group.
    """

    explanations: tuple[Explanation, ...]

    @property
    def example(self) -> Explanation:
        """The explanation of the first task."""
        return self.explanations[0]

    @property
    def tasks(self) -> list[Run]:
        """The tasks of the group, in order of their numbers."""
        return [explanation.run for explanation in self.explanations]

    @property
    def headline(self) -> str:
        """The explanation in one sentence."""
        if len(self.explanations) == 1:
            return self.example.headline
        outcome = _PLURAL_OUTCOMES.get(self.example.outcome, self.example.outcome)
        tasks = f"{len(self.tasks)} tasks of {self.example.run.name} ({abbreviate_task_ids(self.tasks)})"
        causes = {_describe_cause(explanation) for explanation in self.explanations}
        if len(causes) == 1:
            return f"{tasks} {outcome}{self.example.reason}"
        return f"{tasks} {outcome}{self.example.reason.replace(self.example.diagnosis.summary, _merge(causes))}"

    def as_json(self) -> dict[str, Any]:
        """Return the JSON object for a group: the explanation of its first task, and the list of its tasks."""
        values = {key: value for key, value in self.example.as_json().items() if key != "job_id"}
        return {**values, "headline": self.headline, "tasks": [task.summary() for task in self.tasks]}


def group_tasks(explanations: Iterable[Explanation]) -> list[TaskGroup]:
    """Group tasks by their explanations; groups of failed tasks come first, then pending tasks; large groups first.

    Args:
        explanations: The explanation of each task of a sweep, in order.
    """
    groups: dict[tuple[str, str, str], list[Explanation]] = {}
    for explanation in explanations:
        key = (explanation.outcome, explanation.diagnosis.name, _NUMBER.sub("0", _describe_cause(explanation)))
        groups.setdefault(key, []).append(explanation)
    return sorted((TaskGroup(tuple(members)) for members in groups.values()), key=_sort_key)


def _describe_cause(explanation: Explanation) -> str:
    return explanation.diagnosis.cause or explanation.diagnosis.summary


def _merge(causes: Iterable[str]) -> str:
    """Merge causes that differ only in numbers, with ``...`` in place of these numbers."""
    text_parts = zip(*map(_NUMBER.split, causes), strict=True)
    return "".join(values[0] if len(set(values)) == 1 else "..." for values in text_parts)


def _sort_key(group: TaskGroup) -> tuple[int, int]:
    explanation = group.example
    kind = (
        0
        if explanation.diagnosis.summary and explanation.outcome != "waits"
        else 1
        if explanation.outcome == "waits"
        else 2
    )
    return kind, -len(group.explanations)
