"""The warning about a completed job whose ranks did not all work together, from its run directory."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from hpcrun.jobs import records

if TYPE_CHECKING:
    from hpcrun.jobs.job_record import RecordedResources
    from hpcrun.jobs.runs import Run

_ALONE = "each of the {} ranks worked alone"
_SMALLER_WORLD = r"rank 0 was in a world of \d+ ranks, of \d+ in the job"
_WARNING = re.compile(rf"{_ALONE.format('.*')}|{_SMALLER_WORLD}")


def read_warning(run: Run) -> str:
    """Return the warning about a job's ranks; empty if there is none.

    Its job script has printed it, and leaves the marker ``alone`` (`hpcrun_check_world` in ``launch.bash``).
    """
    try:
        text = records.read_text(run.directory / "alone")
    except FileNotFoundError:
        return ""
    except records.BadRecordError:
        text = ""
    return text if re.fullmatch(_SMALLER_WORLD, text) else _ALONE.format(count_ranks(run.spec.resources))


def is_warning(reason: str) -> bool:
    """Return whether the reason that `hpcrun status` shows for a job is this warning."""
    return bool(_WARNING.fullmatch(reason))


def count_ranks(requested: RecordedResources) -> int | None:
    """Return the number of ranks of a job; None if its record is of another version."""
    try:
        return requested.to_resources().ranks
    except (TypeError, ValueError, ArithmeticError):
        return None
