"""Fixtures for tests of faults: count a job's processes independently of hpcrun, and clean up the cluster."""

from pathlib import Path

import pytest

from tests.cluster.errors import wait_for
from tests.slurm.cluster_user import ClusterUser

COUNT = """
for environ in /proc/[0-9]*/environ; do
  tr '\\0' '\\n' <"$environ" 2>/dev/null | grep -qxF "HPCRUN_RUN_DIR=$1" && echo "${environ//[!0-9]/}"
done
true
"""


class JobInspector:
    """Finds the processes of jobs by their environment.

    Args:
        user: A user of the cluster.
    """

    def __init__(self, user: ClusterUser) -> None:
        self.user = user

    def processes(self, run_dir, *nodes):
        """Return the number of a job's processes on each node."""
        names = nodes or self.user.cluster.nodelist
        pids_by_node = [
            self.user.cluster.run(node, "bash", "-c", COUNT, "count", run_dir).stdout.split() for node in names
        ]
        return [len(pids) for pids in pids_by_node]

    def state(self, submission):
        return self.user.json("status", submission["job_id"])["state"]

    def wait_for_start(self, submission, ranks=1):
        """Wait until ranks have written `started` to their logs and the job has recorded its packages."""
        logs = [Path(submission["run_dir"], "logs", f"rank-{rank}.log") for rank in range(ranks)]
        wait_for(
            f"the start of job {submission['job_id']}",
            lambda: all(log.exists() and "started\n" in log.read_text() for log in logs),
            60,
            self.user.cluster.config.log / "slurmctld.log",
        )
        nodes = self.user.cluster.nodelist  # a job gives its record 60 s, at the lowest priority
        self.wait_until("the record of the packages", lambda: not any(map(self._records_packages, nodes)), 90)
        return submission

    def _records_packages(self, node):
        return self.user.cluster.run(node, "pgrep", "-f", "hpcrun.provenance.packages", check=False).returncode == 0

    def wait_until(self, what, condition, seconds=60):
        """Wait until a condition is met."""
        wait_for(what, condition, seconds, self.user.cluster.config.log / "slurmctld.log")


@pytest.fixture
def inspector(user):
    """Yield an inspector of the user's jobs; afterwards, cancel the jobs and empty the nodes' /dev/shm."""
    yield JobInspector(user)
    user.call("scancel", "--me")
    user.cluster.wait_idle()
    for node in user.cluster.nodelist:  # killed ranks leave segments that no process uses
        user.cluster.run(node, "sh", "-c", "rm -f /dev/shm/*")


@pytest.fixture
def start_sleeper(user, inspector):
    """Return a function that submits a job whose ranks print `started` and sleep, and waits for that line."""

    def submit(*options, ranks=1, command="sleep 600", **environment):
        submission = user.json("submit", *options, "--", "sh", "-c", f"echo started; {command}", **environment)
        return inspector.wait_for_start(submission, ranks)

    return submit


@pytest.fixture
def wrap_command(user, tmp_path):
    """Return a function that puts a wrapper of a Slurm command first on PATH; $REAL is Slurm's command."""

    def wrap(name, body):
        folder = user.home / "bin"
        folder.mkdir(exist_ok=True)
        real = f"/usr/bin/{name}"
        (folder / name).write_text(f"#!/bin/bash\nREAL={real}\n{body}\n")
        (folder / name).chmod(0o755)
        return {"PATH": f"{folder}:{user.environ['PATH']}"}

    return wrap
