"""Facts about a job that explain its state: state, exit record, last lines of logs, and site keys."""

from __future__ import annotations

import os
import re
from functools import cached_property
from typing import TYPE_CHECKING, Any

from hpcrun.frozen import frozen
from hpcrun.sites.lint.mpi import matching_mpi_type
from hpcrun.why import site_origin
from hpcrun.why.evidence import Evidence
from hpcrun.why.log_end import TAIL_BYTES, Log
from hpcrun.why.signatures import reason_code
from hpcrun.why.tracebacks import find_python_error
from hpcrun.write_access import name_of_uid

if TYPE_CHECKING:
    from hpcrun.jobs.run_files import ExitRecord
    from hpcrun.jobs.runs import Run
    from hpcrun.jobs.states import State
    from hpcrun.why.python_error import PythonError

MAX_LOGS = 64  # maximum number of rank logs; the logs that ended first are read
ENDED_BY_SLURM = frozenset({"BOOT_FAIL", "CANCELLED", "DEADLINE", "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED", "TIMEOUT"})
"""States of jobs that Slurm or a user ended; the ranks of such jobs may raise exceptions as a consequence."""

LAST_RANK_LINES = 3  # number of lines that are quoted from a failed rank's log without a known error

MAX_LINES_BEFORE = 12
"""Maximum number of lines between a program's message and the line in which it aborts."""

_MESSAGE = re.compile(
    r"(?i)error|problem|fail|fatal|abort|invalid|cannot|can't|could ?n[o']t|unable|missing"
    r"|not (?:found|a |allowed|supported)"
    r"|denied|exceed|too (?:many|few|large|small)|must|illegal|unknown|mismatch|\bnan\b|stop(?:ping|ped)?\b|!!"
)
_NO_MESSAGE = re.compile(
    r"(?i)warn|MPI_Abort|^(?:MPICH ERROR|Abort\(|aborting job|\[\S+:\d+\])|stopping \.\.\.|Abort trap|\bMPT ERROR:"
    r"|^\W*(?:stop(?:ping)?|abort(?:ing|ed)?|exit(?:ing)?)\b.{0,12}$"
    r"|\b(?:rel\w*|abs\w*|l[12]|mean|max\w*|rms|squared?)[ ._-]*errors?\b|\berrors?\b[ =:]*[\d.]+(?:e[-+]?\d+)?\b"
    r"|\b[0-9A-Fa-f]{16}\b|\b0x[0-9a-f]{6}"  # of a backtrace
)
_REPORT = re.compile(r"slurmstepd|srun: |^This typically refers to|^Please see the FAQ|^(?:Exit code|Process name):")
_LAUNCHER_LINE = re.compile(
    r"(?:srun|yhrun|mpirun|mpiexec|slurmstepd\S*|prterun): .*|\W+|=   .*|YOUR APPLICATION .*|time=\S+ level=.*"
    r"|\[[\d:T.-]+\] error: \*\*\* .*"
)
"""A line that a launcher or Slurm writes after a rank has ended."""
_FAILED_RANK = re.compile(
    r"^the ranks ended with exit code \d+(?:, that of|:) rank (\d+)(?: on |, which called MPI_Abort)"
)
_SITE_KEY = re.compile(r"\bsite key ([a-z_][\w.-]*)")


