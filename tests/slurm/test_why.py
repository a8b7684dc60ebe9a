"""What `hpcrun why` says of jobs on a real Slurm."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.errors import wait_for
from tests.slurm.lab import Lab

pytestmark = [pytest.mark.slurm, pytest.mark.thorough]  # tests/unit/test_why.py reads the logs of such jobs
HELLO = Path(__file__).parent / "hello.py"


def why(lab: Lab, facts: dict[str, str]) -> Any:
    return lab.json("why", facts["job_id"])


def lines(told) -> str:
    return "\n".join(f"{seen['source']}: {seen['line']}" for seen in told["evidence"])


@pytest.fixture
def short(lab):
    """Yield a partition that allows ten minutes."""
    set_to = ("scontrol", "update", "PartitionName=low")
    assert lab.call(*set_to, "MaxTime=10").returncode == 0
    yield "low"
    assert lab.call(*set_to, "MaxTime=INFINITE").returncode == 0


@pytest.mark.parametrize(("options", "name", "word"), [
    (["--sbatch=--hold"], "held-by-user", "scontrol release"),
    (["--sbatch=--begin=now+1hour"], "begin-time", "StartTime=now"),
    (["-N", "99"], "partition-config", "limits.max_nodes"),
])  # fmt: skip
def test_a_pending_reason(lab, options, name, word):
    facts = lab.json("submit", *options, "--", "true")
    told = why(lab, facts)
    assert (told["name"], told["state"]) == (name, "PENDING"), told
    assert word in told["fix"]


def test_a_job_that_is_too_long_for_its_partition(lab, short):
    facts = lab.json("submit", "-p", short, "-t", "20:00", "--", "true")
    log = lab.cluster.config.log / "slurmctld.log"  # Slurm says PartitionConfig first
    wait_for("the reason is", lambda: why(lab, facts)["name"] == "partition-time-limit", 60, log)
    told = why(lab, facts)
    assert "(--time: 20:00) is more than its partition (low) allows" in told["headline"]


def test_a_job_behind_another_tells_when_it_may_start(lab):
    first = lab.json("submit", "-N", "2", "--exclusive", "-t", "10:00", "--", "sleep", "600")
    log = lab.cluster.config.log / "slurmctld.log"
    wait_for("the first one runs", lambda: why(lab, first)["name"] == "running", 60, log)
    waiting = lab.json("submit", "-N", "2", "--exclusive", "-t", "10:00", "--", "true")
    last = lab.json("submit", "-N", "2", "--exclusive", "-t", "10:00", "--", "true")
    assert why(lab, waiting)["name"] in {"resources", "priority", "not-looked-at"}
    assert "1 pending job is ahead of it in partition main" in lines(why(lab, last))
    wait_for("an expected start is", lambda: "expected to start at 2" in lines(why(lab, waiting)), 60, log)


def test_a_dependency_that_is_never_satisfied(lab):
    bad = lab.json("submit", "--wait", "--", "false")
    facts = lab.json("submit", "--dependency", f"afterok:{bad['job_id']}", "--", "true")
    log = lab.cluster.config.log / "slurmctld.log"
    wait_for("the reason is", lambda: why(lab, facts)["name"] == "dependency-never-satisfied", 60, log)
    assert f"it depends on afterok:{bad['job_id']}(failed)" in lines(why(lab, facts))


@pytest.mark.parametrize(("site", "fits"), [("wrong-mpich", "pmi2"), ("wrong-openmpi", "pmix")])
def test_a_wrong_mpi_type(lab, site, fits):
    facts = lab.json("submit", "lenet5", "--site", site, "-N", "2", "--wait", "--", "--epochs", "1")
    told = why(lab, facts)
    assert told["name"] == "wrong-mpi-type", told
    assert f'in the file of site {site}, set mpi.type = "{fits}"' in told["fix"]


def test_a_wrong_mpi_type_that_nobody_noticed(lab):
    facts = lab.json("submit", "--site", "wrong-mpich", "-N", "2", "--wait", "--", sys.executable, HELLO)
    assert facts["state"] == "COMPLETED"
    assert why(lab, facts)["name"] == "wrong-mpi-type"


def test_a_time_limit(lab):
    facts = lab.json("submit", "-t", "10:00", "--", "sh", "-c", "echo started; sleep 600")
    with lab.start("hpcrun", "logs", "-f", facts["job_id"]) as following:
        assert any(line == "started\n" for line in iter(following.stdout.readline, ""))
        assert lab.call("scontrol", "update", f"JobId={facts['job_id']}", "EndTime=now").returncode == 0
        following.wait(60)
    log = lab.cluster.config.log / "slurmctld.log"
    wait_for("the end is", lambda: why(lab, facts)["state"] == "TIMEOUT", 60, log)
    told = why(lab, facts)
    assert (told["name"], told["others"]) == ("time-limit", [])
    assert "DUE TO TIME LIMIT" in lines(told)


def test_a_cancel(lab):
    facts = lab.json("submit", "--", "sh", "-c", "echo started; sleep 600")
    with lab.start("hpcrun", "logs", "-f", facts["job_id"]) as following:
        assert any(line == "started\n" for line in iter(following.stdout.readline, ""))
        assert why(lab, facts)["name"] == "running"
        assert lab.hpcrun("cancel", facts["job_id"]).returncode == 0
        following.wait(60)
    lab.cluster.wait_idle()
    log = lab.cluster.config.log / "slurmctld.log"
    wait_for("accounting knows who did it", lambda: why(lab, facts)["name"] == "cancelled", 60, log)


def test_a_node_that_crashed(lab):
    second = lab.cluster.nodelist[1]
    argv = ["-N", "2", "--exclusive", "--sbatch=--no-requeue", "--output-on-all-ranks"]
    facts = lab.json("submit", *argv, "--", "sh", "-c", "echo started; sleep 600")
    with lab.start("hpcrun", "logs", "-f", facts["job_id"]) as following:
        heard = iter(following.stdout.readline, "")
        assert sum(1 for _, line in zip(range(2), (x for x in heard if "started" in x), strict=False)) == 2
        lab.cluster.crash(second)
        try:
            following.wait(120)
            log = lab.cluster.config.log / "slurmctld.log"
            wait_for("the node's failure is", lambda: why(lab, facts)["name"] == "node-failure", 120, log)
        finally:
            lab.cluster.boot(second)
            lab.cluster.wait_idle(seconds=120)
    assert "--exclude=NODE" in why(lab, facts)["fix"]


@pytest.fixture
def unseen(tmp_path):
    """Yield a folder of the login host's own."""
    assert Path("/tmp") in tmp_path.parents  # each node has another
    return tmp_path


