"""`hpcrun run` on real MPI ranks: what failed is on the screen, and once."""

import os
import platform
import subprocess
import sys

import pytest

from tests.mpi.ranks import PROGRAMS, ROOT, needs_mpi

pytestmark = [pytest.mark.mpi, needs_mpi]

HOST = platform.node()


def hpcrun_run(folder, *argv, timeout=120):
    """Run `hpcrun run` with runs and index below a folder; both of its streams come back as one text."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("HPCRUN_", "SLURM_", "PMI", "MPI", "KERAS_"))}
    clean |= {"PYTHONPATH": str(ROOT), "HPCRUN_RUN_ROOT": str(folder / "runs"), "XDG_STATE_HOME": str(folder / "state")}
    command = [sys.executable, "-m", "hpcrun", "run", "--site", "local", *map(str, argv)]
    done = subprocess.run(command, cwd=folder, env=clean, capture_output=True, text=True, timeout=timeout, check=False)
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["raise", "1"], 1, "ValueError: a bug in the script"),
        (["refuse", "1"], 2, "error: this cannot be"),
        (["exit", "1"], 3, "error: sys.exit(3) at failing.py"),
        (["hang", "1"], 1, "error: no progress for 3 s"),
        (["stop", "0"], 1, "error: no progress for 3 s"),  # only rank 1, with a log of its own, can tell
        (["raise", "all"], 1, "ValueError: a bug in the script"),
    ],
)
def test_what_ended_a_job_is_shown_once(tmp_path, arguments, code, says):
    program = PROGRAMS / "failing.py"
    found, text = hpcrun_run(tmp_path, "-n", 2, "-x", "HPCRUN_STALL_SECONDS=3", program, "--", *arguments)
    assert (found, text.count(says)) == (code, 1), text
    assert text.count(f"/2 on {HOST}] ") == 1
    assert ("'s log ends (hpcrun logs" in text) == (arguments == ["stop", "0"])


def test_a_rank_that_fails_before_hpcrun_train_is_told(tmp_path):
    (tmp_path / "train.py").write_text(
        "import os\n"
        "if os.environ['HPCRUN_RANK'] == '1':\n"
        "    import nothing_of_the_kind\n"
        "import hpcrun.train\n"
        "hpcrun.train.comm()\n"
    )
    code, text = hpcrun_run(tmp_path, "-n", 2, "-x", "HPCRUN_STALL_SECONDS=3", "./train.py")
    assert code != 0
    assert "rank 1's log ends (hpcrun logs" in text
    assert text.count("ModuleNotFoundError: No module named 'nothing_of_the_kind'") == 1
