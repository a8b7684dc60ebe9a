"""Run directories: made before submitting, found again from any process."""

from __future__ import annotations

import json
import os
import re
import time
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hpcrun import paths
from hpcrun.errors import HpcrunError, nearest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hpcrun.spec import JobSpec


@dataclass(frozen=True)
class Run:
    """One run directory, and what its files say.

    Attributes:
        directory: The run directory.
    """

    directory: Path

    def _json(self, name: str) -> dict[str, Any] | None:
        try:
            value: dict[str, Any] = json.loads((self.directory / name).read_text())
        except (OSError, ValueError):
            return None
        return value

    @cached_property
    def spec(self) -> dict[str, Any]:
        """``job.json``: what was asked for."""
        return self._json("job.json") or {}

    @cached_property
    def submission(self) -> dict[str, Any]:
        """``submitted.json``: the job's id, when and where it was submitted; empty before."""
        return self._json("submitted.json") or {}

    @property
    def job_id(self) -> str | None:
        """The scheduler's job id; None where it was never submitted."""
        return self.submission.get("job_id")

    @property
    def name(self) -> str:
        """The job's name."""
        return str(self.spec.get("name", self.directory.name))

    @property
    def scheduler(self) -> str:
        """What runs the job: slurm or local."""
        return str(self.spec.get("scheduler", "local"))

    @property
    def place(self) -> str:
        """The site's name, and whether the job ran on the spot rather than in the site's queue."""
        site = str(self.spec.get("site", {}).get("name", ""))
        return site if site == "local" or self.scheduler != "local" else f"{site} (run)"

    def facts(self) -> dict[str, Any]:
        """Return what a script that submitted the job wants to know of it."""
        site = self.spec.get("site", {}).get("name")
        return {"job_id": self.job_id, "name": self.name, "site": site, "run_dir": str(self.directory)}

    def ended(self) -> dict[str, Any] | None:
        """How the job ended, as its script says; None before, and while ranks are being stopped."""
        record = self.record()
        return record if record and record.get("ended") else None

    def record(self) -> dict[str, Any] | None:
        """``exit.json``; ``ended`` is null while ranks are being stopped, and stays so where that was cut short."""
        return self._json("exit.json")

    def result(self) -> dict[str, Any] | None:
        """``result.json``: the figures that rank 0 wrote; None while there are none."""
        return self._json("result.json")

    def metrics(self) -> list[dict[str, Any]]:
        """``metrics.jsonl``: what rank 0 appended, an object an epoch."""
        try:
            lines = (self.directory / "metrics.jsonl").read_text().splitlines()
        except OSError:
            return []
        return [json.loads(line) for line in lines if line.endswith("}")]

    def rank_logs(self) -> dict[int, Path]:
        """Return the ranks' log files, by rank."""
        logs = self.directory.glob("logs/rank-*.log")
        return dict(sorted((int(log.stem.removeprefix("rank-")), log) for log in logs))

    def log(self, stream: str = "out") -> Path | None:
        """Return the job's own log, ``out`` or ``err``, as submitit names it; None before submission."""
        return self.directory / f"{self.job_id}_0_log.{stream}" if self.job_id else None

    def submitted(self, job_id: str, **facts: object) -> None:
        """Write ``submitted.json``."""
        record = {"job_id": job_id, "submitted": time.time(), "host": os.uname().nodename, **facts}
        paths.write(self.directory / "submitted.json", json.dumps(record).encode())
        self.__dict__.pop("submission", None)


def new_directory(root: Path, name: str) -> Path:
    """Return a fresh run directory's path (and make nothing): name, local time, a random end."""
    return root / f"{name}-{time.strftime('%Y%m%d-%H%M%S')}-{os.urandom(2).hex()}"


def create(spec: JobSpec, script: str) -> Run:
    """Make the run directory with ``job.json`` and ``job.sh``, and list it in the index.

    Raises:
        HpcrunError: The directory cannot be made.
    """
    index = paths.index()
    try:
        index.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        hint = "it lists your runs; XDG_STATE_HOME says where it is"
        raise HpcrunError(f"cannot make the folder {index}: {error.strerror}", hint=hint) from None
    try:
        (spec.run_dir / "logs").mkdir(parents=True)
        paths.write(spec.run_dir / "job.json", json.dumps(spec.as_json(), indent=1, default=str).encode())
        paths.write(spec.run_dir / "job.sh", script.encode(errors="surrogateescape"))
    except OSError as error:
        raise HpcrunError(
            f"cannot make the run directory {spec.run_dir}: {error.strerror}",
            hint="run_root in the site file (or HPCRUN_RUN_ROOT) must be yours to write, and shared by all nodes",
        ) from None
    link = index / f"{time.time_ns()}-{spec.run_dir.name}"
    link.symlink_to(spec.run_dir)
    return Run(spec.run_dir)


def every() -> Iterator[Run]:
    """Yield this user's runs, the newest first; directories that are gone are left out."""
    try:
        links = sorted(paths.index().iterdir(), reverse=True)
    except FileNotFoundError:
        return
    for link in links:
        directory = link.readlink()
        if (directory / "job.json").exists():
            yield Run(directory)


def find(selector: str) -> Run:
    """Find one run.

    Args:
        selector: A job id, ``last``, a job's name (its newest run), or a run directory.

    Raises:
        HpcrunError: There is no such run.
    """
    if "/" in selector and any((Path(selector) / name).exists() for name in ("job.json", "exit.json")):
        return Run(Path(selector).resolve())
    names: dict[str, None] = {}
    for run in every():
        # the last job is meant, not a directory whose job the scheduler refused
        if selector in {run.job_id, run.name, run.directory.name} or (selector == "last" and run.job_id):
            return run
        names[run.name] = None
    if not names:
        raise HpcrunError("there are no runs yet", hint="hpcrun submit lenet5 --wait makes one")
    like = nearest(selector, list(names))
    kind = "job" if re.fullmatch(r"[\d_]+", selector) else "run"
    raise HpcrunError(
        f"there is no {kind} {selector!r} among your runs",
        hint=f"did you mean {like}?"
        if like
        else "give a job id, last, a job's name or a run directory; hpcrun status lists them",
    )
