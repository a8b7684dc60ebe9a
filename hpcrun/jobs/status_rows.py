"""The rows of ``hpcrun status``, built from scheduler queries, the runs' files and the state cache."""

from __future__ import annotations

import time
from dataclasses import asdict, field, fields, replace
from typing import TYPE_CHECKING

from hpcrun.frozen import frozen
from hpcrun.jobs import inferred_state, record_validation, state_cache, world_warning
from hpcrun.jobs.progress_text import format_progress, format_time, normalize_time
from hpcrun.jobs.run_selection import select_recent, select_runs
from hpcrun.jobs.runs import list_runs
from hpcrun.jobs.states import State, describe_state

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from hpcrun.jobs.clusters import Purpose
    from hpcrun.jobs.record_validation import JsonObject, Time
    from hpcrun.jobs.run_files import ExitRecord
    from hpcrun.jobs.runs import Run

    QueryStates = Callable[[Sequence[Run]], dict[Run, State]]

CACHE_DELAY_SECONDS = 86_400
"""Seconds from the end of a job until its row is cached, because ``scontrol requeue`` is then unlikely."""

MAX_QUERIED_ENDED = 1000
"""Maximum number of ended runs to query, because sacct takes ids on its command line; other runs use their records."""


@frozen
class StatusRow:
    """The state of a run; the fields are the keys of ``hpcrun status --json``.

    Attributes:
        job_id: The scheduler's job id; None if the job was never submitted.
        name: The job's name.
        site: The site's name, with ``(run)`` if the job bypassed the site's queue.
        state: Slurm's name of the state.
        nodes: The nodes, as the scheduler writes them.
        elapsed: Run time so far: ``MM:SS``, ``H:MM:SS`` or ``D-HH:MM:SS``.
        progress: The progress and speed of the training.
        exit_code: The exit code of a job that has ended.
        reason: The reason for the state.
        run_dir: The run directory.
        limit: The time limit, in the format of `elapsed`: Slurm's limit, else the requested limit; None if there is no
            limit.
        nodes_asked: The number of requested nodes.
        ranks: The number of ranks; None if unknown.
        submitted: The time of the submission, in ISO 8601 and local time.
        values: The parameter values of a task of a sweep, by name.
        starts: The number of starts; more than one if the job was requeued.
        as_of: The time of a cached state, in ISO 8601 and local time; None unless the scheduler did not answer.
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
        """Return the object that ``hpcrun status --json`` prints for this row."""
        return dict(vars(self))

    @property
    def finished(self) -> bool:
        """Whether the state is final, or the job was never submitted."""
        return State(self.state).finished

    @property
    def plain_state(self) -> str:
        """The state in plain words; ``starting`` for a RUNNING job whose nodes Slurm still prepares."""
        return "starting" if self.is_starting else describe_state(self.state)

    @property
    def is_starting(self) -> bool:
        """Whether the job is RUNNING in Slurm, but its script has not started yet."""
        return self.state == "RUNNING" and self.reason.endswith(inferred_state.PROLOG_REASON)

    @property
    def active(self) -> bool:
        """Whether the job is known to be pending or running."""
        return not self.finished and self.state != "UNKNOWN"


@frozen
class CachedAt:
    """The time of a cached state.

    Attributes:
        at: The time of the query; for an ended job, the time at which its end was first seen.
    """

    at: Time


def build_rows(
    runs: Sequence[Run], query: QueryStates, ended_rows: Mapping[str, JsonObject] | None = None
) -> list[StatusRow]:
    """Return a row for each run, and update the state cache.

    Args:
        runs: The runs.
        query: Function that queries the schedulers for the states of runs, such as `hpcrun.schedulers.query_states`.
        ended_rows: The cached rows of runs that ended long ago, if the caller has read them.
    """
    now = time.time()
    ended_rows, cached_states = (
        state_cache.read_cache("ended") if ended_rows is None else ended_rows,
        state_cache.read_cache("last"),
    )
    rows = {run.directory: new_row for run in runs if (new_row := _cached_row(run, ended_rows.get(run.directory.name)))}
    open_runs = [run for run in runs if run.directory not in rows]
    submitted_runs = [run for run in open_runs if run.job_id]
    old_records = _find_old_records(submitted_runs[MAX_QUERIED_ENDED:])
    queried_runs = [run for run in submitted_runs if run not in old_records]
    queried_states = query(queried_runs) if queried_runs else {}
    settled_rows, new_states = {}, {}
    for run in open_runs:
        cached_state = _cached_state(cached_states.get(run.directory.name))
        # read the records after the query, because the query may find that the job has ended
        record = old_records.get(run) or run.end_record()
        recorded_state = inferred_state.infer_state(run, record) if run in old_records else None
        state, as_of = _reconcile(
            recorded_state or queried_states.get(run) or run.unsubmitted_state, cached_state, record
        )
        new_row = rows[run.directory] = _build_row(run, state, record, as_of)
        if not (run.job_id and run.spec.is_recorded) or run.faults or as_of or state.name == "UNKNOWN":
            continue
        had_ended = cached_state is not None and state.finished and cached_state[0].name == state.name
        first_seen = cached_state[1] if cached_state and had_ended else now
        if state.finished and now - (record.ended if record and record.ended else first_seen) > CACHE_DELAY_SECONDS:
            settled_rows[run.directory.name] = new_row.as_json()
        else:
            new_states[run.directory.name] = {**asdict(state), "at": first_seen}
    if settled_rows:
        state_cache.update_cache("ended", settled_rows)
    if settled_rows or new_states:
        state_cache.update_cache("last", new_states, dropped_names=settled_rows)
    return [rows[run.directory] for run in runs]


def select_rows(
    words: Sequence[str],
    query: QueryStates,
    *,
    states: Collection[str] = (),
    since: float | None = None,
    missing_runs: list[Run],
    purpose: Purpose = "read",
) -> list[StatusRow]:
    """Return the rows of selected runs, the newest first; see `hpcrun.jobs.run_selection.select_runs`.

    Args:
        words: The selection as typed; empty for all runs.
        query: Function that queries the schedulers.
        states: Slurm's names of the accepted states; empty for all.
        since: The earliest time of submission, in s since 1970.
        missing_runs: List to which this function adds the runs whose directories were removed.
        purpose: The command's use of the runs.

    Raises:
        HpcrunError: An argument matches no run.
    """
    runs = (
        select_runs(words, since=since, missing_runs=missing_runs, purpose=purpose)
        if words or since is not None
        else list(list_runs())
    )
    return [row for row in build_rows(runs, query) if not states or row.state in states]


def newest_rows(count: int, query: QueryStates, *, missing_runs: list[Run]) -> list[StatusRow]:
    """Return the rows of the newest runs, and of all older runs that are pending or running.

    Args:
        count: The number of newest runs.
        query: Function that queries the schedulers.
        missing_runs: List to which this function adds the runs whose directories were removed.
    """
    ended_rows, cached_states = state_cache.read_cache("ended"), state_cache.read_cache("last")
    runs = select_recent(count, ended_rows, missing_runs)
    hidden_runs = {
        run for run in runs[count:] if run.directory.name not in cached_states and _ended_long_ago(run.end_record())
    }
    if hidden_runs:  # add an entry without a row; `build_rows` adds the row when a command needs it
        state_cache.update_cache("ended", {run.directory.name: {"run_dir": str(run.directory)} for run in hidden_runs})
    rows = build_rows([run for run in runs if run not in hidden_runs], query, ended_rows)
    return [row for index, row in enumerate(rows) if index < count or row.active]


def _cached_row(run: Run, entry: JsonObject | None) -> StatusRow | None:
    if (
        entry is None
        or entry.get("run_dir") != str(run.directory)
        or set(entry) != {column.name for column in fields(StatusRow)}
    ):
        return None
    try:
        row = record_validation.parse_record(StatusRow, entry)
    except ValueError:
        return None
    return row if row.as_of is None else None  # only final rows are cached


def _find_old_records(runs: Sequence[Run]) -> dict[Run, ExitRecord]:
    """Return the exit records of those runs that ended long ago."""
    exit_records = {run: run.end_record() for run in runs}
    return {run: record for run, record in exit_records.items() if record and _ended_long_ago(record)}


def _ended_long_ago(record: ExitRecord | None) -> bool:
    """Return whether a job's exit record shows that it ended long ago, and that Slurm does not requeue it."""
    if record is None or record.ended is None or record.may_restart or record.requeued:
        return False
    return time.time() - record.ended > CACHE_DELAY_SECONDS


