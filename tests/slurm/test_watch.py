"""`hpcrun watch` of a job on a real Slurm: pending, running on two hosts, stalled, requeued, ended."""

import re
from pathlib import Path

import pytest

from tests.slurm.cluster_user import SITES
from tests.waiting import wait_until

pytestmark = [pytest.mark.slurm, pytest.mark.thorough]  # tests/unit/test_watch.py simulates such jobs

HANGS = """
import time
import hpcrun.train

def load():
    while True:
        time.sleep(0.1)

comm = hpcrun.train.comm()
if comm.rank == 1:
    load()
comm.barrier()
"""


def test_watch_follows_a_job_from_pending_to_cancelled(user):
    (user.home / "hangs.py").write_text(HANGS)
    options = ["--site", "srun-mpich", "-N", "2", "-n", "2", "-t", "5", "-x", "HPCRUN_HEARTBEAT_SECONDS=0.5"]
    submission = user.json("submit", *options, "--sbatch=--hold", "--sbatch=--requeue", "./hangs.py")
    job, second = submission["job_id"], user.cluster.nodelist[1]
    with user.start("hpcrun", "watch", job) as watch_process:
        lines = iter(watch_process.stdout.readline, "")

        def prints(pattern):
            return any(re.search(pattern, line) for line in lines)

        assert prints(rf"job {job} .* is pending: it is held by you \(--hold or scontrol hold\)")
        assert user.call("scontrol", "release", job).returncode == 0
        stall_warning = rf"WARNING: rank 1 on {second} is awaited: it is at hangs.py:7 in load$"
        assert prints(f"job {job} .* is running on ")
        assert prints(stall_warning)
        output = user.call("scontrol", "requeue", job)
        assert output.returncode == 0, output.stderr
        # a busy watcher may see only the end of the first start, and then the second
        assert prints(f"job {job} .* is (ending|pending|requeued|requeue hold)")
        assert prints(f"job {job} .* is running on ")
        assert prints(stall_warning)
        assert user.hpcrun("cancel", job).returncode == 0
        assert watch_process.wait(60) == 0
        assert f"job {job} ended CANCELLED: " in watch_process.stderr.read()


REQUEUES = 'trap "exit 3" USR2; echo "$HPCRUN_JOB_ID" >>"$HPCRUN_RUN_DIR/began"; while :; do sleep 0.1; done'


def test_watch_follows_a_job_that_submits_itself_again(user):
    chained = SITES["srun-mpich"].split("[", maxsplit=1)[0] + "restart.requeue = false\n"
    (user.home / "config/hpcrun/chained.toml").write_text(chained)
    submission = user.json("submit", "--site", "chained", "-t", "10", "--max-requeue", "1", "--", "sh", "-c", REQUEUES)
    job, start_time = submission["job_id"], Path(submission["run_dir"], "began")
    with user.start("hpcrun", "watch", job) as watch_process:
        lines = iter(watch_process.stdout.readline, "")
        assert any(f"job {job} (sh) is running on " in line for line in lines)
        wait_until(start_time.exists)
        assert user.call("scancel", "--batch", "--signal=USR2", job).returncode == 0
        line = next(line for line in lines if " is running on " in line)
        second = user.json("status", submission["run_dir"])["job_id"]
        assert second != job
        assert f"job {second} (sh) is running on " in line
        wait_until(lambda: second in start_time.read_text())
        assert user.hpcrun("cancel", second).returncode == 0
        assert watch_process.wait(60) == 0
        assert f"job {second} ended CANCELLED: " in watch_process.stderr.read()
