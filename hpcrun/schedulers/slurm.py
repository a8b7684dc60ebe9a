"""Slurm jobs: sbatch, scancel, and states from one squeue, then from sacct if available, then from exit records."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any

from hpcrun.errors import HpcrunError
from hpcrun.jobs.dependencies import parse_dependency
from hpcrun.jobs.states import UNKNOWN_JOB_REASON, State, state_from_record
from hpcrun.paths import shell_library
from hpcrun.resources import parse_time
from hpcrun.scheduler import Scheduler, UnrecordedJob
from hpcrun.schedulers.environment import prefix_slurm_conf
from hpcrun.schedulers.slurm_client import SlurmClient, array_id
from hpcrun.schedulers.slurm_directives import sbatch_options

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from hpcrun.jobs.runs import Run
    from hpcrun.schedulers.slurm_limits import Obstacle
    from hpcrun.spec import JobSpec

_LAGGING_STATES = {"RUNNING", "COMPLETING"}  # Slurm's possible states of a job whose script has just ended


def _group_by_slurm(runs: Iterable[Run]) -> dict[str | None, list[Run]]:
    """Group runs by the slurm.conf of their jobs: a login node may have access to several Slurms."""
    found: dict[str | None, list[Run]] = {}
    for run in runs:
        found.setdefault(run.slurm_conf, []).append(run)
    return found


def _find_unrecorded(runs: Sequence[Run], conf: str | None) -> dict[Path, UnrecordedJob | None]:
    """Find the unrecorded jobs of one Slurm."""
    ids = {run: run.log_job_id for run in runs}
    rows = [] if all(ids.values()) else SlurmClient(conf).query_queue()
    jobs = {(command, job_id.partition("_")[2]): job_id for job_id, *_, command in rows or []}
    found: dict[Path, UnrecordedJob | None] = {}
    for run in runs:
        folder = (run.sweep or run).directory
        task = str(run.task_number) if run.sweep else ""
        script = f"{folder}/job.sh"
        if job_id := ids[run] or jobs.get((script, task)):
            found[run.directory] = UnrecordedJob(job_id, command=(script,))
        elif rows is not None:
            found[run.directory] = None
    return found


def _is_job_of_run(run: Run, command: str) -> bool:
    """Return whether a job runs the script of a run: another cluster, or this one later, may use the same job id."""
    script = run.submission.command[-1] if run.submission.command else ""
    return not command or script in command


def _query_states(runs: Sequence[Run], conf: str | None) -> dict[Run, State]:
    """Return the states of runs of one Slurm."""
    from hpcrun.jobs import inferred_state

    answer = SlurmClient(conf).query_jobs(run.job_id for run in runs if run.job_id)
    jobs = answer or {}
    arrays = {array_id(job_id): command for job_id, (_, command) in jobs.items()}
    unknown = "Slurm does not answer" if answer is None else UNKNOWN_JOB_REASON
    states = {}
    for run in runs:
        job_id, ended = run.job_id or "", run.exit_record()
        lost = ended and job_id in jobs and jobs[job_id][0].name == "UNKNOWN"
        if job_id in jobs and not lost and _is_job_of_run(run, jobs[job_id][1]):
            state = jobs[job_id][0]
            # The exit record of a requeued job is older than Slurm's state.
            final = ended if ended and not ended.requeued else None
            if final and (state.finished or (state.name in _LAGGING_STATES and final.ended and not final.may_restart)):
                recorded = state_from_record(final)
                name = state.name if state.finished else recorded.name
                state = replace(state, name=name, reason=recorded.reason)
        elif not (ended and ended.requeued) and (last_known := inferred_state.infer_state(run, ended)):
            state = last_known
        elif run.values and _is_job_of_run(run, arrays.get(array_id(job_id), "unknown")) and not _has_started(run):
            state = State("CANCELLED", inferred_state.CANCELLED_WHILE_PENDING)  # Slurm keeps no record of such a task
        else:
            state = State("UNKNOWN", unknown)
        states[run] = state
    return states


def _has_started(run: Run) -> bool:
    log = run.log()
    return bool(log and log.exists())


def _dependency_warnings(dependency: str, conf: str | None) -> list[str]:
    """Return warnings about a dependency: Slurm accepts any job id, and then does not wait, or waits for ever.

    Args:
        dependency: In sbatch's format.
        conf: The slurm.conf of the Slurm to query.
    """
    conditions = parse_dependency(dependency)
    jobs = SlurmClient(conf).query_jobs(job_id for _, job_id in conditions) if conditions else {}
    if jobs is None:
        return []
    known, warnings = {*jobs, *map(array_id, jobs)}, []
    for kind, job_id in conditions:
        state = jobs[job_id][0] if job_id in jobs else None
        if job_id not in known:
            warnings.append(f"Slurm does not list job {job_id}: if it does not exist, {kind}:{job_id} does not wait")
        elif kind == "afterok" and state and state.finished and state.name != "COMPLETED":
            warnings.append(f"job {job_id} ended {state.name}: {kind}:{job_id} can never be satisfied")
    return warnings


def _query_obstacles(spec: JobSpec) -> tuple[list[Obstacle], list[str]]:
    """Return why Slurm would not start a job, and warnings.

    The obstacles are limits of its partitions, its QoS and its account; the warnings are about names of these.
    """
    from concurrent.futures import ThreadPoolExecutor

    from hpcrun.schedulers import slurm_limits, slurm_names, slurm_partitions, slurm_qos

    resources, slurm = slurm_limits.requested_resources(spec), SlurmClient(spec.site.slurm_conf)
    if not resources:
        return [], []
    query = partial(slurm_partitions.query_partitions, slurm, timeout=slurm_limits.QUERY_SECONDS)
    with ThreadPoolExecutor(1) as pool:
        policies = pool.submit(slurm_qos.query_policies, slurm)
        partitions = query(hardware=False)
    found = slurm_limits.find_obstacles(resources, partitions)
    if any(one.is_certain for one in found):  # the hint depends on the size of a node
        return slurm_limits.find_obstacles(resources, query(hardware=True)) or found, []
    if not partitions:
        return found, []
    exceeded = slurm_qos.find_obstacles(resources, partitions, policies.result())
    enforced = exceeded if exceeded and slurm_qos.are_enforced(slurm) else []
    return [*found, *enforced], slurm_names.warn_of_unknown(resources, policies.result(), slurm)


def _node_warnings(spec: JobSpec) -> list[str]:
    """Return why nodes that a job names do not run jobs, in Slurm's words."""
    nodes, time = spec.resources.nodelist, spec.resources.time
    if not nodes or any(option.startswith("--reservation") for option in (*spec.site.sbatch, *spec.resources.sbatch)):
        return []
    from hpcrun.schedulers import slurm_limits, slurm_nodes

    seconds = parse_time(time) if time else inf
    slurm, timeout = SlurmClient(spec.site.slurm_conf), slurm_limits.QUERY_SECONDS
    return slurm_nodes.find_unavailable(slurm, nodes, seconds=seconds, timeout=timeout)


