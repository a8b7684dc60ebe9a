"""What there is to see of one job at one moment, and how it comes together."""

from __future__ import annotations

import re
import time
from collections import deque
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from hpcrun.jobs import heartbeats, states
from hpcrun.jobs.logs import LOST_SECONDS, Tail
from hpcrun.jobs.states import State
from hpcrun.resources import parse_time
from hpcrun.watch.asking import Asking
from hpcrun.watch.course import Course, course
from hpcrun.watch.ranks import Ranks
from hpcrun.watch.words import span

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Self

    from hpcrun.jobs.rows import Row
    from hpcrun.jobs.run_files import Epoch, ExitRecord
    from hpcrun.jobs.runs import Run
    from hpcrun.watch.asking import Told
    from hpcrun.watch.ranks import Seen
    from hpcrun.why.explanation import Explanation

LOG_LINES = 200
MOST_WAITS = 2
"""Where ranks wait in different collectives, so many of these are told."""

_CONTROL = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]|\x1b\][^\x07]*\x07|[\x00-\x08\x0b-\x1f\x7f-\x9f]")


@dataclass(frozen=True)
class Picture:
    """One job at one moment.

    Attributes:
        run: Its run directory.
        row: What ``hpcrun status`` tells of it; None while the scheduler has not answered.
        over: Whether there will be nothing new.
        elapsed: How long it has been running, in s; None where that is not known.
        why: Why it waits, where it does.
        epochs: What rank 0 wrote at the ends of epochs.
        course: How far its training is.
        ranks: Its ranks, while it runs.
        log: The last lines of its log.
    """

    run: Run
    row: Row | None
    over: bool = False
    elapsed: float | None = None
    why: Explanation | None = None
    epochs: Sequence[Epoch] = ()
    course: Course = field(default_factory=Course)
    ranks: Sequence[Seen] = ()
    log: Sequence[str] = ()

    @property
    def runs(self) -> bool:
        """Whether it runs now."""
        return self.row is not None and not self.over and self.row.state in {"RUNNING", "COMPLETING"}

    @property
    def limit_left(self) -> float | None:
        """Seconds until its time limit; None where there is none."""
        if self.row is None or self.row.limit is None or self.elapsed is None:
            return None
        return parse_time(self.row.limit) - self.elapsed

    @property
    def warnings(self) -> dict[str, str]:
        """What may go wrong, by a word for each."""
        told = {}
        left = self.limit_left if self._must_end else None
        needs = self.course.seconds_left
        if left is not None and needs and needs > left:
            ends = f"ends in {span(left)}" if left > 0 else "is over"
            told["limit"] = f"at this pace it needs {span(needs)} more, but its time limit {ends}"
        if wrong := [name for name, value in self.course.figures.items() if value is None]:
            told["figures"] = f"{', '.join(wrong)}: no finite number (nan or inf)"
        if waiting := {rank.beat.waits: rank for rank in reversed(self.ranks) if rank.trouble == "waiting"}:
            first = sorted(waiting.values(), key=lambda rank: rank.beat.rank)[:MOST_WAITS]
            where = [f"rank {rank.beat.rank} {rank.says}" for rank in first]
            ended = sum(rank.beat.ended for rank in self.ranks)
            where += [f"{ended} rank{'s' * (ended > 1)} ended"] if ended else []
            told["waiting"] = f"no rank goes on: {', '.join(where)}"
        return told

    @property
    def _must_end(self) -> bool:
        """Whether its time limit would cut a training short, rather than send it back to the queue."""
        return self.runs and self.course.phase != "trained" and not self.run.spec.max_requeue


class Watcher:
    """Looks at one job again and again; a context, at whose end nobody is asked any more.

    Args:
        run: Its run directory.
    """

    def __init__(self, run: Run) -> None:
        self.run = run
        self.asking = Asking(run)
        self.ranks = Ranks(run.directory)
        self.log: deque[str] = deque(maxlen=LOG_LINES)
        self._tails = [_Lines(log) for log in (run.log("err"), run.log("out")) if log]
        self._metrics: tuple[object, list[Epoch]] = (None, [])
        self._record: ExitRecord | None = None
        self._lost = 0.0  # since when the scheduler does not know the job

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.asking.close()

    def look(self) -> Picture:
        """Return what there is to see now; the scheduler's part of it may be older than the files'.

        Raises:
            HpcrunError: The scheduler cannot be asked.
        """
        told, record = self.asking.told, self.run.record()
        if self.asking.error:
            raise self.asking.error
        new = [line for tail in self._tails for line in tail.new()]
        self.log.extend(new)
        if record != self._record or (new and told and told.why):
            self._record = record
            self.asking.hurry()
        row, over = self._row(told, record)
        epochs = self._epochs()
        run, log = self.asking.run, tuple(self.log)
        picture = Picture(run, row, over, epochs=epochs, course=self._course(epochs), log=log)
        if told and row and row.elapsed and not row.as_of:
            elapsed = _seconds(row.elapsed) + (time.monotonic() - told.at if picture.runs else 0.0)
            picture = replace(picture, elapsed=elapsed, why=None if over else told.why)
        if picture.runs:
            picture = replace(picture, ranks=self.ranks.look())
        return picture

    def _row(self, told: Told | None, record: ExitRecord | None) -> tuple[Row | None, bool]:
        """Return what to tell of the job, and whether it is over: its own record is ahead of the scheduler."""
        if told is None:
            return None, False
        row = told.row
        back = record and self.run.scheduler == "slurm" and (record.requeued or record.may_go_on)
        if record and record.ended and not back:
            own = states.from_record(record)
            name = row.state if row.finished else own.name
            ended = replace(row, state=name, reason=own.reason, elapsed=own.elapsed, exit_code=record.exit_code)
            return ended, True
        if not State(row.state, row.reason).lost:
            self._lost = 0.0
            return row, row.finished
        self._lost = self._lost or told.at
        return row, time.monotonic() - self._lost >= LOST_SECONDS

    def _course(self, epochs: Sequence[Epoch]) -> Course:
        beat = heartbeats.read(self.run.directory, 0)
        newer = heartbeats.newest(self.run.directory) is not None
        age = max(0.0, time.time() - beat.time) if beat else 0.0
        return course(epochs, beat, newer=newer, age=age)

    def _epochs(self) -> list[Epoch]:
        """Return ``metrics.jsonl``, read when it has changed."""
        try:
            stat = (self.run.directory / "metrics.jsonl").stat()
            version = (stat.st_ino, stat.st_size, stat.st_mtime_ns)
        except OSError:
            version = (0, 0, 0)
        if version != self._metrics[0]:
            self._metrics = version, self.run.metrics()
        return self._metrics[1]


class _Lines:
    """The last lines of a log that grows, fit for a terminal."""

    def __init__(self, file: Any) -> None:
        self.tail = Tail(file)
        self.tail.skip_to_last(LOG_LINES)
        self.rest = ""

    def new(self) -> list[str]:
        *lines, self.rest = (self.rest + self.tail.new()).split("\n")
        # of a progress bar, which goes back to the line's beginning, its last form
        return [_CONTROL.sub("", line.rstrip("\r").rpartition("\r")[2]).expandtabs() for line in lines]


def _seconds(text: str) -> float:
    try:
        return float(parse_time(text))
    except ValueError:
        return 0.0
