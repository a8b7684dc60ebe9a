"""`hpcrun site test` on a real Slurm."""

import json
from pathlib import Path

import pytest

from tests.cluster.errors import wait_for

pytestmark = [pytest.mark.slurm, pytest.mark.thorough]


def outcome(lab, *argv):
    """Return what a test of a site says as JSON, and its exit code."""
    done = lab.hpcrun("site", "test", *argv, "--json")
    assert done.stdout, done.stderr
    return json.loads(done.stdout), done.returncode


def steps(told):
    return {step["name"]: step["state"] for step in told["steps"]}


@pytest.mark.parametrize(("site", "mpi"), [("srun-mpich", "MPICH 5"), ("srun-openmpi", "Open MPI v5")])
def test_a_site_that_is_as_its_file_says(lab, site, mpi):
    told, code = outcome(lab, site)
    assert (code, told["failed"], set(steps(told).values()) - {"slow"}) == (0, "", {"ok"}), told
    assert (told["nodes"], told["ranks"], list(told["of_nodes"])) == (2, 2, lab.cluster.nodelist[:2])
    assert told["versions"]["mpi"].startswith(mpi)
    assert told["versions"]["slurm"][0].isdigit()
    assert min(told["figures"].values()) > 0
    assert [pair["nodes"] for pair in told["pairs"]] == [lab.cluster.nodelist[:2]]
    assert told["record"] == f"{lab.home}/config/hpcrun/{site}.tested.jsonl"
    assert lab.hpcrun("status").stdout.count("site-test") == 0, "the run is removed"
    assert list(Path(lab.home, "runs").iterdir()) == []


@pytest.mark.parametrize(("site", "fits"), [("wrong-mpich", "pmi2"), ("wrong-openmpi", "pmix")])
def test_a_wrong_mpi_type_is_told_with_the_key_and_its_value(lab, site, fits):
    told, code = outcome(lab, site)
    assert (code, told["failed"]) == (1, "ranks")
    assert steps(told) == {"job": "ok", "ranks": "FAILED", "allreduce": "", "nodes": "", "end": ""}
    assert f'in the file of site {site}, set mpi.type = "{fits}"' in told["why"]["fix"]
    assert "MPI started 1 rank where the job has 2" in "".join(told["log"])
    assert f"{site} " in lab.hpcrun("site", "list").stdout
    assert "FAILED (ranks)" in lab.hpcrun("site", "show", site).stderr


def test_a_node_with_a_slow_link_is_named(lab_of_three):
    lab = lab_of_three
    *_, last = lab.cluster.nodelist
    lab.cluster.link(last, "200mbit")
    try:
        told, code = outcome(lab, "srun-mpich", "-N", "3")
    finally:
        lab.cluster.link(last, "norate")
    assert (code, steps(told)["nodes"]) == (0, "slow"), told
    by_link = [one["nodes"] for one in told["slow"] if one["figure"] == "bandwidth_GBps"]
    assert by_link == [[last]], told["slow"]


def test_two_nodes_whose_link_was_faster_before(lab):
    assert outcome(lab, "srun-mpich")[1] == 0
    second = lab.cluster.nodelist[1]
    lab.cluster.link(second, "200mbit")
    try:
        done = lab.hpcrun("site", "test", "srun-mpich")
    finally:
        lab.cluster.link(second, "norate")
    assert done.returncode == 0, done.stderr
    assert f"the network between {' and '.join(lab.cluster.nodelist[:2])} is slow: its bandwidth is 0.0" in done.stdout
    assert len(json.loads(lab.hpcrun("site", "test", "srun-mpich", "--history", "--json").stdout)) == 2


def test_a_job_that_does_not_start_is_cancelled_and_told_why(lab):
    told, code = outcome(lab, "srun-mpich", "--sbatch=--hold", "--timeout", "0:03")
    assert (code, told["failed"], told["why"]["name"]) == (1, "job", "held-by-user")
    assert told["steps"][0]["says"].startswith("not started after 3 s in the queue, and cancelled: ")
    log = lab.cluster.config.log / "slurmctld.log"
    wait_for("the job is gone", lambda: not lab.call("squeue", "--me", "--noheader").stdout, 30, log)


def test_ctrl_c_cancels_it(lab):
    with lab.start("hpcrun", "site", "test", "srun-mpich", "--sbatch=--hold") as testing:
        assert any("is pending: JobHeldUser" in line for line in iter(testing.stderr.readline, ""))
        testing.send_signal(2)
        assert testing.wait(30) == 130
        assert "is cancelled: it did not run" in testing.stderr.read()
