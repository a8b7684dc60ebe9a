"""Options of a job, each declared once, for the command line, the Python API, ``job.json`` and ``hpcrun resubmit``.

A new option is one field of `JobOptions`, and the code that uses it. `hpcrun.request.Request`, `hpcrun.spec.JobSpec`
and `hpcrun.jobs.job_record.JobRecord` inherit the fields.
"""

from __future__ import annotations

import inspect
import os
from dataclasses import field, fields
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, get_type_hints

from hpcrun.errors import HpcrunError, closest_match
from hpcrun.frozen import frozen

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    Function = TypeVar("Function", bound=Callable[..., Any])

LOG_LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR")
FRAMEWORKS = ("auto", "hpcrun", "tensorflow", "torch", "jax", "horovod", "none")
GPU_VIEWS = ("rank", "node")
LAUNCH_MODES = ("ranks", "nodes", "torchrun", "accelerate")
CPU_BINDINGS = ("cores", "sockets", "none")
CODECS = ("none", "fp16", "bf16", "ternary", "powersgd")
_COMPRESSION_PANEL = "Compression of gradients"

STAGED_PLACEHOLDER = "{staged}"
"""Placeholder in a program's arguments for the folder with the copies of ``--stage-in`` and ``--unpack``."""


class CommandLineOption(NamedTuple):
    """An option as users type it.

    Attributes:
        flag: The name of the option, such as ``--no-gpu``.
        help: The description of the option in ``--help``.
        metavar: The name of the option's value in ``--help``; None for an option without a value.
        commands: The commands that have the option; empty for all commands that start jobs.
        convert: A function that converts the typed value; None to use the typed value.
        variable: The environment variable that passes the value to the ranks; None if they do not need it.
        panel: The title of the option's group in ``--help``.
    """

    flag: str
    help: str
    metavar: str | None = None
    commands: tuple[str, ...] = ()
    convert: Callable[[Any], Any] | None = None
    variable: str | None = None
    panel: str = "Job"


def _option(default: Any, *described: Any, **more: Any) -> Any:
    return field(default=default, metadata={"option": CommandLineOption(*described, **more)})


