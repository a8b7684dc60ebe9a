"""Logs of jobs and ranks, read while they grow."""

from __future__ import annotations

import os
import re
import time
from codecs import getincrementaldecoder
from functools import partial
from typing import TYPE_CHECKING

from hpcrun.errors import HpcrunError
from hpcrun.jobs.poll_backoff import PollBackoff
from hpcrun.jobs.runs import Run
from hpcrun.jobs.safe_reading import BadRecordError, open_regular_file

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from hpcrun.jobs.states import State

POLL_SECONDS = 0.1
HOST_TIMEOUT_SECONDS = 1.0
UNKNOWN_JOB_TIMEOUT_SECONDS = 30.0
"""Timeout after which a job counts as ended if the scheduler does not know it and it left no exit record."""

BLOCK_BYTES = 1 << 16
MAX_BYTES = 1 << 24
"""Maximum number of bytes at the end of a log that are searched for last lines; a log may be one endless line."""

MAX_RANKS = 100_000

_RANK_START = re.compile(r"\[rank (\d+)\] host (\S+), [A-Z_]+=")


class Tail:
    """A reader of a growing file, like ``tail -f``.

    Args:
        file: The file; it need not exist yet.
        errors: How to decode invalid UTF-8, as in `open`.
    """

    def __init__(self, file: Path, *, errors: str = "replace") -> None:
        self.file = file
        self.position = 0
        self.decoder = getincrementaldecoder("utf-8")(errors)

    def read_new(self) -> str:
        """Return the text appended since the last call, whole characters only."""
        try:
            with open_regular_file(self.file) as stream:
                if os.fstat(stream.fileno()).st_size < self.position:  # the file was truncated
                    self.position = 0
                stream.seek(self.position)
                data = stream.read()
        except (FileNotFoundError, BadRecordError):
            return ""
        self.position += len(data)
        return self.decoder.decode(data)

    def skip_to_last(self, lines: int) -> None:
        """Skip to the last lines of the file, without reading the rest."""
        try:
            with open_regular_file(self.file) as stream:
                end_offset = begin_offset = stream.seek(0, os.SEEK_END)
                data = b""
                while begin_offset and data.count(b"\n") <= lines and len(data) < MAX_BYTES:
                    begin_offset = max(0, end_offset - max(BLOCK_BYTES, 2 * len(data)))
                    stream.seek(begin_offset)
                    data = stream.read(end_offset - begin_offset)
        except (FileNotFoundError, BadRecordError):
            return
        pieces = data.split(b"\n")  # the last piece follows the last newline and is usually empty
        last_lines = pieces[-lines - (not pieces[-1]) :] if lines else []
        self.position = end_offset - len(b"\n".join(last_lines))


class LogReader:
    """A filtered view of a growing log.

    Args:
        file: The log; it need not exist yet.
        line_prefix: Function that returns the prefix of each line, or None while it is unknown; the argument is true in
            the last call. Without this function, lines have no prefix.
        pattern: Show only lines that match this pattern; None for all lines.
        line_count: Number of (matching) lines to show of the existing text, from its end; None for all.
    """

    def __init__(
        self,
        file: Path,
        *,
        line_prefix: Callable[[bool], str | None] | None = None,
        pattern: re.Pattern[str] | None = None,
        line_count: int | None = None,
    ) -> None:
        self.tail = Tail(file, errors="surrogateescape")
        self.line_prefix = line_prefix
        self.pattern = pattern
        self.line_count = line_count
        self.partial_line = ""
        if line_count is not None and pattern is None:
            self.tail.skip_to_last(line_count)

    def read_new(self, *, ended: bool = False) -> str:
        """Return the filtered text appended since the last call.

        Args:
            ended: Whether the log is complete: its last line may lack a newline.
        """
        text = self.tail.read_new()
        if self.line_prefix is None and self.pattern is None:
            return text
        *lines, self.partial_line = (self.partial_line + text).split("\n")
        if ended and self.partial_line:
            lines, self.partial_line = [*lines, self.partial_line], ""
        prefix = self.line_prefix(ended) if self.line_prefix and lines else ""
        if prefix is None:
            self.partial_line = "\n".join([*lines, self.partial_line])
            return ""
        if self.pattern:
            lines = [line for line in lines if self.pattern.search(line)]
            if self.line_count is not None:
                lines, self.line_count = lines[len(lines) - min(self.line_count, len(lines)) :], None
        return "".join(f"{prefix}{line}\n" for line in lines)


def compile_pattern(text: str) -> re.Pattern[str]:
    """Compile the regular expression of ``--grep``.

    Raises:
        HpcrunError: The regular expression is invalid.
    """
    try:
        return re.compile(text)
    except re.error as error:
        position = "" if error.pos is None else f" at character {error.pos + 1}"
        raise HpcrunError(
            f"--grep {text!r} is not a valid regular expression: {error.msg}{position}",
            hint="put a backslash before . * + ? ( ) [ ] { } | ^ $ to match them literally: 'loss \\[nan\\]'",
        ) from None


