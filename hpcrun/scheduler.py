"""The interface of schedulers, which start job scripts. The implementations are in `hpcrun.schedulers`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from hpcrun.errors import HpcrunError
from hpcrun.frozen import frozen
from hpcrun.plugins import Registry

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path
    from typing import TypeAlias

    from hpcrun.jobs.runs import Run
    from hpcrun.jobs.states import State
    from hpcrun.spec import JobSpec

    NodelistReader: TypeAlias = Callable[[Mapping[str, str], str], dict[str, int]]


@frozen
class UnrecordedJob:
    """A job whose submission was not recorded, with the attributes that `hpcrun.jobs.run_files.Submission` needs.

    Attributes:
        job_id: The job id.
        start_time: The start time of the script's process on this host, in clock ticks since boot; None if it has
            ended, False for a job in a queue.
        host: The host on which the job was submitted; None for this host.
        command: The command line that submitted the job.
    """

    job_id: str
    start_time: float | Literal[False] | None = False
    host: str | None = None
    command: tuple[str, ...] = ()


class Scheduler(ABC):
    """A program that starts job scripts.

    A package adds a scheduler by an entry point in the group ``hpcrun.schedulers`` that refers to an instance.

    Attributes:
        name: The scheduler's name in site files. The job template is ``NAME.sh.j2``.
        title: The scheduler's name in messages.
        has_queue: Whether jobs wait in a queue for nodes; if not, they start on this host at once.
        transport: How ranks start on a job's nodes: by Slurm (slurm), over ssh (ssh), or on the script's host only
            (host).
        capabilities: The optional capabilities: ``sweep`` (job arrays), ``requeue`` (start a job again),
            ``memory_retries`` (start it again with more memory) and ``dependency`` (hold a job until other jobs end).
        uses_slurm: Whether Slurm commands and sbatch options apply to the scheduler's jobs.
        max_poll_seconds: The maximum number of seconds between two queries of a command that waits for a job.
        templates: The folder with the job template; None for hpcrun's own folder.
        nodelist_variables: The environment variables in which its jobs find their nodes; for each, a function that
            takes the environment and the variable, and returns the number of tasks by host name.
        bash_file: The file with the scheduler's bash functions, which ``shell/local.bash`` lists at its top.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    has_queue: ClassVar[bool] = True
    transport: ClassVar[Literal["slurm", "ssh", "host"]] = "host"
    capabilities: ClassVar[frozenset[str]] = frozenset()
    uses_slurm: ClassVar[bool] = False
    max_poll_seconds: ClassVar[float] = 60.0
    templates: ClassVar[Path | None] = None
    nodelist_variables: ClassVar[Mapping[str, NodelistReader]] = {}
    bash_file: ClassVar[Path]

    def directives(self, spec: JobSpec) -> list[str]:  # noqa: ARG002
        """Return the options for the directives in a job script, such as ``#SBATCH`` lines."""
        return []

    def bash_options(self, spec: JobSpec) -> dict[str, object]:  # noqa: ARG002
        """Return the options of job.bash that only this scheduler has; the keys are names with underscores.

        The function ``hpcrun_scheduler_option`` in `bash_file` parses them. True becomes a name without a value; None,
        False and an empty text are omitted.
        """
        return {}

    def check(self, spec: JobSpec) -> list[str]:  # noqa: ARG002
        """Return warnings about a job that the scheduler would accept, but not start.

        Raises:
            HpcrunError: No node can ever run the job.
        """
        return []

    def executor(self, run: Run) -> Any:
        """Return the submitit executor of a run; its method ``submit_script()`` submits the run."""
        return import_module("hpcrun.schedulers.executors").ScriptExecutor(run)

    @abstractmethod
    def submit(self, run: Run) -> str:
        """Submit a run's ``job.sh``, record it (`hpcrun.jobs.submission_records`), and return the job id.

        Raises:
            HpcrunError: The scheduler refused the job, is not installed, or did not answer.
        """

    @abstractmethod
    def find_unrecorded(self, runs: Sequence[Run]) -> dict[Path, UnrecordedJob | None]:
        """Find the jobs of runs whose submission was not recorded.

        Returns:
            The job of each run, by run directory; None if the run has no job. Runs are omitted if
            the scheduler cannot tell whether they have a job.
        """

    @abstractmethod
    def query_states(self, runs: Sequence[Run]) -> dict[Run, State]:
        """Return the state of each submitted run, with one query for all runs."""

    @abstractmethod
    def request_stop(self, run: Run) -> bool:
        """Signal the ranks of a job to write a checkpoint and exit; return whether a process received the signal."""

    @abstractmethod
    def cancel(self, *runs: Run) -> None:
        """End jobs and all their ranks immediately."""

    def resume(self, run: Run) -> str:
        """Start the script of a stopped run again, as a new job with the same run directory and log.

        Returns:
            The new job id.

        Raises:
            HpcrunError: The scheduler refused the job, did not answer, or cannot resume jobs.
        """
        raise HpcrunError(f"hpcrun cannot resume jobs of {self.title}", hint=f"type {self.rerun_command(run)}")

    @abstractmethod
    def rerun_command(self, run: Run) -> str:
        """Return the command line that runs a job's script again, outside of hpcrun."""


REGISTRY: Registry[Scheduler] = Registry("scheduler", Scheduler, ("slurm", "local"))


@cache
def find_scheduler(name: str) -> Scheduler:
    """Return the scheduler of an existing job; a substitute if the scheduler's package is not installed."""
    try:
        return REGISTRY.load(name)
    except HpcrunError as error:
        substitute: Scheduler = import_module("hpcrun.schedulers.uninstalled").UninstalledScheduler(name, error)
        return substitute
