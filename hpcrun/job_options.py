"""Options of a job, each declared once, for the command line, the Python API, ``job.json`` and ``hpcrun resubmit``.

A new option is one field of `JobOptions` (of `CompressionOptions` for gradients), and the code that uses it.
`hpcrun.request.Request`, `hpcrun.spec.JobSpec` and `hpcrun.jobs.job_record.JobRecord` inherit the fields.
"""

from __future__ import annotations

import inspect
import os
from dataclasses import fields
from typing import TYPE_CHECKING, Any, TypeVar, get_type_hints

from hpcrun.compression_options import CompressionOptions
from hpcrun.errors import HpcrunError
from hpcrun.frozen import frozen
from hpcrun.job_option import CommandLineOption, declare_option, require_choice, require_whole_number

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    Function = TypeVar("Function", bound=Callable[..., Any])

LOG_LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR")
FRAMEWORKS = ("auto", "hpcrun", "tensorflow", "torch", "jax", "horovod", "none")
GPU_VIEWS = ("rank", "node")
LAUNCH_MODES = ("ranks", "nodes", "torchrun", "accelerate")
CPU_BINDINGS = ("cores", "sockets", "none")

STAGED_PLACEHOLDER = "{staged}"
"""Placeholder in a program's arguments for the folder with the copies of ``--stage-in`` and ``--unpack``."""


@frozen(kw_only=True)
class JobOptions(CompressionOptions):
    """Options of a job that are not resources; None stands for the default of the site or of hpcrun.

    Attributes:
        max_parallel: Maximum number of running tasks of a sweep; None for the scheduler's limit.
        max_requeue: Maximum number of times that the job continues from its checkpoint after its time limit.
        memory_retries: Maximum number of resubmissions, with more memory, of a job that ran out of memory.
        no_gpu: Whether ranks must not see any GPU.
        output_on_all_ranks: Whether the output of all ranks goes to the job's log, not only the output of rank 0.
        strict: Whether the job fails if not all of its ranks communicate.
        gpus_visible: The GPUs that a rank sees: its own (rank), or all GPUs of its node (node); None for the default
            of the site or framework.
        launch: The processes that hpcrun's launcher starts: all ranks (ranks), or one process per node, which is the
            script (nodes), torchrun or accelerate.
        framework: The framework through which the ranks find each other; auto to detect it in the script.
        log_level: The lowest level of the messages that ranks log.
        cpu_bind: The CPU binding of each rank: to its part of the job's cores (cores), to the sockets of these cores
            (sockets), or none.
        fusion_threshold_kb: Size in KB of the fusion buffers of gradients; 0 for one message per tensor.
        stage_in: Files and folders that each node copies to its local disk.
        unpack: Archives that each node unpacks to its local disk.
    """

    max_parallel: int | None = declare_option(
        None,
        "--max-parallel",
        "Maximum number of tasks of a sweep that run at once.",
        "N",
        commands=("submit", "resubmit"),
    )
    max_requeue: int | None = declare_option(
        None,
        "--max-requeue",
        "Maximum number of times that the job continues after its time limit.",
        "N",
        commands=("submit", "resubmit"),
    )
    memory_retries: int | None = declare_option(
        None,
        "--memory-retries",
        "Maximum number of times that the job is submitted again with 1.5 times its memory after it ran out of memory.",
        "N",
        commands=("submit", "resubmit"),
    )
    no_gpu: bool = declare_option(False, "--no-gpu", "Use no GPUs, even if the nodes have some.")
    output_on_all_ranks: bool = declare_option(
        False,
        "--output-on-all-ranks",
        "Write the output of all ranks to the job's log, not only of rank 0.",
    )
    strict: bool = declare_option(
        False,
        "--strict",
        "Fail if the ranks do not communicate: before submission, or at the end of the job.",
    )
    framework: str = declare_option(
        "auto",
        "--framework",
        "Framework of the ranks: hpcrun, tensorflow, torch, jax, horovod or none; default: what the script imports.",
        "NAME",
        convert=str.lower,
    )
    launch: str | None = declare_option(
        None,
        "--launch",
        "What starts the ranks: ranks (hpcrun; default), torchrun or accelerate; nodes starts one process per node.",
        "HOW",
    )
    gpus_visible: str | None = declare_option(
        None,
        "--gpus-visible",
        "GPUs that a rank sees: rank (its own) or node (all); default: the site's, or node for torch and Horovod.",
        "WHICH",
    )
    log_level: str = declare_option(
        "WARNING",
        "--log-level",
        "Lowest level to log: DEBUG, INFO, WARNING or ERROR; default: WARNING.",
        "LEVEL",
        convert=str.upper,
        variable="HPCRUN_LOG_LEVEL",
    )
    cpu_bind: str | None = declare_option(
        None,
        "--cpu-bind",
        "What to bind each rank to: cores, sockets or none; default: the site's, else cores.",
        "KIND",
    )
    fusion_threshold_kb: int | None = declare_option(
        None,
        "--fusion-threshold",
        "Size in KB of the chunks in which gradients are sent (0: whole tensors); default: 2048.",
        "KB",
        variable="HPCRUN_FUSION_THRESHOLD_KB",
    )
    stage_in: tuple[str, ...] = declare_option(
        (),
        "--stage-in",
        "File or folder that each node copies to its local disk before the ranks start (repeatable).",
        "PATH",
        convert=tuple,
    )
    unpack: tuple[str, ...] = declare_option(
        (),
        "--unpack",
        "Archive (.tar, .tar.gz, .zip, ...) that each node unpacks to its local disk (repeatable).",
        "PATH",
        convert=tuple,
    )

    def job_options(self) -> dict[str, Any]:
        """Return the values of the options, by name."""
        return {name: getattr(self, name) for name in OPTION_NAMES}

    def job_options_with_defaults(self, recorded_options: JobOptions) -> dict[str, Any]:
        """Return the values of the options, by name; values of an earlier job replace defaults."""
        return {
            one.name: getattr(recorded_options if getattr(self, one.name) == one.default else self, one.name)
            for one in fields(JobOptions)
        }

    def rank_variables(self) -> dict[str, str]:
        """Return the environment variables that pass values of options to the ranks."""
        options = [one for one in fields(JobOptions) if one.metadata["option"].variable]
        changed = [one for one in options if getattr(self, one.name) not in (None, one.default) or one.default]
        values = {one.metadata["option"].variable: getattr(self, one.name) for one in changed}
        return {name: str(int(value) if isinstance(value, bool) else value) for name, value in values.items()}

    def require_valid_options(self) -> None:
        """Refuse invalid values of the options.

        Raises:
            HpcrunError: A value is invalid.
        """
        require_choice(
            "--cpu-bind",
            self.cpu_bind,
            CPU_BINDINGS,
            "hpcrun cannot bind ranks to this; for other values of srun, see the site key launcher_args",
        )
        require_choice("--gpus-visible", self.gpus_visible, GPU_VIEWS, "a rank sees its own GPUs, or those of its node")
        require_choice("--launch", self.launch, LAUNCH_MODES, "hpcrun cannot start ranks by this")
        require_choice("--framework", self.framework, FRAMEWORKS, "hpcrun does not know this framework")
        require_choice("--log-level", self.log_level, LOG_LEVELS, "this is not a log level")
        for flag, paths in (("--stage-in", self.stage_in), ("--unpack", self.unpack)):
            is_path_list = isinstance(paths, list | tuple) and all(
                isinstance(path, str | os.PathLike) for path in paths
            )
            if not is_path_list or "" in paths:
                raise HpcrunError(f"{flag}: {paths!r} is not a list of paths", hint='stage_in=["/data/images"]')
        require_whole_number(
            f"--fusion-threshold={self.fusion_threshold_kb}: not a size in KB",
            self.fusion_threshold_kb,
            hint="a whole number: 2048 sends gradients in buffers of 2 MB, 0 sends one message per tensor",
        )
        require_whole_number(
            f"--max-parallel={self.max_parallel}: not a number of tasks",
            self.max_parallel,
            minimum=1,
            hint="a whole number: 4 lets four tasks of a sweep run at the same time",
        )
        require_whole_number(
            f"--max-requeue={self.max_requeue}: not a number of times",
            self.max_requeue,
            hint="a whole number: 3 lets the job continue after its time limit three times, 0 never",
        )
        require_whole_number(
            f"--memory-retries={self.memory_retries}: not a number of times",
            self.memory_retries,
            hint="a whole number: 2 submits the job again twice with more memory, 0 never",
        )
        self.require_valid_compression()


