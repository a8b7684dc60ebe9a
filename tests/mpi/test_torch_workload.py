"""The workload resnet50-torch trains, reports, stops and resumes, with PyTorch alone."""

import json
import signal
import subprocess
from pathlib import Path

import pytest

from hpcrun.jobs.heartbeats import read_heartbeat
from tests.mpi.colours import write_two_colours
from tests.mpi.ranks import ROOT, STOPPED, backend_python, clean_environ, run, thorough
from tests.waiting import wait_until

pytestmark = pytest.mark.mpi
TRAIN = ROOT / "workloads/resnet50-torch/train.py"
SMALL = ["--arch", "resnet18", "--image-size", "32", "--batch-size", "8", "--workers", "0", "--learning-rate", "1"]


@pytest.fixture(scope="module")
def records(tmp_path_factory):
    """Return a folder of images of two colours, and one with them as TFRecords."""
    tree, shards = (tmp_path_factory.mktemp(name) for name in ("tree", "shards"))
    write_two_colours(tree, shards)
    return tree, shards


def read_metrics(run_dir):
    return [json.loads(line) for line in (run_dir / "metrics.jsonl").read_text().splitlines()]


def test_one_process_learns_and_reports(records, tmp_path):
    options = [*SMALL, "--data-dir", records[1], "--train-epochs", 3]
    done = run(0, TRAIN, *options, python=backend_python("torch"), HPCRUN_RUN_DIR=str(tmp_path), OMP_NUM_THREADS="1")
    assert done.code == 0, done.stderr
    epochs = read_metrics(tmp_path)
    assert [each["epoch"] for each in epochs] == [1, 2, 3]
    assert epochs[-1]["loss"] < epochs[0]["loss"] / 2
    assert {"val_loss", "val_accuracy", "val_top_5_accuracy", "images_per_second", "seconds"} <= set(epochs[0])
    result = json.loads((tmp_path / "result.json").read_text())
    assert (result["final_loss"], result["final_top_5_accuracy"]) == (epochs[-1]["loss"], 1)  # of two classes
    assert (result["ranks"], result["arch"], "torch" in result["versions"]) == (1, "resnet18", True)
    assert (tmp_path / "labels.txt").read_text() == "blue\nred\n"
    heartbeat = read_heartbeat(tmp_path, 0)
    assert (heartbeat.phase, heartbeat.epoch, heartbeat.step, heartbeat.steps) == ("trained", 3, 2, 2)
    assert (tmp_path / "model.pt").exists()


def test_a_stop_signal_is_noticed_after_the_next_step(records, tmp_path):
    options = [*SMALL, "--batch-size", 2, "--data-dir", records[1], "--train-epochs", 1]
    python = backend_python("torch")
    done = run(0, "-c", STOPPED, TRAIN, *options, python=python, HPCRUN_RUN_DIR=str(tmp_path), OMP_NUM_THREADS="1")
    assert done.code == 128 + signal.SIGTERM, done.stderr
    assert "stopped in epoch 1, after 1 batches; start it again to continue" in done.stdout[0]
    assert (tmp_path / "checkpoints/training.pt").exists()


@thorough
def test_two_ranks_with_decoder_processes_stop_and_go_on(records, tmp_path):
    """Cancel a job within its training and resume it: it trains each epoch once, by the same steps and crops."""

    def hpcrun(*argv):
        command = [backend_python("torch"), "-m", "hpcrun", *map(str, argv)]
        env = {**clean_environ(str(tmp_path)), "OMP_NUM_THREADS": "1"}
        done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout) if "--json" in argv else done.stdout

    options = [*SMALL, "--batch-size", 4, "--workers", 2, "--train-epochs", 12, "--data-dir", records[1]]
    argv = ["submit", "resnet50-torch", "--site", "local", "-n", 2, "--json"]
    whole = hpcrun(*argv, "--wait", "--", *options)
    assert whole["state"] == "COMPLETED"
    run_dir = Path(hpcrun(*argv, "--", *options)["run_dir"])
    wait_until((run_dir / "metrics.jsonl").exists)
    hpcrun("cancel", "last")
    assert len(read_metrics(run_dir)) < 12
    assert (run_dir / "checkpoints/training.pt").exists()
    hpcrun("resume", "last")
    wait_until((run_dir / "result.json").exists)
    expected, found = read_metrics(Path(whole["run_dir"])), read_metrics(run_dir)
    assert [each["epoch"] for each in found] == list(range(1, 13))
    assert [each["loss"] for each in found] == pytest.approx([each["loss"] for each in expected], rel=0.01)
    # Batches of one colour have a high loss, since each rank normalizes its own four images.
    assert found[-1]["val_loss"] < found[0]["val_loss"] / 2
    assert json.loads((run_dir / "result.json").read_text())["ranks"] == 2
    assert "batches of the next epoch are done" in (run_dir / "logs/rank-0.log").read_text()
    assert read_heartbeat(run_dir, 1).epoch == 12


def test_errors_have_no_traceback():
    done = run(0, TRAIN, python=backend_python("torch"))
    assert done.code == 1
    assert "ERROR: resnet50-torch has no images: give --data-dir" in done.stderr
    assert "Traceback" not in done.stderr
