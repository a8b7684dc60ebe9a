"""Comparison of runs."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from difflib import unified_diff
from typing import TYPE_CHECKING, Any

from hpcrun.report.run_facts import NOT_RECORDED, OPTIONAL_SECTIONS, OUTCOME_SECTIONS, read_script
from hpcrun.secrets import mask, mask_value

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hpcrun.jobs.runs import Run
    from hpcrun.report.run_facts import Facts


@dataclass(frozen=True)
class ComparisonRow:
    """One value of several runs.

    Attributes:
        section: The section of the value, such as resources.
        key: The name of the value.
        values: The value in each run; None if a run has none.
    """

    section: str
    key: str
    values: tuple[object, ...]

    @property
    def differs(self) -> bool:
        """Whether the runs differ, or one of the values is not recorded."""
        return any(value != self.values[0] or value == NOT_RECORDED for value in self.values)

    @property
    def is_input(self) -> bool:
        """Whether the value is an input of the runs, and not an outcome."""
        return self.section not in OUTCOME_SECTIONS

    def as_json(self) -> dict[str, Any]:
        """Return the object that ``hpcrun compare --json`` prints."""
        return {**asdict(self), "values": self.masked_values}

    @property
    def masked_values(self) -> tuple[object, ...]:
        """The values, with ``***`` in place of secrets."""
        return tuple(mask_value(value, self.key) for value in self.values)


def compare_facts(known: Sequence[Facts]) -> list[ComparisonRow]:
    """Return the values of several runs side by side.

    A section that some runs lack is left out; see `runs_without_section`.

    Args:
        known: The result of `hpcrun.report.run_facts.collect_facts` for each run.
    """
    found = []
    for section in known[0]:
        if runs_without_section(known, section):
            continue
        keys = dict.fromkeys(key for facts in known for key in facts[section])
        found += [ComparisonRow(section, key, tuple(facts[section].get(key) for facts in known)) for key in keys]
    return found


def runs_without_section(known: Sequence[Facts], section: str) -> list[int]:
    """Return the indices of runs that lack a section which others have."""
    without = [number for number, facts in enumerate(known) if section in OPTIONAL_SECTIONS and section not in facts]
    return without if len(without) < len(known) else []


def diff_scripts(first: Run, second: Run) -> str:
    """Return the unified diff of two runs' scripts, with ``RUN`` in place of the run directories."""
    before, after = (mask(read_script(run)).splitlines(keepends=True) for run in (first, second))
    names = [f"{run.job_id or run.directory.name}/job.sh" for run in (first, second)]
    return "".join(unified_diff(before, after, names[0], names[1]))
