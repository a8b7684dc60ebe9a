"""The answer to: why is this job as it is?"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from hpcrun import schedulers
from hpcrun.jobs.states import UNSUBMITTED, from_record
from hpcrun.schedulers.environment import typed
from hpcrun.sweep import words
from hpcrun.why import slurm
from hpcrun.why.evidence import Evidence
from hpcrun.why.facts import Facts
from hpcrun.why.signatures import Finding, findings

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from hpcrun.jobs.runs import Run
    from hpcrun.jobs.states import State

WAITING = frozenset({
    "PENDING", "CONFIGURING", "SUSPENDED", "STOPPED", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "SPECIAL_EXIT",
    "RESV_DEL_HOLD", "STAGE_OUT",
})  # fmt: skip
"""States in which a job does nothing, and may still come to do something."""

LAST_LINES = 15


@dataclass(frozen=True)
class Answer:
    """Why a job is as it is.

    Attributes:
        run: The job.
        state: Its state.
        how: How it is, in a word or two: waits, failed, completed.
        where: Where it runs, and since when.
        finding: What was recognised first.
        others: What else was recognised and may have to do with it.
        known: Whether anything was recognised; a job that does well needs nothing to be.
    """

    run: Run
    state: State
    how: str
    finding: Finding
    others: tuple[Finding, ...] = ()
    known: bool = True
    where: str = ""

    @property
    def well(self) -> bool:
        """Whether the job runs or has completed, whatever else there is to say."""
        return self.how in {"runs", "completed"}

    @property
    def says(self) -> str:
        """What comes behind how it is: why."""
        joint = ", but " if self.well else ": "
        return f"{joint}{self.finding.says}" if self.finding.says else ""

    @property
    def headline(self) -> str:
        """The answer in one sentence."""
        which = " ".join(filter(None, [self.run.name, words(self.run.values.items())]))
        return f"job {self.run.job_id or '-'} ({which}) {self.how}{self.where}{self.says}"

    def as_json(self) -> dict[str, Any]:
        """Return what a script wants to know."""
        return {
            "job_id": self.run.job_id, "state": self.state.name, "name": self.finding.name, "headline": self.headline,
            "evidence": [vars(each) for each in self.finding.evidence], "fix": self.finding.fix,
            "others": [
                {"name": other.name, "says": other.says, "evidence": [vars(each) for each in other.evidence],
                 "fix": other.fix}
                for other in self.others
            ],
        }  # fmt: skip


def explain(run: Run) -> Answer:
    """Say why a job waits or failed, or that it does well.

    Args:
        run: The job's run directory.
    """
    return next(explained([run]))


def explained(runs: Sequence[Run]) -> Iterator[Answer]:
    """Yield why each of several jobs waits or failed; schedulers are asked once for all.

    Of jobs that wait for the same reason, only the first one's start and place in the queue are asked for.

    Args:
        runs: The jobs' run directories.
    """
    told, waiting = schedulers.states(runs), dict[tuple[str, str], Answer]()
    states = [told.get(run) or _unknown_to_any(run) for run in runs]
    pairs = zip(runs, states, strict=True)
    cancelled = [run for run, state in pairs if state.name == "CANCELLED" and run.scheduler == "slurm"]
    cancellers = slurm.cancellers(cancelled) if cancelled else {}
    for run, state in zip(runs, states, strict=True):
        key = (state.name, state.reason)
        if key in waiting:
            yield replace(waiting[key], run=run)
            continue
        answer = _explain(run, state, cancellers.get(run, ""))
        if state.name in WAITING:
            waiting[key] = answer
        yield answer


def _unknown_to_any(run: Run) -> State:
    """Return the state of a run that was not submitted; a script given to sbatch by hand has a record all the same."""
    record = run.record()
    return from_record(record) if record else run.unsubmitted


def _explain(run: Run, state: State, canceller: str) -> Answer:
    facts = Facts(run, state, canceller)
    if state.name == UNSUBMITTED.name:
        return Answer(run, state, "never became a job", _unsubmitted(run))
    if state.name in WAITING:
        return _waiting(facts)
    if state.name == "COMPLETED":
        return _well(facts, "completed")
    if not state.finished and state.name not in {"UNKNOWN", "PREEMPTED"}:
        return _well(facts, "runs", f" on {state.nodes or 'its nodes'} since {state.elapsed or 'just now'}")
    return _ended(facts)


def _unsubmitted(run: Run) -> Finding:
    seen = (Evidence(str(run.directory), "there is no submitted.json"),)
    sbatch = typed(run.slurm_conf, f"sbatch {run.directory}/job.sh")
    fix = f"submit it again; {sbatch} tells why the scheduler refuses it, if it does"
    return Finding("not-submitted", run.unsubmitted.reason, seen, fix)


def _waiting(facts: Facts) -> Answer:
    found = findings("pending", facts)
    first = found[0] if found else _unknown_reason(facts)
    details = []
    if facts.scheduler == "slurm" and facts.run.job_id:
        details = slurm.waiting(facts.run, count=facts.reason in {"Priority", "Resources", "None", ""})
    before = facts.run.record()
    if before:
        details.append(Evidence("exit.json", f"it ran before: {before.reason}"))
    first = Finding(first.name, first.says, (*first.evidence, *details), first.fix)
    return Answer(facts.run, facts.whole_state, "waits", first, known=bool(found))


def _unknown_reason(facts: Facts) -> Finding:
    fix = f"see squeue(1), JOB REASON CODES; scontrol show job {facts.run.job_id} and your administrators tell more"
    return Finding("unknown", f"Slurm's reason is {facts.reason or facts.state}", (facts.told,), fix)


def _well(facts: Facts, how: str, where: str = "") -> Answer:
    found = findings("failures", facts, well=True)
    first = found[0] if found else Finding("completed" if how == "completed" else "running", "", (), "")
    return Answer(facts.run, facts.whole_state, how, first, tuple(found[1:]), where=where)


def _ended(facts: Facts) -> Answer:
    how = {"CANCELLED": "ended", "PREEMPTED": "ended", "UNKNOWN": "has no known state"}.get(facts.state, "failed")
    found = findings("failures", facts)
    if found:
        return Answer(facts.run, facts.whole_state, how, found[0], tuple(found[1:]))
    code = "" if facts.exit_code is None else f" with exit code {facts.exit_code}"
    says = f"hpcrun does not know why. {facts.told.source} says: {facts.told.line}"
    if facts.state == "UNKNOWN":
        says = facts.whole_state.reason
    ends = [Evidence(log.name, line) for log in facts.logs[:2] for line in _last(log.lines)]
    fix = (
        f"read the end of its log above; hpcrun logs {facts.words['job_id']} shows all of it, with --rank N that of "
        f"one rank; {facts.run.directory}/job.sh is what ran"
    )
    return Answer(facts.run, facts.whole_state, how + code, Finding("unknown", says, tuple(ends), fix), known=False)


def _last(lines: tuple[str, ...]) -> list[str]:
    return [line.rstrip() for line in lines if line.strip()][-LAST_LINES:]
