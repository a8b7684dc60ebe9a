"""Run directories: made before submitting, found again from any process."""

from __future__ import annotations

import errno
import json
import os
import shutil
import time
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from types import NoneType
from typing import TYPE_CHECKING, Any

from hpcrun import owners, paths
from hpcrun.errors import HpcrunError
from hpcrun.jobs import index
from hpcrun.jobs.states import UNSUBMITTED

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from hpcrun.jobs.states import State
    from hpcrun.spec import JobSpec

_SUBMISSION = {"job_id": str, "submitted": (float, int), "host": str}
_REFUSAL = {"reason": str, "time": (float, int)}
_RECORD = {"exit_code": int, "reason": str, "started": int, "ended": (int, NoneType)}


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
            facts = {"job_id": entry.job_id, "submitted": entry.made / 1e9, "command": [f"{folder}/job.sh"]}
            run.__dict__["submission"] = {**facts, "host": ""}
        return run

    def _json(self, name: str, needed: Mapping[str, Any] = {}) -> dict[str, Any] | None:
        """Return a file's object; None where it is not there, half written, or lacks what is needed."""
        try:
            value = json.loads((self.directory / name).read_text())
        except (OSError, ValueError, RecursionError):
            return None
        if not isinstance(value, dict):
            return None
        fits = all(isinstance(value.get(key), kind) for key, kind in needed.items())
        return value if fits else None

    @cached_property
    def spec(self) -> dict[str, Any]:
        """``job.json``: what was asked for."""
        return self._json("job.json") or {}

    @property
    def poll_seconds(self) -> float:
        """Fewest seconds between two questions to its scheduler, as its site says."""
        return float(self.spec.get("site", {}).get("poll_seconds", 2))

    @property
    def slurm_conf(self) -> str | None:
        """The slurm.conf of the Slurm that has its job: its site's, else what SLURM_CONF said when it was submitted.

        SLURM_CONF as it is now counts where the latter is not on this host, and where somebody else may have written
        this down: Slurm's commands load what such a file names. None: Slurm itself knows.
        """
        of_site, of_shell = self.spec.get("site", {}).get("slurm_conf"), self.submission.get("slurm_conf")
        conf, file = (of_site, "job.json") if of_site else (of_shell, "submitted.json")
        with suppress(OSError):
            usable = conf and (of_site or Path(conf).exists())
            if usable and not owners.writer(self.directory / file, itself=True):
                return str(conf)
        return os.environ.get("SLURM_CONF") or None

    @cached_property
    def submission(self) -> dict[str, Any]:
        """``submitted.json``: the job's id, when and where it was submitted; empty before."""
        return self._json("submitted.json", _SUBMISSION) or {}

    @property
    def job_id(self) -> str | None:
        """The scheduler's job id; None where it was never submitted."""
        return self.submission.get("job_id")

    @property
    def begun_id(self) -> str | None:
        """The id after which the job's own log is named; None before it began."""
        end = "_0_log.out"
        return next((log.name.removesuffix(end) for log in sorted(self.directory.glob(f"*{end}"))), None)

    @property
    def refusal(self) -> str | None:
        """Why there never was a job; None where there is one, or nobody knows."""
        record = None if self.submission else self._json("refused.json", _REFUSAL)
        return str(record["reason"]) if record else None

    @property
    def unsubmitted(self) -> State:
        """The state of a run without a job."""
        return replace(UNSUBMITTED, reason=self.refusal or UNSUBMITTED.reason)

    @property
    def name(self) -> str:
        """The job's name."""
        return str(self.spec.get("name", self.directory.name))

    @property
    def scheduler(self) -> str:
        """What runs the job: slurm or local."""
        if not self.spec and self.submission:  # job.json cannot be read
            return "local" if "start_time" in self.submission else "slurm"
        return str(self.spec.get("scheduler", "local"))

    @property
    def place(self) -> str:
        """The site's name, and whether the job ran on the spot rather than in the site's queue."""
        site = str(self.spec.get("site", {}).get("name", ""))
        return site if site == "local" or self.scheduler != "local" else f"{site} (run)"

    @property
    def values(self) -> dict[str, str]:
        """The values that this task of a sweep has; empty for other jobs."""
        return dict(self.spec.get("values", ()))

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
        return [Run(self.directory / f"{self.directory.name}.{n}") for n, _ in enumerate(self.spec.get("tasks", ()))]

    def facts(self) -> dict[str, Any]:
        """Return what a script that submitted the job wants to know of it."""
        site = self.spec.get("site", {}).get("name")
        own = {"job_id": self.job_id, "name": self.name, "site": site, "run_dir": str(self.directory)}
        if self.values:
            own["values"] = self.values
        return {**own, "tasks": [task.facts() for task in self.tasks]} if self.tasks else own

    def ended(self) -> dict[str, Any] | None:
        """How the job ended, as its script says; None before, and while ranks are being stopped."""
        record = self.record()
        return record if record and record.get("ended") else None

    def record(self) -> dict[str, Any] | None:
        """``exit.json``; ``ended`` is null while ranks are being stopped, and stays so where that was cut short."""
        record = self._json("exit.json", _RECORD)
        return {"ended": None, "requeued": False, **record} if record else None

    def starts(self) -> int:
        """How often the job's script has started, as ``starts.jsonl`` says."""
        return len(self._starts())

    def job_ids(self) -> list[str]:
        """The ids of the jobs that this run has been: several where each submitted the next one."""
        started = [str(start.get("job_id")) for start in self._starts()]
        return list(dict.fromkeys([*started, *([self.job_id] if self.job_id else [])]))

    def slurm_ids(self) -> list[str]:
        """The ids that Slurm's jobs of this run have in their processes' environment; tasks of arrays have own ones."""
        return [str(job) for start in self._starts() if (job := start.get("slurm_job"))]

    def nodes(self) -> list[str]:
        """The nodes that Slurm gave the job at each start, as Slurm writes them."""
        return [str(nodes) for start in self._starts() if (nodes := start.get("nodes"))]

    def _starts(self) -> list[dict[str, Any]]:
        return list(self._objects("starts.jsonl"))[::-1]

    def result(self) -> dict[str, Any] | None:
        """``result.json``: the figures that rank 0 wrote; None while there are none."""
        return self._json("result.json")

    def metrics(self) -> list[dict[str, Any]]:
        """``metrics.jsonl``: what rank 0 appended, an object an epoch; lines that are none are left out."""
        return list(self._objects("metrics.jsonl"))[::-1]

    def latest(self) -> dict[str, Any]:
        """The last object of ``metrics.jsonl``; empty while there is none."""
        return next(self._objects("metrics.jsonl"), {})

    def _objects(self, name: str) -> Iterator[dict[str, Any]]:
        """Yield the objects that a file has on its lines, the last first."""
        try:
            lines = (self.directory / name).read_text(errors="replace").split("\n")
        except OSError:
            return
        for line in reversed(lines):
            with suppress(ValueError, RecursionError):  # half written
                if isinstance(value := json.loads(line), dict):
                    yield value

    def rank_logs(self) -> dict[int, Path]:
        """Return the ranks' log files, by rank."""
        logs = self.directory.glob("logs/rank-*.log")
        return dict(sorted((int(log.stem.removeprefix("rank-")), log) for log in logs))

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
        paths.write(run.directory / "submitted.json", json.dumps({"job_id": job_id, **same}).encode())
        run.__dict__.pop("submission", None)
    index.identify({run.directory: job_id for run, job_id in ids.items()})


