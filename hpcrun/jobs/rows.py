"""What ``hpcrun status`` tells of runs: a row each, from the schedulers' answers, the runs' files and the ledger."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass, field, fields, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

from hpcrun.jobs import forgotten, kinds, ledger
from hpcrun.jobs.runs import every
from hpcrun.jobs.select import recent, select
from hpcrun.jobs.states import State, from_record
from hpcrun.resources import Resources, parse_time

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from hpcrun.jobs.heartbeats import Heartbeat
    from hpcrun.jobs.job_record import RecordedResources
    from hpcrun.jobs.kinds import Object, Time
    from hpcrun.jobs.run_files import Epoch, ExitRecord
    from hpcrun.jobs.runs import Run

    Ask = Callable[[Sequence[Run]], dict[Run, State]]

SETTLED_SECONDS = 86_400
"""So long after its end, nobody will start a job again (scontrol requeue), and its row is kept in the ledger."""

ALONE = "trained alone"
"""How the reason ends of a job that completed, and whose ranks never met."""

MOST_ASKED = 1000
"""Ended runs that schedulers are asked about: sacct takes ids on its command line. The others' own records count."""


@dataclass(frozen=True)
class Row:
    """What there is to say of a run; the fields are the keys of ``hpcrun status --json``.

    Attributes:
        job_id: The scheduler's job id; None where it was never submitted.
        name: The job's name.
        site: The site's name; ``(run)`` behind it where the job did not go through the site's queue.
        state: Slurm's name of the state.
        nodes: The nodes, as the scheduler writes them.
        elapsed: Run time so far: ``MM:SS``, ``H:MM:SS`` or ``D-HH:MM:SS``.
        progress: How far the training is, and how fast.
        exit_code: The exit code of a job that has ended.
        reason: Why it is in that state.
        run_dir: The run directory.
        limit: The time limit, as `elapsed` is written: Slurm's, else what was asked for; None where there is none.
        nodes_asked: The number of nodes asked for.
        ranks: The number of ranks; None where nobody knows.
        submitted: When it was submitted, ISO 8601 in local time.
        values: The values of a task of a sweep, by what is swept.
        starts: How often it has started; more than once where Slurm, or it itself, put it back into the queue.
        as_of: When the state was so, ISO 8601 in local time, where the scheduler does not answer; else None.
        faults: What is wrong with files of the run, which `reason` begins with, too; empty where nothing is.
    """

    job_id: str | None
    name: str
    site: str
    state: str
    nodes: str
    elapsed: str
    progress: str
    exit_code: int | None
    reason: str
    run_dir: str
    limit: str | None = None
    nodes_asked: int | None = None
    ranks: int | None = None
    submitted: str | None = None
    values: dict[str, str] = field(default_factory=dict)
    starts: int = 0
    as_of: str | None = None
    faults: str = ""

    def as_json(self) -> dict[str, Any]:
        """Return what ``hpcrun status --json`` prints of it."""
        return asdict(self)

    @property
    def finished(self) -> bool:
        """Whether the job has ended for good, or there is none."""
        return State(self.state).finished

    @property
    def active(self) -> bool:
        """Whether the job waits or runs, as far as anybody knows."""
        return not self.finished and self.state != "UNKNOWN"


@dataclass(frozen=True)
class Noted:
    """When a note on a state was made.

    Attributes:
        at: When; of a job that has ended, when that was first known.
    """

    at: Time


def rows(runs: Sequence[Run], ask: Ask, ended: Mapping[str, Object] | None = None) -> list[Row]:
    """Return a row for each run, and note what was found out.

    Args:
        runs: The runs.
        ask: Asks the schedulers for the states of runs, such as `hpcrun.schedulers.query_states`.
        ended: The ledger's notes on those that ended long ago, where they have been read.
    """
    now = time.time()
    ended, last = ledger.read("ended") if ended is None else ended, ledger.read("last")
    known = {run.directory: row for run in runs if (row := _kept(run, ended.get(run.directory.name)))}
    open_runs = [run for run in runs if run.directory not in known]
    told = _told([run for run in open_runs if run.job_id], ask, now)
    settled, noted = {}, {}
    for run in open_runs:
        before = _before(last.get(run.directory.name))
        state, as_of = _reconciled(told.get(run) or run.unsubmitted, before, run.ended())
        row = known[run.directory] = _row(run, state, as_of)
        if not (run.job_id and run.spec.said) or run.faults or as_of or state.name == "UNKNOWN":
            continue
        ended_before = before is not None and state.finished and before[0].name == state.name
        at = before[1] if before and ended_before else now
        record = run.ended()
        if state.finished and now - (record.ended if record and record.ended else at) > SETTLED_SECONDS:
            settled[run.directory.name] = row.as_json()
        else:
            noted[run.directory.name] = {**asdict(state), "at": at}
    if settled:
        ledger.change("ended", settled)
    if settled or noted:
        ledger.change("last", noted, drop=settled)
    return [known[run.directory] for run in runs]


def chosen(
    words: Sequence[str],
    ask: Ask,
    *,
    states: Collection[str] = (),
    since: float | None = None,
    gone: list[Run],
    several: bool = False,
) -> list[Row]:
    """Return the rows of runs that are meant, the newest first; see `hpcrun.jobs.select.select`.

    Args:
        words: As typed; none for all runs.
        ask: Asks the schedulers.
        states: Slurm's names of the states that they may be in; empty for any.
        since: The earliest time of submission, in s since 1970.
        gone: Gets the runs whose directories are not there any more.
        several: Whether a job id may mean jobs of several clusters.

    Raises:
        HpcrunError: A word fits no run.
    """
    runs = select(words, since=since, gone=gone, several=several) if words or since is not None else list(every())
    return [row for row in rows(runs, ask) if not states or row.state in states]


