"""What is known of a job without judging it: its state, its exit record, the ends of its logs, its site's keys."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from hpcrun.jobs.records import BadRecordError, opened
from hpcrun.schedulers.environment import typed
from hpcrun.sites.lint.mpi import matching_mpi_type
from hpcrun.why import site as site_file
from hpcrun.why import slurm
from hpcrun.why.evidence import Evidence
from hpcrun.why.signatures import code

if TYPE_CHECKING:
    from pathlib import Path

    from hpcrun.jobs.runs import Run
    from hpcrun.jobs.states import State

TAIL = 64 * 1024  # bytes of a log that are read
MOST_LOGS = 64  # of a big job's ranks; the first to fall silent are read
WIDTH = 300  # characters of a line that are shown
_SITE_KEY = re.compile(r"\bsite key ([a-z_][\w.-]*)")
_PREFIX = re.compile(r"^\[rank \d+\] (?!host )", re.MULTILINE)  # that --output-on-all-ranks gives each line


@dataclass(frozen=True)
class Log:
    """The end of a log file.

    Attributes:
        name: The file, seen from the run directory.
        lines: Its lines, as they are.
        text: The same, without what names the rank of a line.
    """

    name: str
    lines: tuple[str, ...]
    text: str

    @classmethod
    def read(cls, file: Path, directory: Path) -> Log:
        """Read the end of a file, whole lines only; one that cannot be read is empty."""
        try:
            with opened(file) as stream:
                size = stream.seek(0, os.SEEK_END)
                stream.seek(max(size - TAIL, 0))
                data = stream.read()
        except (FileNotFoundError, BadRecordError):
            size, data = 0, b""
        if size > TAIL:
            data = data.partition(b"\n")[2]
        text = data.decode(errors="replace").replace("\r\n", "\n").replace("\r", "\n")  # \r: progress bars
        return cls(str(file.relative_to(directory)), tuple(text.split("\n")), _PREFIX.sub("", text))

    def line(self, match: re.Match[str]) -> str:
        """Return the line in which a match (or its group ``line``) ends."""
        end = match.end("line") if "line" in match.re.groupindex else match.end()
        line = self.lines[self.text.count("\n", 0, max(end - 1, match.start()))].strip()
        return line if len(line) <= WIDTH else f"{line[:WIDTH]} ..."


@dataclass(frozen=True)
class Facts:
    """One job's facts, each found out when it is asked for.

    Attributes:
        run: The job's run directory.
        whole_state: What its scheduler says of it.
        canceller: Who cancelled it, where Slurm's accounting knows.
    """

    run: Run
    whole_state: State
    canceller: str = ""

    @property
    def state(self) -> str:
        """Slurm's name of its state."""
        return self.whole_state.name

    @property
    def reason(self) -> str:
        """A pending job's reason, without what Slurm says of it in brackets or behind a comma; else how it ended."""
        reason = self.whole_state.reason
        return code(reason) if self.state == "PENDING" else reason

    @property
    def scheduler(self) -> str:
        """What ran it: slurm or local."""
        return self.run.scheduler

    @property
    def launcher(self) -> str:
        """What started its ranks."""
        return self.run.spec.launcher

    @property
    def exit_code(self) -> int | None:
        """Its exit code; None where it left none."""
        record = self.run.record()
        return record.exit_code if record else None

    @property
    def began(self) -> bool:
        """Whether its script has started: only what it writes itself, and its log, tell that."""
        return bool(self.logs) or self.exit_code is not None or self.run.starts() > 0

    @property
    def full(self) -> bool:
        """Whether the run directory's file system has no room for a log any more."""
        room = os.statvfs(self.run.directory)
        return room.f_bavail * room.f_frsize < TAIL

    @property
    def room(self) -> Evidence:
        """What shows that it is full."""
        return Evidence("df", f"no space left on the file system of {self.run.directory}")

    @property
    def site_key(self) -> str:
        """The key of the site file with which its script said that it cannot go on; empty where it did not."""
        record = self.run.record()
        key = _SITE_KEY.search(record.reason) if record else None
        return key[1] if key else ""

    @property
    def cancelled_by(self) -> str:
        """``me``, ``other``, or nothing where nobody did or nobody knows."""
        return self.canceller and ("me" if self.canceller == slurm.user(os.getuid()) else "other")

    @cached_property
    def told(self) -> Evidence:
        """What the scheduler and the exit record say of the job."""
        over = self.whole_state.finished and self.exit_code is not None
        code = f", exit code {self.exit_code}" if over else ""
        reason = self.whole_state.reason and f", reason: {self.whole_state.reason}"
        who = self.canceller and f" by {self.canceller}"
        return Evidence("Slurm" if self.scheduler == "slurm" else "exit.json", f"{self.state}{who}{code}{reason}")

    @cached_property
    def logs(self) -> tuple[Log, ...]:
        """The ends of its logs: errors, output with rank 0's, then the other ranks', the first to fall silent first."""
        own = [file for file in (self.run.log("err"), self.run.log("out")) if file and file.exists()]
        # the job's output has all that rank 0 wrote
        others = [log for rank, log in self.run.rank_logs().items() if rank or not own]
        if len(others) > MOST_LOGS:
            others = sorted(others, key=lambda log: log.stat().st_mtime)[:MOST_LOGS]
        return tuple(Log.read(file, self.run.directory) for file in [*own, *others])

    @property
    def again(self) -> str:
        """The command that starts the job's own script once more; ``RUN/RUN.3/job.sh`` is all tasks' of its sweep."""
        run, slurms = self.run, self.run.scheduler == "slurm"
        sbatch = typed(run.slurm_conf, "sbatch")
        if not run.sweep:
            return f"{sbatch if slurms else 'bash'} {run.directory}/job.sh"
        script = f"{run.sweep.directory}/job.sh"
        return f"{sbatch} --array={run.number} {script}" if slurms else f"HPCRUN_TASK={run.number} bash {script}"

    @cached_property
    def words(self) -> dict[str, Any]:
        """What a signature's text may name in braces."""
        spec, record = self.run.spec, self.run.record()
        site, resources, mpi = spec.site, spec.resources, spec.site.mpi
        library = str(mpi.library)
        unsaid = "not said"
        return {
            "job_id": self.run.job_id or (record.job_id if record else "") or "-",
            "run_dir": self.run.directory,
            "again": self.again,
            "site": site.name or unsaid,
            "site_key": self.site_key or "run_root",
            "site_file": site_file.place(self.run, self.site_key or "run_root"),
            "python": spec.python or "python",
            "launcher": self.launcher,
            "mpi_library": library,
            "mpi_type": mpi.type or unsaid,
            "mpi_fits": matching_mpi_type(library) or "pmi2",
            "time": resources.time or unsaid,
            "mem": resources.mem or resources.mem_per_cpu or resources.mem_per_gpu or unsaid,
            "partition": resources.partition or "default",
            "host": (record.host if record else "") or self.whole_state.nodes or "the node",
            "exit_code": self.exit_code,
            "state": self.state,
            "reason": self.whole_state.reason,
            "canceller": self.canceller,
        }
