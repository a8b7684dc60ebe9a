"""Slurm jobs: submission, cancellation, and states from squeue, else from sacct, else from exit records."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from importlib import import_module
from math import inf
from typing import TYPE_CHECKING, Any

from hpcrun.errors import HpcrunError
from hpcrun.jobs.dependencies import parse_dependency
from hpcrun.jobs.states import CANCELLED_WHILE_PENDING, UNKNOWN_JOB_REASON, State, state_from_record
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

# Slurm may still report one of these states for a job whose script has just ended
_POSSIBLY_OUTDATED_STATES = {"RUNNING", "COMPLETING"}


def _group_by_slurm(runs: Iterable[Run]) -> dict[str | None, list[Run]]:
    """Group runs by the slurm.conf of their jobs: a login node may have access to several Slurm clusters."""
    runs_by_conf: dict[str | None, list[Run]] = {}
    for run in runs:
        runs_by_conf.setdefault(run.slurm_conf, []).append(run)
    return runs_by_conf


def _find_unrecorded(runs: Sequence[Run], conf: str | None) -> dict[Path, UnrecordedJob | None]:
    """Find the unrecorded jobs of runs on one Slurm cluster."""
    job_ids = {run: run.log_job_id for run in runs}
    rows = [] if all(job_ids.values()) else SlurmClient(conf).query_queue()
    jobs = {(command, job_id.partition("_")[2]): job_id for job_id, *_, command in rows or []}
    jobs_by_directory: dict[Path, UnrecordedJob | None] = {}
    for run in runs:
        folder = (run.sweep or run).directory
        task = str(run.task_number) if run.sweep else ""
        script = f"{folder}/job.sh"
        if job_id := job_ids[run] or jobs.get((script, task)):
            jobs_by_directory[run.directory] = UnrecordedJob(job_id, command=(script,))
        elif rows is not None:
            jobs_by_directory[run.directory] = None
    return jobs_by_directory


def _is_job_of_run(run: Run, command: str) -> bool:
    """Return whether a job runs the script of a run, because a job of another cluster may have the same job id."""
    script = run.submission.command[-1] if run.submission.command else ""
    return not command or script in command


def _query_states(runs: Sequence[Run], conf: str | None) -> dict[Run, State]:
    """Return the states of runs on one Slurm cluster."""
    from hpcrun.jobs import inferred_state

    known_jobs = SlurmClient(conf).query_jobs(run.job_id for run in runs if run.job_id)
    jobs = known_jobs or {}
    commands_by_array = {array_id(job_id): command for job_id, (_, command) in jobs.items()}
    unknown_reason = "Slurm does not answer" if known_jobs is None else UNKNOWN_JOB_REASON
    states = {}
    for run in runs:
        job_id, exit_record = run.job_id or "", run.exit_record()
        is_lost = exit_record and job_id in jobs and jobs[job_id][0].name == "UNKNOWN"
        if job_id in jobs and not is_lost and _is_job_of_run(run, jobs[job_id][1]):
            state = jobs[job_id][0]
            # The exit record of a requeued job is outdated; Slurm's state is newer.
            final_record = exit_record if exit_record and not exit_record.requeued else None
            if final_record and (
                state.finished
                or (state.name in _POSSIBLY_OUTDATED_STATES and final_record.ended and not final_record.may_restart)
            ):
                recorded_state = state_from_record(final_record)
                state_name = state.name if state.finished else recorded_state.name
                state = replace(state, name=state_name, reason=recorded_state.reason)
        elif not (exit_record and exit_record.requeued) and (
            last_known := inferred_state.infer_state(run, exit_record)
        ):
            state = last_known
        elif (
            run.values
            and _is_job_of_run(run, commands_by_array.get(array_id(job_id), "unknown"))
            and not _has_started(run)
        ):
            # Slurm keeps no record of a task that was cancelled while pending.
            state = State("CANCELLED", CANCELLED_WHILE_PENDING)
        else:
            state = State("UNKNOWN", unknown_reason)
        states[run] = state
    return states


def _has_started(run: Run) -> bool:
    log = run.log()
    return bool(log and log.exists())


def _dependency_warnings(dependency: str, conf: str | None) -> list[str]:
    """Return warnings about a dependency that Slurm accepts and ignores, or that can never be fulfilled.

    Args:
        dependency: The value of sbatch's --dependency.
        conf: The slurm.conf of the Slurm cluster to query; None: the default.
    """
    conditions = parse_dependency(dependency)
    jobs = SlurmClient(conf).query_jobs(job_id for _, job_id in conditions) if conditions else {}
    if jobs is None:
        return []
    known_ids, warnings = {*jobs, *map(array_id, jobs)}, []
    for condition, job_id in conditions:
        state = jobs[job_id][0] if job_id in jobs else None
        if job_id not in known_ids:
            warnings.append(
                f"Slurm does not list job {job_id}: if it does not exist, {condition}:{job_id} does not wait"
            )
        elif condition == "afterok" and state and state.finished and state.name != "COMPLETED":
            warnings.append(f"job {job_id} ended {state.name}: {condition}:{job_id} can never be satisfied")
    return warnings


def _query_obstacles(spec: JobSpec) -> tuple[list[Obstacle], list[str]]:
    """Return the obstacles that would keep a job pending, and warnings about unknown names.

    The obstacles are limits of the job's partitions, QoS and account; the names are its QoS and account.
    """
    from concurrent.futures import ThreadPoolExecutor

    from hpcrun.schedulers import slurm_limits, slurm_names, slurm_partitions, slurm_qos

    resources, slurm = slurm_limits.requested_resources(spec), SlurmClient(spec.site.slurm_conf)
    if not resources:
        return [], []
    query_partitions = partial(slurm_partitions.query_partitions, slurm, timeout=slurm_limits.QUERY_TIMEOUT_SECONDS)
    with ThreadPoolExecutor(2) as pool:
        policies = pool.submit(slurm_qos.query_policies, slurm)
        known_partitions = pool.submit(query_partitions, hardware=False)
        # import it during the queries, because it takes 80 ms and the submission needs it
        import_module("hpcrun.schedulers.executors")
    partitions = known_partitions.result()
    obstacles = slurm_limits.find_obstacles(resources, partitions)
    if any(one.is_certain for one in obstacles):  # the hint depends on the hardware of the nodes
        return slurm_limits.find_obstacles(resources, query_partitions(hardware=True)) or obstacles, []
    if not partitions:
        return obstacles, []
    exceeded_limits = slurm_qos.find_obstacles(resources, partitions, policies.result())
    enforced_limits = exceeded_limits if exceeded_limits and slurm_qos.are_limits_enforced(slurm) else []
    return [*obstacles, *enforced_limits], slurm_names.warn_of_unknown_names(resources, policies.result(), slurm)


def _node_warnings(spec: JobSpec) -> list[str]:
    """Return warnings, with Slurm's reasons, about nodes in --nodelist that are down, drained or reserved."""
    nodes, time_limit = spec.resources.nodelist, spec.resources.time
    if not nodes or any(option.startswith("--reservation") for option in (*spec.site.sbatch, *spec.resources.sbatch)):
        return []
    from hpcrun.schedulers import slurm_limits, slurm_nodes

    seconds = parse_time(time_limit) if time_limit else inf
    slurm, timeout = SlurmClient(spec.site.slurm_conf), slurm_limits.QUERY_TIMEOUT_SECONDS
    return slurm_nodes.find_unavailable_nodes(slurm, nodes, seconds=seconds, timeout=timeout)


