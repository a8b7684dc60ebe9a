"""Reading a job's logs while it runs."""

from __future__ import annotations

import os
import re
import time
from codecs import getincrementaldecoder
from functools import partial
from typing import TYPE_CHECKING

from hpcrun.errors import HpcrunError
from hpcrun.jobs.pace import Pace
from hpcrun.jobs.records import BadRecordError, opened
from hpcrun.jobs.runs import Run

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from hpcrun.jobs.states import State

POLL_SECONDS = 0.1
PATIENCE_SECONDS = 1.0
LOST_SECONDS = 30.0
"""After so long a job counts as ended that its scheduler does not know, and that has left no record."""

BLOCK_BYTES = 1 << 16
MOST_BYTES = 1 << 24
"""Last lines are looked for in so much of a log, which may be one line without an end."""

MOST_RANKS = 100_000

_STARTED = re.compile(r"\[rank (\d+)\] host (\S+), [A-Z_]+=")


class Tail:
    """A file that grows.

    Args:
        file: The file; it need not exist yet.
        errors: What becomes of bytes that are no UTF-8, as in `open`.
    """

    def __init__(self, file: Path, *, errors: str = "replace") -> None:
        self.file = file
        self.position = 0
        self.decoder = getincrementaldecoder("utf-8")(errors)

    def new(self) -> str:
        """Return what was appended since the last call, whole characters only."""
        try:
            with opened(self.file) as stream:
                if os.fstat(stream.fileno()).st_size < self.position:  # it was written anew
                    self.position = 0
                stream.seek(self.position)
                data = stream.read()
        except (FileNotFoundError, BadRecordError):
            return ""
        self.position += len(data)
        return self.decoder.decode(data)

    def skip_to_last(self, lines: int) -> None:
        """Go on at the last lines that the file has now, reading no more of it than these."""
        try:
            with opened(self.file) as stream:
                end = begin = stream.seek(0, os.SEEK_END)
                data = b""
                while begin and data.count(b"\n") <= lines and len(data) < MOST_BYTES:
                    begin = max(0, end - max(BLOCK_BYTES, 2 * len(data)))
                    stream.seek(begin)
                    data = stream.read(end - begin)
        except (FileNotFoundError, BadRecordError):
            return
        pieces = data.split(b"\n")  # the last one is what follows the last line's end: mostly nothing
        kept = pieces[-lines - (not pieces[-1]) :] if lines else []
        self.position = end - len(b"\n".join(kept))


class Log:
    """What somebody wants to see of a log that grows.

    Args:
        file: The log; it need not exist yet.
        begin: Returns what each line begins with, None while it is better to wait for that; called with whether it is
            the last time. Without it, the text is shown as it is.
        pattern: Only lines in which this is found; None for all.
        last: Of what is there at first, only so many lines (that the pattern lets through); None for all.
    """

    def __init__(
        self,
        file: Path,
        *,
        begin: Callable[[bool], str | None] | None = None,
        pattern: re.Pattern[str] | None = None,
        last: int | None = None,
    ) -> None:
        self.tail = Tail(file, errors="surrogateescape")
        self.begin = begin
        self.pattern = pattern
        self.last = last
        self.rest = ""
        if last is not None and pattern is None:
            self.tail.skip_to_last(last)

    def new(self, *, ended: bool = False) -> str:
        """Return what to show of what was appended since the last call.

        Args:
            ended: Nothing more will come: a last line without an end counts as one.
        """
        text = self.tail.new()
        if self.begin is None and self.pattern is None:
            return text
        *lines, self.rest = (self.rest + text).split("\n")
        if ended and self.rest:
            lines, self.rest = [*lines, self.rest], ""
        begin = self.begin(ended) if self.begin and lines else ""
        if begin is None:
            self.rest = "\n".join([*lines, self.rest])
            return ""
        if self.pattern:
            lines = [line for line in lines if self.pattern.search(line)]
            if self.last is not None:
                lines, self.last = lines[len(lines) - min(self.last, len(lines)) :], None
        return "".join(f"{begin}{line}\n" for line in lines)


def compiled(text: str) -> re.Pattern[str]:
    """Return a regular expression that somebody typed.

    Raises:
        HpcrunError: It is none.
    """
    try:
        return re.compile(text)
    except re.error as error:
        where = "" if error.pos is None else f" at character {error.pos + 1}"
        raise HpcrunError(
            f"--grep {text!r} is no regular expression: {error.msg}{where}",
            hint="a backslash before . * + ? ( ) [ ] { } | ^ $ takes its meaning away: 'loss \\[nan\\]'",
        ) from None


