"""The bash functions of launchers."""

import subprocess
from pathlib import Path

import pytest

from tests.bash_library import source_commands

SRUN = "srun: error: n1: task 2: Exited with exit code 3\nsrun: launch/slurm: _step_signal: Terminating StepId=7.0\n"


def run_functions(launcher, commands, folder):
    """Run bash commands after the functions of a launcher, in the job 7; return their output."""
    start = f"HPCRUN_RUN_DIR={folder} HPCRUN_JOB_ID=7 hpcrun_log_start=0\n{source_commands(':', launcher)}"
    done = subprocess.run(["bash", "-c", start + commands], capture_output=True, text=True, check=False)
    assert done.stderr == ""
    return done.stdout


@pytest.mark.parametrize(
    ("received", "is_lost"), [("1\n2\nEND\n", False), ("1\n2\nEND\n[rank 1] on n2\n", False), ("1\n2", True)]
)
def test_the_end_of_rank_0_that_srun_lost_is_printed(tmp_path, received, is_lost):
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs/rank-0.log").write_text("1\n2\nEND\n\n")
    (tmp_path / "7_0_log.out").write_text(received)
    (tmp_path / "7_0_log.err").touch()
    output = run_functions("srun", "hpcrun_code=0; hpcrun_read_launcher 2>&1", tmp_path)
    assert ("srun lost the end of rank 0's output" in output, "END" in output) == (is_lost, is_lost)


@pytest.mark.parametrize(
    ("code", "failed_rank", "log", "expected"),
    [
        (143, "", SRUN, 3),
        (143, "rank 2", SRUN, 143),
        (9, "", SRUN, 9),
        (137, "", "srun: error: n1: tasks 0-1: Killed\n", 137),
        (143, "", "srun: error: n1: task 0: Segmentation fault (core dumped)\n", 139),
        (143, "", "srun: error: Node failure on n2\n" + SRUN, 143),
        (143, "", "", 143),
        (0, "", "srun: Job step aborted: Waiting up to 32 seconds for job step to finish.\n", 1),
        (0, "", "", 0),
    ],
)
def test_sruns_messages_tell_the_exit_code_of_the_first_rank_that_failed(tmp_path, code, failed_rank, log, expected):
    Path(tmp_path, "7_0_log.err").write_text(f"output of a program\n{log}")
    commands = f'hpcrun_code={code} hpcrun_failed_rank="{failed_rank}"; hpcrun_read_launcher; echo $hpcrun_code'
    assert run_functions("srun", commands, tmp_path) == f"{expected}\n"


def test_messages_before_the_ranks_started_do_not_count(tmp_path):
    log = Path(tmp_path, "7_0_log.err")
    log.write_text(SRUN)
    commands = f"hpcrun_log_start={log.stat().st_size} hpcrun_code=143; hpcrun_read_launcher; echo $hpcrun_code"
    assert run_functions("srun", commands, tmp_path) == "143\n"


@pytest.mark.parametrize(
    ("launcher", "name", "has_scancel", "expected"),
    [
        ("srun", "TERM", True, "scancel --signal=TERM 7"),
        ("srun", "TERM", False, "kill -s USR1 99"),
        ("srun", "USR2", True, "kill -s USR1 99"),
        ("none", "TERM", True, "kill -s USR1 99"),
        ("none", "INT", True, "kill -s USR1 99"),
        ("none", "USR2", True, "kill -s USR2 99"),
        ("launch", "USR2", True, "kill -s USR1 99"),
        ("launch", "TERM", True, "kill -s USR1 99"),
    ],
)
def test_a_stop_reaches_the_ranks_in_the_launchers_way(tmp_path, launcher, name, has_scancel, expected):
    scancel = tmp_path / "scancel"
    scancel.write_text('#!/bin/sh\necho scancel "$@"\n' if has_scancel else "#!/bin/sh\nexit 1\n")
    scancel.chmod(0o755)
    commands = f'PATH={tmp_path}:$PATH; kill() {{ echo kill "$@"; }}; hpcrun_launcher=99 hpcrun_stop_signal=USR1\n'
    assert run_functions(launcher, f"{commands} hpcrun_request_stop {name}", tmp_path) == f"{expected}\n"
