"""Parameter sweeps without a scheduler: tasks that run, wait and fail."""

import json
import subprocess
import sys

import pytest

import hpcrun
from tests.waiting import DEADLINE, wait_until


def test_local_tasks_respect_max_parallel(tmp_path):
    """Each task prints the number of started tasks; two tasks run at the same time."""
    program = f"echo >{tmp_path}/{{n}}; ls {tmp_path} | wc -l; while [ ! -e {tmp_path}/go ]; do sleep 0.05; done"
    jobs = hpcrun.submit(None, ["sh", "-c", program], site="local", sweep={"n": range(4)}, max_parallel=2)
    try:
        wait_until(lambda: len(list(tmp_path.iterdir())) == 2)
        reported = [job.state for job in jobs]
        assert sorted(reported) == ["PENDING", "PENDING", "RUNNING", "RUNNING"]
        jobs[reported.index("PENDING")].cancel()
    finally:
        (tmp_path / "go").touch()
    wait_until(lambda: all(job.done(force_check=True) for job in jobs))
    assert sorted(job.state for job in jobs) == ["CANCELLED", "COMPLETED", "COMPLETED", "COMPLETED"]
    assert len(list(tmp_path.iterdir())) == 4  # three tasks, and go


def test_waiting_for_a_sweep_returns_its_first_exit_code(cli):
    code, out, err = cli(
        "submit", "--site", "local", "--wait", "--json", "--sweep", "n=0,3,2", "--", "sh", "-c", "exit {n}"
    )
    reported = json.loads(out)
    assert code == 3
    assert [(task["values"]["n"], task["exit_code"]) for task in reported["tasks"]] == [("0", 0), ("3", 3), ("2", 2)]
    assert "(n=3): failed: the ranks ended with exit code 3; hpcrun why" in err


PROGRAM = """case {n} in
  0) ;;
  1|3) python3 -c "import no_such_package" ;;
  2) exit 5 ;;
  4) python3 -c "import no_other_package" ;;
esac"""


@pytest.fixture
def mixed_sweep(tmp_path):
    """Six local tasks: two with the same error, two with other errors, and two that completed."""
    jobs = hpcrun.submit(
        None, ["bash", "-c", PROGRAM], site="local", job_name="mixed", sweep={"n": range(6)}, max_parallel=2
    )
    wait_until(lambda: all(job.done(force_check=True) for job in jobs))
    return jobs


def test_why_prints_each_cause_once(mixed_sweep, cli):
    ids = [job.job_id for job in mixed_sweep]
    code, out, _ = cli("why", "mixed")
    first, second, third, fourth = out.split("\n\n")
    head, example, evidence, fix, *_, again = first.splitlines()
    assert head.startswith(
        f"2 tasks of mixed ({ids[1]},{ids[3]}) failed: the Python package no_such_package is not installed"
    )
    assert example == f"Job {ids[1]} (n=1), for example:"
    assert evidence.startswith(f"  {ids[1]}_0_log.out: ModuleNotFoundError")
    assert fix.startswith("What to do: install it there")
    assert again == f"To submit them again: hpcrun resubmit {ids[1]},{ids[3]}"
    assert second.startswith(f"job {ids[2]} (mixed n=2) failed with exit code 5: hpcrun does not know why")
    assert third.startswith(f"job {ids[4]} (mixed n=4) failed: the Python package no_other_package is not installed")
    assert fourth == f"2 tasks of mixed ({ids[0]},{ids[5]}) completed\n"
    assert code == 1  # one task failed for an unknown reason
    code, out, _ = cli("why", f"{ids[1]},{ids[3]},{ids[5]}", "--json")
    causes = json.loads(out)
    assert code == 0
    assert [(cause["name"], [task["values"]["n"] for task in cause["tasks"]]) for cause in causes] == [
        ("python-package", ["1", "3"]),
        ("completed", ["5"]),
    ]
    assert [task["job_id"] for task in causes[0]["tasks"]] == [ids[1], ids[3]]
    assert causes[0]["evidence"][0]["line"].startswith("ModuleNotFoundError")


def test_why_explains_pending_local_tasks(tmp_path, cli):
    wait = f"while [ ! -e {tmp_path}/go ]; do sleep 0.05; done"
    jobs = hpcrun.submit(None, ["sh", "-c", wait, "{n}"], site="local", sweep={"n": range(3)})
    try:
        wait_until(lambda: sorted(job.state for job in jobs) == ["PENDING", "PENDING", "RUNNING"])
        code, out, _ = cli("why")
        assert code == 0
        assert ") wait: as many tasks of its sweep run as --max-parallel allows" in out
        assert "started once" not in cli("status")[1]
    finally:
        (tmp_path / "go").touch()
    wait_until(lambda: all(job.done(force_check=True) for job in jobs))


def hpcrun_process(*argv, **more):
    return subprocess.Popen([sys.executable, "-m", "hpcrun", *argv], **more)


def test_watch_reports_progress_and_results_of_tasks(tmp_path):
    result = """echo '{"loss": {n}}' >"$HPCRUN_RUN_DIR/result.json"; exit {n}"""
    program = f"while [ ! -e {tmp_path}/go ]; do sleep 0.05; done; {result}"
    jobs = hpcrun.submit(None, ["sh", "-c", program], site="local", sweep={"n": [0, 4, 3]}, max_parallel=3)
    ids = [job.job_id for job in jobs]
    wait_until(lambda: {job.state for job in jobs} == {"RUNNING"})
    with hpcrun_process("watch", stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as watching:
        reported = [watching.stdout.readline()[10:] for _ in range(4)]
        (tmp_path / "go").touch()
        out, err = watching.communicate(timeout=DEADLINE)
    assert reported[0] == "3 tasks of sh: 3 running\n"
    assert reported[1].startswith(f"job {ids[0]} (n=0): running on ")
    lines = [line[10:] for line in out.splitlines()]
    assert f"job {ids[0]} (n=0): completed" in lines
    assert f"job {ids[1]} (n=4): failed: the ranks ended with exit code 4; hpcrun why {ids[1]} explains it" in lines
    assert out.splitlines()[-1].split() == [ids[2], "sh", "3", "3"]
    name = jobs[0].directory.parent.name
    assert f"2 of 3 tasks did not complete; hpcrun why {name} explains why" in err
    assert watching.returncode == 4
