"""outcome.bash: how the ranks of a launch ended, from their records and the launcher's exit code."""

import subprocess

import pytest

from tests.bash_library import source_commands

DESCRIBE = 'hpcrun_ranks=3 hpcrun_words=(/opt/bin/mpiexec); hpcrun_describe_end; echo "$hpcrun_code $hpcrun_reason"'


@pytest.mark.parametrize(
    ("code", "completed", "described"),
    [
        (0, (0, 1, 2), "0 completed"),
        (0, (0,), "1 the ranks did not all complete: mpiexec returned 0, but only 1 of 3 ranks did, and not rank 1"),
        (0, (), "0 completed"),
        (9, (0,), "9 the ranks ended with exit code 9, after 1 of 3 ranks had completed"),
        (9, (), "9 the ranks ended with exit code 9"),
    ],
)
def test_ranks_that_completed_are_counted(tmp_path, code, completed, described):
    (tmp_path / "logs").mkdir()
    for rank in completed:
        (tmp_path / "completed").mkdir(exist_ok=True)
        (tmp_path / f"completed/rank-{rank}").write_text("n1\n")
    variables = f"umask 002; HPCRUN_RUN_DIR={tmp_path} HPCRUN_JOB_ID=7 hpcrun_log_start=0 hpcrun_code={code}\n"
    done = subprocess.run(
        ["bash", "-c", variables + source_commands() + DESCRIBE], capture_output=True, text=True, check=True
    )
    assert done.stdout == f"{described}\n"
    assert {oct(path.stat().st_mode & 0o77) for path in tmp_path.glob("completed/.*")} <= {"0o0"}