@frozen(kw_only=True)
class JobOptions:
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
        compress: The codec in which ranks send gradients; None for none.
        clip_factor: Standard deviations to which ``ternary`` clips gradients; 0 for no clipping.
        powersgd_rank: The rank of the matrices that ``powersgd`` sends.
        min_size: The smallest layer, in numbers, that ``ternary`` and ``powersgd`` compress.
        float_last_layer: Whether the last layer is sent unrounded.
        float_every: Number of steps after which one is sent unrounded; 0 for never.
        error_feedback: Whether a rank adds what it has not sent to the gradients of the next step; None for the default
            of the codec.
    """

    max_parallel: int | None = _option(
        None,
        "--max-parallel",
        "Maximum number of tasks of a sweep that run at once.",
        "N",
        commands=("submit", "resubmit"),
    )
    max_requeue: int | None = _option(
        None,
        "--max-requeue",
        "Maximum number of times that the job continues after its time limit.",
        "N",
        commands=("submit", "resubmit"),
    )
    memory_retries: int | None = _option(
        None,
        "--memory-retries",
        "Maximum number of times that the job is submitted again with 1.5 times its memory after it ran out of memory.",
        "N",
        commands=("submit", "resubmit"),
    )
    no_gpu: bool = _option(False, "--no-gpu", "Use no GPUs, even if the nodes have some.")
    output_on_all_ranks: bool = _option(
        False,
        "--output-on-all-ranks",
        "Write the output of all ranks to the job's log, not only of rank 0.",
    )
    strict: bool = _option(
        False,
        "--strict",
        "Fail if the ranks do not communicate: before submission, or at the end of the job.",
    )
    framework: str = _option(
        "auto",
        "--framework",
        "Framework of the ranks: hpcrun, tensorflow, torch, jax, horovod or none; default: what the script imports.",
        "NAME",
        convert=str.lower,
    )
    launch: str | None = _option(
        None,
        "--launch",
        "What starts the ranks: ranks (hpcrun; default), torchrun or accelerate; nodes starts one process per node.",
        "HOW",
    )
    gpus_visible: str | None = _option(
        None,
        "--gpus-visible",
        "GPUs that a rank sees: rank (its own) or node (all); default: the site's, or node for torch and Horovod.",
        "WHICH",
    )
    log_level: str = _option(
        "WARNING",
        "--log-level",
        "Lowest level to log: DEBUG, INFO, WARNING or ERROR; default: WARNING.",
        "LEVEL",
        convert=str.upper,
        variable="HPCRUN_LOG_LEVEL",
    )
    cpu_bind: str | None = _option(
        None,
        "--cpu-bind",
        "What to bind each rank to: cores, sockets or none; default: the site's, else cores.",
        "KIND",
    )
    fusion_threshold_kb: int | None = _option(
        None,
        "--fusion-threshold",
        "Size in KB of the chunks in which gradients are sent (0: whole tensors); default: 2048.",
        "KB",
        variable="HPCRUN_FUSION_THRESHOLD_KB",
    )
    stage_in: tuple[str, ...] = _option(
        (),
        "--stage-in",
        "File or folder that each node copies to its local disk before the ranks start (repeatable).",
        "PATH",
        convert=tuple,
    )
    unpack: tuple[str, ...] = _option(
        (),
        "--unpack",
        "Archive (.tar, .tar.gz, .zip, ...) that each node unpacks to its local disk (repeatable).",
        "PATH",
        convert=tuple,
    )

    compress: str | None = _option(
        None,
        "--compress",
        "Codec in which ranks send gradients: none, fp16, bf16, ternary or powersgd; default: none.",
        "CODEC",
        convert=lambda value: value and value.lower(),
        variable="HPCRUN_COMPRESS",
        panel=_COMPRESSION_PANEL,
    )
    clip_factor: float | None = _option(
        None,
        "--clip-factor",
        "Standard deviations to which ternary clips gradients (0: not at all); default: 2.5.",
        "C",
        variable="HPCRUN_CLIP_FACTOR",
        panel=_COMPRESSION_PANEL,
    )
    powersgd_rank: int | None = _option(
        None,
        "--powersgd-rank",
        "Rank of the matrices that powersgd sends; default: 4.",
        "R",
        variable="HPCRUN_POWERSGD_RANK",
        panel=_COMPRESSION_PANEL,
    )
    min_size: int | None = _option(
        None,
        "--min-size",
        "Smallest layer that ternary and powersgd compress, in numbers; default: 2048.",
        "N",
        variable="HPCRUN_MIN_SIZE",
        panel=_COMPRESSION_PANEL,
    )
    float_last_layer: bool = _option(
        False,
        "--float-last-layer",
        "Send the last layer unrounded (ternary, powersgd).",
        variable="HPCRUN_FLOAT_LAST_LAYER",
        panel=_COMPRESSION_PANEL,
    )
    float_every: int | None = _option(
        None,
        "--float-every",
        "Send every Nth step unrounded (ternary, powersgd; 0: none); default: 0.",
        "N",
        variable="HPCRUN_FLOAT_EVERY",
        panel=_COMPRESSION_PANEL,
    )
    error_feedback: bool | None = _option(
        None,
        "--error-feedback/--no-error-feedback",
        "Add what was not sent to the next step (ternary, powersgd); default: with powersgd.",
        variable="HPCRUN_ERROR_FEEDBACK",
        panel=_COMPRESSION_PANEL,
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
        _require_choice(
            "--cpu-bind",
            self.cpu_bind,
            CPU_BINDINGS,
            "hpcrun cannot bind ranks to this; for other values of srun, see the site key launcher_args",
        )
        _require_choice(
            "--gpus-visible", self.gpus_visible, GPU_VIEWS, "a rank sees its own GPUs, or those of its node"
        )
        _require_choice("--launch", self.launch, LAUNCH_MODES, "hpcrun cannot start ranks by this")
        _require_choice("--framework", self.framework, FRAMEWORKS, "hpcrun does not know this framework")
        _require_choice("--log-level", self.log_level, LOG_LEVELS, "this is not a log level")
        for flag, paths in (("--stage-in", self.stage_in), ("--unpack", self.unpack)):
            is_path_list = isinstance(paths, list | tuple) and all(
                isinstance(path, str | os.PathLike) for path in paths
            )
            if not is_path_list or "" in paths:
                raise HpcrunError(f"{flag}: {paths!r} is not a list of paths", hint='stage_in=["/data/images"]')
        _require_whole_number(
            f"--fusion-threshold={self.fusion_threshold_kb}: not a size in KB",
            self.fusion_threshold_kb,
            hint="a whole number: 2048 sends gradients in buffers of 2 MB, 0 sends one message per tensor",
        )
        _require_whole_number(
            f"--max-parallel={self.max_parallel}: not a number of tasks",
            self.max_parallel,
            minimum=1,
            hint="a whole number: 4 lets four tasks of a sweep run at the same time",
        )
        _require_whole_number(
            f"--max-requeue={self.max_requeue}: not a number of times",
            self.max_requeue,
            hint="a whole number: 3 lets the job continue after its time limit three times, 0 never",
        )
        _require_whole_number(
            f"--memory-retries={self.memory_retries}: not a number of times",
            self.memory_retries,
            hint="a whole number: 2 submits the job again twice with more memory, 0 never",
        )
        self._require_valid_compression()

    def require_codec(self) -> None:
        """Refuse options about gradients that the codec does not use.

        Raises:
            HpcrunError: An option has no effect.
        """
        users = {
            "clip_factor": ("ternary",),
            "powersgd_rank": ("powersgd",),
            **dict.fromkeys(("min_size", "float_last_layer", "float_every", "error_feedback"), ("ternary", "powersgd")),
        }
        declared = {one.name: one for one in fields(JobOptions)}
        for name, codecs in users.items():
            if getattr(self, name) != declared[name].default and self.compress not in codecs:
                flag = declared[name].metadata["option"].flag
                needed = " or ".join(f"--compress={codec}" for codec in codecs)
                raise HpcrunError(f"{flag} has no effect without {needed}", hint=f"give {needed}, too, or omit {flag}")

    def _require_valid_compression(self) -> None:
        """Refuse invalid values of the options about gradients."""
        _require_choice("--compress", self.compress, CODECS, "hpcrun has no such codec")
        if self.clip_factor is not None and not (isinstance(self.clip_factor, int | float) and self.clip_factor >= 0):
            hint = "2.5 clips gradients to 2.5 standard deviations, 0 leaves them as they are"
            raise HpcrunError(f"--clip-factor={self.clip_factor}: not a number from 0", hint=hint)
        for flag, value, minimum, example in (
            ("--powersgd-rank", self.powersgd_rank, 1, "4 sends matrices of four columns and rows"),
            ("--min-size", self.min_size, 0, "2048 sends smaller layers unrounded"),
            ("--float-every", self.float_every, 0, "100 sends every 100th step unrounded, 0 none"),
        ):
            _require_whole_number(
                f"{flag}={value}: not a whole number from {minimum}", value, hint=example, minimum=minimum
            )


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


def _require_choice(flag: str, value: str | None, choices: tuple[str, ...], problem: str) -> None:
    """Refuse a value that is not among the choices; None stands for the default."""
    if value is not None and value not in choices:
        match = closest_match(str(value), [*choices])
        suggestion = f"did you mean {match}? " if match else ""
        raise HpcrunError(f"{flag}={value}: {problem}", hint=f"{suggestion}the choices: {', '.join(choices)}")


def _require_whole_number(description: str, value: object, *, hint: str, minimum: int = 0) -> None:
    if value is not None and (type(value) is not int or value < minimum):
        raise HpcrunError(description, hint=hint)


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