def parse_ranks(text: str) -> list[int]:
    """Parse the list of ranks of ``--rank``.

    Args:
        text: Numbers and ranges: ``0,3-5``.

    Raises:
        HpcrunError: The list is invalid, or has more than `MAX_RANKS`.
    """
    ranks: dict[int, None] = {}
    for part in text.split(","):
        match = re.fullmatch(r"\s*(\d{1,9})(?:-(\d{1,9}))?\s*", part)
        first_rank, last_rank = (int(match[1]), int(match[2] or match[1])) if match else (0, -1)
        if not first_rank <= last_rank < first_rank + MAX_RANKS:
            raise HpcrunError(
                f"--rank {text}: invalid list of ranks",
                hint="ranks and ranges, such as 0,3-5; all of 8: 0-7",
            )
        ranks |= dict.fromkeys(range(first_rank, last_rank + 1))
    return list(ranks)


class RankHosts:
    """The hosts of ranks, from the lines that ranks print into the job's log when they start.

    Args:
        run: The run.
    """

    def __init__(self, run: Run) -> None:
        log = run.log()
        self.tail = Tail(log) if log else None
        self.partial_line = ""
        self.hosts: dict[int, str] = {}
        self.attempts: dict[int, int] = {}

    def line_prefix(self, rank: int, is_last_call: bool) -> str | None:
        """Return the prefix that marks the lines of a rank in the merged log of several ranks.

        Args:
            rank: The rank.
            is_last_call: Whether the log is complete, so that the function is not called again.

        Returns:
            The prefix; None while the rank's host is unknown, because the job's log does not name it yet.
        """
        *lines, self.partial_line = (self.partial_line + (self.tail.read_new() if self.tail else "")).split("\n")
        for match in filter(None, map(_RANK_START.match, lines)):
            self.hosts[int(match[1])] = match[2]
        if rank in self.hosts:
            return f"[rank {rank} on {self.hosts[rank]}] "
        self.attempts[rank] = self.attempts.get(rank, 0) + 1
        return f"[rank {rank}] " if is_last_call or self.attempts[rank] * POLL_SECONDS > HOST_TIMEOUT_SECONDS else None


def job_logs(run: Run, *, pattern: re.Pattern[str] | None = None, line_count: int | None = None) -> list[LogReader]:
    """Return readers of a job's stdout and stderr; see `LogReader`."""
    return [LogReader(log, pattern=pattern, line_count=line_count) for log in (run.log("out"), run.log("err")) if log]


def rank_logs(
    run: Run,
    ranks: Sequence[int],
    *,
    pattern: re.Pattern[str] | None = None,
    line_count: int | None = None,
    must_exist: bool = True,
) -> list[LogReader]:
    """Return readers of the logs of ranks, see `LogReader`; with several ranks, each line begins with the rank.

    Raises:
        HpcrunError: A rank has no log although `must_exist` is true.
    """
    existing_logs = run.rank_logs()
    missing_ranks = [rank for rank in ranks if rank not in existing_logs]
    if missing_ranks and must_exist:
        available_text = (
            "that of rank 0"
            if [*existing_logs] == [0]
            else f"those of ranks 0 to {max(existing_logs)}"
            if existing_logs
            else "none yet"
        )
        ranks_text = f"rank{'s' * (len(missing_ranks) > 1)} {', '.join(map(str, missing_ranks))}"
        raise HpcrunError(f"job {run.job_id} has no log of {ranks_text}; it has {available_text}", hint="omit --rank")
    hosts = RankHosts(run) if len(ranks) > 1 else None
    return [
        LogReader(
            run.directory / "logs" / f"rank-{rank}.log",
            line_prefix=partial(hosts.line_prefix, rank) if hosts else None,
            pattern=pattern,
            line_count=line_count,
        )
        for rank in ranks
    ]


def poll_until_ended(
    run: Run, query: Callable[[Run], State], on_state: Callable[[State], None] = lambda _state: None
) -> Iterator[None]:
    """Yield every `POLL_SECONDS` until a job has ended, and once more after the end.

    The exit record shows the end of a job at once. Jobs without an exit record, and jobs that the scheduler stopped and
    may requeue, are polled less and less often.

    Args:
        run: The run.
        query: Function that queries the scheduler for the run's state.
        on_state: Function that is called with each state that the scheduler reports.
    """
    backoff, last_known, last_state = PollBackoff([run]), 0.0, ""
    while True:
        record = run.end_record()
        has_ended = record is not None and not ("requeue" in run.scheduler.capabilities and record.may_restart)
        if not has_ended and backoff.is_due(urgent=record is not None):
            # create a new Run, because the job may have resubmitted itself
            now, state = time.monotonic(), query(Run(run.directory))
            on_state(state)
            if state.name != last_state:
                backoff.reset()
            last_known, last_state = last_known if state.lost and last_known else now, state.name
            has_ended = state.finished or now - last_known > UNKNOWN_JOB_TIMEOUT_SECONDS
        yield
        if has_ended:
            return
        time.sleep(POLL_SECONDS)
