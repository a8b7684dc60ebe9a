"""What is wrong with the tasks of a sweep, once for each cause."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hpcrun.jobs.sweeps import shown

if TYPE_CHECKING:
    from collections.abc import Iterable

    from hpcrun.jobs.runs import Run
    from hpcrun.why.answer import Answer

_OF_SEVERAL = {
    "runs": "run",
    "waits": "wait",
    "has no known state": "have no known state",
    "never became a job": "never became jobs",
}


@dataclass(frozen=True)
class Cause:
    """What tasks have in common.

    Attributes:
        answers: Why each of them is as it is; the first one's evidence stands for all.
    """

    answers: tuple[Answer, ...]

    @property
    def first(self) -> Answer:
        """The first task's answer."""
        return self.answers[0]

    @property
    def tasks(self) -> list[Run]:
        """The tasks, in their order."""
        return [answer.run for answer in self.answers]

    @property
    def headline(self) -> str:
        """The cause in one sentence."""
        if len(self.answers) == 1:
            return self.first.headline
        how = _OF_SEVERAL.get(self.first.how, self.first.how)
        return f"{len(self.answers)} tasks of {self.first.run.name} ({shown(self.tasks)}) {how}{self.first.says}"

    def as_json(self) -> dict[str, Any]:
        """Return what a script wants to know: the first task's answer, and which tasks it stands for."""
        told = {key: value for key, value in self.first.as_json().items() if key != "job_id"}
        return {**told, "headline": self.headline, "tasks": [task.facts() for task in self.tasks]}


def causes(answers: Iterable[Answer]) -> list[Cause]:
    """Return what is wrong with tasks: first what failed, then what waits, then what does well; the most tasks first.

    Args:
        answers: Why each task of a sweep is as it is, in their order.
    """
    groups: dict[tuple[str, str, str], list[Answer]] = {}
    for answer in answers:
        finding = answer.finding
        groups.setdefault((answer.how, finding.name, finding.cause or finding.says), []).append(answer)
    return sorted((Cause(tuple(together)) for together in groups.values()), key=_place)


def _place(cause: Cause) -> tuple[int, int]:
    first = cause.first
    kind = 0 if first.finding.says and first.how != "waits" else 1 if first.how == "waits" else 2
    return kind, -len(cause.answers)