OPTION_NAMES = tuple(one.name for one in fields(JobOptions))

OPTIONS_OF_VARIABLES = {
    option.variable: f"{option.flag} {option.metavar or ''}".strip()
    for option in (one.metadata["option"] for one in fields(JobOptions))
    if option.variable
}
"""The option that sets an environment variable, by the variable's name, for messages."""


WORKLOAD_OPTIONS = {"framework": str, "launch": str, "gpus_visible": str, "strict": bool}
"""Options whose defaults ``workload.toml`` may set, and their types."""


def read_workload_options(table: Mapping[str, Any]) -> JobOptions:
    """Return the options that a ``workload.toml`` sets.

    Raises:
        ValueError: A value is invalid.
    """
    values = {name: table[name] for name in WORKLOAD_OPTIONS if name in table}
    for name, value in values.items():
        if type(value) is not WORKLOAD_OPTIONS[name]:
            raise ValueError(f"{name} = {value!r} is not a {'text' if WORKLOAD_OPTIONS[name] is str else 'boolean'}")
    options = JobOptions(**values)
    try:
        options.require_valid_options()
    except HpcrunError as error:
        raise ValueError(f"{error.message} ({error.hint})") from None
    return options


def list_parameters() -> Iterator[tuple[inspect.Parameter, CommandLineOption]]:
    """Yield each option as a keyword parameter of a function, and as an option of the command line."""
    types = get_type_hints(JobOptions)
    for one in fields(JobOptions):
        kind = inspect.Parameter.KEYWORD_ONLY
        yield inspect.Parameter(one.name, kind, default=one.default, annotation=types[one.name]), one.metadata["option"]


def show_job_options(function: Function) -> Function:
    """Add the options to the visible signature of a function that accepts them as keyword arguments."""
    signature = inspect.signature(function)
    *own, others = signature.parameters.values()
    parameters = [*own, *(parameter for parameter, _ in list_parameters()), others]
    function.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    return function
