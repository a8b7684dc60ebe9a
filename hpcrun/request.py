"""The options of a job as the user requests them."""

from __future__ import annotations

import re
from dataclasses import field
from typing import TYPE_CHECKING, Any, Literal

from hpcrun.errors import HpcrunError
from hpcrun.frozen import frozen
from hpcrun.job_options import OPTIONS_OF_VARIABLES, JobOptions

if TYPE_CHECKING:
    from pathlib import Path

_USER_VARIABLE_NAMES = "STALL_SECONDS HEARTBEAT_SECONDS OVERLAP HIERARCHICAL SHARED_MEMORY SPARSE_AS_DENSE CUDA_AWARE"
USER_VARIABLES = tuple(f"HPCRUN_{name}" for name in _USER_VARIABLE_NAMES.split())
"""Environment variables of hpcrun.train that users may set; hpcrun sets all other HPCRUN_* variables."""


@frozen
class Request(JobOptions):
    """A job to submit or to run, as requested by the user.

    Attributes:
        target: A workload, workload folder or script; None for any other program, which ``args`` contains.
        args: The arguments of the program, after ``--``.
        resources: The typed values of Slurm options, by option name.
        site: A site's name or file; None to detect it.
        environment: Environment variables of all ranks, in order; hpcrun does not expand their values.
        hostfile: A file with the nodes, on which ranks start over ssh; None if there is none.
        run_now: Whether to run the job in the current allocation or on this host, instead of submitting it.
        sweep: The names and values of the swept options.
        snapshot: Whether the job runs a copy of the user's code; None for the site's default.
        container: The container image in which ranks run; False for no container, None for the site's default.
    """

    target: str | None
    args: tuple[str, ...] = ()
    resources: dict[str, Any] = field(default_factory=dict)
    site: str | None = None
    environment: tuple[tuple[str, str], ...] = ()
    hostfile: Path | None = None
    run_now: bool = False
    snapshot: bool | None = None
    sweep: tuple[tuple[str, tuple[str, ...]], ...] = ()
    container: str | Literal[False] | None = None

    def __post_init__(self) -> None:
        for name, _ in self.environment:
            if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
                raise HpcrunError(
                    f"{name!r} is not a valid variable name", hint="use letters, digits and _, and begin with no digit"
                )
            if option := OPTIONS_OF_VARIABLES.get(name):
                raise HpcrunError(f"{name} is not set with -x", hint=f"{option} sets it")
            if (
                name.startswith(("HPCRUN_", "hpcrun_"))
                and not name.startswith("HPCRUN_DATA_")
                and name not in USER_VARIABLES
            ):
                raise HpcrunError(
                    f"{name} is reserved for hpcrun",
                    hint=f"choose another name; {', '.join(USER_VARIABLES)} can be set",
                )
        self.require_valid_options()
