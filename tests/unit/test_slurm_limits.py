"""What hpcrun says about jobs that sbatch would accept, but Slurm would not start, with fake Slurm commands."""

import pytest

import hpcrun
from hpcrun.errors import HpcrunError
from hpcrun.resources import Resources
from hpcrun.schedulers.slurm_limits import find_obstacles
from hpcrun.schedulers.slurm_partitions import parse_partitions
from tests.unit.slurm_clusters import format_partition

PARTITIONS = format_partition("main", default="YES", nodes=2) + format_partition(
    "tiny", nodes=2, max_nodes=1, max_time="00:10:00", accounts="alpha"
)
NODES = "main|8|4000|gpu:h100:4|q[1-2]|a100,nvme\ntiny|8|4000|gpu:h100:4|q1|(null)\n"

TOO_LONG = "--time=20 is more than partition tiny allows: a time limit of 00:10:00 (give --time=00:10:00 or less)"


@pytest.fixture
def slurm(fake_slurm):
    fake_slurm.replace_command("scontrol", f"echo '{PARTITIONS}'")
    return fake_slurm


@pytest.mark.parametrize(("options", "fault", "hint"), [
    (["-N", "99"], "--nodes=99 is more than partition main allows: 2 nodes", "give --nodes=2 or less"),
    (["-n", "99"], "99 x 1 cores (ranks x --cpus-per-task) are more than partition main has: 16 cores", "at most 16"),
    (["-c", "99"], "1 x 99 cores", "give --cpus-per-task=16 or less"),
    (["--exclude", "n[1-2]"], "--exclude=n[1-2] leaves 0 nodes of partition main, which has n[1-2]", "exclude fewer"),
    (["-N", "2", "--exclude", "n2"], "leaves 1 node of partition main, which has n[1-2], and the job needs 2",
     "exclude fewer nodes, or give another --partition"),
])  # fmt: skip
def test_a_job_that_no_node_can_run_is_not_submitted(slurm, cli, options, fault, hint):
    code, _, err = cli("submit", "--site", "slurm", *options, "--", "true")
    assert code == 2
    assert err.startswith("ERROR: ")
    assert fault in err
    assert f"HINT: {hint}" in err or hint in err
    assert slurm.calls("sbatch") == []


def test_the_hint_for_cores_is_the_size_of_a_node(slurm, cli):
    slurm.replace_command("sinfo", f"echo '{NODES}'")
    code, _, err = cli("submit", "--site", "slurm", "-c", "99", "--", "true")
    assert code == 2
    assert "ERROR: 1 rank a node with 99 cores each is more than partition main allows: 8 cores a node\n" in err
    assert "HINT: give --cpus-per-task=8 or less\n" in err
    err = cli("submit", "--site", "slurm", "-n", "99", "--", "true")[2]
    assert "ERROR: 99 ranks on 13 nodes is more than partition main allows: 2 nodes\n" in err
    assert "HINT: request at most 16 ranks\n" in err


@pytest.mark.parametrize(("options", "warning"), [
    (["-t", "20"], TOO_LONG),
    (["-N", "2"], "--nodes=2 is more than partition tiny allows: 1 node (give --nodes=1 or less)"),
    (["-A", "beta"], "--account=beta: partition tiny allows alpha (give --account=alpha, or another --partition)"),
])  # fmt: skip
def test_a_limit_that_a_qos_may_lift_is_a_warning(slurm, cli, options, warning):
    (slurm.folder / "id").write_text("1")
    code, _, err = cli("submit", "--site", "slurm", "-p", "tiny", *options, "--", "true")
    assert code == 0
    assert f"WARNING: Slurm will not start this job: {warning}" in err


def test_the_python_api_refuses_too(slurm):
    with pytest.raises(HpcrunError, match="--nodes=99 is more than partition main allows"):
        hpcrun.submit(None, ["true"], site="slurm", nodes=99)


@pytest.mark.parametrize("options", [
    ["-N", "2", "-n", "16"],
    ["-N", "99", "--sbatch=--clusters=other"],
    ["-n", "99", "--sbatch=--overcommit"],
    ["--exclude", "n2,elsewhere"],
])  # fmt: skip
def test_a_job_that_may_run_is_submitted_after_one_query(slurm, cli, options):
    (slurm.folder / "id").write_text("1")
    code, _, err = cli("submit", "--site", "slurm", *options, "--", "true")
    assert code == 0, err
    assert "WARNING" not in err
    assert slurm.calls("sinfo") == []
    assert len(slurm.calls("scontrol")) <= 1


def test_a_slurm_without_an_answer_does_not_hinder_a_submission(slurm, cli):
    slurm.replace_command("scontrol", "exit 1")
    (slurm.folder / "id").write_text("1")
    assert cli("submit", "--site", "slurm", "-N", "99", "--", "true")[0] == 0


def test_one_of_several_partitions_is_enough():
    partitions = parse_partitions(PARTITIONS, NODES)
    assert find_obstacles(Resources(partition="tiny", nodes=2), partitions)
    assert find_obstacles(Resources(partition="tiny,main", nodes=2), partitions) == []
    assert find_obstacles(Resources(partition="tiny,other", nodes=2), partitions) == []
