"""Explanation of the state of a job: why it is pending or failed, or which problems a healthy job has."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from hpcrun import schedulers
from hpcrun.frozen import frozen
from hpcrun.jobs.inferred_state import PROLOG_REASON, is_starting
from hpcrun.jobs.states import UNSUBMITTED, state_from_record
from hpcrun.jobs.world_warning import count_ranks
from hpcrun.schedulers.environment import prefix_slurm_conf
from hpcrun.schedulers.refusals import explain_refusal
from hpcrun.schedulers.slurm_client import SlurmClient
from hpcrun.sweep import format_values
from hpcrun.why import slurm_details
from hpcrun.why.details import add_details
from hpcrun.why.evidence import Evidence
from hpcrun.why.job_facts import JobFacts
from hpcrun.why.pending_limits import PendingLimits, find_pending_limits
from hpcrun.why.ranking import find_diagnoses
from hpcrun.why.signatures import Diagnosis

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from hpcrun.jobs.runs import Run
    from hpcrun.jobs.states import State

WAITING_STATES = frozenset({
    "PENDING", "CONFIGURING", "SUSPENDED", "STOPPED", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "SPECIAL_EXIT",
    "RESV_DEL_HOLD", "STAGE_OUT",
})  # fmt: skip
"""States in which a job neither runs nor has ended."""

LAST_LINE_COUNT = 15


@frozen
class Explanation:
    """The explanation of a job's state.

    Attributes:
        run: The job.
        state: The state of the job.
        outcome: The state as the predicate of a sentence: ``waits``, ``failed``, ``completed``.
        diagnosis: The most specific diagnosis.
        others: Other diagnoses that may be related.
        is_known: Whether hpcrun found an explanation; always true for a job that runs or completed.
        where: The nodes and start time of a running job as text; empty otherwise.
    """

    run: Run
    state: State
    outcome: str
    diagnosis: Diagnosis
    others: tuple[Diagnosis, ...] = ()
    is_known: bool = True
    where: str = ""

    @property
    def is_healthy(self) -> bool:
        """Whether the job runs or has completed."""
        return self.outcome in {"runs", "completed"}

    @property
    def reason(self) -> str:
        """The second part of the headline: the explanation of the outcome."""
        separator = ", but " if self.is_healthy else ": "
        return f"{separator}{self.diagnosis.summary}" if self.diagnosis.summary else ""

    @property
    def headline(self) -> str:
        """The explanation in one sentence."""
        name = " ".join(filter(None, [self.run.name, format_values(self.run.values.items())]))
        return f"job {self.run.job_id or '-'} ({name}) {self.outcome}{self.where}{self.reason}"

    def as_json(self) -> dict[str, Any]:
        """Return the explanation as JSON values for scripts."""
        return {
            "job_id": self.run.job_id, "state": self.state.name, "name": self.diagnosis.name, "headline": self.headline,
            "evidence": [vars(each) for each in self.diagnosis.evidence], "fix": self.diagnosis.fix,
            "others": [
                {"name": other.name, "says": other.summary, "evidence": [vars(each) for each in other.evidence],
                 "fix": other.fix}
                for other in self.others
            ],
        }  # fmt: skip


def explain(run: Run) -> Explanation:
    """Explain why a job is pending or failed, or state that it runs or completed.

    Args:
        run: The job.
    """
    return next(explain_all([run]))


def explain_all(runs: Sequence[Run]) -> Iterator[Explanation]:
    """Yield the explanations of several jobs, with one query to each scheduler.

    If several jobs wait for the same reason, start time and queue position are queried for the first job only.

    Args:
        runs: The jobs.
    """
    known_states, waiting = schedulers.query_states(runs), dict[tuple[str, str], Explanation]()
    states = [known_states.get(run) or _unscheduled_state(run) for run in runs]
    pairs = zip(runs, states, strict=True)
    cancelled_runs = [run for run, state in pairs if state.name == "CANCELLED" and run.scheduler.uses_slurm]
    cancellers = slurm_details.find_cancellers(cancelled_runs) if cancelled_runs else {}
    for run, state in zip(runs, states, strict=True):
        key = (state.name, state.reason)
        if key in waiting:
            yield replace(waiting[key], run=run)
            continue
        explanation = _explain(run, state, cancellers.get(run, ""))
        if state.name in WAITING_STATES:
            waiting[key] = explanation
        yield explanation


def _unscheduled_state(run: Run) -> State:
    """Return the state of a run that hpcrun did not submit; the exit record exists if a user ran its script."""
    record = run.exit_record()
    return state_from_record(record) if record else run.unsubmitted_state


def _explain(run: Run, state: State, canceller: str) -> Explanation:
    facts = JobFacts(run, state, canceller)
    if state.name == UNSUBMITTED.name:
        return Explanation(run, state, "never became a job", _diagnose_unsubmitted(run))
    if state.name in WAITING_STATES:
        return _explain_waiting(facts)
    if state.name == "COMPLETED":
        return _explain_healthy(facts, "completed")
    if is_starting(run, state):
        return _explain_starting(facts)
    if not state.finished and state.name not in {"UNKNOWN", "PREEMPTED"}:
        return _explain_healthy(facts, "runs", f" on {state.nodes or 'its nodes'} since {state.elapsed or 'just now'}")
    return _explain_ended(facts)


def _diagnose_unsubmitted(run: Run) -> Diagnosis:
    evidence = (Evidence(str(run.directory), "there is no submitted.json"),)
    if run.refusal and run.scheduler.uses_slurm:
        meaning = explain_refusal(run.refusal, run.spec.resources.to_resources(), SlurmClient(run.slurm_conf))
        if meaning:
            return Diagnosis("not-submitted", run.refusal, evidence, f"{meaning.hint}; then submit it again")
    sbatch = prefix_slurm_conf(run.slurm_conf, f"sbatch {run.directory}/job.sh")
    fix = f"submit it again; if the scheduler rejects it, {sbatch} shows why"
    return Diagnosis("not-submitted", run.unsubmitted_state.reason, evidence, fix)


def _explain_waiting(facts: JobFacts) -> Explanation:
    diagnoses = find_diagnoses("pending", facts)
    diagnosis = diagnoses[0] if diagnoses else _diagnose_unknown_reason(facts)
    details: list[Evidence] = []
    limits = PendingLimits()
    job = slurm_details.query_pending_job(facts.run) if facts.run.scheduler.uses_slurm and facts.run.job_id else None
    if job:
        limits = find_pending_limits(facts, job)
        details += limits.evidence
        count = facts.reason in {"Priority", "Resources", "None", ""}
        count = count and not limits.is_impossible
        details += slurm_details.describe_pending(facts.run, job, count_jobs_ahead=count)
    earlier_exit = facts.run.exit_record()
    if earlier_exit:
        details.append(Evidence("exit.json", f"it ran before: {earlier_exit.reason}"))
    diagnosis = replace(diagnosis, evidence=(*diagnosis.evidence, *details), cause="")
    if limits.is_impossible and "never start" not in diagnosis.summary:
        diagnosis = replace(
            diagnosis, summary="it can never start, because it requests more than its partition or QoS allows"
        )
        diagnosis = replace(
            diagnosis, name="impossible-request", fix=f"hpcrun cancel {facts.run.job_id}, and submit it again"
        )
    if limits.hint:
        instruction = f"hpcrun cancel {facts.run.job_id}, and submit it again"
        diagnosis = replace(diagnosis, fix=f"{limits.hint}: {instruction if limits.is_impossible else diagnosis.fix}")
    return Explanation(facts.run, facts.job_state, "waits", diagnosis, is_known=bool(diagnoses))


def _diagnose_unknown_reason(facts: JobFacts) -> Diagnosis:
    fix = f"see squeue(1), JOB REASON CODES; scontrol show job {facts.run.job_id} shows more; ask your administrators"
    return Diagnosis("unknown", f"Slurm's reason is {facts.reason or facts.state}", (facts.scheduler_report,), fix)


def _explain_starting(facts: JobFacts) -> Explanation:
    """Explain a job whose nodes are allocated, but whose script has not started: Slurm runs the Prolog first."""
    location = f" on {facts.job_state.nodes or 'its nodes'} since {facts.job_state.elapsed or 'just now'}"
    fix = "wait: the Prolog takes seconds to minutes; if it takes longer, ask your administrators"
    summary = f"{PROLOG_REASON}, and its script has not started yet"
    diagnosis = Diagnosis("starting", summary, (facts.scheduler_report,), fix)
    return Explanation(facts.run, facts.job_state, "starts", diagnosis, where=location)


def _explain_healthy(facts: JobFacts, outcome: str, location: str = "") -> Explanation:
    diagnoses = find_diagnoses("failures", facts, is_healthy=True)
    if outcome == "runs" and not diagnoses:
        diagnoses = _diagnose_exception_of_running_job(facts) or _diagnose_completed_ranks(facts.run)
    name = "completed" if outcome == "completed" else "running"
    diagnosis = diagnoses[0] if diagnoses else Diagnosis(name, "", (), "")
    return Explanation(facts.run, facts.job_state, outcome, diagnosis, tuple(diagnoses[1:]), where=location)


def _diagnose_exception_of_running_job(facts: JobFacts) -> list[Diagnosis]:
    """Diagnose a running job whose log ends with an exception: the failed rank may hang in MPI_Finalize."""
    error = facts.python_error
    if error is None or error.ignored or facts.run.spec.resources.to_resources().ranks == 1:
        return []
    log = next(log for log in facts.logs if log.name == error.log)
    if any(line.strip() for line in log.lines[error.last + 1 :]):
        return []
    fix = (
        "if that rank waits in MPI_Finalize for the others, the job does not end by itself: "
        f"hpcrun cancel {facts.run.job_id}; with python -m mpi4py SCRIPT, or hpcrun.train, an exception ends all ranks"
    )
    summary = f"its log {log.name} ends with an exception: {error.error}"
    return [Diagnosis("exception-while-running", summary, (Evidence(log.name, log.line(error.last)),), fix)]


def _diagnose_completed_ranks(run: Run) -> list[Diagnosis]:
    """Diagnose a running job of which some ranks have ended: the others may wait for them in MPI_Init."""
    completed, ranks = run.completed_ranks(), count_ranks(run.spec.resources) or 1
    if not 0 < len(completed) < ranks:
        return []
    more = f", and {len(completed) - 1} others," * (len(completed) > 1)
    summary = f"rank {completed[0]}{more} ended with exit code 0, while {ranks - len(completed)} of {ranks} ranks run"
    fix = (
        "nothing, if these ranks have more to do; if they wait in MPI_Init or a collective for ranks that have ended, "
        f"the job runs until its time limit: hpcrun cancel {run.job_id}, and let all ranks call it"
    )
    return [Diagnosis("ranks-completed", summary, (Evidence("completed", f"rank-{completed[0]}"),), fix)]


def _explain_ended(facts: JobFacts) -> Explanation:
    outcome_texts = {"CANCELLED": "ended", "PREEMPTED": "ended", "UNKNOWN": "has no known state"}
    outcome = outcome_texts.get(facts.state, "failed")
    diagnoses = _find_diagnoses_of_failed_rank(facts) or find_diagnoses("failures", facts)
    if diagnoses:
        first = diagnoses[0]
        first = add_details(first, facts)
        return Explanation(facts.run, facts.job_state, outcome, first, tuple(diagnoses[1:]))
    code = "" if facts.exit_code is None else f" with exit code {facts.exit_code}"
    report = facts.scheduler_report
    summary = f"hpcrun does not know why. {report.source} reports: {report.line}"
    if facts.state == "UNKNOWN":
        summary = facts.job_state.reason
    last_lines = [Evidence(log.name, line) for log in facts.logs[:2] for line in _last_lines(log.lines)]
    fix = (
        f"read the end of its log above; hpcrun logs {facts.template_values['job_id']} shows all of it, with --rank N "
        f"that of one rank; the job ran {facts.run.directory}/job.sh"
    )
    if not (last_lines or facts.run.starts()):
        fix = f"its script has not started on any node; hpcrun resubmit {facts.run.job_id} submits it again"
    diagnosis = Diagnosis("unknown", summary, tuple(last_lines), fix)
    return Explanation(facts.run, facts.job_state, outcome + code, diagnosis, is_known=False)


def _find_diagnoses_of_failed_rank(facts: JobFacts) -> list[Diagnosis]:
    """Return diagnoses from the logs of the rank that failed first; logs of other ranks may only report its loss.

    The list is empty if these logs explain nothing, and the exit code has no specific meaning.
    """
    if facts.failed_rank is None:
        return []
    diagnoses = find_diagnoses("failures", replace(facts, of_failed_rank=True))
    return [] if facts.exit_code == 1 and diagnoses and diagnoses[0].name == "rank-exited" else diagnoses


def _last_lines(lines: tuple[str, ...]) -> list[str]:
    return [line.rstrip() for line in lines if line.strip()][-LAST_LINE_COUNT:]