def _cached_state(entry: JsonObject | None) -> tuple[State, float] | None:
    """Return the cached state of a run and its time."""
    try:
        return record_validation.parse_record(State, entry), record_validation.parse_record(CachedAt, entry).at
    except ValueError:
        return None


def _reconcile(
    state: State, cached_entry: tuple[State, float] | None, record: ExitRecord | None
) -> tuple[State, str | None]:
    """Merge a new state with the cached state; if the query failed, also return the time of the cached state."""
    end_time = record.ended if record else None
    if state.recorded and cached_entry and cached_entry[0].finished and end_time and cached_entry[1] >= end_time:
        return replace(
            cached_entry[0], reason=state.reason or cached_entry[0].reason
        ), None  # Slurm's earlier answer is more precise than the job's files
    if state.name != "UNKNOWN" or cached_entry is None:
        return state, None
    cached_state, cached_time = cached_entry[0], format_time(cached_entry[1])
    if cached_state.finished:
        return cached_state, None
    if state.lost:
        return replace(state, reason=f"{state.reason}; it was {cached_state.name} at {cached_time}"), None
    return replace(cached_state, reason=state.reason), cached_time


def _build_row(run: Run, state: State, record: ExitRecord | None, as_of: str | None) -> StatusRow:
    resources = run.spec.resources
    waits_in_script = state.name == "PENDING" and not run.scheduler.has_queue  # a task of a local sweep
    row = StatusRow(
        job_id=run.job_id,
        name=run.name,
        site=run.site_label,
        state=state.name,
        nodes=state.nodes,
        elapsed=normalize_time(state.elapsed) or state.elapsed,
        progress=format_progress(
            run.last_epoch(), None if state.finished else run.heartbeat(), is_completed=state.name == "COMPLETED"
        ),
        exit_code=record.exit_code if record and state.finished else None,
        reason=_explain_state(run, state),
        run_dir=str(run.directory),
        limit=normalize_time(state.limit or resources.time),
        nodes_asked=resources.nodes,
        ranks=world_warning.count_ranks(resources) if run.spec.is_recorded else None,
        submitted=format_time(run.submission.submitted) if run.job_id else None,
        values=run.values,
        starts=0 if waits_in_script else run.start_count(),
        as_of=as_of,
    )
    faults = [f"{name} {fault}" for name, fault in run.faults.items() if name != "job.json"]
    if not (run.spec.is_recorded or run.start_by_hand):
        faults.insert(0, f"job.json cannot be read: it {run.faults.get('job.json', 'is missing')}")
    return replace(row, reason="; ".join(filter(None, [*faults, row.reason])), faults="; ".join(faults))


def _explain_state(run: Run, state: State) -> str:
    if state.name == "COMPLETED" and (warning := world_warning.read_warning(run)):
        return warning
    if inferred_state.is_in_epilog(run, state):
        return inferred_state.EPILOG_REASON
    return state.reason or (inferred_state.PROLOG_REASON if inferred_state.is_starting(run, state) else "")
