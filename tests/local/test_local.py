"""Real jobs on this host: success, failure, signals, cancellation, and the records of each."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

import hpcrun
from hpcrun import schedulers
from hpcrun.jobs import run_selection, runs
from hpcrun.schedulers import local, processes, stopping
from tests.waiting import DEADLINE, wait_until


def program(*argv, **more):
    return hpcrun.submit(None, argv, site="local", **more)


def state(job):
    return schedulers.query_state(runs.Run(job.directory)).name


def hpcrun_cli(*argv, **more):
    return subprocess.Popen(
        [sys.executable, "-m", "hpcrun", *argv], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **more
    )


def test_job_writes_its_exit_record_and_logs():
    job = program("sh", "-c", "echo out; echo err >&2; pwd")
    wait_until(job.done)
    record = json.loads((job.directory / "exit.json").read_text())
    assert (record["exit_code"], record["reason"], record["job_id"]) == (0, "completed", job.job_id)
    assert job.stdout().splitlines()[-3:] == ["out", "err", str(Path.cwd())]
    assert (job.directory / "logs/rank-0.log").read_text().splitlines() == ["out", "err", str(Path.cwd())]
    assert (job.directory / "hostfile").read_text() == f"{os.uname().nodename}\n"
    assert state(job) == "COMPLETED"


def test_script_started_by_hand_has_logs_and_a_state(cli, tmp_path):
    _, script, err = cli("submit", "--site", "local", "--dry-run", "--", "sh", "-c", "echo out; exit $CODE")
    directory = next(line.split()[1] for line in err.splitlines() if line.startswith("directory"))
    (tmp_path / "by-hand.sh").write_text(script)
    started = subprocess.run(["bash", tmp_path / "by-hand.sh"], env={**os.environ, "CODE": "0"}, check=True)
    assert started.returncode == 0
    code, out, err = cli("logs", directory)
    assert (code, out.splitlines()[-1]) == (0, "out")
    assert "was started by hand: its own log is what its script printed" in err
    row = json.loads(cli("status", "--json", directory)[1])
    assert (row["state"], row["nodes"], row["exit_code"]) == ("COMPLETED", os.uname().nodename, 0)
    assert row["reason"].startswith("started by hand, as job ")
    job_id = row["reason"].removeprefix("started by hand, as job ")
    assert f"job {job_id} ({row['name']}) has no result; it ended: completed" in cli("result", directory)[2]
    again = subprocess.run(["bash", tmp_path / "by-hand.sh"], env={**os.environ, "CODE": "3"}, check=False)
    assert again.returncode == 3
    assert json.loads(cli("status", "--json", directory)[1])["state"] == "FAILED"


def test_nodes_of_a_local_job_are_those_of_its_ranks():
    job = program("sh", "-c", """printf 'n1 slots=2\nn2 slots=2\n' >"$HPCRUN_RUN_DIR/hostfile" """)
    wait_until(job.done)
    assert schedulers.query_state(runs.Run(job.directory)).nodes == "n[1-2]"


def test_elapsed_time_begins_with_the_last_start():
    job = program("sleep", "60")
    run = runs.Run(job.directory)
    wait_until(run.last_start)
    record = json.loads((job.directory / "submitted.json").read_text())
    (job.directory / "submitted.json").write_text(json.dumps(record | {"submitted": record["submitted"] - 3600}))
    found = schedulers.query_state(runs.Run(job.directory))
    assert (found.name, found.elapsed.partition(":")[0]) == ("RUNNING", "0")
    job.cancel()


def test_submitit_job_returns_results_states_and_failures():
    good = program("sh", "-c", """echo '{"loss": 1}' >"$HPCRUN_RUN_DIR/result.json" """)
    assert good.results() == [{"loss": 1}]
    assert good.result() == {"loss": 1}
    assert good.exception() is None
    bad = program("sh", "-c", "exit 7")
    assert "exit code 7" in str(bad.exception())
    bad.watcher.clear()
    assert bad.state == "FAILED"


def test_another_process_attaches_to_a_job():
    job = program("sleep", "60")
    code = f"import hpcrun; j = hpcrun.attach({job.job_id!r}); print(j.state); j.cancel(); j.wait(); print(j.state)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split()[0] == "RUNNING"
    assert processes.find_run_pids(job.directory) == []
    assert state(job) == "CANCELLED"


def test_variables_reach_ranks_unchanged():
    value = "two words 'q' \"d\" $HOME `id` \\ \n line two"
    job = program("sh", "-c", 'printf %s "$A" >"$HPCRUN_RUN_DIR/a"', environment={"A": value})
    wait_until(job.done)
    assert (job.directory / "a").read_text() == value


def test_a_time_limit_ends_the_job():
    job = program("sleep", "60", time="0:01")
    wait_until(job.done)
    assert "exit code 124" in runs.Run(job.directory).end_record().reason


def test_killed_job_script_is_recorded_and_its_ranks_exit():
    job = program("sleep", "60")
    wait_until((job.directory / "logs/rank-0.log").exists)
    os.kill(int(job.job_id), signal.SIGKILL)
    record = wait_until(runs.Run(job.directory).end_record)
    assert record.exit_code == 137
    wait_until(lambda: processes.find_run_pids(job.directory) == [])


def test_cancelling_ends_ranks_that_ignore_sigterm(isolated_home):
    site = isolated_home / "s.toml"
    site.write_text('extends = "local"\nrestart.cancel_seconds = 1\n')
    script = "trap '' TERM; setsid sleep 61 & while :; do sleep 1; done"
    job = hpcrun.submit(None, ["sh", "-c", script], site=str(site))
    wait_until((job.directory / "logs/rank-0.log").exists)
    job.cancel()
    wait_until(lambda: processes.find_run_pids(job.directory) == [])
    assert state(job) == "CANCELLED"
    assert runs.Run(job.directory).exit_record().reason == "stopped by SIGTERM"


def test_wait_prints_the_log_and_returns_the_exit_code_of_the_job():
    done = hpcrun_cli("submit", "--site", "local", "--wait", "--", "sh", "-c", "echo hello; exit 5")
    out, err = done.communicate(timeout=DEADLINE)
    assert done.returncode == 5
    assert "hello" in out
    assert "exit code 5" in err


@pytest.mark.parametrize("ranks", [1, 2])
def test_cancel_waits_for_ranks_and_prints_the_time(ranks):
    script = "trap 'sleep 0.5; echo written; exit 143' TERM; echo ready; while :; do sleep 0.1; done"
    job = program("sh", "-c", script, ntasks=ranks)
    log = job.directory / "logs/rank-0.log"
    wait_until(lambda: log.exists() and "ready" in log.read_text())
    _, err = hpcrun_cli("cancel", job.job_id).communicate(timeout=DEADLINE)
    assert f"job {job.job_id} (sh) is cancelled: its ranks ended after " in err
    assert log.read_text().endswith("written\n")
    assert state(job) == "CANCELLED"


def test_signals_during_the_exit_of_a_child_do_not_block_a_job(tmp_path):
    listed = '[ -s "$HPCRUN_RUN_DIR/provenance/packages.txt" ]'  # written by a child that then exits
    waits = f"trap '' TERM; echo ready; until {listed} && [ -e {tmp_path}/go ]; do sleep 0.1; done; sleep 1"
    jobs = [program("sh", "-c", waits) for _ in range(4)]
    logs = [job.directory / "logs/rank-0.log" for job in jobs]
    wait_until(lambda: all(log.exists() and "ready" in log.read_text() for log in logs))
    (tmp_path / "go").touch()

    def send_sigterm():
        for job in jobs:
            with suppress(ProcessLookupError):
                os.kill(int(job.job_id), signal.SIGTERM)
            time.sleep(0.0002)

    lists = [job.directory / "provenance/packages.txt" for job in jobs]
    while not all(file.exists() and file.stat().st_size for file in lists):
        send_sigterm()
    for _ in range(100):
        send_sigterm()
    wait_until(lambda: all(job.done() for job in jobs))
    assert {state(job) for job in jobs} == {"CANCELLED"}


def test_ctrl_c_during_cancel_kills_ranks():
    jobs = [program("sh", "-c", "trap '' TERM; echo ready; while :; do sleep 0.1; done") for _ in range(2)]
    for job in jobs:
        log = job.directory / "logs/rank-0.log"
        wait_until(lambda log=log: log.exists() and "ready" in log.read_text())
    process = hpcrun_cli("cancel", *(job.job_id for job in jobs))
    assert "2 jobs: " in process.stderr.readline()  # printed after two seconds
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=DEADLINE)
    assert err.count("and were killed") == 2
    assert [processes.find_run_pids(job.directory) for job in jobs] == [[], []]


def test_restarted_run_keeps_its_metrics_and_counts_its_starts():
    script = """echo '{"epoch": 1}' >>"$HPCRUN_RUN_DIR/metrics.jsonl" """
    job = program("sh", "-c", script)
    wait_until(job.done)
    subprocess.run(["bash", job.directory / "job.sh"], check=True, capture_output=True)
    run = runs.Run(job.directory)
    assert [one.all_values for one in run.metrics()] == [{"epoch": 1}, {"epoch": 1}]
    assert run.start_count() == 2


def test_log_is_printed_while_the_job_runs(tmp_path):
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    with hpcrun_cli("run", "--site", "local", "--", "sh", "-c", f"echo first; read x <{gate}; echo second") as process:
        lines = iter(process.stdout.readline, "")
        assert "first\n" in (next(lines), next(lines))
        gate.write_text("go\n")
        assert "second\n" in list(lines)
        assert process.wait(DEADLINE) == 0


def test_ctrl_c_cancels_the_job_and_its_ranks(isolated_home):
    process = hpcrun_cli("submit", "--site", "local", "--wait", "--", "sh", "-c", "echo started; sleep 60")
    lines = iter(process.stdout.readline, "")
    assert any(line == "started\n" for line in lines)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=DEADLINE)
    assert process.returncode == 130
    assert "cancelled" in err
    run = run_selection.select_one("last")
    assert processes.find_run_pids(run.directory) == []
    assert run.end_record().reason == "stopped by SIGTERM"


def test_job_continues_after_its_submitting_process_exits():
    process = hpcrun_cli("submit", "--site", "local", "--json", "--", "sh", "-c", "sleep 0.5; echo done")
    facts = json.loads(process.communicate(timeout=DEADLINE)[0])
    run = runs.Run(Path(facts["run_dir"]))
    assert wait_until(run.end_record).exit_code == 0
    assert "done" in run.log("out").read_text()


def test_missing_launcher_is_an_error_before_files_are_written(isolated_home, monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    site = isolated_home / "s.toml"
    site.write_text('scheduler = "local"\nlauncher = "mpirun"\nmpi.library = "openmpi"\npython = "/nowhere/python"\n')
    with pytest.raises(hpcrun.errors.HpcrunError, match="2 ranks need mpirun"):
        hpcrun.submit(None, ["/bin/true"], site=str(site), ntasks=2)
    assert list(runs.list_runs()) == []
    assert not (isolated_home / "runs").exists()


def test_exit_record_contains_reasons_with_quotes(isolated_home):
    site = isolated_home / "s.toml"
    site.write_text("""scheduler = "local"\nvenv = "/no/it's \\"a\\" venv"\nsetup = []\n""")
    job = hpcrun.submit(None, ["x"], site=str(site))
    error = str(job.exception())
    assert "there is no virtual environment in /no/its a venv (site key venv)" in error
    assert runs.Run(job.directory).end_record().exit_code == 1


NO_MODULES = "unset -f module; source() { :; }"  # and /etc/profile defines no module command


@pytest.mark.parametrize(("modules", "shell_code", "reason"), [
    ("purge = true", NO_MODULES, "there is no command module, even after /etc/profile (site key modules)"),
    ("reset = true", "module() { [ $1 != reset ]; }", "modules cannot be reset (site key modules.reset)"),
    ('use = ["/m"]', "module() { [ $1 != use ]; }", "modules in /m cannot be used (site key modules.use)"),
])  # fmt: skip
def test_job_fails_without_its_modules(isolated_home, monkeypatch, modules, shell_code, reason):
    (isolated_home / "env.sh").write_text(shell_code)
    monkeypatch.setenv("BASH_ENV", str(isolated_home / "env.sh"))
    (isolated_home / "s.toml").write_text(f'scheduler = "local"\n[modules]\n{modules}\n')
    job = hpcrun.submit(None, ["true"], site=str(isolated_home / "s.toml"))
    assert wait_until(runs.Run(job.directory).end_record).reason == reason


def test_stop_request_is_repeated(monkeypatch):
    run = runs.Run(program("sh", "-c", "echo started; sleep 60").directory)
    log = run.log()
    assert log is not None
    wait_until(lambda: log.exists() and "started" in log.read_text())
    send_request = local.LocalScheduler.request_stop
    requests = []

    def ignore_first_request(scheduler, run):
        requests.append(run)
        return len(requests) < 2 or send_request(scheduler, run)

    monkeypatch.setattr(stopping, "REPEAT_SECONDS", 0.2)
    monkeypatch.setattr(local.LocalScheduler, "request_stop", ignore_first_request)
    (stop,) = stopping.stop([run])
    assert len(requests) == 2
    assert stop.outcome.startswith("its ranks ended after ")


ALSO_FATAL = [pytest.param(number, marks=pytest.mark.thorough) for number in (signal.SIGQUIT, signal.SIGUSR1)]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGUSR2, *ALSO_FATAL])
def test_signal_to_run_ends_its_ranks(number):
    process = hpcrun_cli("run", "--site", "local", "--", "sh", "-c", "echo started; sleep 60")
    assert any(line == "started\n" for line in iter(process.stdout.readline, ""))
    process.send_signal(number)
    process.communicate(timeout=DEADLINE)
    assert process.returncode == 128 + number
    assert processes.find_run_pids(run_selection.select_one("last").directory) == []


def test_ctrl_c_with_json_prints_one_value():
    process = hpcrun_cli("submit", "--site", "local", "--wait", "--json", "--", "sh", "-c", "echo started; sleep 60")
    assert any(line == "started\n" for line in iter(process.stderr.readline, ""))
    process.send_signal(signal.SIGINT)
    facts = json.loads(process.communicate(timeout=DEADLINE)[0])
    assert (process.returncode, facts["state"], facts["exit_code"]) == (130, "CANCELLED", 130)


def test_job_is_running_until_its_ranks_exit():
    job = program("sh", "-c", "trap '' TERM; echo ready; while :; do sleep 0.1; done")
    log = job.directory / "logs/rank-0.log"
    wait_until(lambda: log.exists() and "ready" in log.read_text())
    os.kill(int(job.job_id), signal.SIGTERM)
    wait_until(runs.Run(job.directory).exit_record)
    assert state(job) == "RUNNING"
    assert runs.Run(job.directory).end_record() is None
    local.SCHEDULER.cancel(runs.Run(job.directory))
    assert processes.find_run_pids(job.directory) == []
    assert state(job) == "CANCELLED"


def test_cancelled_job_with_exit_code_0_is_cancelled():
    job = program("sh", "-c", "trap 'exit 0' TERM; echo ready; while :; do sleep 0.1; done")
    log = job.directory / "logs/rank-0.log"
    wait_until(lambda: log.exists() and "ready" in log.read_text())
    job.cancel()
    assert state(job) == "CANCELLED"


@pytest.mark.parametrize(("lines", "command", "code"), [
    ('setup = ["exit 0"]', "true", 1),
    ('teardown = ["exit 0"]', "false", 1),
    ('teardown = ["false"]', "true", 0),
    ('setup = ["[ -z $NOT_SET ]"]', "true", 0),
    ('environment.A = "${NOT_SET}/x"', "true", 1),
])  # fmt: skip
def test_exit_code_of_a_job_is_that_of_its_ranks(isolated_home, lines, command, code):
    site = isolated_home / "s.toml"
    site.write_text(f'scheduler = "local"\n{lines}\n')
    job = hpcrun.submit(None, [command], site=str(site))
    record = wait_until(runs.Run(job.directory).end_record)
    assert record.exit_code == code
    if "NOT_SET}" in lines:
        assert "site key environment.A names it" in job.stderr()


def test_user_variables_do_not_clash_with_those_of_the_script():
    names = ["run_dir", "job_id", "code", "reason", "launcher", "started", "log", "rank", "gpus", "alive"]
    job = program("env", environment=dict.fromkeys(names, "mine"))
    wait_until(job.done)
    assert job.exception() is None
    printed = job.stdout().splitlines()
    assert [name for name in names if f"{name}=mine" not in printed] == []


def test_failed_rank_ends_the_others_if_mpiexec_ignores_the_failure(isolated_home):
    launcher = isolated_home / "bin/mpiexec"
    launcher.parent.mkdir()
    ranks = 'for rank in 0 1; do PMI_RANK=$rank MPI_LOCALRANKID=$rank "$@" & done'
    lines = [
        "#!/bin/bash",
        "trap 'kill $(jobs -p)' TERM",
        "while [ $1 != bash ]; do shift; done",
        ranks,
        "wait",
        "wait",
    ]
    launcher.write_text("\n".join([*lines, ""]))
    launcher.chmod(0o755)
    site = isolated_home / "s.toml"
    site.write_text(f'extends = "local"\nsetup = ["export PATH={launcher.parent}:$PATH"]\n')
    job = hpcrun.submit(None, ["sh", "-c", "[ $HPCRUN_RANK = 0 ] || exit 3; exec sleep 600"], site=str(site), ntasks=2)
    record = wait_until(runs.Run(job.directory).end_record)
    assert (record.exit_code, "that of rank 1 on " in record.reason) == (3, True)


def test_output_on_all_ranks(isolated_home):
    job = hpcrun.submit(None, ["echo", "hello"], site="local", ntasks=2, output_on_all_ranks=True)
    wait_until(job.done)
    assert {"[rank 0] hello", "[rank 1] hello"} <= set(job.stdout().splitlines())
    assert (job.directory / "logs/rank-1.log").read_text() == "hello\n"
    quiet = hpcrun.submit(None, ["echo", "hello"], site="local", ntasks=2)
    wait_until(quiet.done)
    assert quiet.stdout().splitlines().count("hello") == 1
    assert (quiet.directory / "logs/rank-1.log").read_text() == "hello\n"


def test_invalid_utf8_is_printed_once():
    process = hpcrun_cli(
        "run", "--site", "local", "--", "sh", "-c", "printf 'caf\\351 abc\\351'; sleep 0.3; printf 'x\\n'"
    )
    out, _ = process.communicate(timeout=DEADLINE)
    assert "caf\ufffd abc\ufffdx\n" in out


def test_python_api_checks_its_arguments():
    for wrong in (
        {"environment": {"A;touch /tmp/pwn": "1"}},
        {"log_level": "LOUD"},
        {"fusion_threshold_kb": 0.5},
        {"nodes": "two"},
        {"ndoes": 2},
    ):
        with pytest.raises(hpcrun.errors.HpcrunError):
            program("true", **wrong)
    with pytest.warns(UserWarning, match="no scheduler runs this job: --partition"):
        program("true", partition="gpu").wait()


def test_job_without_run_directory_is_cancelled():
    job = program("sleep", "60")
    wait_until((job.directory / "logs/rank-0.log").exists)
    shutil.rmtree(job.directory)
    with hpcrun_cli("cancel", job.job_id) as process:
        assert "is being cancelled" in process.communicate(timeout=DEADLINE)[1]
    assert processes.find_run_pids(job.directory) == []
    job.watcher.update()
    assert job.state == "UNKNOWN"


def test_new_job_records_its_cancellation():
    for _ in range(3):
        job = program("sleep", "60")
        job.cancel()
        assert processes.find_run_pids(job.directory) == []
        assert (state(job), runs.Run(job.directory).exit_record().reason) == ("CANCELLED", "stopped by SIGTERM")
