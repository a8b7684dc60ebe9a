"""How runs differ."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from difflib import unified_diff
from typing import TYPE_CHECKING, Any

from hpcrun.report.facts import CAME_OF_IT, RECORDED, UNKNOWN, script
from hpcrun.secrets import mask, mask_value

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hpcrun.jobs.runs import Run
    from hpcrun.report.facts import Facts


@dataclass(frozen=True)
class Row:
    """One thing that is known of several runs.

    Attributes:
        section: What it belongs to, such as resources.
        key: What it is.
        values: Its value in each run; None where a run has none.
    """

    section: str
    key: str
    values: tuple[Any, ...]

    @property
    def differs(self) -> bool:
        """Whether the runs differ in it, or nobody knows that they do not."""
        return any(value != self.values[0] or value == UNKNOWN for value in self.values)

    @property
    def made_of(self) -> bool:
        """Whether it is something that runs were made of, and not what came of them."""
        return self.section not in CAME_OF_IT

    def as_json(self) -> dict[str, Any]:
        """Return what ``hpcrun compare --json`` prints of it."""
        return {**asdict(self), "values": self.shown}

    @property
    def shown(self) -> tuple[Any, ...]:
        """The values, with ``***`` for what looks like a secret."""
        return tuple(mask_value(value, self.key) for value in self.values)


def rows(known: Sequence[Facts]) -> list[Row]:
    """Return all that is known of runs, side by side.

    A section that some of them lack altogether is left out; see `lacking`.

    Args:
        known: What `hpcrun.report.facts.facts` says of each.
    """
    found = []
    for section in known[0]:
        if lacking(known, section):
            continue
        keys = dict.fromkeys(key for facts in known for key in facts[section])
        found += [Row(section, key, tuple(facts[section].get(key) for facts in known)) for key in keys]
    return found


def lacking(known: Sequence[Facts], section: str) -> list[int]:
    """Return which runs have no record of a section that others have one of, by their places."""
    without = [number for number, facts in enumerate(known) if section in RECORDED and section not in facts]
    return without if len(without) < len(known) else []


def scripts(first: Run, second: Run) -> str:
    """Return the unified diff of two runs' scripts, with ``RUN`` for the run directories."""
    before, after = (mask(script(run)).splitlines(keepends=True) for run in (first, second))
    names = [f"{run.job_id or run.directory.name}/job.sh" for run in (first, second)]
    return "".join(unified_diff(before, after, names[0], names[1]))