def _cancel(runs: Sequence[Run], conf: str | None) -> None:
    """Cancel jobs of one Slurm."""
    client = SlurmClient(conf)
    jobs = client.query_jobs([]) or {}
    for run in runs:
        job = jobs.get(run.job_id or "")
        if job and not _is_job_of_run(run, job[1]):
            hint = f"the id may be another cluster's: use a login node of the cluster that {run.name} was submitted to"
            raise HpcrunError(
                f"Slurm's job {run.job_id} runs {job[1]}, not {run.directory}/job.sh", hint=hint, exit_code=1
            )
    answer = client.request(["scancel", *(str(run.job_id) for run in runs)])
    if answer.code != 0:
        message = answer.err.strip() or f"exit code {answer.code}"
        ids = " ".join(str(run.job_id) for run in runs[:5]) + " ..." * (len(runs) > 5)
        raise HpcrunError(f"scancel {ids} failed: {message}", hint="hpcrun status shows the state of a job")


class SlurmScheduler(Scheduler):
    """Slurm: jobs wait in its queue and run on its nodes."""

    name, title = "slurm", "Slurm"
    bash_file = shell_library() / "slurm.bash"
    transport = "slurm"
    abilities = frozenset({"sweep", "requeue", "memory_retries", "dependency"})
    uses_slurm = True

    def directives(self, spec: JobSpec) -> list[str]:
        """Return the ``#SBATCH`` options, each as ``--name=value``."""
        return sbatch_options(spec)

    def bash_options(self, spec: JobSpec) -> dict[str, object]:
        """Return the options of slurm.bash."""
        return {
            "own_slurm_conf": bool(spec.site.slurm_conf),
            "max_requeue": spec.max_requeue or None,
            "resubmit": bool(spec.max_requeue) and not spec.site.restart.requeue,
            "memory_retries": spec.memory_retries or None,
        }

    def check(self, spec: JobSpec) -> list[str]:
        """Warn of limits and dependencies with which Slurm accepts a job, but does not start it.

        Raises:
            HpcrunError: Its partition has too few nodes or cores.
        """
        obstacles, name_warnings = _query_obstacles(spec)
        for one in obstacles:
            if one.is_certain:
                raise HpcrunError(one.fault, hint=one.hint)
        warnings = [
            f"Slurm will not start this job: {one.fault}" + f" ({one.hint})" * bool(one.hint) for one in obstacles
        ]
        warnings += [*name_warnings, *_node_warnings(spec)]
        if spec.resources.dependency:
            warnings += _dependency_warnings(spec.resources.dependency, spec.site.slurm_conf)
        return warnings

    def executor(self, run: Run) -> Any:
        """Return the submitit executor of a run; the import of submitit takes 80 ms, so it happens here."""
        from hpcrun.schedulers.executors import SlurmScriptExecutor

        return SlurmScriptExecutor(run.directory)

    def submit(self, run: Run) -> str:
        """Submit a run's ``job.sh`` through submitit."""
        job_id: str = self.executor(run).submit_script().job_id
        return job_id

    def find_unrecorded(self, runs: Sequence[Run]) -> dict[Path, UnrecordedJob | None]:
        """Find jobs by their logs, and pending jobs by their scripts."""
        found: dict[Path, UnrecordedJob | None] = {}
        for conf, group in _group_by_slurm(runs).items():
            found |= _find_unrecorded(group, conf)
        return found

    def query_states(self, runs: Sequence[Run]) -> dict[Run, State]:
        """Return the state of each run, by one query of each Slurm."""
        found: dict[Run, State] = {}
        for conf, group in _group_by_slurm(runs).items():
            found |= _query_states(group, conf)
        return found

    def request_stop(self, run: Run) -> bool:
        """Send SIGUSR1 to a job's script, unless this has no handler for it: the signal would end it as FAILED."""
        if not run.spec.site.traps_stop_signal or not run.handles_signals():
            return False
        # only the script receives the signal; its trap forwards it in the launcher's way
        return SlurmClient(run.slurm_conf).request(["scancel", "--batch", "--signal=USR1", str(run.job_id)]).code == 0

    def cancel(self, *runs: Run) -> None:
        """Cancel jobs with all their ranks.

        Raises:
            HpcrunError: Slurm refused, is not installed, or has another job of the same id.
        """
        for conf, group in _group_by_slurm(runs).items():
            _cancel(group, conf)

    def resume(self, run: Run) -> str:
        """Submit the script of a stopped run again."""
        from hpcrun.schedulers import slurm_submission

        return slurm_submission.resume(run)

    def rerun_command(self, run: Run) -> str:
        """Return the command line that runs a job's script again."""
        sbatch = prefix_slurm_conf(run.slurm_conf, "sbatch")
        if not run.sweep:
            return f"{sbatch} {run.directory}/job.sh"
        return f"{sbatch} --array={run.task_number} {run.sweep.directory}/job.sh"


SCHEDULER = SlurmScheduler()
