"""The workload resnet50-jax trains alike on any number of processes, reports, stops and resumes, with Keras and JAX."""

import json
import os
import re
import signal
import subprocess
from pathlib import Path

import pytest

from hpcrun.jobs.heartbeats import read_heartbeat
from hpcrun.jobs.runs import Run
from tests.mpi.colours import write_two_colours
from tests.mpi.ranks import ROOT, STOPPED, backend_python, clean_environ, run, thorough
from tests.waiting import wait_until

pytestmark = pytest.mark.mpi
TRAIN = ROOT / "workloads/resnet50-jax/train.py"
SMALL = ["--arch", "alexnet", "--image-size", "63", "--batch-size", "4", "--workers", "0", "--train-epochs", "1"]


def read_metrics(run_dir):
    return [json.loads(line) for line in (run_dir / "metrics.jsonl").read_text().splitlines()]


@thorough
def test_two_processes_stop_and_one_goes_on_as_if_one_had_trained(tmp_path):
    """Stop a job of two processes within its epoch; one process does the other steps, without TensorFlow."""
    tree, shards, alone, home = (tmp_path / name for name in ("tree", "shards", "alone", "home"))
    write_two_colours(tree, shards, train=24)
    for file in shards.glob("index-*"):
        file.unlink()  # each process scans some shards
    for name in ("tensorflow", "mpi4py"):
        (tmp_path / "hidden" / name).mkdir(parents=True)
        (tmp_path / "hidden" / name / "__init__.py").write_text("raise ImportError('this is hidden')\n")
    alone.mkdir()
    python = backend_python("jax")
    environ = {
        "PYTHONPATH": os.pathsep.join([str(tmp_path / "hidden"), str(ROOT)]),
        "HPCRUN_HEARTBEAT_SECONDS": "0.2",
        "JAX_COMPILATION_CACHE_DIR": str(tmp_path / "cache"),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "OMP_NUM_THREADS": "1",
    }
    options = [*SMALL, "--data-dir", shards]

    def hpcrun(*argv):
        command = [python, "-m", "hpcrun", *map(str, argv)]
        env = clean_environ(str(home)) | environ
        done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout) if "--json" in argv else done.stdout

    run_dir = Path(hpcrun("submit", "resnet50-jax", "--site", "local", "-n", 2, "--json", "--", *options)["run_dir"])
    wait_until(lambda: (found := read_heartbeat(run_dir, 0)) and found.step)
    pid = json.loads((run_dir / "heartbeats/rank-0.json").read_text())["pid"]
    os.kill(pid, signal.SIGTERM)  # one of them gets it; both stop after the same step
    wait_until(Run(run_dir).end_record)
    log = (run_dir / "logs/rank-0.log").read_text()
    stop = re.search(r"stopped in epoch 1, after (\d+) batches; start it again to continue", log)
    assert stop, log
    assert not (run_dir / "metrics.jsonl").exists()

    for folder, workers in ((run_dir, 0), (alone, 2)):
        done = run(0, TRAIN, *options, "--workers", workers, python=python, **environ, HPCRUN_RUN_DIR=str(folder))
        assert done.code == 0, done.stderr
        (output,) = done.stdout
        assert (f"0 epochs and {stop[1]} batches of the next epoch are done" in output) == (folder == run_dir)
    assert "epoch 1/1" in hpcrun("status", "last")
    (resumed,), (expected,) = read_metrics(run_dir), read_metrics(alone)
    names = ["loss", "accuracy", "top_5_accuracy", "val_loss", "val_accuracy", "val_top_5_accuracy"]
    assert {"images_per_second", "seconds", *names} <= set(expected)
    assert [resumed[name] for name in names] == pytest.approx([expected[name] for name in names], rel=1e-3)
    result = json.loads((alone / "result.json").read_text())
    assert (result["final_loss"], result["ranks"], result["arch"]) == (expected["loss"], 1, "alexnet")
    assert "jax" in result["versions"]
    assert (alone / "labels.txt").read_text() == "blue\nred\n"
    assert (alone / "model.keras").exists()
    heartbeat = read_heartbeat(alone, 0)
    assert (heartbeat.phase, heartbeat.epoch, heartbeat.step, heartbeat.steps) == ("trained", 1, 12, 12)


@thorough
def test_a_stop_signal_is_noticed_after_the_next_steps(tmp_path):
    options = [*SMALL, "--batch-size", 2, "--synthetic-data", "--train-num-samples", 10, "--num-classes", 2]
    done = run(0, "-c", STOPPED, TRAIN, *options, python=backend_python("jax"), HPCRUN_RUN_DIR=str(tmp_path))
    assert done.code == 128 + signal.SIGTERM, done.stderr
    assert "stopped in epoch 1, after 2 batches; start it again to continue" in done.stdout[0]
    assert (tmp_path / "checkpoints/training.npz").exists()


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ([], "ERROR: resnet50-jax has no images: give --data-dir"),
        (
            ["--synthetic-data", "--train-num-samples", 3, "--batch-size", 8],
            "does not fit 3 training images and 1 devices",
        ),
    ],
)
def test_errors_have_no_traceback(options, error):
    done = run(0, TRAIN, *options, python=backend_python("jax"))
    assert done.code == 1
    assert error in done.stderr
    assert "Traceback" not in done.stderr
