"""The workload `strategies` on two hosts: roles, a clean end of servers, and the failure of one worker."""

import json
from pathlib import Path

import pytest

pytestmark = [pytest.mark.slurm, pytest.mark.thorough]
OPTIONS = ("--wait", "--no-gpu", "-N", "2")


def test_parameter_servers_end_with_the_training(user):
    arguments = ("--strategy", "parameter-server", "--parameter-servers", "1", "--evaluator", "--epochs", "2")
    options = ("--site", "mpirun", "--ntasks-per-node", "2", *OPTIONS)
    submitted = user.json("submit", "strategies", *options, "--", *arguments)
    assert submitted["state"] == "COMPLETED", user.log(submitted)
    assert "hpcrun: WARNING" not in user.log(submitted)
    folder = Path(submitted["run_dir"])
    logs = [(folder / f"logs/rank-{rank}.log").read_text() for rank in range(4)]
    for rank, role in enumerate(("chief", "evaluator", "worker 0", "ps 0")):
        assert f"rank {rank} is {role}; TF_CONFIG=" in logs[rank]
    assert "evaluator: epoch 2  val_loss" in logs[1]
    result = json.loads((folder / "result.json").read_text())
    assert result["val_accuracy"] > 0.5  # that of the evaluator
    assert result["hosts"] == list(user.cluster.nodelist)
    assert user.json("result", submitted["job_id"])["strategy"] == "parameter-server"


def test_the_failure_of_one_worker_ends_all_and_is_its_cause(user):
    user.hpcrun("workload", "new", "failing", "--from", "strategies")
    loop = user.home / "failing/synchronous.py"
    step = "hpcrun.run.heartbeat(**progress"
    failure = "if training.shard[1] == 1 and step_index == 3: raise ValueError('image 7 is damaged')\n            "
    loop.write_text(loop.read_text().replace(step, failure + step))
    submitted = user.json("submit", "./failing", "--site", "srun-mpich", *OPTIONS)
    assert submitted["state"] == "FAILED", user.log(submitted)
    assert user.json("why", submitted["job_id"])["headline"].endswith("raised ValueError: image 7 is damaged")
    seconds = json.loads((Path(submitted["run_dir"]) / "exit.json").read_text())["ended"]
    failed = json.loads((Path(submitted["run_dir"]) / "failed.jsonl").read_text().splitlines()[0])
    assert failed["rank"] == 1
    assert seconds - failed["time"] < 20
