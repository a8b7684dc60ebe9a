"""Run directories: made before submitting, found again from any process."""

from __future__ import annotations

import json
import os
import re
import shutil
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hpcrun import paths, permissions, secrets, write_access
from hpcrun.errors import HpcrunError
from hpcrun.jobs import heartbeats, index, records, room
from hpcrun.jobs.job_record import JobRecord
from hpcrun.jobs.run_files import NEVER, CleanRecord, Epoch, ExitRecord, Refusal, Result, Start, Submission
from hpcrun.jobs.states import UNSUBMITTED

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from hpcrun.jobs.kinds import Record, Said
    from hpcrun.jobs.states import State
    from hpcrun.spec import JobSpec

_LOG_OF = re.compile(r"(\d+(?:_\d+)?)_0_log\.out", re.ASCII)
_LOG_OF_RANK = re.compile(r"rank-(\d{1,9})\.log", re.ASCII)


@dataclass(frozen=True)
class Run:
    """One run directory, and what its files say.

    Attributes:
        directory: The run directory.
    """

    directory: Path

    @classmethod
    def gone(cls, entry: index.Entry) -> Run:
        """Return a run whose directory is not there any more, with as much of its submission as its link tells."""
        run = cls(entry.directory)
        if entry.job_id:
            folder = run.directory.parent if entry.sweep else run.directory
            script = f"{folder}/job.sh"
            run.__dict__["submission"] = Submission(entry.job_id, entry.made / 1e9, "", command=[script])
        return run

    @cached_property
    def faults(self) -> dict[str, str]:
        """What is wrong with files that were asked for, by their names; the run goes on as if they were not there."""
        return {}

    @cached_property
    def guard(self) -> records.Guard | None:
        """Looks at each of its records as it is read; None where nothing is acted on (see `hpcrun.jobs.genuine`)."""
        return None

    @contextmanager
    def _faults_of(self, name: str) -> Iterator[None]:
        """Note what is wrong with a file, which counts as not there."""
        try:
            yield
        except records.BadRecordError as error:
            self.faults[name] = error.why

    def _read(self, name: str, model: type[Record]) -> Record | None:
        """Return what a file says; None where it is not there, or cannot be used, which `faults` tells."""
        with self._faults_of(name):
            return records.read(self.directory / name, model, self.guard)
        return None

    @cached_property
    def spec(self) -> JobRecord:
        """``job.json``: what was asked for."""
        return self._read("job.json", JobRecord) or JobRecord()

    @property
    def poll_seconds(self) -> float:
        """Fewest seconds between two questions to its scheduler, as its site says."""
        return self.spec.site.poll_seconds

    @property
    def slurm_conf(self) -> str | None:
        """The slurm.conf of the Slurm that has its job: its site's, else what SLURM_CONF said when it was submitted.

        SLURM_CONF as it is now counts where the latter is not on this host, and where somebody else may have written
        this down: Slurm's commands load what such a file names. None: Slurm itself knows.
        """
        of_site, of_shell = self.spec.site.slurm_conf, self.submission.slurm_conf
        conf, file = (of_site, "job.json") if of_site else (of_shell, "submitted.json")
        with suppress(OSError):
            usable = conf and (of_site or Path(conf).exists())
            if usable and not write_access.find_other_writer(self.directory / file, file_only=True):
                return str(conf)
        return os.environ.get("SLURM_CONF") or None

    @cached_property
    def submission(self) -> Submission:
        """``submitted.json``: the job's id, when and where it was submitted; `NEVER` before."""
        return self._read("submitted.json", Submission) or NEVER

    @property
    def recorded(self) -> Path | None:
        """The run directory as ``job.json`` spells it; None where that does not say."""
        path = Path(self.spec.run_dir)
        return path if path.is_absolute() else None

    @property
    def spellings(self) -> tuple[str, ...]:
        """The paths of this one directory that its processes may carry: as recorded, as found, and without links."""
        found = [*([self.recorded] if self.recorded else []), self.directory, self.directory.resolve()]
        return tuple(dict.fromkeys(map(str, found)))

    @property
    def job_id(self) -> str | None:
        """The scheduler's job id; None where it was never submitted."""
        return self.submission.job_id or None

    @property
    def begun_id(self) -> str | None:
        """The id after which the job's own log is named; None before it began."""
        logs = (_LOG_OF.fullmatch(log.name) for log in sorted(self.directory.glob("*_0_log.out")))
        return next((log[1] for log in logs if log), None)

    @property
    def refusal(self) -> str | None:
        """Why there never was a job; None where there is one, or nobody knows."""
        record = None if self.job_id else self._read("refused.json", Refusal)
        return record.reason if record else None

    @property
    def unsubmitted(self) -> State:
        """The state of a run without a job."""
        return replace(UNSUBMITTED, reason=self.refusal or UNSUBMITTED.reason)

    @property
    def name(self) -> str:
        """The job's name."""
        return self.spec.name if "name" in self.spec.said else self.directory.name

    @property
    def scheduler(self) -> str:
        """What runs the job: slurm or local."""
        if not self.spec.scheduler and self.job_id:  # job.json cannot be read
            return "slurm" if self.submission.start_time is False else "local"
        return self.spec.scheduler or "local"

    @property
    def place(self) -> str:
        """The site's name, and whether the job ran on the spot rather than in the site's queue."""
        site = self.spec.site.name
        return site if site == "local" or self.scheduler != "local" else f"{site} (run)"

    @property
    def values(self) -> dict[str, str]:
        """The values that this task of a sweep has; empty for other jobs."""
        return dict(self.spec.values)

    @property
    def number(self) -> int | None:
        """Which task of its sweep this is, from 0 on; None for other jobs. Its directory's name says it."""
        sweep, _, number = self.directory.name.rpartition(".")
        return int(number) if sweep == self.directory.parent.name and number.isdigit() else None

    @property
    def sweep(self) -> Run | None:
        """The sweep that this is a task of; None for other jobs."""
        return None if self.number is None else Run(self.directory.parent)

    @cached_property
    def tasks(self) -> list[Run]:
        """The tasks of a sweep, each a run of its own; empty for other jobs."""
        return [Run(self.directory / f"{self.directory.name}.{n}") for n, _ in enumerate(self.spec.tasks)]

    def facts(self) -> dict[str, Any]:
        """Return what a script that submitted the job wants to know of it."""
        site = self.spec.site.name or None
        own: dict[str, Any] = {"job_id": self.job_id, "name": self.name, "site": site, "run_dir": str(self.directory)}
        if self.values:
            own["values"] = self.values
        return {**own, "tasks": [task.facts() for task in self.tasks]} if self.tasks else own

    def ended(self) -> ExitRecord | None:
        """How the job ended, as its script says; None before, and while ranks are being stopped."""
        record = self.record()
        return record if record and record.ended else None

    def record(self) -> ExitRecord | None:
        """``exit.json``; None before the job's script has started."""
        return self._read("exit.json", ExitRecord)

    def starts(self) -> int:
        """How often the job's script has started, as ``starts.jsonl`` says."""
        return len(self._starts())

    def job_ids(self) -> list[str]:
        """The ids of the jobs that this run has been: several where each submitted the next one."""
        ids = [*(start.job_id for start in self._starts()), self.submission.job_id]
        return list(dict.fromkeys(filter(None, ids)))

    def slurm_ids(self) -> list[str]:
        """The ids that Slurm's jobs of this run have in their processes' environment; tasks of arrays have own ones."""
        return [start.slurm_job for start in self._starts() if start.slurm_job]

    def nodes(self) -> list[str]:
        """The nodes that Slurm gave the job at each start, as Slurm writes them."""
        return [start.nodes for start in self._starts() if start.nodes]

    def last_start(self) -> Start | None:
        """What the job's script wrote down when it started last; None before it did."""
        return next(iter(self._starts()[::-1]), None)

    def _starts(self) -> list[Start]:
        return self._lines("starts.jsonl", Start)[::-1]

    def result(self) -> Said | None:
        """``result.json``: the figures that rank 0 wrote; None while there are none."""
        record = self._read("result.json", Result)
        return record.said if record else None

    def metrics(self) -> list[Epoch]:
        """``metrics.jsonl``: what rank 0 appended, a line an epoch; lines that are no objects are left out."""
        return self._lines("metrics.jsonl", Epoch)[::-1]

    def latest(self) -> Epoch:
        """The last line of ``metrics.jsonl``; one that says nothing while there is none."""
        return next(iter(self._lines("metrics.jsonl", Epoch, last=True)), Epoch())

    def _lines(self, name: str, model: type[Record], *, last: bool = False) -> list[Record]:
        """Return what a file says on its lines, the last first; or only the last one."""
        found = []
        with self._faults_of(name):
            for one in records.lines(self.directory / name, model, last=last, guard=self.guard):
                found.append(one)
                if last:
                    break
        return found

    def cleaned(self) -> CleanRecord | None:
        """``cleaned.json``: when nothing was left of the job, and on which nodes; None before."""
        return self._read("cleaned.json", CleanRecord)

    def heartbeat(self) -> heartbeats.Heartbeat | None:
        """What rank 0 said last, unless what it wrote at the end of an epoch is newer."""
        return heartbeats.newest(self.directory, self.faults)

    def rank_logs(self) -> dict[int, Path]:
        """Return the ranks' log files, by rank."""
        logs = ((_LOG_OF_RANK.fullmatch(log.name), log) for log in self.directory.glob("logs/rank-*.log"))
        return dict(sorted((int(match[1]), log) for match, log in logs if match))

    def log(self, stream: str = "out") -> Path | None:
        """Return the job's own log, ``out`` or ``err``, as submitit names it; None before submission."""
        return self.directory / f"{self.job_id}_0_log.{stream}" if self.job_id else None