def refused(run: Run, reason: str) -> None:
    """Write ``refused.json``: there is no job, and will be none."""
    record = json.dumps({"reason": reason, "time": time.time()}).encode()
    for one in (run, *run.tasks):
        with suppress(OSError):  # it only spares others the search for the job
            paths.write(one.directory / "refused.json", record)


def new_directory(root: Path, name: str) -> Path:
    """Return a fresh run directory's path (and make nothing): name, local time, a random end."""
    return root / f"{name}-{time.strftime('%Y%m%d-%H%M%S')}-{os.urandom(4).hex()}"


def create(spec: JobSpec, script: str) -> Run:
    """Make the run directory with ``job.json`` and ``job.sh``, for a sweep also its tasks', and list it in the index.

    Raises:
        HpcrunError: The directory cannot be made, or not be listed; nothing is left of it then.
    """
    folder = paths.index()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _unlisted(error) from None
    tasks = [spec.task(number) for number in range(len(spec.tasks))]
    try:
        spec.run_dir.mkdir(parents=True)
    except OSError as error:
        raise _unmade(spec.run_dir, error) from None
    try:
        for one in (spec, *tasks):
            (one.run_dir / "logs").mkdir(parents=True)
            record = one.run_dir / "job.json"
            paths.write(record, json.dumps(one.as_json(), indent=1, default=str).encode())
            record.chmod(record.stat().st_mode & ~0o022)  # it is submitted once more as this user
        paths.write(spec.run_dir / "job.sh", script.encode(errors="surrogateescape"))
        for task in tasks:
            (task.run_dir / "job.sh").symlink_to("../job.sh")
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


def _unlisted(error: OSError) -> HpcrunError:
    hint = "it lists your runs; XDG_STATE_HOME says where it is"
    return HpcrunError(f"cannot write to the folder {paths.index()}: {error.strerror}", hint=hint)


def _unmade(directory: Path, error: OSError) -> HpcrunError:
    hint = "run_root in the site file (or HPCRUN_RUN_ROOT) must be yours to write, and shared by all nodes"
    if error.errno in {errno.ENOSPC, errno.EDQUOT}:
        hint = "df -h and quota -s show what is full; run_root in the site file (or HPCRUN_RUN_ROOT) is where runs go"
    return HpcrunError(f"cannot make the run directory {directory}: {error.strerror}", hint=hint)


def every() -> Iterator[Run]:
    """Yield this user's runs, the newest first; directories that are gone are left out."""
    for entry in index.entries():
        with suppress(FileNotFoundError):
            if (entry.directory / "job.json").exists():
                yield Run(entry.directory)