def test_a_run_root_that_nodes_do_not_see(lab, unseen):
    facts = lab.json("submit", "-N", "2", "--wait", "--", "true", HPCRUN_RUN_ROOT=str(unseen))
    told = why(lab, facts)
    assert (facts["state"], told["name"]) == ("FAILED", "run-root"), told
    assert f"most often because its run directory, {facts['run_dir']}, is not there on " in told["headline"]
    logs = lab.hpcrun("logs", facts["job_id"])
    assert (logs.returncode, logs.stdout) == (1, "")
    assert f"job {facts['job_id']} ended FAILED, and has left no log" in logs.stderr


def test_a_virtual_environment_that_nodes_do_not_see(lab, unseen):
    (unseen / "bin").mkdir()
    (unseen / "bin/activate").touch()
    site = lab.home / "config/hpcrun/venv.toml"
    site.write_text(f'extends = "slurm"\nvenv = "{unseen}"\n')
    told = why(lab, lab.json("submit", "--site", "venv", "--wait", "--", "true"))
    assert told["headline"].endswith(f"failed: there is no virtual environment in {unseen} (site key venv)")
    assert told["fix"].startswith(f"correct venv in {site}:2")
    assert told["others"] == []


def test_a_folder_that_nodes_do_not_see(lab, unseen):
    (unseen / "train.py").write_text("pass\n")
    done = lab.call("sh", "-c", f"cd {unseen} && hpcrun submit --json --wait ./train.py")
    told = why(lab, json.loads(done.stdout))
    assert told["name"] == "working-directory", told
    assert [other["name"] for other in told["others"]] == ["program-file"]
