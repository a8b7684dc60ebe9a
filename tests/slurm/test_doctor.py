"""`hpcrun doctor` on a real Slurm: correct and wrong site files, and a node that differs."""

import signal
import tempfile

import pytest

from tests.cluster.hosts import Host

pytestmark = [
    pytest.mark.slurm,
    pytest.mark.thorough,
]  # tests/unit/test_doctor.py uses recorded output of such a cluster


def findings_at_level(rows, level):
    return [f"{row['check']}: {row['found']}" for row in rows if row["level"] == level]


@pytest.fixture
def other_system(user):
    """Yield a node with another operating system release."""
    node = user.cluster.nodelist[1]
    host = Host(user.cluster.config, node)
    release = user.home / "os-release"
    release.write_text('PRETTY_NAME="Other Linux 9"\n')
    host.call("mount", "--bind", release, "/etc/os-release")
    yield node
    host.call("umount", "/etc/os-release")


@pytest.mark.parametrize("site", ["srun-mpich", "srun-openmpi", "mpirun", "mpiexec"])
def test_a_correct_site_file_has_no_errors(user, site):
    output = user.json("doctor", site, "--in-job")
    assert output["ok"], output
    assert findings_at_level(output["rows"], "error") == findings_at_level(output["job_rows"], "error") == []
    assert [row["found"] for row in output["job_rows"] if row["check"] == "MPI"] == ["2 ranks in one world"]
    assert [node["host"] for node in output["nodes"]] == user.cluster.nodelist
    assert [one["fact"] for one in output["differences"] if one["differs"] == "nodes"] == []


def test_a_site_file_of_site_init_has_no_warnings(user):
    assert user.hpcrun("site", "init", "fresh").returncode == 0
    assert "WARNING" not in user.hpcrun("site", "check", "fresh").stderr
    output = user.json("doctor", "fresh", "--in-job")
    assert output["ok"], output
    assert [row["check"] for row in output["rows"] if row["level"] != "ok"] in (
        [],
        ["run root"],
    )  # the run root is on a local disk


@pytest.mark.parametrize(("site", "correct_type"), [("wrong-mpich", "pmi2"), ("wrong-openmpi", "pmix")])
def test_a_wrong_mpi_type_is_found_although_the_job_completes(user, site, correct_type):
    completed = user.hpcrun("doctor", site, "--in-job")
    assert completed.returncode == 1
    assert "each of 2 ranks is in an MPI world of one rank" in completed.stdout
    assert f'set mpi.type = "{correct_type}"' in completed.stdout


def test_a_node_that_differs_is_named(user, other_system):
    completed = user.hpcrun("doctor", "srun-mpich", "--in-job")
    assert completed.returncode == 0, completed.stdout
    (line,) = [line for line in completed.stdout.splitlines() if line.startswith("warning") and "nodes differ" in line]
    assert line.endswith(f"; Other Linux 9 on {other_system}")
    assert f"--exclude={other_system}" in completed.stdout


def test_a_run_root_that_nodes_do_not_share_is_an_error(user):
    with tempfile.TemporaryDirectory(prefix="hpcrun-doctor-") as folder:  # /tmp is private to each node
        completed = user.hpcrun("doctor", "srun-mpich", "--in-job", HPCRUN_RUN_ROOT=folder)
    assert completed.returncode == 1
    assert "which may be local to this host" in completed.stdout
    assert f"its node wrote nothing to {folder}" in completed.stdout


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_cancels_the_job(user, number, code):
    assert user.call("sbatch", "--nodes=2", "--exclusive", "--wrap=sleep 600").returncode == 0
    with user.start("hpcrun", "doctor", "srun-mpich", "--in-job") as doctor_process:
        assert any(" is pending" in line for line in iter(doctor_process.stderr.readline, ""))
        doctor_process.send_signal(number)
        assert doctor_process.wait(60) == code
    assert user.call("squeue", "--noheader", "--format=%j").stdout.split() == ["wrap"]


def test_limits_above_those_of_slurm_are_found(user):
    text = 'extends = "srun-mpich"\n[partitions.main]\nmax_nodes = 99\n[partitions.nain]\n'
    (user.home / "config/hpcrun/much.toml").write_text(text)
    output = user.json("doctor", "much", "-p", "main")
    assert [row["fix"] for row in output["rows"] if row["check"] == "limits"] == ["set partitions.main.max_nodes = 2"]
    assert any("Slurm has no partition nain" in line for line in findings_at_level(output["rows"], "error"))


def test_all_other_checks_run_without_accounting(user_without_accounting):
    output = user_without_accounting.json("doctor", "srun-mpich")
    assert output["ok"], output
    assert any(row["check"] == "accounting" for row in output["rows"])
