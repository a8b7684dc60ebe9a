"""Ranks in containers on a real Slurm of two hosts: MPI, signals, exit codes and cleanup work as without containers."""

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from tests import images
from tests.cluster.errors import wait_for
from tests.slurm.cluster_user import OPENMPI_PYTHON, SITES, ClusterUser

pytestmark = [pytest.mark.slurm, pytest.mark.thorough]  # tests/unit/test_containers.py checks the command lines
HELLO = Path(__file__).parent / "hello.py"
REQUIRE_IMAGE = "[ -e /etc/only-in-the-image ] && [ ! -e /etc/hostname ] || exit 77; "
TRAPS_SIGNALS = REQUIRE_IMAGE + "trap 'echo signalled; exit 3' TERM USR2; echo started; while :; do sleep 0.1; done"


@pytest.fixture
def contained_site(user: ClusterUser):
    """Return a function that writes a variant of a site whose ranks run in containers, and returns its name."""
    folder = images.apptainer_folder()
    image = images.create_image(user.home / "image")

    def call(base: str) -> str:
        python = str(OPENMPI_PYTHON) if "OMPI" in SITES[base] else sys.executable
        name = f"{base}-contained"
        keys = f'prepend_path.PATH = ["{folder}"]\n'
        text = keys + SITES[base] + images.container_table(image, python, str(images.REPO))
        (user.home / f"config/hpcrun/{name}.toml").write_text(text)
        return name

    return call


def submit(user: ClusterUser, site: str, *argv: str | Path) -> Any:
    return user.json("submit", "--site", site, "-N", "2", *argv)


def wait_for_start(logs_process) -> None:
    assert any(line.startswith("started") for line in iter(logs_process.stdout.readline, "")), (
        logs_process.stderr.read()
    )


@pytest.mark.parametrize("base", ["srun-mpich", "srun-openmpi", "mpiexec", "mpirun"])
def test_ranks_communicate_with_every_launcher(user, contained_site, base):
    submission = submit(user, contained_site(base), "--ntasks-per-node", "2", "--wait", HELLO)
    log = user.log(submission)
    output = sorted(line.split()[1:] for line in log.splitlines() if line.startswith("hello"))
    assert output == [[f"{rank}/4", user.cluster.nodelist[rank // 2]] for rank in range(4)], log


def test_a_training_runs_in_containers(user, contained_site):
    submission = submit(user, contained_site("srun-mpich"), "lenet5", "--wait", "--", "--epochs", "1")
    run = Path(submission["run_dir"])
    assert submission["state"] == "COMPLETED", user.log(submission)
    assert json.loads((run / "result.json").read_text())["ranks"] == 2
    assert sorted(file.name for file in (run / "heartbeats").iterdir()) == ["rank-0.json", "rank-1.json"]
    assert "\nkeras==" in (run / "provenance/packages.txt").read_text()


def test_ranks_import_the_hpcrun_that_submitted_the_job(user, contained_site):
    argv = [sys.executable, "-c", "import hpcrun; print('found', hpcrun.__file__)"]
    submission = user.json("submit", "--site", contained_site("srun-mpich"), "--wait", "--", *argv)
    assert "found /hpcrun/hpcrun/__init__.py\n" in user.log(submission)


@pytest.mark.parametrize("base", ["srun-mpich", "mpiexec", "none"])
def test_cancel_signals_the_program_in_the_container(user, contained_site, base):
    submission = user.json("submit", "--site", contained_site(base), "-N", "1", "--", "bash", "-c", TRAPS_SIGNALS)
    with user.start("hpcrun", "logs", "-f", submission["job_id"]) as logs_process:
        wait_for_start(logs_process)
        assert user.hpcrun("cancel", submission["job_id"]).returncode == 0
        assert "signalled" in logs_process.stdout.read()
    user.wait_for_end(submission["job_id"])
    node = user.cluster.nodelist[0]
    assert user.cluster.run(node, "pgrep", "-f", "only-in-the-image", check=False).stdout == ""


def test_a_job_in_containers_is_requeued_before_its_time_limit(user, contained_site):
    argv = ["--max-requeue", "1", "-t", "10:00", "--", "bash", "-c", TRAPS_SIGNALS.replace("exit 3", "exit 140")]
    submission = submit(user, contained_site("srun-mpich"), *argv)
    with user.start("hpcrun", "logs", "-f", submission["job_id"]) as logs_process:
        wait_for_start(logs_process)
        assert user.call("scancel", "--batch", "--signal=USR2", submission["job_id"]).returncode == 0
        wait_for_start(logs_process)
        logs_process.terminate()
    starts = Path(submission["run_dir"], "starts.jsonl").read_text().splitlines()
    assert [json.loads(line)["requeued"] for line in starts] == [False, True]


@pytest.mark.parametrize(("command", "code"), [("exit 9", 9), ("kill -KILL $$", 137)])
def test_a_job_has_the_exit_code_of_the_program_in_the_container(user, contained_site, command, code):
    submission = user.json(
        "submit", "--site", contained_site("srun-mpich"), "--wait", "--", "bash", "-c", REQUIRE_IMAGE + command
    )
    assert (submission["state"], submission["exit_code"]) == ("FAILED", code)


def test_cleanup_finds_processes_of_a_container(user, contained_site):
    command = REQUIRE_IMAGE + "setsid sleep 987654 </dev/null >/dev/null 2>&1 & echo started; sleep 600"
    submission = submit(user, contained_site("srun-mpich"), "--", "bash", "-c", command)
    with user.start("hpcrun", "logs", "-f", submission["job_id"]) as logs_process:
        wait_for_start(logs_process)
        logs_process.terminate()
    assert user.call("scancel", "--signal=KILL", "--full", submission["job_id"]).returncode == 0
    user.wait_for_end(submission["job_id"])
    assert user.hpcrun("cleanup", "--yes", submission["job_id"]).returncode == 0
    for node in user.cluster.nodelist[:2]:
        assert user.cluster.run(node, "pgrep", "-f", "sleep 987654", check=False).stdout == ""


def test_a_missing_image_is_reported_with_its_site_key(user, contained_site):
    site = contained_site("srun-mpich")
    submission = submit(user, site, "--sbatch=--hold", "--", "true")
    shutil.rmtree(user.home / "image")
    assert user.call("scontrol", "release", submission["job_id"]).returncode == 0
    user.wait_for_end(submission["job_id"])
    exit_record = Path(submission["run_dir"], "exit.json")
    wait_for(
        f"the reason in {exit_record}",
        lambda: "there is no image" in exit_record.read_text(),
        30,
        user.cluster.config.log,
    )
    assert json.loads(exit_record.read_text())["reason"] == (
        f"there is no image {user.home}/image (site key container.image, or --container)"
    )


def test_doctor_checks_the_image(user, contained_site):
    output = user.json("doctor", contained_site("srun-mpich"), "--in-job")
    assert output["ok"], output
    assert [row["found"] for row in output["job_rows"] if row["check"] == "MPI"] == ["2 ranks in one world"]
    assert [row["check"] for row in output["rows"] if row["check"] in {"MPI library", "launcher"}] == ["MPI library"]
