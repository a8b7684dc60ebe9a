"""Sweeps as job arrays on a real Slurm."""

import json
import sys
from pathlib import Path

import pytest

from tests.cluster.errors import wait_for

pytestmark = [pytest.mark.slurm, pytest.mark.thorough]
ORPHAN = Path(__file__).parents[1] / "orphan.py"


def test_each_task_has_its_own_log_record_and_result(user):
    # Only rank 1 fails, after its output, because a failing rank ends the other one.
    result = (
        """echo "{\\"loss\\": {n}}" >"$HPCRUN_RUN_DIR/result.json"; echo task {n} on $SLURM_PROCID; """
        """exit $((SLURM_PROCID * {n}))"""
    )
    options = ("--site", "srun-mpich", "-N", "2", "--sweep", "n=0,3", "--wait")
    submission = user.json("submit", *options, "--", "sh", "-c", result)
    assert [(task["state"], task["exit_code"]) for task in submission["tasks"]] == [("COMPLETED", 0), ("FAILED", 3)]
    assert [task["job_id"] for task in submission["tasks"]] == [f"{submission['job_id']}_{n}" for n in (0, 1)]
    first, second = submission["tasks"]
    assert "task 0 on 0\n" in user.hpcrun("logs", first["job_id"]).stdout
    assert "task 3 on 1\n" in user.hpcrun("logs", second["job_id"], "--rank", "1").stdout
    table = user.hpcrun("result", submission["job_id"]).stdout.splitlines()
    assert [line.split()[2:4] for line in (table[0], *table[2:])] == [["n", "loss"], ["0", "0"], ["3", "3"]]
    assert {row["state"] for row in user.json("status", submission["job_id"])} == {"COMPLETED", "FAILED"}
    assert user.json("why", second["job_id"])["state"] == "FAILED"


def test_max_parallel_limits_running_tasks_and_pending_ones_can_be_cancelled(user):
    submission = user.json(
        "submit", "--sweep", "n=1..4", "--max-parallel", "1", "--", "sh", "-c", "echo {n}; sleep 600"
    )
    log = user.cluster.config.log / "slurmctld.log"

    def states():
        return [row["state"] for row in user.json("status", submission["job_id"])]

    wait_for("the start of a task", lambda: states() == ["RUNNING", *["PENDING"] * 3], 60, log)
    assert user.hpcrun("cancel", f"{submission['job_id']}_2-3").returncode == 0
    wait_for("two cancelled tasks", lambda: states() == ["RUNNING", "PENDING", "CANCELLED", "CANCELLED"], 60, log)
    assert user.hpcrun("cancel", submission["job_id"]).returncode == 0
    wait_for("four cancelled tasks", lambda: set(states()) == {"CANCELLED"}, 60, log)


def test_cleanup_of_one_task_does_not_affect_another(user):
    command = f'{sys.executable} {ORPHAN} "$HPCRUN_RUN_DIR/pid" ignoring; sleep 600 # {{n}}'
    submission = user.json("submit", "--sweep", "n=1,2", "--", "sh", "-c", command)
    killed_task, running_task = submission["tasks"]
    files = [Path(task["run_dir"], "pid") for task in submission["tasks"]]
    wait_for("the start of both tasks", lambda: all(file.exists() for file in files), 60, user.cluster.config.log)
    user.call("scancel", "--signal=KILL", "--full", killed_task["job_id"])
    user.wait_for_end(killed_task["job_id"])
    completed = user.hpcrun("cleanup", killed_task["job_id"], "--force", "--json")
    (node,) = json.loads(completed.stdout)["nodes"]
    assert completed.returncode == 0, completed.stderr
    pids = [file.read_text() for file in files]

    def alive():
        return [user.cluster.run(node["node"], "kill", "-0", pid, check=False).returncode == 0 for pid in pids]

    assert alive() == [False, True]
    assert user.json("status", running_task["job_id"])["state"] == "RUNNING"
    assert user.hpcrun("cleanup", running_task["job_id"], "--force", "--yes").returncode == 0
    assert alive() == [False, False]


def test_watch_why_and_resubmit_of_a_sweep(user):
    flag = user.home / "mended"
    program = f'[ {{n}} -lt 3 ] || [ -e {flag} ] || exec python3 -c "import no_such_package"; exit 0'
    submission = user.json("submit", "--sweep", "n=1..4", "--max-parallel", "2", "-t", "5", "--", "sh", "-c", program)
    array = submission["job_id"]
    watch_result = user.hpcrun("watch", array)
    assert watch_result.returncode == 1, watch_result.stderr
    output = [line[10:] for line in watch_result.stdout.splitlines()]
    assert output[0].startswith(f"4 tasks of {submission['name']}: ")
    assert f"job {array}_1 (n=2): completed" in output
    assert any(line.startswith(f"job {array}_3 (n=4): failed: the ranks ended with exit code 1") for line in output)
    assert f"2 of 4 tasks did not complete; hpcrun why {array} explains why" in watch_result.stderr

    causes = user.json("why", array)
    assert [(cause["name"], [task["job_id"] for task in cause["tasks"]]) for cause in causes] == [
        ("python-package", [f"{array}_2", f"{array}_3"]),
        ("completed", [f"{array}_0", f"{array}_1"]),
    ]
    flag.touch()
    failed_again = user.json("resubmit", array, "--state", "failed", "-t", "10", "--wait")
    assert [(task["values"], task["state"]) for task in failed_again["tasks"]] == [
        ({"n": "3"}, "COMPLETED"),
        ({"n": "4"}, "COMPLETED"),
    ]
    script = Path(failed_again["run_dir"], "job.sh").read_text()
    assert "#SBATCH --array=0-1%2\n" in script
    assert "#SBATCH --time=10\n" in script
    whole_sweep = user.json("resubmit", array, "--wait")
    assert [task["values"]["n"] for task in whole_sweep["tasks"]] == ["1", "2", "3", "4"]
    assert user.hpcrun("watch", whole_sweep["job_id"]).returncode == 0


def test_why_reports_once_who_cancelled_a_sweep(user):
    submission = user.json("submit", "--sweep", "n=1..5", "--max-parallel", "1", "--", "sh", "-c", "sleep 600 # {n}")
    array, log = submission["job_id"], user.cluster.config.log / "slurmctld.log"
    wait_for("the start of a task", lambda: user.json("status", f"{array}_0")["state"] == "RUNNING", 60, log)
    assert {cause["name"]: len(cause["tasks"]) for cause in user.json("why", array)} == {"running": 1, "array-limit": 4}
    assert user.call("scancel", array).returncode == 0
    user.wait_for_end(array)
    log = user.cluster.config.log / "slurmctld.log"
    wait_for("the user who cancelled the job", lambda: user.json("why", array)[0]["name"] == "cancelled", 60, log)
    (cause,) = user.json("why", array)
    assert len(cause["tasks"]) == 5
    assert cause["headline"].startswith(f"5 tasks of {submission['name']} ({array}) ended: you cancelled")
