"""Comparison of runs."""

from __future__ import annotations

from dataclasses import asdict
from difflib import unified_diff
from typing import TYPE_CHECKING, Any

from hpcrun.frozen import frozen
from hpcrun.report.run_facts import NOT_RECORDED, OPTIONAL_SECTIONS, OUTCOME_SECTIONS, read_script
from hpcrun.secrets import mask, mask_value

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hpcrun.jobs.runs import Run
    from hpcrun.report.run_facts import Facts


@frozen
class ComparisonRow:
    """A recorded value of several runs.

    Attributes:
        section: The section of the value, such as resources.
        key: The name of the value.
        values: The value in each run; None if a run does not have it.
    """

    section: str
    key: str
    values: tuple[object, ...]

    @property
    def differs(self) -> bool:
        """Whether the runs have different values, or a value is not recorded."""
        return any(value != self.values[0] or value == NOT_RECORDED for value in self.values)

    @property
    def is_input(self) -> bool:
        """Whether the value is an input of the runs, and not a result."""
        return self.section not in OUTCOME_SECTIONS

    def as_json(self) -> dict[str, Any]:
        """Return the object that ``hpcrun compare --json`` prints for this row."""
        return {**asdict(self), "values": self.masked_values}

    @property
    def masked_values(self) -> tuple[object, ...]:
        """The values, with ``***`` in place of secrets."""
        return tuple(mask_value(value, self.key) for value in self.values)


def compare_facts(facts_of_runs: Sequence[Facts]) -> list[ComparisonRow]:
    """Return a row for each recorded value, with the values of several runs.

    Sections that some runs lack are omitted, see `runs_without_section`.

    Args:
        facts_of_runs: The result of `hpcrun.report.run_facts.collect_facts` for each run.
    """
    rows = []
    for section in facts_of_runs[0]:
        if runs_without_section(facts_of_runs, section):
            continue
        keys = dict.fromkeys(key for facts in facts_of_runs for key in facts[section])
        rows += [ComparisonRow(section, key, tuple(facts[section].get(key) for facts in facts_of_runs)) for key in keys]
    return rows


def runs_without_section(facts_of_runs: Sequence[Facts], section: str) -> list[int]:
    """Return the indices of runs that lack a section which other runs have."""
    indices = [
        index for index, facts in enumerate(facts_of_runs) if section in OPTIONAL_SECTIONS and section not in facts
    ]
    return indices if len(indices) < len(facts_of_runs) else []


def diff_scripts(first_run: Run, second_run: Run) -> str:
    """Return the unified diff of two runs' job scripts, with ``RUN`` in place of the run directories."""
    first_lines, second_lines = (mask(read_script(run)).splitlines(keepends=True) for run in (first_run, second_run))
    names = [f"{run.job_id or run.directory.name}/job.sh" for run in (first_run, second_run)]
    return "".join(unified_diff(first_lines, second_lines, names[0], names[1]))
