"""What `hpcrun why` says of real jobs on this machine."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

import hpcrun
from hpcrun.cli.main import main
from hpcrun.jobs.runs import Run
from hpcrun.why.explanation import explain


def why(*argv):
    command = [sys.executable, "-m", "hpcrun", "why", *argv]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def real(*argv, **more):
    """Run a real job on this machine to its end."""
    job = hpcrun.submit(None, argv, site="local", **more)
    job.wait()
    return job


@pytest.mark.filterwarnings("ignore:no-such-program is not on PATH")
@pytest.mark.parametrize(("script", "name", "line"), [
    ([sys.executable, "-c", "import no_such_package"], "python-package", "No module named 'no_such_package'"),
    ([sys.executable, "-c", "raise KeyError('gone')"], "traceback", "KeyError: 'gone'"),
    ([sys.executable, "-c", "open('/nowhere/data.npz')"], "data-missing", "/nowhere/data.npz"),
    ([sys.executable, "-c", "print('x' * 9999, file=open('/dev/full', 'w'))"], "disk-full", "No space left on device"),
    ([sys.executable, "-c", "bytearray(1 << 60)"], "host-memory", "MemoryError"),
    ([sys.executable, "-c", "import ctypes; ctypes.CDLL('libcudart.so.7')"], "cuda-library", "libcudart.so.7"),
    ([sys.executable, "-c", "print('epoch 1/9  loss nan'); raise SystemExit(1)"], "nan-loss", "epoch 1/9  loss nan"),
    (["sh", "-c", "kill -SEGV $$"], "segmentation-fault", "Segmentation fault"),
    (["sh", "-c", "kill -ILL $$"], "illegal-instruction", "Illegal instruction"),
    (["sh", "-c", "kill -KILL $$"], "rank-killed", "137"),
    (["no-such-program"], "no-such-program", "no-such-program"),
    (["sh", "-c", "echo odd; exit 3"], "unknown", "odd"),
])  # fmt: skip
def test_failures_of_real_programs_are_explained(script, name, line):
    explanation = explain(Run(real(*script).directory))
    assert explanation.diagnosis.name == name
    assert any(line in seen.line for seen in explanation.diagnosis.evidence)


def test_a_local_time_limit_is_explained():
    explanation = explain(Run(real("sleep", "60", time="0:01").directory))
    assert explanation.diagnosis.name == "time-limit"
    assert "0:01" in explanation.headline


def test_a_local_cancel_is_explained():
    job = hpcrun.submit(None, ["sleep", "60"], site="local")
    while not (job.directory / "logs/rank-0.log").exists():
        time.sleep(0.02)
    job.cancel()
    explanation = explain(Run(job.directory))
    assert explanation.diagnosis.name == "stopped"
    assert "hpcrun cancel" in explanation.headline


def test_the_command_prints_headline_evidence_and_what_to_do():
    job = real(sys.executable, "-c", "import no_such_package")
    done = why(job.job_id)
    headline, evidence, fix, *steps = done.stdout.splitlines()
    assert headline == (
        f"job {job.job_id} (python3) failed: the Python package no_such_package is not installed in the job's Python, "
        f"{sys.executable}"
    ) or headline.startswith(f"job {job.job_id} (")
    assert evidence == f"  {job.job_id}_0_log.out: ModuleNotFoundError: No module named 'no_such_package'"
    assert fix.startswith("What to do: install it there")
    assert all(step.startswith("  - ") for step in steps)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_command_prints_one_json_value():
    job = real("sh", "-c", "exit 3")
    done = why(job.job_id, "--json")
    output = json.loads(done.stdout)
    assert done.returncode == 1
    assert (output["job_id"], output["name"], output["state"]) == (job.job_id, "unknown", "FAILED")
    assert {"headline", "evidence", "fix"} <= set(output)


def test_a_completed_job_prints_one_line():
    job = real("true")
    done = why()
    assert done.returncode == 0
    assert done.stdout == f"job {job.job_id} (true) completed\n"


def test_submit_wait_suggests_hpcrun_why_after_a_failure(capsys, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["hpcrun", "submit", "--site", "local", "--wait", "--", "sh", "-c", "exit 4"])
    with pytest.raises(SystemExit) as done:
        main()
    job = Run(next((Path(os.environ["HPCRUN_RUN_ROOT"])).iterdir())).job_id
    assert done.value.code == 4
    assert f"hpcrun why {job}" in capsys.readouterr().err
