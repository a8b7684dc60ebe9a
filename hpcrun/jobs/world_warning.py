"""The warning about a completed job whose ranks did not all join one MPI world, read from its run directory."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from hpcrun.jobs import safe_reading

if TYPE_CHECKING:
    from hpcrun.jobs.job_record import RecordedResources
    from hpcrun.jobs.runs import Run

_SINGLE_RANK_WARNING = "each of the {} ranks worked alone"
_SMALLER_WORLD = r"rank 0 was in a world of \d+ ranks(?:, of \d+ in the job| on one of \d+ nodes)"
_WARNING = re.compile(rf"{_SINGLE_RANK_WARNING.format('.*')}|{_SMALLER_WORLD}")


def read_warning(run: Run) -> str:
    """Return the warning about a job's ranks; empty if there is none.

    The job script prints the warning, too, and writes the file ``alone`` (`hpcrun_check_world` in ``outcome.bash``).
    """
    try:
        text = safe_reading.read_text(run.directory / "alone")
    except FileNotFoundError:
        return ""
    except safe_reading.BadRecordError:
        text = ""
    return text if re.fullmatch(_SMALLER_WORLD, text) else _SINGLE_RANK_WARNING.format(count_ranks(run.spec.resources))


def is_warning(reason: str) -> bool:
    """Return whether a reason shown by `hpcrun status` is the warning about a job's ranks."""
    return bool(_WARNING.fullmatch(reason))


def count_ranks(resources: RecordedResources) -> int | None:
    """Return the number of ranks of a job; None if this version of hpcrun cannot read the job's record."""
    try:
        return resources.to_resources().ranks
    except (TypeError, ValueError, ArithmeticError):
        return None
