"""A client that runs Slurm commands (squeue, sacct, scontrol, sbatch, scancel), and queries this user's jobs."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

from hpcrun.errors import HpcrunError
from hpcrun.frozen import frozen
from hpcrun.jobs.states import CANCELLED_WHILE_PENDING, UNFINISHED_STATES, UNKNOWN_JOB_REASON, State
from hpcrun.schedulers import command as commands
from hpcrun.schedulers.environment import require_slurm_conf

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

QUERY_TIMEOUT_SECONDS = 60.0
"""Timeout in seconds of queries about jobs: squeue and sacct are slow on large clusters."""

REQUEST_SECONDS = 540.0
"""Timeout in seconds of sbatch and scancel, which retry a request for minutes."""

_SQUEUE = ("squeue", "--me", "--array", "--states=all", "--noheader", "--format=%i|%T|%r|%N|%M|%l|%o")
_SACCT = ("sacct", "--allocations", "--noheader", "--parsable2")
_FIELDS = "--format=JobID,State,Reason,NodeList,Elapsed,Timelimit"


@frozen
class SlurmClient:
    """A client of one Slurm cluster. A site's wrappers of Slurm commands may print a banner before the output.

    Attributes:
        conf: The slurm.conf of the cluster; None: SLURM_CONF, or Slurm's default.
    """

    conf: str | None = None

    def query(self, command: Sequence[str], *, text: str = "", timeout: float | None = None) -> commands.CommandResult:
        """Run a command that queries Slurm, and return the result, even if the command cannot start.

        Args:
            command: The program and its arguments.
            text: The text on stdin.
            timeout: Timeout in seconds; default: `hpcrun.schedulers.command.TIMEOUT_SECONDS`.
        """
        try:
            require_slurm_conf(self.conf)
        except HpcrunError as error:
            return commands.CommandResult(None, "", error.message)
        return commands.run(command, text=text, timeout=timeout, conf=self.conf)

    def request(self, command: Sequence[str]) -> commands.CommandResult:
        """Run a command that changes jobs.

        Args:
            command: The program and its arguments.

        Raises:
            HpcrunError: The slurm.conf does not exist, or the program is not installed.
        """
        require_slurm_conf(self.conf)
        if not shutil.which(command[0]):
            hint = "use a login node of the cluster, or --site local"
            raise HpcrunError(f"{command[0]} is not on PATH", hint=hint, exit_code=1)
        return self.query(command, timeout=REQUEST_SECONDS)

    def query_table(
        self, command: Sequence[str], columns: int, *, optional_columns: int = 0, timeout: float = QUERY_TIMEOUT_SECONDS
    ) -> list[list[str]] | None:
        """Return the rows of a table; None if the command fails.

        Lines with too few columns are skipped, because they belong to a banner.

        Args:
            command: The program and its arguments; the output has ``|`` between columns.
            columns: The number of columns; the last column may contain ``|``.
            optional_columns: Number of columns at the end that may be missing; missing columns are empty.
            timeout: Timeout in seconds.
        """
        result = self.query(command, timeout=timeout)
        if result.failure:
            return None
        bar_count = columns - 1
        lines = [line for line in result.out.splitlines() if line.count("|") >= bar_count - optional_columns]
        return [[*line.split("|", bar_count), *optional_columns * [""]][:columns] for line in lines]

    def query_queue(self) -> list[list[str]] | None:
        """Return a row for each of this user's jobs in the queue; None if Slurm does not answer.

        Returns:
            Job id, state, reason, nodes, elapsed time, time limit and command of each job.
        """
        return self._query_job_table(_SQUEUE)

    def _query_job_table(self, command: Sequence[str]) -> list[list[str]] | None:
        return self.query_table(command, 7, optional_columns=2)

    def query_jobs(self, ids: Iterable[str]) -> dict[str, tuple[State, str]] | None:
        """Return the state and command of this user's jobs; None if Slurm does not answer.

        Args:
            ids: The job ids to query in accounting if squeue does not list them.
        """
        rows = self.query_queue()
        if rows is None:
            return None
        if missing := sorted({array_id(job_id) for job_id in set(ids) - {row[0] for row in rows}}):
            sacct_commands = (
                [*_SACCT, fields, "--jobs", ",".join(missing)] for fields in (f"{_FIELDS},SubmitLine", _FIELDS)
            )
            # sacct has SubmitLine since Slurm 21.08; rows of squeue are newer, and override rows of sacct
            ended_rows = next(
                (found for table in sacct_commands if (found := self._query_job_table(table)) is not None), []
            )
            rows = [*map(_correct_accounting_row, ended_rows), *rows]
        # sacct prints states such as "CANCELLED by 1000", and the reason "None"
        return {
            job_id: (_state(state.split()[0], reason if reason != "None" else "", nodes, elapsed, limit), command)
            for job_id, state, reason, nodes, elapsed, limit, command in rows
        }

    def query_states(self, ids: Sequence[str]) -> dict[str, State] | None:
        """Return the states of the jobs that Slurm knows, by job id; None if Slurm does not answer.

        Args:
            ids: The job ids.
        """
        jobs = self.query_jobs(ids)
        return None if jobs is None else {job_id: jobs[job_id][0] for job_id in ids if job_id in jobs}


def array_id(job_id: str) -> str:
    """Return the job id of the whole array for an array task, and the unchanged job id for any other job."""
    return job_id.partition("_")[0]


def _state(name: str, reason: str, nodes: str, elapsed: str, limit: str) -> State:
    """Return a job's state; squeue prints ``(null)`` for a job without nodes, and sacct prints ``None assigned``."""
    nodes = "" if nodes in {"None assigned", "(null)"} else nodes
    if name == "CANCELLED" and not nodes and not reason:
        reason = CANCELLED_WHILE_PENDING
    return State(name, reason, nodes, elapsed, limit)


def _correct_accounting_row(row: list[str]) -> list[str]:
    """Correct the accounting row of a job that is not in the queue: accounting may have missed the end of the job."""
    job_id, state, _, nodes, elapsed, limit, command = row
    if state == "PREEMPTED":  # accounting reports a preempted job that is not requeued in this state
        return [job_id, "CANCELLED", "preempted", nodes, elapsed, limit, command]
    if state.split()[0] not in UNFINISHED_STATES:
        return row
    reason = f"{UNKNOWN_JOB_REASON}, though accounting lists it as {state}"
    return [job_id, "UNKNOWN", reason, nodes, "", limit, command]
