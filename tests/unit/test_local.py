"""Real jobs on this machine: they run, end, fail, are killed and cancelled, and tell the truth about it."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import hpcrun
from hpcrun import schedulers
from hpcrun.jobs import runs
from hpcrun.schedulers import local, processes

DEADLINE = 20


def until(condition):
    end = time.monotonic() + DEADLINE
    while not (value := condition()):
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.02)
    return value


def program(*argv, **more):
    return hpcrun.submit(None, argv, site="local", **more)


def state(job):
    return schedulers.state(runs.Run(job.directory)).name


def hpcrun_cli(*argv, **more):
    return subprocess.Popen(
        [sys.executable, "-m", "hpcrun", *argv], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **more
    )


def test_a_job_runs_and_leaves_its_record_and_logs():
    job = program("sh", "-c", "echo out; echo err >&2; pwd")
    until(job.done)
    record = json.loads((job.directory / "exit.json").read_text())
    assert (record["exit_code"], record["reason"], record["job_id"]) == (0, "completed", job.job_id)
    assert job.stdout().splitlines()[-3:] == ["out", "err", str(Path.cwd())]
    assert (job.directory / "logs/rank-0.log").read_text().splitlines() == ["out", "err", str(Path.cwd())]
    assert (job.directory / "hostfile").read_text() == f"{os.uname().nodename}\n"
    assert state(job) == "COMPLETED"


def test_submitit_sees_results_states_and_failures():
    good = program("sh", "-c", """echo '{"loss": 1}' >"$HPCRUN_RUN_DIR/result.json" """)
    assert good.results() == [{"loss": 1}]
    assert good.result() == {"loss": 1}
    assert good.exception() is None
    bad = program("sh", "-c", "exit 7")
    assert "exit code 7" in str(bad.exception())
    bad.watcher.clear()
    assert bad.state == "FAILED"


def test_another_process_attaches_by_directory_and_id():
    job = program("sleep", "60")
    code = f"import hpcrun; j = hpcrun.attach({job.job_id!r}); print(j.state); j.cancel(); j.wait(); print(j.state)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split()[0] == "RUNNING"
    assert processes.marked(job.directory) == []
    assert state(job) == "CANCELLED"


def test_variables_reach_the_rank_literally_and_in_order():
    value = "two words 'q' \"d\" $HOME `id` \\ \n line two"
    job = program("sh", "-c", 'printf %s "$A" >"$HPCRUN_RUN_DIR/a"', environment={"A": value})
    until(job.done)
    assert (job.directory / "a").read_text() == value


def test_a_time_limit_ends_the_job():
    job = program("sleep", "60", time="0:01")
    until(job.done)
    assert "exit code 124" in runs.Run(job.directory).ended()["reason"]


def test_a_killed_job_script_is_recorded_and_its_ranks_end():
    job = program("sleep", "60")
    until((job.directory / "logs/rank-0.log").exists)
    os.kill(int(job.job_id), signal.SIGKILL)
    record = until(runs.Run(job.directory).ended)
    assert record["exit_code"] == 137
    until(lambda: processes.marked(job.directory) == [])


def test_cancelling_ends_ranks_that_ignore_sigterm(monkeypatch):
    monkeypatch.setattr(local, "GRACE_SECONDS", 0.5)
    job = program("sh", "-c", "trap '' TERM; setsid sleep 61 & while :; do sleep 1; done")
    until((job.directory / "logs/rank-0.log").exists)
    job.cancel()
    until(lambda: processes.marked(job.directory) == [])
    assert state(job) == "CANCELLED"
    assert runs.Run(job.directory).ended()["reason"] == "stopped by SIGTERM"


def test_wait_follows_the_log_and_exits_with_the_jobs_code():
    done = hpcrun_cli("submit", "--site", "local", "--wait", "--", "sh", "-c", "echo hello; exit 5")
    out, err = done.communicate(timeout=DEADLINE)
    assert done.returncode == 5
    assert "hello" in out
    assert "exit code 5" in err


def test_the_log_comes_while_the_job_runs(tmp_path):
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    with hpcrun_cli("run", "--site", "local", "--", "sh", "-c", f"echo first; read x <{gate}; echo second") as process:
        lines = iter(process.stdout.readline, "")
        assert "first\n" in (next(lines), next(lines))
        gate.write_text("go\n")
        assert "second\n" in list(lines)
        assert process.wait(DEADLINE) == 0


def test_ctrl_c_cancels_the_job_and_its_ranks(own_world):
    process = hpcrun_cli("submit", "--site", "local", "--wait", "--", "sh", "-c", "echo started; sleep 60")
    lines = iter(process.stdout.readline, "")
    assert any(line == "started\n" for line in lines)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=DEADLINE)
    assert process.returncode == 130
    assert "cancelled" in err
    run = runs.find("last")
    assert processes.marked(run.directory) == []
    assert run.ended()["reason"] == "stopped by SIGTERM"


def test_a_job_survives_the_process_that_submitted_it():
    process = hpcrun_cli("submit", "--site", "local", "--json", "--", "sh", "-c", "sleep 0.5; echo done")
    facts = json.loads(process.communicate(timeout=DEADLINE)[0])
    run = runs.Run(Path(facts["run_dir"]))
    assert until(run.ended)["exit_code"] == 0
    assert "done" in run.log("out").read_text()


def test_ranks_of_a_missing_launcher_are_refused_before_anything_is_written(own_world, monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    site = own_world / "s.toml"
    site.write_text('scheduler = "local"\nlauncher = "mpirun"\npython = "/nowhere/python"\n')
    with pytest.raises(hpcrun.errors.HpcrunError, match="2 ranks need mpirun"):
        hpcrun.submit(None, ["x"], site=str(site), ntasks=2)
    assert list(runs.every()) == []
    assert not (own_world / "runs").exists()


def test_the_record_survives_awkward_reasons(own_world):
    site = own_world / "s.toml"
    site.write_text("""scheduler = "local"\nmodules.load = ["it's \\"a\\" module"]\nsetup = []\n""")
    job = hpcrun.submit(None, ["x"], site=str(site))
    error = str(job.exception())
    assert "module its a module cannot be loaded (site key modules.load)" in error
    assert runs.Run(job.directory).ended()["exit_code"] == 1
