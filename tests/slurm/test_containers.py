"""Ranks in containers on a real Slurm of two hosts: MPI, signals, exit codes and what is left are as without."""

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from tests import images
from tests.cluster.errors import wait_for
from tests.slurm.lab import OPENMPI_PYTHON, SITES, Lab

pytestmark = [pytest.mark.slurm, pytest.mark.thorough]  # tests/unit/test_containers.py looks at the words
HELLO = Path(__file__).parent / "hello.py"
INSIDE = "[ -e /etc/only-in-the-image ] && [ ! -e /etc/hostname ] || exit 77; "
PATIENT = INSIDE + "trap 'echo asked; exit 3' TERM USR2; echo started; while :; do sleep 0.1; done"


@pytest.fixture
def contained(lab: Lab):
    """Make a site of the lab one whose ranks run in containers; return its name."""
    folder = images.apptainer_folder()
    image = images.create_image(lab.home / "image")

    def call(base: str) -> str:
        python = str(OPENMPI_PYTHON) if "OMPI" in SITES[base] else sys.executable
        name = f"{base}-contained"
        keys = f'prepend_path.PATH = ["{folder}"]\n'
        text = keys + SITES[base] + images.container_table(image, python, str(images.REPO))
        (lab.home / f"config/hpcrun/{name}.toml").write_text(text)
        return name

    return call


def submit(lab: Lab, site: str, *argv: str | Path) -> Any:
    return lab.json("submit", "--site", site, "-N", "2", *argv)


def started(following) -> None:
    assert any(line.startswith("started") for line in iter(following.stdout.readline, "")), following.stderr.read()


@pytest.mark.parametrize("base", ["srun-mpich", "srun-openmpi", "mpiexec", "mpirun"])
def test_ranks_find_one_another_by_every_launcher(lab, contained, base):
    facts = submit(lab, contained(base), "--ntasks-per-node", "2", "--wait", HELLO)
    log = lab.log(facts)
    told = sorted(line.split()[1:] for line in log.splitlines() if line.startswith("hello"))
    assert told == [[f"{rank}/4", lab.cluster.nodelist[rank // 2]] for rank in range(4)], log


def test_a_training_is_as_it_is_without(lab, contained):
    facts = submit(lab, contained("srun-mpich"), "lenet5", "--wait", "--", "--epochs", "1")
    run = Path(facts["run_dir"])
    assert facts["state"] == "COMPLETED", lab.log(facts)
    assert json.loads((run / "result.json").read_text())["ranks"] == 2
    assert sorted(file.name for file in (run / "heartbeats").iterdir()) == ["rank-0.json", "rank-1.json"]
    assert "\nkeras==" in (run / "provenance/packages.txt").read_text()


def test_ranks_import_the_hpcrun_that_submits(lab, contained):
    argv = [sys.executable, "-c", "import hpcrun; print('found', hpcrun.__file__)"]
    facts = lab.json("submit", "--site", contained("srun-mpich"), "--wait", "--", *argv)
    assert "found /hpcrun/hpcrun/__init__.py\n" in lab.log(facts)


@pytest.mark.parametrize("base", ["srun-mpich", "mpiexec", "none"])
def test_a_cancel_reaches_the_program_in_the_container(lab, contained, base):
    facts = lab.json("submit", "--site", contained(base), "-N", "1", "--", "bash", "-c", PATIENT)
    with lab.start("hpcrun", "logs", "-f", facts["job_id"]) as following:
        started(following)
        assert lab.hpcrun("cancel", facts["job_id"]).returncode == 0
        assert "asked" in following.stdout.read()
    lab.wait_over(facts["job_id"])
    node = lab.cluster.nodelist[0]
    assert lab.cluster.run(node, "pgrep", "-f", "only-in-the-image", check=False).stdout == ""


def test_a_job_in_containers_goes_back_to_the_queue_before_its_time_limit(lab, contained):
    argv = ["--max-requeue", "1", "-t", "10:00", "--", "bash", "-c", PATIENT.replace("exit 3", "exit 140")]
    facts = submit(lab, contained("srun-mpich"), *argv)
    with lab.start("hpcrun", "logs", "-f", facts["job_id"]) as following:
        started(following)
        assert lab.call("scancel", "--batch", "--signal=USR2", facts["job_id"]).returncode == 0
        started(following)
        following.terminate()
    starts = Path(facts["run_dir"], "starts.jsonl").read_text().splitlines()
    assert [json.loads(line)["requeued"] for line in starts] == [False, True]


@pytest.mark.parametrize(("command", "code"), [("exit 9", 9), ("kill -KILL $$", 137)])
def test_the_exit_code_is_the_programs(lab, contained, command, code):
    facts = lab.json("submit", "--site", contained("srun-mpich"), "--wait", "--", "bash", "-c", INSIDE + command)
    assert (facts["state"], facts["exit_code"]) == ("FAILED", code)


def test_what_a_container_leaves_is_found_by_its_marks(lab, contained):
    hide = INSIDE + "setsid sleep 987654 </dev/null >/dev/null 2>&1 & echo started; sleep 600"
    facts = submit(lab, contained("srun-mpich"), "--", "bash", "-c", hide)
    with lab.start("hpcrun", "logs", "-f", facts["job_id"]) as following:
        started(following)
        following.terminate()
    assert lab.call("scancel", "--signal=KILL", "--full", facts["job_id"]).returncode == 0
    lab.wait_over(facts["job_id"])
    assert lab.hpcrun("cleanup", "--yes", facts["job_id"]).returncode == 0
    for node in lab.cluster.nodelist[:2]:
        assert lab.cluster.run(node, "pgrep", "-f", "sleep 987654", check=False).stdout == ""


def test_an_image_that_is_gone_by_then_is_told_with_its_key(lab, contained):
    site = contained("srun-mpich")
    facts = submit(lab, site, "--sbatch=--hold", "--", "true")
    shutil.rmtree(lab.home / "image")
    assert lab.call("scontrol", "release", facts["job_id"]).returncode == 0
    lab.wait_over(facts["job_id"])
    ended = Path(facts["run_dir"], "exit.json")
    wait_for(f"{ended} is", lambda: "there is no image" in ended.read_text(), 30, lab.cluster.config.log)
    assert json.loads(ended.read_text())["reason"] == (
        f"there is no image {lab.home}/image (site key container.image, or --container)"
    )


def test_the_doctor_looks_into_the_image(lab, contained):
    told = lab.json("doctor", contained("srun-mpich"), "--in-job")
    assert told["ok"], told
    assert [row["found"] for row in told["job_rows"] if row["check"] == "MPI"] == ["2 ranks in one world"]
    assert [row["check"] for row in told["rows"] if row["check"] in {"MPI library", "launcher"}] == ["MPI library"]