def submitted(ids: Mapping[Run, str], **facts: object) -> None:
    """Write ``submitted.json`` for runs that a scheduler has taken.

    Args:
        ids: The jobs' ids.
        **facts: What else there is to say of all of them; it goes before what is so here and now.
    """
    same = {"submitted": time.time(), "host": os.uname().nodename, **facts}
    for run, job_id in ids.items():
        paths.write_atomically(run.directory / "submitted.json", json.dumps({"job_id": job_id, **same}).encode())
        run.__dict__.pop("submission", None)
    index.identify({run.directory: job_id for run, job_id in ids.items()})


def refused(run: Run, reason: str) -> None:
    """Write ``refused.json``: there is no job, and will be none."""
    record = json.dumps({"reason": reason, "time": time.time()}).encode()
    for one in (run, *run.tasks):
        with suppress(OSError):  # it only spares others the search for the job
            paths.write_atomically(one.directory / "refused.json", record)


def new_directory(root: Path, name: str) -> Path:
    """Return a fresh run directory's path (and make nothing): name, local time, a random end."""
    return root / f"{name}-{time.strftime('%Y%m%d-%H%M%S')}-{os.urandom(4).hex()}"


def create(spec: JobSpec, script: str) -> Run:
    """Make the run directory with ``job.json``, ``job.sh`` and the library that this loads, and list it in the index.

    For a sweep also its tasks' directories.

    Raises:
        HpcrunError: The directory cannot be made, or not be listed; nothing is left of it then.
    """
    folder = paths.run_index_folder()
    try:
        paths.make_state_folder(folder)
    except OSError as error:
        raise _unlisted(error) from None
    tasks = [spec.for_task(number) for number in range(len(spec.tasks))]
    try:
        open_to = permissions.make_run_directory(spec.run_dir, shared=spec.site.share_runs == "read")
    except OSError as error:
        raise _unmade(spec.run_dir, error) from None
    if open_to:
        spec.run_dir.rmdir()
        what = f"the run directory {spec.run_dir} cannot be kept from others: {open_to}, and chmod changes nothing"
        hint = "run_root in the site file (or HPCRUN_RUN_ROOT) must lie on a file system with modes, as that of HOME"
        raise HpcrunError(what, hint=hint)
    try:
        for one in (spec, *tasks):
            permissions.make_folder(one.run_dir / "logs")
            paths.write_atomically(one.run_dir / "job.json", json.dumps(one.as_json(), indent=1, default=str).encode())
        secrets.write_secrets(spec.run_dir, spec.secrets)
        permissions.make_folder(spec.run_dir / "shell")
        for file in sorted(paths.shell_library().glob("*.bash")):  # an upgrade of hpcrun changes no job in the queue
            paths.write_atomically(spec.run_dir / "shell" / file.name, file.read_bytes())
        paths.write_atomically(spec.run_dir / "job.sh", script.encode(errors="surrogateescape"))
        for task in tasks:
            (task.run_dir / "job.sh").symlink_to("../job.sh")
        room.require(spec.run_dir, len(tasks or [spec]))
    except OSError as error:
        shutil.rmtree(spec.run_dir, ignore_errors=True)
        raise _unmade(spec.run_dir, error) from None
    made = time.time_ns()
    try:
        for number, one in enumerate(tasks or [spec]):
            index.add(one.run_dir, made - number)  # lists, whose first is the newest, have tasks in order
    except OSError as error:
        shutil.rmtree(spec.run_dir, ignore_errors=True)
        raise _unlisted(error) from None
    return Run(spec.run_dir)


