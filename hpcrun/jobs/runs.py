"""Run directories: created before the submission, and readable by any later process."""

from __future__ import annotations

import os
import re
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from hpcrun import write_access
from hpcrun.frozen import frozen
from hpcrun.jobs import heartbeats, run_index, safe_reading
from hpcrun.jobs.job_record import JobRecord
from hpcrun.jobs.run_files import NO_SUBMISSION, CleanRecord, Epoch, ExitRecord, Refusal, Result, Start, Submission
from hpcrun.jobs.states import UNSUBMITTED, State, state_from_record
from hpcrun.scheduler import find_scheduler

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from hpcrun.jobs.record_validation import Record
    from hpcrun.scheduler import Scheduler

_JOB_LOG = re.compile(r"(\d+(?:_\d+)?)_0_log\.out", re.ASCII)
_RANK_LOG = re.compile(r"rank-(\d{1,9})\.log", re.ASCII)


@frozen
class Run:
    """A run directory and the content of its files.

    Attributes:
        directory: The run directory.
    """

    directory: Path

    @classmethod
    def from_index_entry(cls, entry: run_index.Entry) -> Run:
        """Return a run whose directory was removed, with the data in its index entry."""
        run = cls(entry.directory)
        if entry.job_id:
            folder = run.directory.parent if entry.sweep else run.directory
            script = f"{folder}/job.sh"
            run.__dict__["submission"] = Submission(entry.job_id, entry.submitted_ns / 1e9, "", command=[script])
        return run

    @cached_property
    def faults(self) -> dict[str, str]:
        """Error messages of invalid files that were read, by file name; such files count as missing."""
        return {}

    @cached_property
    def trust_check(self) -> safe_reading.TrustCheck | None:
        """The trust check at each read of a record, see `hpcrun.jobs.record_trust`; None for read-only commands."""
        return None

    @contextmanager
    def _record_fault(self, name: str) -> Iterator[None]:
        """Record the error of an invalid file, which then counts as missing."""
        try:
            yield
        except safe_reading.BadRecordError as error:
            self.faults[name] = error.why

    def _read(self, name: str, record_class: type[Record]) -> Record | None:
        """Read a file; return None if it is missing or invalid, and record the error in `faults`."""
        with self._record_fault(name):
            return safe_reading.read_record(self.directory / name, record_class, self.trust_check)
        return None

    @cached_property
    def spec(self) -> JobRecord:
        """The job as it was requested, from ``job.json``."""
        return self._read("job.json", JobRecord) or JobRecord()

    @property
    def poll_seconds(self) -> float:
        """The site's minimum interval between scheduler queries, in s."""
        return self.spec.site.poll_seconds

    @property
    def slurm_conf(self) -> str | None:
        """The slurm.conf of the job's cluster: the site's, else the value of SLURM_CONF at submission.

        The current SLURM_CONF is used if this file is missing on this host, or if another user may have written the
        record: Slurm's commands load plugins that slurm.conf names. None: Slurm's default.
        """
        site_conf, shell_conf = self.spec.site.slurm_conf, self.submission.slurm_conf
        conf, file = (site_conf, "job.json") if site_conf else (shell_conf, "submitted.json")
        with suppress(OSError):
            is_usable = bool(conf and (site_conf or Path(conf).exists()))
            if is_usable and not write_access.find_other_writer(self.directory / file, file_only=True):
                return str(conf)
        return os.environ.get("SLURM_CONF") or None

    @cached_property
    def submission(self) -> Submission:
        """Job id, time and host of the submission, from ``submitted.json``; `NO_SUBMISSION` before the submission."""
        return self._read("submitted.json", Submission) or NO_SUBMISSION

    @property
    def recorded_path(self) -> Path | None:
        """The path of the run directory in ``job.json``; None if there is none."""
        path = Path(self.spec.run_dir)
        return path if path.is_absolute() else None

    @property
    def path_variants(self) -> tuple[str, ...]:
        """Paths of this directory that the job's processes may use: recorded, current, and with links resolved."""
        path_list = [*([self.recorded_path] if self.recorded_path else []), self.directory, self.directory.resolve()]
        return tuple(dict.fromkeys(map(str, path_list)))

    @property
    def job_id(self) -> str | None:
        """The scheduler's job id; None if the job was never submitted."""
        return self.submission.job_id or None

    @property
    def log_job_id(self) -> str | None:
        """The job id in the name of the job's log; None before the job started."""
        logs = (_JOB_LOG.fullmatch(log.name) for log in sorted(self.directory.glob("*_0_log.out")))
        return next((log[1] for log in logs if log), None)

    @property
    def refusal(self) -> str | None:
        """The reason why the scheduler refused the job; None if it was not refused, or if the reason is unknown."""
        record = None if self.job_id else self._read("refused.json", Refusal)
        return record.reason if record else None

    @property
    def start_by_hand(self) -> Start | None:
        """The last start of a job script that a user passed to sbatch or bash; None for jobs that hpcrun submitted."""
        return None if (self.directory / "job.json").exists() else self.last_start()

    @property
    def unsubmitted_state(self) -> State:
        """The state of a run that hpcrun did not submit; from the run's records if a user started the script."""
        if start := self.start_by_hand:
            record = self.end_record()
            state = state_from_record(record) if record else State("UNKNOWN", "it has not recorded its end")
            origin = f"started by hand, as job {start.job_id}"
            reason = f"{origin}; {state.reason}" if state.name != "COMPLETED" else origin
            return replace(state, reason=reason, nodes=start.nodes or start.host)
        return replace(UNSUBMITTED, reason=self.refusal or UNSUBMITTED.reason)

    @property
    def name(self) -> str:
        """The job's name."""
        return self.spec.name or self.directory.name

    @property
    def scheduler(self) -> Scheduler:
        """The job's scheduler."""
        if not self.spec.scheduler and self.job_id:  # job.json cannot be read
            return find_scheduler("slurm" if self.submission.start_time is False else "local")
        return find_scheduler(self.spec.scheduler or "local")

    @property
    def site_label(self) -> str:
        """The site, with ``(run)`` if the job bypassed its queue; ``(by hand)`` if hpcrun did not start it."""
        site = self.spec.site.name
        if self.start_by_hand:
            return "(by hand)"
        return site if site == "local" or self.scheduler.has_queue else f"{site} (run)"

    @property
    def values(self) -> dict[str, str]:
        """The parameter values of this task of a sweep; empty for other jobs."""
        return dict(self.spec.values)

    @property
    def task_number(self) -> int | None:
        """The task's number in its sweep, from 0, taken from the directory's name; None for other jobs."""
        sweep, _, number = self.directory.name.rpartition(".")
        return int(number) if sweep == self.directory.parent.name and number.isdigit() else None

    @property
    def sweep(self) -> Run | None:
        """The sweep that this task belongs to; None for other jobs."""
        return None if self.task_number is None else Run(self.directory.parent)

    @cached_property
    def tasks(self) -> list[Run]:
        """The tasks of a sweep, each as a run; empty for other jobs."""
        return [Run(self.directory / f"{self.directory.name}.{n}") for n, _ in enumerate(self.spec.tasks)]

    def summary(self) -> dict[str, object]:
        """Return the data that ``submit --json`` prints."""
        values: dict[str, object] = {"job_id": self.job_id, "name": self.name, "site": self.spec.site.name or None}
        values["run_dir"] = str(self.directory)
        if self.values:
            values["values"] = self.values
        return {**values, "tasks": [task.summary() for task in self.tasks]} if self.tasks else values

    def end_record(self) -> ExitRecord | None:
        """Return the exit record of an ended job; None before the end, and while ranks are being stopped."""
        record = self.exit_record()
        return record if record and record.ended else None

    def exit_record(self) -> ExitRecord | None:
        """Return ``exit.json``; None before the job's script has started."""
        return self._read("exit.json", ExitRecord)

    def handles_signals(self) -> bool:
        """Return whether the job's script has installed its signal handlers, after which it creates ``exit.json``."""
        try:
            # on NFS a listing queries the server, but the look-up of one name may use a stale cache
            files = {file.name for file in self.directory.iterdir()}
        except OSError:
            return True  # the run directory was removed
        record = self.exit_record()
        return "exit.json" in files and not (record and record.requeued)

    def starts(self) -> list[Start]:
        """Return the lines of ``starts.jsonl``, one per start of the script."""
        return self._read_lines("starts.jsonl", Start)[::-1]

    def start_count(self) -> int:
        """Return the number of starts in ``starts.jsonl``."""
        return len(self.starts())

    def job_ids(self) -> list[str]:
        """Return the ids of the run's jobs: several if the script was submitted again, or if the run was resumed."""
        started_ids = [start.job_id for start in self.starts()]
        ids = [*self.submission.earlier_job_ids, *started_ids, self.submission.job_id]
        return list(dict.fromkeys(filter(None, ids)))

    def slurm_ids(self) -> list[str]:
        """Return SLURM_JOB_ID at each start; each task of an array has a different id."""
        return [start.slurm_job for start in self.starts() if start.slurm_job]

    def nodes(self) -> list[str]:
        """Return the allocated nodes at each start, in Slurm's notation (``n[1-4]``)."""
        return [start.nodes for start in self.starts() if start.nodes]

    def last_start(self) -> Start | None:
        """Return the record of the last start; None before the first start."""
        return next(iter(self.starts()[::-1]), None)

    def completed_ranks(self) -> list[int]:
        """Return the sorted numbers of the ranks that have ended with exit code 0."""
        names = [path.name.removeprefix("rank-") for path in self.directory.glob("completed/rank-*")]
        return sorted(int(name) for name in names if name.isdecimal())

    def result(self) -> Result | None:
        """Return the results that rank 0 wrote to ``result.json``; None if there are none yet."""
        return self._read("result.json", Result)

    def result_values(self) -> Mapping[str, object]:
        """Return the values in ``result.json`` by name; empty if there are none yet."""
        return (self.result() or Result()).all_values

    def metrics(self) -> list[Epoch]:
        """Return the lines of ``metrics.jsonl``, one per epoch, without incomplete lines."""
        return self._read_lines("metrics.jsonl", Epoch)[::-1]

    def last_epoch(self) -> Epoch:
        """Return the last line of ``metrics.jsonl``; an empty record if there is no line."""
        return next(iter(self._read_lines("metrics.jsonl", Epoch, last_only=True)), Epoch())

    def _read_lines(self, name: str, record_class: type[Record], *, last_only: bool = False) -> list[Record]:
        """Return the records of a file of JSON lines, the last first, or only the last record."""
        entries = []
        with self._record_fault(name):
            for record in safe_reading.read_lines(
                self.directory / name, record_class, end_only=last_only, trust_check=self.trust_check
            ):
                entries.append(record)
                if last_only:
                    break
        return entries

    def clean_record(self) -> CleanRecord | None:
        """Return the record of a complete cleanup, ``cleaned.json``; None if there is none."""
        return self._read("cleaned.json", CleanRecord)

    def heartbeat(self) -> heartbeats.Heartbeat | None:
        """Return rank 0's latest heartbeat; None if the last line of ``metrics.jsonl`` is newer."""
        return heartbeats.read_newer_heartbeat(self.directory, self.faults)

    def rank_logs(self) -> dict[int, Path]:
        """Return the log files of ranks, by rank."""
        logs = ((_RANK_LOG.fullmatch(log.name), log) for log in self.directory.glob("logs/rank-*.log"))
        return dict(sorted((int(match[1]), log) for match, log in logs if match))

    def log(self, stream: str = "out") -> Path | None:
        """Return the job's own log, ``out`` or ``err``, as submitit names it; None before submission."""
        return self.directory / f"{self.job_id}_0_log.{stream}" if self.job_id else None


def list_runs() -> Iterator[Run]:
    """Yield this user's runs, the newest first, without runs whose directories were removed."""
    for entry in run_index.list_entries():
        with suppress(FileNotFoundError):
            if (entry.directory / "job.json").exists():
                yield Run(entry.directory)