def _cancel(runs: Sequence[Run], conf: str | None) -> None:
    """Cancel jobs on one Slurm cluster."""
    client = SlurmClient(conf)
    jobs = client.query_jobs([]) or {}
    for run in runs:
        job_and_command = jobs.get(run.job_id or "")
        if job_and_command and not _is_job_of_run(run, job_and_command[1]):
            hint = f"the id may be another cluster's: use a login node of the cluster that {run.name} was submitted to"
            raise HpcrunError(
                f"Slurm's job {run.job_id} runs {job_and_command[1]}, not {run.directory}/job.sh",
                hint=hint,
                exit_code=1,
            )
    result = client.request(["scancel", *(str(run.job_id) for run in runs)])
    if result.code != 0:
        message = result.err.strip() or f"exit code {result.code}"
        job_ids = " ".join(str(run.job_id) for run in runs[:5]) + " ..." * (len(runs) > 5)
        raise HpcrunError(f"scancel {job_ids} failed: {message}", hint="hpcrun status shows the state of a job")


class SlurmScheduler(Scheduler):
    """The scheduler Slurm: jobs wait in a queue and run on the nodes of a cluster."""

    name, title = "slurm", "Slurm"
    bash_file = shell_library() / "slurm.bash"
    transport = "slurm"
    capabilities = frozenset({"sweep", "requeue", "memory_retries", "dependency"})
    uses_slurm = True

    def directives(self, spec: JobSpec) -> list[str]:
        """Return the options for ``#SBATCH`` lines, each as ``--name=value``."""
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
        """Return warnings about limits and dependencies that would keep an accepted job pending.

        Raises:
            HpcrunError: The job's partition can never run the job, for example because it has too few nodes or cores.
        """
        obstacles, name_warnings = _query_obstacles(spec)
        for obstacle in obstacles:
            if obstacle.is_certain:
                raise HpcrunError(obstacle.fault, hint=obstacle.hint)
        warnings = [
            f"Slurm will not start this job: {one.fault}" + f" ({one.hint})" * bool(one.hint) for one in obstacles
        ]
        warnings += [*name_warnings, *_node_warnings(spec)]
        if spec.resources.dependency:
            warnings += _dependency_warnings(spec.resources.dependency, spec.site.slurm_conf)
        return warnings

    def executor(self, run: Run) -> Any:
        """Return the submitit executor of a run. Importing submitit takes 80 ms, so only this function imports it."""
        from hpcrun.schedulers.executors import SlurmScriptExecutor

        return SlurmScriptExecutor(run)

    def submit(self, run: Run) -> str:
        """Submit a run's ``job.sh`` through submitit."""
        job_id: str = self.executor(run).submit_script().job_id
        return job_id

    def find_unrecorded(self, runs: Sequence[Run]) -> dict[Path, UnrecordedJob | None]:
        """Find the unrecorded jobs of runs by the names of their logs, and pending jobs by their scripts."""
        jobs_by_directory: dict[Path, UnrecordedJob | None] = {}
        for conf, group in _group_by_slurm(runs).items():
            jobs_by_directory |= _find_unrecorded(group, conf)
        return jobs_by_directory

    def query_states(self, runs: Sequence[Run]) -> dict[Run, State]:
        """Return the state of each run, with one query to each Slurm cluster."""
        states: dict[Run, State] = {}
        for conf, group in _group_by_slurm(runs).items():
            states |= _query_states(group, conf)
        return states

    def request_stop(self, run: Run) -> bool:
        """Send SIGUSR1 to a job's script, unless the script has no handler: the signal would end the job as FAILED."""
        if not run.spec.site.traps_stop_signal or not run.handles_signals():
            return False
        # only the script receives the signal; its trap forwards the signal to the ranks through the launcher
        return SlurmClient(run.slurm_conf).request(["scancel", "--batch", "--signal=USR1", str(run.job_id)]).code == 0

    def cancel(self, *runs: Run) -> None:
        """Cancel jobs with all their ranks.

        Raises:
            HpcrunError: Slurm refused to cancel, is not installed, or has a different job with the same id.
        """
        for conf, group in _group_by_slurm(runs).items():
            _cancel(group, conf)

    def resume(self, run: Run) -> str:
        """Submit the script of a stopped run again."""
        return self.submit(run)

    def rerun_command(self, run: Run) -> str:
        """Return the command line that runs a job's script again."""
        sbatch = prefix_slurm_conf(run.slurm_conf, "sbatch")
        if not run.sweep:
            return f"{sbatch} {run.directory}/job.sh"
        return f"{sbatch} --array={run.task_number} {run.sweep.directory}/job.sh"


SCHEDULER = SlurmScheduler()