def discard(run: Run) -> None:
    """Remove the directory of a run that has no job, and take it off the list."""
    shutil.rmtree(run.directory, ignore_errors=True)
    names = {one.directory.name for one in (run, *run.tasks)}
    for entry in index.entries():
        if entry.directory_name in names:
            with suppress(FileNotFoundError):
                index.forget(entry)


def _unlisted(error: OSError) -> HpcrunError:
    hint = "it lists your runs; XDG_STATE_HOME says where it is"
    return HpcrunError(f"cannot write to the folder {paths.run_index_folder()}: {error.strerror}", hint=hint)


def _unmade(directory: Path, error: OSError) -> HpcrunError:
    hint = "run_root in the site file (or HPCRUN_RUN_ROOT) must be yours to write, and shared by all nodes"
    if error.errno in room.FULL:
        hint = "df -h and quota -s show what is full; run_root in the site file (or HPCRUN_RUN_ROOT) is where runs go"
    return HpcrunError(f"cannot make the run directory {directory}: {error.strerror}", hint=hint)


def every() -> Iterator[Run]:
    """Yield this user's runs, the newest first; directories that are gone are left out."""
    for entry in index.entries():
        with suppress(FileNotFoundError):
            if (entry.directory / "job.json").exists():
                yield Run(entry.directory)
