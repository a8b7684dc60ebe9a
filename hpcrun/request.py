"""What somebody asked for, and nothing they did not."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from hpcrun.errors import HpcrunError

if TYPE_CHECKING:
    from pathlib import Path

LOG_LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR")
_NAMES = "STALL_SECONDS HEARTBEAT_SECONDS WIRE OVERLAP HIERARCHICAL SHARED_MEMORY SPARSE_AS_DENSE CUDA_AWARE"
USER_VARIABLES = tuple(f"HPCRUN_{name}" for name in _NAMES.split())
"""Of hpcrun.train, for the user to set; all other HPCRUN_* variables tell the ranks about their job."""


@dataclass(frozen=True)
class Request:
    """A job to submit, or to run now.

    Attributes:
        target: A workload, folder or script; None for any program, given in ``args``.
        args: What followed ``--``.
        resources: Slurm's option names to values, as typed.
        site: A site's name or file; None to detect it.
        environment: Variables for every rank, in order, literal.
        hostfile: Nodes to run on over ssh.
        run_now: Run now, in the allocation (or on the host) that this process stands in, rather than submit.
        no_gpu: Ranks must not see a GPU.
        output_on_all_ranks: Every rank's output goes to the job's log.
        log_level: Least severe messages that ranks log.
        fusion_threshold_kb: Size in KB of the pieces that gradients are sent in (0: one message a tensor); None for
            hpcrun.train's own.
        sweep: What is swept, each with its values.
        max_parallel: How many tasks of a sweep run at the same time.
        snapshot: Whether the job runs a copy of the user's code; None for what the site says.
        container: The image that ranks run in; False for no container, None for what the site says.
        cpu_bind: What each rank is bound to: cores, sockets or none; None for what the site says.
        max_requeue: How often the job may go back to the queue before its time limit; None for the site's default.
    """

    target: str | None
    args: tuple[str, ...] = ()
    resources: dict[str, Any] = field(default_factory=dict)
    site: str | None = None
    environment: tuple[tuple[str, str], ...] = ()
    hostfile: Path | None = None
    run_now: bool = False
    no_gpu: bool = False
    output_on_all_ranks: bool = False
    log_level: str = "WARNING"
    fusion_threshold_kb: int | None = None
    snapshot: bool | None = None
    sweep: tuple[tuple[str, tuple[str, ...]], ...] = ()
    max_parallel: int | None = None
    max_requeue: int | None = None
    container: str | Literal[False] | None = None
    cpu_bind: str | None = None

    def __post_init__(self) -> None:
        for name, _ in self.environment:
            if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
                raise HpcrunError(f"{name!r} is no name of a variable", hint="letters, digits and _ make a name")
            if name == "HPCRUN_FUSION_THRESHOLD_KB":
                raise HpcrunError(f"{name} has an option of its own", hint="--fusion-threshold KB sets it")
            if (
                name.startswith(("HPCRUN_", "hpcrun_"))
                and not name.startswith("HPCRUN_DATA_")
                and name not in USER_VARIABLES
            ):
                raise HpcrunError(
                    f"{name} is hpcrun's own variable",
                    hint=f"choose another name; {', '.join(USER_VARIABLES)} can be set",
                )
        if self.cpu_bind not in {None, "cores", "sockets", "none"}:
            what = f"--cpu-bind={self.cpu_bind}: not what hpcrun binds ranks to"
            raise HpcrunError(what, hint="cores, sockets or none; srun's other words go to the site key launcher_args")
        if self.log_level not in LOG_LEVELS:
            raise HpcrunError(f"{self.log_level!r} is no log level", hint=f"one of {', '.join(LOG_LEVELS)}")
        if (size := self.fusion_threshold_kb) is not None and (type(size) is not int or size < 0):
            raise HpcrunError(
                f"--fusion-threshold={size}: not a size in KB",
                hint="a whole number: 2048 sends gradients in pieces of 2 MB, 0 a message for each tensor",
            )
        if (most := self.max_parallel) is not None and (type(most) is not int or most < 1):
            hint = "a whole number: 4 lets four tasks of a sweep run at the same time"
            raise HpcrunError(f"--max-parallel={most}: not a number of tasks", hint=hint)
        if (times := self.max_requeue) is not None and (type(times) is not int or times < 0):
            raise HpcrunError(
                f"--max-requeue={times}: not a number of times",
                hint="a whole number: 3 lets the job go on after its time limit three times, 0 never",
            )