def ranks(text: str) -> list[int]:
    """Return the ranks that somebody typed.

    Args:
        text: Numbers and ranges: ``0,3-5``.

    Raises:
        HpcrunError: Anything else, or more than `MOST_RANKS`.
    """
    found: dict[int, None] = {}
    for part in text.split(","):
        match = re.fullmatch(r"\s*(\d{1,9})(?:-(\d{1,9}))?\s*", part)
        first, last = (int(match[1]), int(match[2] or match[1])) if match else (0, -1)
        if not first <= last < first + MOST_RANKS:
            raise HpcrunError(f"--rank {text}: no list of ranks", hint="numbers and ranges, such as 0,3-5")
        found |= dict.fromkeys(range(first, last + 1))
    return list(found)


class Hosts:
    """Where ranks run, as they tell it in the job's log whenever they start.

    Args:
        run: The run.
    """

    def __init__(self, run: Run) -> None:
        log = run.log()
        self.tail = Tail(log) if log else None
        self.rest = ""
        self.known: dict[int, str] = {}
        self.asked: dict[int, int] = {}

    def beginning(self, rank: int, last: bool) -> str | None:
        """Return what a line of a rank's log begins with beside other ranks' lines.

        Args:
            rank: The rank.
            last: It is not asked again.

        Returns:
            The beginning; None where the job's log, which comes another way than the rank's, may yet say the host.
        """
        *lines, self.rest = (self.rest + (self.tail.new() if self.tail else "")).split("\n")
        for match in filter(None, map(_STARTED.match, lines)):
            self.known[int(match[1])] = match[2]
        if rank in self.known:
            return f"[rank {rank} on {self.known[rank]}] "
        self.asked[rank] = self.asked.get(rank, 0) + 1
        return f"[rank {rank}] " if last or self.asked[rank] * POLL_SECONDS > PATIENCE_SECONDS else None


def of_job(run: Run, *, pattern: re.Pattern[str] | None = None, last: int | None = None) -> list[Log]:
    """Return a job's own output and errors; see `Log`."""
    return [Log(log, pattern=pattern, last=last) for log in (run.log("out"), run.log("err")) if log]


def of_ranks(
    run: Run,
    ranks: Sequence[int],
    *,
    pattern: re.Pattern[str] | None = None,
    last: int | None = None,
    must_exist: bool = True,
) -> list[Log]:
    """Return the ranks' own logs; see `Log`. The lines of several say whose they are.

    Raises:
        HpcrunError: A rank has no log, and must have one.
    """
    known = run.rank_logs()
    missing = [rank for rank in ranks if rank not in known]
    if missing and must_exist:
        have = f"ranks 0 to {max(known)}" if known else "no rank's log yet"
        what = f"rank{'s' * (len(missing) > 1)} {', '.join(map(str, missing))}"
        raise HpcrunError(f"job {run.job_id} has no log of {what}; it has {have}", hint="leave --rank out")
    hosts = Hosts(run) if len(ranks) > 1 else None
    return [
        Log(
            run.directory / "logs" / f"rank-{rank}.log",
            begin=partial(hosts.beginning, rank) if hosts else None,
            pattern=pattern,
            last=last,
        )
        for rank in ranks
    ]


def until_ended(
    run: Run, ask: Callable[[Run], State], see: Callable[[State], None] = lambda _state: None
) -> Iterator[None]:
    """Yield every `POLL_SECONDS` until a job has ended, and once more after that.

    The job's own exit record says so at once; the scheduler is asked, less and less often, of jobs that left none, or
    that it stopped itself and may start again.

    Args:
        run: The run.
        ask: Asks the scheduler for the run's state.
        see: Gets each state that the scheduler tells.
    """
    pace, known, before = Pace([run]), 0.0, ""
    while True:
        record = run.ended()
        ended = record is not None and not (run.scheduler == "slurm" and record.may_go_on)
        if not ended and pace.due(hurry=record is not None):
            now, state = time.monotonic(), ask(Run(run.directory))  # it may have submitted itself again
            see(state)
            if state.name != before:
                pace.changed()
            known, before = known if state.lost and known else now, state.name
            ended = state.finished or now - known > LOST_SECONDS
        yield
        if ended:
            return
        time.sleep(POLL_SECONDS)
