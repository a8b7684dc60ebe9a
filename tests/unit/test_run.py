"""hpcrun.run: what a run offers to the script of any framework."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import hpcrun.run
from hpcrun.jobs.heartbeats import read_heartbeat
from hpcrun.jobs.runs import Run
from hpcrun.run import metrics, values
from hpcrun.run.progress import Progress
from hpcrun.run.stop import StopSignals

DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture
def run_dir(tmp_path, monkeypatch):
    for name in ("RANK", "WORLD_SIZE", "HPCRUN_RANK", "HPCRUN_NTASKS", "TORCHELASTIC_RUN_ID"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HPCRUN_RUN_DIR", str(tmp_path))
    monkeypatch.setattr(metrics, "_is_first_call", [True])
    return tmp_path


def test_the_import_loads_the_standard_library_only():
    script = "import sys; before = set(sys.modules); import hpcrun.run; print(*(set(sys.modules) - before))"
    names = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.split()
    packages = {name.partition(".")[0] for name in names}
    others = packages - set(sys.stdlib_module_names)
    assert {name for name in others if not name.startswith("_sysconfigdata")} == {"hpcrun"}


def test_the_example_of_the_docs_shows_its_progress_and_result(tmp_path, monkeypatch, cli):
    (example,) = re.findall(r"^```python\n(.*?)^```", (DOCS / "run.md").read_text(), re.MULTILINE | re.DOTALL)
    (tmp_path / "train.py").write_text(example)
    monkeypatch.chdir(tmp_path)
    code, out, _ = cli("submit", "train.py", "--site", "local", "--wait", "--json")
    job = json.loads(out)
    assert (code, job["state"]) == (0, "COMPLETED")
    _, shown, _ = cli("status", "last", "--json")
    assert json.loads(shown)["progress"].startswith("epoch 3/3")
    _, shown, _ = cli("result", "last", "--json")
    result = json.loads(shown)
    assert result["test_accuracy"] == pytest.approx(1 - 1 / 40)
    assert (result["ranks"], result["hosts"]) == (1, [os.uname().nodename])
    assert result["training_seconds"] >= 0
    heartbeat = read_heartbeat(Path(job["run_dir"]), 0)
    assert (heartbeat.epoch, heartbeat.step, heartbeat.steps, heartbeat.ended) == (3, 10, 10, True)
    assert heartbeat.logs == {"loss": pytest.approx(1 / 40)}
    assert heartbeat.images_per_second > 0
    assert heartbeat.own_seconds == 0  # unknown, so that no rank is called slow
    assert "epoch 3/3  loss 0.0250  val_accuracy 0.9750\n" in cli("logs", "last")[1]


def test_rank_0_writes(run_dir, monkeypatch, capsys):
    monkeypatch.setenv("HPCRUN_NTASKS", "2")
    monkeypatch.setenv("HPCRUN_RANK", "1")
    hpcrun.run.log_metrics(1, loss=0.5)
    hpcrun.run.write_result(loss=0.5)
    assert (capsys.readouterr().out, list(run_dir.iterdir())) == ("", [])
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "none")  # torchrun started this process on the second node
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "8")
    (run_dir / "hostfile").write_text("n1 slots=4\nn2:4\n")
    hpcrun.run.write_result(loss=0.5)
    result = json.loads((run_dir / "result.json").read_text())
    assert (result["loss"], result["ranks"], result["hosts"]) == (0.5, 8, ["n1", "n2"])


def test_a_restarted_job_replaces_the_epochs_that_it_repeats(run_dir, monkeypatch, capsys):
    for epoch in (1, 2, 3):
        hpcrun.run.log_metrics(epoch, 4, loss=1 / epoch, images_per_second=100.0 * epoch)
    monkeypatch.setattr(metrics, "_is_first_call", [True])  # another process
    for epoch in (3, 4):
        hpcrun.run.log_metrics(epoch, 4, loss=0.1, images_per_second=400)
    epochs = Run(run_dir).metrics()
    assert [(each.epoch, each.metrics["loss"]) for each in epochs] == [(1, 1.0), (2, 0.5), (3, 0.1), (4, 0.1)]
    assert all((each.seconds or 0) >= 0 for each in epochs)
    hpcrun.run.write_result()
    assert capsys.readouterr().out.splitlines()[-2:] == [
        "epoch 4/4  loss 0.1000  400 images/s",
        "result  images_per_second 400.0000",  # without the first epoch
    ]


def test_outside_of_a_job_nothing_is_written(tmp_path, monkeypatch, capsys):
    monkeypatch.delenv("HPCRUN_RUN_DIR", raising=False)
    monkeypatch.chdir(tmp_path)
    hpcrun.run.log_metrics(1, loss=float("nan"))
    hpcrun.run.write_result(name="x", loss=[1, 2])
    assert capsys.readouterr().out == "epoch 1  loss nan\nresult  name x  loss [1 2]\n"
    assert hpcrun.run.run_dir() is None
    assert list(tmp_path.iterdir()) == []


class Tensor:
    def numpy(self):
        return np.float32(0.5)


def test_values_of_libraries_become_json():
    found = values.to_json(
        {"a": np.float64("inf"), "b": np.arange(2), "c": Tensor(), "d": np.int64(3), "e": (True, None)}
    )
    assert json.dumps(found) == '{"a": null, "b": [0, 1], "c": 0.5, "d": 3, "e": [true, null]}'


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR2])
def test_a_stop_signal_requests_a_checkpoint(number):
    script = (
        "import hpcrun.run, os; print(hpcrun.run.checkpoint_requested()); "
        f"os.kill(os.getpid(), {int(number)}); print(hpcrun.run.checkpoint_requested())"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["0", str(int(number))]


def test_handlers_are_restored():
    before = signal.getsignal(signal.SIGUSR2)
    calls = []
    with StopSignals(lambda: calls.append(1)) as signals:
        signal.raise_signal(signal.SIGUSR2)
    assert (signals.received, calls) == (signal.SIGUSR2, [1])
    assert signal.getsignal(signal.SIGUSR2) == before


def test_the_time_between_epochs_is_no_step(monkeypatch):
    clock = [0.0]
    monkeypatch.setattr("time.perf_counter", lambda: clock[0])
    progress = Progress()
    progress.batch_size = 8
    for epoch in (1, 2):
        clock[0] += 100
        progress.start_epoch(epoch)
        for step in (1, 2, 3):
            clock[0] += 2
            progress.end_step(step, {"loss": step})
    details = progress.details(is_chief=True)
    assert (details["step_seconds"], details["images_per_second"], details["first"]) == (2.0, 4.0, (1, 0))


@pytest.mark.parametrize(("rates", "expected"), [([20.0], 20.0), ([20.0, 500.0], 500.0), ([20.0, 480.0, 520.0], 500.0)])
def test_the_result_has_the_speed_without_the_epoch_that_compiles(run_dir, rates, expected):
    for epoch, rate in enumerate(rates, 1):
        hpcrun.run.log_metrics(epoch, len(rates), loss=1.0, images_per_second=rate)
    hpcrun.run.write_result()
    assert json.loads((run_dir / "result.json").read_text())["images_per_second"] == expected