@frozen
class JobFacts:
    """Facts about one job, computed on demand.

    Attributes:
        run: The job.
        job_state: The state that the scheduler reports.
        canceller: The user who cancelled the job, if Slurm's accounting has recorded this.
        of_failed_rank: Whether to read only the logs of the rank that failed first, instead of all logs.
    """

    run: Run
    job_state: State
    canceller: str = ""
    of_failed_rank: bool = False

    @property
    def state(self) -> str:
        """Slurm's name of the job's state."""
        return self.job_state.name

    @property
    def reason(self) -> str:
        """The reason code of a pending job, or the reason why the job ended.

        The reason code has no details in brackets or after a comma.
        """
        reason = self.job_state.reason
        return reason_code(reason) if self.state == "PENDING" else reason

    @property
    def scheduler(self) -> str:
        """The name of the job's scheduler."""
        return self.run.scheduler.name

    @property
    def launcher(self) -> str:
        """The launcher that starts the job's ranks."""
        return self.run.spec.launcher

    @cached_property
    def record(self) -> ExitRecord | None:
        """The job's exit record; None if there is none."""
        return self.run.exit_record()

    @property
    def exit_code(self) -> int | None:
        """The job's exit code; None without an exit record."""
        record = self.record
        return record.exit_code if record else None

    @property
    def started(self) -> bool:
        """Whether the job script has started: it has written a log or a record."""
        return bool(self.logs) or self.exit_code is not None or self.run.start_count() > 0

    @property
    def disk_full(self) -> bool:
        """Whether the run directory's file system has no space left for a log."""
        status = os.statvfs(self.run.directory)
        return status.f_bavail * status.f_frsize < TAIL_BYTES

    @property
    def gpus(self) -> bool:
        """Whether the job requested GPUs."""
        return bool(self.run.spec.resources.gpus_per_node)

    @property
    def disk_full_evidence(self) -> Evidence:
        """The evidence that the file system of the run directory is full."""
        return Evidence("df", f"no space left on the file system of {self.run.directory}")

    @property
    def site_key(self) -> str:
        """The key of the site file that the job script named in its error message; empty if it named none."""
        record = self.record
        key = _SITE_KEY.search(record.reason) if record else None
        return key[1] if key else ""

    @property
    def cancelled_by(self) -> str:
        """Who cancelled the job: ``me`` or ``other``; empty if nobody did, or if the user is unknown."""
        return self.canceller and ("me" if self.canceller == name_of_uid(os.getuid()) else "other")

    @cached_property
    def scheduler_report(self) -> Evidence:
        """The job's state as the scheduler and the exit record report it."""
        scheduler, has_code = self.run.scheduler, self.job_state.finished and self.exit_code is not None
        code = f", exit code {self.exit_code}" if has_code else ""
        reason = self.job_state.reason and f", reason: {self.job_state.reason}"
        canceller_text = self.canceller and f" by {self.canceller}"
        return Evidence(
            scheduler.title if scheduler.has_queue else "exit.json", f"{self.state}{canceller_text}{code}{reason}"
        )

    @cached_property
    def logs(self) -> tuple[Log, ...]:
        """The ends of the logs: stderr and stdout of the job (and rank 0), then other ranks by modification time."""
        job_logs = [file for file in (self.run.log("err"), self.run.log("out")) if file and file.exists()]
        # the job's stdout contains the output of rank 0
        other_logs = [log for rank, log in self.run.rank_logs().items() if rank or not job_logs]
        if self.of_failed_rank and self.failed_rank:
            job_logs = [file for file in job_logs if file.suffix == ".err"]
            other_logs = [log for rank, log in self.run.rank_logs().items() if rank == self.failed_rank]
        elif self.of_failed_rank and job_logs:
            other_logs = []
        other_logs = sorted(other_logs, key=lambda log: log.stat().st_mtime)[:MAX_LOGS]
        # the launcher's messages after the failure of a rank are only consequences
        without_launcher = self.failed_rank is not None
        return tuple(Log.read(file, self.run, without_launcher=without_launcher) for file in [*job_logs, *other_logs])

    @cached_property
    def failed_rank(self) -> int | None:
        """The rank that failed first, according to the exit record; None if the record names none."""
        match = _FAILED_RANK.search(self.record.reason) if self.record else None
        return int(match[1]) if match else None

    @cached_property
    def failed_rank_lines(self) -> tuple[Evidence, ...]:
        """The last lines of the log of the rank that failed first."""
        file = None if self.failed_rank is None else self.run.rank_logs().get(self.failed_rank)
        if file is None:
            return ()
        log = Log.read(file, self.run)
        indices = [number for number, line in enumerate(log.lines) if line.strip()]
        return tuple(Evidence(log.name, log.line(number)) for number in indices[-LAST_RANK_LINES:])

    @property
    def last_output_lines(self) -> tuple[Evidence, ...]:
        """The last lines of stdout, without lines of launchers and libraries about the end of ranks."""
        lines = (line for line in self.last_program_lines if line.source.endswith(".out"))
        return tuple(line for line in lines if not (_NO_MESSAGE.search(line.line) or _REPORT.search(line.line)))

    @cached_property
    def last_program_lines(self) -> tuple[Evidence, ...]:
        """The last lines of stderr and stdout, without lines of launchers."""
        found: list[Evidence] = []
        for log in self.logs[:2]:
            lines = enumerate(map(str.strip, log.lines))
            indices = [number for number, line in lines if line and not _LAUNCHER_LINE.fullmatch(line)]
            found += [Evidence(log.name, log.line(number)) for number in indices[-LAST_RANK_LINES:]]
        return tuple(found)

    def _find_line(self, evidence: Evidence) -> tuple[Log | None, int]:
        """Return the log that contains a line, and the line's index there; None if no log contains it."""
        for log in self.logs:
            if log.name == evidence.source:
                indices = (n for n in reversed(range(len(log.lines))) if log.line(n) == evidence.line)
                return next(((log, index) for index in indices), (None, 0))
        return None, 0

    def lines_after(self, evidence: Evidence) -> list[str]:
        """Return the lines of a log after a line, without labels of ranks; empty if no log contains the line."""
        log, index = self._find_line(evidence)
        return log.full_text.split("\n")[index + 1 :] if log else []

    def message_before(self, evidence: Evidence) -> Evidence | None:
        """Return the last message about an error before a line of a log, or at the end of another log; None without."""
        log, index = self._find_line(evidence)
        if log is None:
            return None
        places = [(log, index), *((other, len(other.lines)) for other in self.logs[:2] if other is not log)]
        return next(filter(None, (_find_message(*place) for place in places)), None)

    @cached_property
    def python_error(self) -> PythonError | None:
        """The exception that ended the program; None without one, or if the end of the job caused the exception."""
        error = find_python_error(self.logs)
        return None if error and error.late and self.state in ENDED_BY_SLURM else error

    @cached_property
    def template_values(self) -> dict[str, Any]:
        """The values that replace names in braces in the texts of signatures."""
        spec, record = self.run.spec, self.record
        site, resources, mpi = spec.site, spec.resources, spec.site.mpi
        library = str(mpi.library)
        placeholder = "not set"
        return {
            "job_id": self.run.job_id or (record.job_id if record else "") or "-",
            "run_dir": self.run.directory,
            "site": site.name or placeholder,
            "site_key": self.site_key or "run_root",
            "site_file": site_origin.find_origin(self.run, self.site_key or "run_root"),
            "python": spec.python or "python",
            "launcher": self.launcher,
            "mpi_library": library,
            "mpi_type": mpi.type or placeholder,
            "mpi_fits": matching_mpi_type(library) or "pmi2",
            "time": resources.time or placeholder,
            "mem": resources.mem or resources.mem_per_cpu or resources.mem_per_gpu or placeholder,
            "partition": resources.partition or "default",
            "host": (record.host if record else "") or self.job_state.nodes or "the node",
            "exit_code": self.exit_code,
            "state": self.state,
            "reason": self.job_state.reason,
            "canceller": self.canceller,
        }


def _find_message(log: Log, end: int) -> Evidence | None:
    """Return the last message about an error in the lines of a log before a line; None without one."""
    for number in range(end - 1, max(end - 1 - MAX_LINES_BEFORE, -1), -1):
        line = log.line(number)
        if _MESSAGE.search(line) and not (_LAUNCHER_LINE.fullmatch(line) or _NO_MESSAGE.search(line)):
            return Evidence(log.name, line)
    return None
