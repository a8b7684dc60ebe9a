"""`hpcrun site test` on a real Slurm."""

import json
from pathlib import Path

import pytest

from hpcrun.nodelist import fold_hosts
from tests.cluster.errors import wait_for

pytestmark = [pytest.mark.slurm, pytest.mark.thorough]


def run_site_test(user, *argv):
    """Return the JSON output of `hpcrun site test` and its exit code."""
    completed = user.hpcrun("site", "test", *argv, "--json")
    assert completed.stdout, completed.stderr
    return json.loads(completed.stdout), completed.returncode


def as_text(output):
    """Return the output as text, which pytest shows in full."""
    return json.dumps(output, indent=1)


def step_states(output):
    return {step["name"]: step["state"] for step in output["steps"]}


@pytest.mark.parametrize(("site", "mpi"), [("srun-mpich", "MPICH 5"), ("srun-openmpi", "Open MPI v5")])
def test_a_correct_site_passes(user, site, mpi):
    output, code = run_site_test(user, site)
    assert (code, output["failed"], set(step_states(output).values()) - {"slow"}) == (0, "", {"ok"}), as_text(output)
    assert (output["nodes"], output["ranks"], list(output["of_nodes"])) == (2, 2, user.cluster.nodelist[:2])
    assert output["versions"]["mpi"].startswith(mpi)
    assert output["versions"]["slurm"][0].isdigit()
    assert min(output["figures"].values()) > 0
    assert [pair["nodes"] for pair in output["pairs"]] == [user.cluster.nodelist[:2]]
    assert output["record"] == f"{user.home}/config/hpcrun/{site}.tested.jsonl"
    assert user.hpcrun("status").stdout.count("site-test") == 0, "the run is removed"
    assert list(Path(user.home, "runs").iterdir()) == []


@pytest.mark.parametrize(("site", "correct_type"), [("wrong-mpich", "pmi2"), ("wrong-openmpi", "pmix")])
def test_a_wrong_mpi_type_is_reported_with_the_key_to_set(user, site, correct_type):
    output, code = run_site_test(user, site)
    assert (code, output["failed"]) == (1, "ranks")
    assert step_states(output) == {"job": "ok", "ranks": "FAILED", "allreduce": "", "nodes": "", "end": ""}
    assert f'in the file of site {site}, set mpi.type = "{correct_type}"' in output["why"]["fix"]
    assert "MPI started 1 rank where the job has 2" in "".join(output["log"])
    assert f"{site} " in user.hpcrun("site", "list").stdout
    assert "FAILED (ranks)" in user.hpcrun("site", "show", site).stderr


def test_a_node_with_a_slow_link_is_named(user_of_three_nodes):
    user = user_of_three_nodes
    *_, last_node = user.cluster.nodelist
    user.cluster.link(last_node, "200mbit")
    try:
        output, code = run_site_test(user, "srun-mpich", "-N", "3")
    finally:
        user.cluster.link(last_node, "norate")
    assert (code, step_states(output)["nodes"]) == (0, "slow"), as_text(output)
    slow_links = [one["nodes"] for one in output["slow"] if one["figure"] == "bandwidth_GBps"]
    assert slow_links == [[last_node]], output["slow"]


def test_a_slower_link_and_few_open_files_are_reported(user):
    few_files = 'extends = "srun-mpich"\nsetup = ["ulimit -Sn 512"]\n'
    (user.home / "config/hpcrun/few-files.toml").write_text(few_files)
    assert run_site_test(user, "few-files")[1] == 0
    first, second = user.cluster.nodelist[:2]
    user.cluster.link(second, "200mbit")
    try:
        completed = user.hpcrun("site", "test", "few-files")
    finally:
        user.cluster.link(second, "norate")
    assert completed.returncode == 0, completed.stderr
    assert f"the network between {first} and {second} is slow: its bandwidth is 0.0" in completed.stdout
    nodes = fold_hosts([first, second])
    assert f"WARNING: limits of the shell: open files: 512 (on {nodes})" in " ".join(completed.stdout.split())
    assert len(json.loads(user.hpcrun("site", "test", "few-files", "--history", "--json").stdout)) == 2


def test_a_job_that_does_not_start_is_cancelled_with_a_reason(user):
    output, code = run_site_test(user, "srun-mpich", "--sbatch=--hold", "--timeout", "0:03")
    assert (code, output["failed"], output["why"]["name"]) == (1, "job", "held-by-user")
    assert output["steps"][0]["says"].startswith("not started after 3 s in the queue, and cancelled: ")
    log = user.cluster.config.log / "slurmctld.log"
    wait_for("the end of the job", lambda: not user.call("squeue", "--me", "--noheader").stdout, 30, log)


def test_ctrl_c_cancels_the_test_job(user):
    with user.start("hpcrun", "site", "test", "srun-mpich", "--sbatch=--hold") as test_process:
        assert any("is pending: JobHeldUser" in line for line in iter(test_process.stderr.readline, ""))
        test_process.send_signal(2)
        assert test_process.wait(30) == 130
        assert "is cancelled: it did not run" in test_process.stderr.read()
