"""The rows of ``hpcrun status``, built from scheduler queries, the runs' files and the state cache."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass, field, fields, replace
from typing import TYPE_CHECKING

from hpcrun.jobs import inferred_state, state_cache, validation, world_warning
from hpcrun.jobs.progress_text import format_progress, format_time, normalize_time
from hpcrun.jobs.run_selection import select_recent, select_runs
from hpcrun.jobs.runs import list_runs
from hpcrun.jobs.states import State, describe_state

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from hpcrun.jobs.clusters import Purpose
    from hpcrun.jobs.run_files import ExitRecord
    from hpcrun.jobs.runs import Run
    from hpcrun.jobs.validation import JsonObject, Time

    QueryStates = Callable[[Sequence[Run]], dict[Run, State]]

SETTLED_SECONDS = 86_400
"""Time after its end when a job counts as final (no ``scontrol requeue`` any more), and its row is cached."""

MAX_QUERIED_ENDED = 1000
"""Maximum number of queried runs that have ended (sacct takes ids on its command line); others use their records."""


@dataclass(frozen=True)
class StatusRow:
    """The state of a run; the fields are the keys of ``hpcrun status --json``.

    Attributes:
        job_id: The scheduler's job id; None where it was never submitted.
        name: The job's name.
        site: The site's name, with ``(run)`` if the job bypassed the site's queue.
        state: Slurm's name of the state.
        nodes: The nodes, as the scheduler writes them.
        elapsed: Run time so far: ``MM:SS``, ``H:MM:SS`` or ``D-HH:MM:SS``.
        progress: The progress and speed of the training.
        exit_code: The exit code of a job that has ended.
        reason: The reason for the state.
        run_dir: The run directory.
        limit: The time limit, in the format of `elapsed`: Slurm's, else the requested one; None without a limit.
        nodes_asked: The number of requested nodes.
        ranks: The number of ranks; None if unknown.
        submitted: When it was submitted, ISO 8601 in local time.
        values: The swept values of a sweep's task, by parameter.
        starts: The number of starts; more than one if the job was requeued.
        as_of: The time of a cached state, ISO 8601 in local time, if the scheduler does not answer; else None.
        faults: Errors in files of the run, which are also part of `reason`; empty without errors.
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

    def as_json(self) -> dict[str, object]:
        """Return what ``hpcrun status --json`` prints of it."""
        return dict(vars(self))

    @property
    def finished(self) -> bool:
        """Whether the job has ended for good, or was never submitted."""
        return State(self.state).finished

    @property
    def plain_state(self) -> str:
        """The state for people: a job whose nodes Slurm still prepares does not run."""
        return "starting" if self.is_starting else describe_state(self.state)

    @property
    def is_starting(self) -> bool:
        """Whether Slurm calls the job running, but has not started its script."""
        return self.state == "RUNNING" and self.reason.endswith(inferred_state.PROLOG)

    @property
    def active(self) -> bool:
        """Whether the job is known to be pending or running."""
        return not self.finished and self.state != "UNKNOWN"


@dataclass(frozen=True)
class CachedAt:
    """The time of a cached state.

    Attributes:
        at: When the state was queried; for an ended job, when its end was first seen.
    """

    at: Time


def build_rows(
    runs: Sequence[Run], query: QueryStates, ended: Mapping[str, JsonObject] | None = None
) -> list[StatusRow]:
    """Return a row for each run, and update the state cache.

    Args:
        runs: The runs.
        query: Queries the schedulers for the states of runs, such as `hpcrun.schedulers.query_states`.
        ended: The cached rows of runs that ended long ago, if the caller has read them.
    """
    now = time.time()
    ended, last = state_cache.read_cache("ended") if ended is None else ended, state_cache.read_cache("last")
    known = {run.directory: row for run in runs if (row := _cached_row(run, ended.get(run.directory.name)))}
    open_runs = [run for run in runs if run.directory not in known]
    submitted = [run for run in open_runs if run.job_id]
    old = _find_old_records(submitted[MAX_QUERIED_ENDED:])
    unclear = [run for run in submitted if run not in old]
    queried = query(unclear) if unclear else {}
    settled, cached = {}, {}
    for run in open_runs:
        before = _cached_state(last.get(run.directory.name))
        record = old.get(run) or run.end_record()  # after the query, which may find that the job has ended
        recorded = inferred_state.infer_state(run, record) if run in old else None
        state, as_of = _reconcile(recorded or queried.get(run) or run.unsubmitted_state, before, record)
        row = known[run.directory] = _build_row(run, state, record, as_of)
        if not (run.job_id and run.spec.is_recorded) or run.faults or as_of or state.name == "UNKNOWN":
            continue
        ended_before = before is not None and state.finished and before[0].name == state.name
        at = before[1] if before and ended_before else now
        if state.finished and now - (record.ended if record and record.ended else at) > SETTLED_SECONDS:
            settled[run.directory.name] = row.as_json()
        else:
            cached[run.directory.name] = {**asdict(state), "at": at}
    if settled:
        state_cache.update_cache("ended", settled)
    if settled or cached:
        state_cache.update_cache("last", cached, drop=settled)
    return [known[run.directory] for run in runs]