def newest(count: int, ask: Ask, *, gone: list[Run]) -> list[Row]:
    """Return the rows of the newest runs, and of all older ones that still wait or run.

    Args:
        count: How many runs count as new.
        ask: Asks the schedulers.
        gone: Gets the runs whose directories are not there any more.
    """
    ended = ledger.read("ended")
    told = rows(recent(count, ended, gone), ask, ended)
    return [row for number, row in enumerate(told) if number < count or row.active]


def _kept(run: Run, note: Object | None) -> Row | None:
    if note is None or note.get("run_dir") != str(run.directory) or set(note) != {one.name for one in fields(Row)}:
        return None
    try:
        row = kinds.parsed_as(Row, note)
    except ValueError:
        return None
    return row if row.as_of is None else None  # only what is certain is kept


def _told(runs: Sequence[Run], ask: Ask, now: float) -> dict[Run, State]:
    """Return what the schedulers say, or the records of runs beyond `MOST_ASKED` that ended by themselves long ago."""
    states: dict[Run, State] = {}
    left: list[Run] = []
    for run in runs:
        record = run.ended() if len(left) >= MOST_ASKED else None
        if record and record.ended and not record.stopped and now - record.ended > SETTLED_SECONDS:
            states[run] = forgotten.state(run, record) or from_record(record)
        else:
            left.append(run)
    return states | ask(left) if left else states


def _before(note: Object | None) -> tuple[State, float] | None:
    """Return the state that was last told, and when that was."""
    try:
        return kinds.parsed_as(State, note), kinds.parsed_as(Noted, note).at
    except ValueError:
        return None


def _reconciled(
    state: State, before: tuple[State, float] | None, record: ExitRecord | None
) -> tuple[State, str | None]:
    """Return the state to tell, given the last one told, and since when nobody could be asked."""
    ended = record.ended if record else None
    if state.recorded and before and before[0].finished and ended and before[1] >= ended:
        return replace(before[0], reason=state.reason or before[0].reason), None  # Slurm knew more than it left behind
    if state.name != "UNKNOWN" or before is None:
        return state, None
    known, when = before[0], written(before[1])
    if known.finished:
        return known, None
    if state.lost:
        return replace(state, reason=f"{state.reason}; it was {known.name} at {when}"), None
    return replace(known, reason=state.reason), when


def _row(run: Run, state: State, as_of: str | None) -> Row:
    record = run.ended() if state.finished else None
    asked = run.spec.resources
    row = Row(
        job_id=run.job_id,
        name=run.name,
        site=run.place,
        state=state.name,
        nodes=state.nodes,
        elapsed=_duration(state.elapsed) or state.elapsed,
        progress=progress(run.latest(), None if state.finished else run.heartbeat()),
        exit_code=record.exit_code if record else None,
        reason=_reason(run, state),
        run_dir=str(run.directory),
        limit=_duration(state.limit or asked.time),
        nodes_asked=asked.nodes,
        ranks=_ranks(asked) if run.spec.said else None,
        submitted=written(run.submission.submitted) if run.job_id else None,
        values=run.values,
        starts=run.starts(),
        as_of=as_of,
    )
    faults = [f"{name} {why}" for name, why in run.faults.items() if name != "job.json"]
    if not run.spec.said:
        faults.insert(0, f"job.json cannot be read: it {run.faults.get('job.json', 'is not there')}")
    return replace(row, reason="; ".join(filter(None, [*faults, row.reason])), faults="; ".join(faults))


def _reason(run: Run, state: State) -> str:
    if state.name == "COMPLETED" and (run.directory / "alone").exists():
        return f"each of the {_ranks(run.spec.resources)} ranks {ALONE}"
    return state.reason


def _ranks(asked: RecordedResources) -> int | None:
    try:
        return Resources(**asked.said).ranks
    except (TypeError, ValueError, ArithmeticError):  # job.json of another version
        return None


def progress(last: Epoch, now: Heartbeat | None = None) -> str:
    """Return how far a training is, and how fast: ``epoch 3/90, step 40/390, 812 images/s``.

    Args:
        last: The last line of ``metrics.jsonl``.
        now: What rank 0 said after that, of a job that has not ended.
    """
    epoch, epochs, rate = last.epoch, last.epochs, last.images_per_second
    step = ""
    if now and now.epoch:
        epoch, epochs, rate = now.epoch, now.epochs, now.images_per_second or rate
        step = f"step {now.step}" + (f"/{now.steps}" if now.steps else "")
    words = []
    if epoch is not None:
        words.append(f"epoch {epoch}" + (f"/{epochs}" if epochs else ""))
    if step:
        words.append(step)
    if rate and rate > 0:
        words.append(speed(rate))
    return ", ".join(words)


def speed(rate: float) -> str:
    """Return a rate as people read it.

    Args:
        rate: In images a second.
    """
    return f"{rate:{',.0f' if rate >= 10 else '.2g'}} images/s"


def _duration(time: object) -> str | None:
    """Return a time in one form, as squeue(1) writes it; None where there is none, or no limit."""
    try:
        total = parse_time(str(time))
    except ValueError:
        return None
    return None if total == float("inf") else duration(total)


def duration(total: float) -> str:
    """Return a time as squeue(1) writes it: ``MM:SS``, ``H:MM:SS`` or ``D-HH:MM:SS``.

    Args:
        total: The time in s.
    """
    minutes, rest = divmod(int(total), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    if days:
        return f"{days}-{hours:02}:{minutes:02}:{rest:02}"
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def written(moment: float) -> str:
    """Return a time, given in s since 1970, in ISO 8601 and local time."""
    return datetime.fromtimestamp(moment).astimezone().isoformat(timespec="seconds")
