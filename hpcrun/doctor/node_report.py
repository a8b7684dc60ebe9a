"""The report about one host, which `hpcrun.doctor.node_probe` writes."""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING

from hpcrun.frozen import frozen
from hpcrun.jobs import safe_reading

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from hpcrun.jobs.record_validation import AllValues, JsonObject


@frozen
class MpiWorld:
    """The MPI_COMM_WORLD of a rank.

    Attributes:
        expected: The number of ranks that the job started.
        size: The number of ranks in the world; None if MPI did not start.
        failure: The reason why MPI did not start; empty if MPI started.
    """

    expected: int
    size: int | None
    failure: str = ""


@frozen
class NodeReport:
    """The report about one host.

    Attributes:
        host: The host's name.
        facts: Static facts about hardware and software, by name.
        measured: The clock skew in s (``skew``), and the free space of folders in GiB.
        gpus: The number of visible GPUs; None if unknown.
        ranks: The MPI_COMM_WORLD of the host's rank; None if MPI was not tested.
        sees_rank_0: Whether the host sees the file that rank 0 wrote; None if that was not tested.
        all_values: The whole JSON object.
    """

    host: str
    facts: JsonObject
    measured: Mapping[str, float]
    gpus: int | None = None
    ranks: MpiWorld | None = None
    sees_rank_0: bool | None = None
    all_values: AllValues = field(default_factory=dict)

    @property
    def fact_texts(self) -> dict[str, str]:
        """The facts as texts; the text of an unknown fact is empty."""
        return {name: "" if value is None else str(value) for name, value in self.facts.items()}


def read_report(file: Path) -> NodeReport | None:
    """Return the report in a file; None if the file does not exist or is invalid."""
    try:
        return safe_reading.read_record(file, NodeReport)
    except safe_reading.BadRecordError:
        return None