def select_rows(
    words: Sequence[str],
    query: QueryStates,
    *,
    states: Collection[str] = (),
    since: float | None = None,
    missing: list[Run],
    purpose: Purpose = "read",
) -> list[StatusRow]:
    """Return the rows of selected runs, the newest first; see `hpcrun.jobs.run_selection.select_runs`.

    Args:
        words: The selection as typed; none for all runs.
        query: Queries the schedulers.
        states: Slurm's names of the accepted states; empty for all.
        since: The earliest time of submission, in s since 1970.
        missing: Receives the runs whose directories were removed.
        purpose: What the runs are for.

    Raises:
        HpcrunError: A word fits no run.
    """
    runs = (
        select_runs(words, since=since, missing=missing, purpose=purpose)
        if words or since is not None
        else list(list_runs())
    )
    return [row for row in build_rows(runs, query) if not states or row.state in states]


def newest_rows(count: int, query: QueryStates, *, missing: list[Run]) -> list[StatusRow]:
    """Return the rows of the newest runs, and of all older ones that are pending or running.

    Args:
        count: The number of newest runs.
        query: Queries the schedulers.
        missing: Receives the runs whose directories were removed.
    """
    ended, last = state_cache.read_cache("ended"), state_cache.read_cache("last")
    runs = select_recent(count, ended, missing)
    hidden = {run for run in runs[count:] if run.directory.name not in last and _ended_long_ago(run.end_record())}
    if hidden:  # without a row; `build_rows` completes the entry when the row is needed
        state_cache.update_cache("ended", {run.directory.name: {"run_dir": str(run.directory)} for run in hidden})
    found = build_rows([run for run in runs if run not in hidden], query, ended)
    return [row for number, row in enumerate(found) if number < count or row.active]


def _cached_row(run: Run, entry: JsonObject | None) -> StatusRow | None:
    if (
        entry is None
        or entry.get("run_dir") != str(run.directory)
        or set(entry) != {one.name for one in fields(StatusRow)}
    ):
        return None
    try:
        row = validation.parse_record(StatusRow, entry)
    except ValueError:
        return None
    return row if row.as_of is None else None  # only final rows are cached


def _find_old_records(runs: Sequence[Run]) -> dict[Run, ExitRecord]:
    """Return the exit records of those runs that ended long ago."""
    records = {run: run.end_record() for run in runs}
    return {run: record for run, record in records.items() if record and _ended_long_ago(record)}


def _ended_long_ago(record: ExitRecord | None) -> bool:
    """Return whether a job's own record shows that it ended long ago, and that Slurm did not start it again."""
    if record is None or record.ended is None or record.may_restart or record.requeued:
        return False
    return time.time() - record.ended > SETTLED_SECONDS


def _cached_state(entry: JsonObject | None) -> tuple[State, float] | None:
    """Return the cached state of a run and its time."""
    try:
        return validation.parse_record(State, entry), validation.parse_record(CachedAt, entry).at
    except ValueError:
        return None


def _reconcile(state: State, before: tuple[State, float] | None, record: ExitRecord | None) -> tuple[State, str | None]:
    """Merge a new state with the cached one; also return the time of the cached one if the query failed."""
    ended = record.ended if record else None
    if state.recorded and before and before[0].finished and ended and before[1] >= ended:
        return replace(
            before[0], reason=state.reason or before[0].reason
        ), None  # Slurm's earlier answer is more precise than the job's files
    if state.name != "UNKNOWN" or before is None:
        return state, None
    known, when = before[0], format_time(before[1])
    if known.finished:
        return known, None
    if state.lost:
        return replace(state, reason=f"{state.reason}; it was {known.name} at {when}"), None
    return replace(known, reason=state.reason), when


def _build_row(run: Run, state: State, record: ExitRecord | None, as_of: str | None) -> StatusRow:
    requested = run.spec.resources
    row = StatusRow(
        job_id=run.job_id,
        name=run.name,
        site=run.site_label,
        state=state.name,
        nodes=state.nodes,
        elapsed=normalize_time(state.elapsed) or state.elapsed,
        progress=format_progress(
            run.last_epoch(), None if state.finished else run.heartbeat(), completed=state.name == "COMPLETED"
        ),
        exit_code=record.exit_code if record and state.finished else None,
        reason=_explain_state(run, state),
        run_dir=str(run.directory),
        limit=normalize_time(state.limit or requested.time),
        nodes_asked=requested.nodes,
        ranks=world_warning.count_ranks(requested) if run.spec.is_recorded else None,
        submitted=format_time(run.submission.submitted) if run.job_id else None,
        values=run.values,
        starts=run.start_count(),
        as_of=as_of,
    )
    faults = [f"{name} {why}" for name, why in run.faults.items() if name != "job.json"]
    if not (run.spec.is_recorded or run.start_by_hand):
        faults.insert(0, f"job.json cannot be read: it {run.faults.get('job.json', 'is not there')}")
    return replace(row, reason="; ".join(filter(None, [*faults, row.reason])), faults="; ".join(faults))


def _explain_state(run: Run, state: State) -> str:
    if state.name == "COMPLETED" and (warning := world_warning.read_warning(run)):
        return warning
    return state.reason or (inferred_state.PROLOG if inferred_state.is_starting(run, state) else "")
