"""The options that a user gave for a job."""

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
"""Variables of hpcrun.train that users may set; hpcrun sets all other HPCRUN_* variables."""


@dataclass(frozen=True)
class Request:
    """A job to submit or to run.

    Attributes:
        target: A workload, folder or script; None for any program, given in ``args``.
        args: The arguments after ``--``.
        resources: Values of Slurm's options by name, as typed.
        site: A site's name or file; None to detect it.
        environment: Variables for all ranks, in order; hpcrun expands nothing in them.
        hostfile: The file of nodes to reach over ssh.
        run_now: Run in the current allocation or on this host instead of submitting.
        no_gpu: Hide all GPUs from the ranks.
        output_on_all_ranks: Write the output of every rank to the job's log.
        log_level: The lowest level that ranks log.
        fusion_threshold_kb: Size in KB of the fusion buffers of gradients (0: one message per tensor); None for
            the default of hpcrun.train.
        sweep: The names and values of the swept options.
        max_parallel: Maximum number of running tasks of a sweep.
        snapshot: Whether the job runs a copy of the user's code; None for the site's default.
        container: The image that ranks run in; False for no container, None for the site's default.
        cpu_bind: What each rank is bound to: cores, sockets or none; None for the site's default.
        max_requeue: Maximum number of requeues before the time limit; None for the site's default.
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
                raise HpcrunError(f"{name!r} is not a valid variable name", hint="use letters, digits and _")
            if name == "HPCRUN_FUSION_THRESHOLD_KB":
                raise HpcrunError(f"{name} is not set with -x", hint="--fusion-threshold KB sets it")
            if (
                name.startswith(("HPCRUN_", "hpcrun_"))
                and not name.startswith("HPCRUN_DATA_")
                and name not in USER_VARIABLES
            ):
                raise HpcrunError(
                    f"{name} is reserved for hpcrun",
                    hint=f"choose another name; {', '.join(USER_VARIABLES)} can be set",
                )
        if self.cpu_bind not in {None, "cores", "sockets", "none"}:
            what = f"--cpu-bind={self.cpu_bind}: hpcrun cannot bind ranks to this"
            raise HpcrunError(
                what, hint="cores, sockets or none; srun's other values go into the site key launcher_args"
            )
        if self.log_level not in LOG_LEVELS:
            raise HpcrunError(f"{self.log_level!r} is not a log level", hint=f"one of {', '.join(LOG_LEVELS)}")
        if (size := self.fusion_threshold_kb) is not None and (type(size) is not int or size < 0):
            raise HpcrunError(
                f"--fusion-threshold={size}: not a size in KB",
                hint="a whole number: 2048 sends gradients in buffers of 2 MB, 0 sends one message per tensor",
            )
        if (maximum := self.max_parallel) is not None and (type(maximum) is not int or maximum < 1):
            hint = "a whole number: 4 lets four tasks of a sweep run at the same time"
            raise HpcrunError(f"--max-parallel={maximum}: not a number of tasks", hint=hint)
        if (count := self.max_requeue) is not None and (type(count) is not int or count < 0):
            raise HpcrunError(
                f"--max-requeue={count}: not a number of times",
                hint="a whole number: 3 lets the job continue after its time limit three times, 0 never",
            )
