"""The provenance that a job on a real Slurm records, and the code that it runs."""

import json
from pathlib import Path

import pytest

from tests.repository import Repository

pytestmark = [pytest.mark.slurm, pytest.mark.thorough]  # tests/unit/test_provenance.py tests local jobs


@pytest.mark.parametrize("program", ["true", "false"])
def test_a_job_records_slurms_job_record_modules_and_packages(user, program):
    submission = user.json("submit", "-N", "2", "--wait", "--", program)
    provenance = Path(submission["run_dir"], "provenance")
    assert f"JobId={submission['job_id']} JobName={program}" in (provenance / "slurm.txt").read_text()
    assert "NumNodes=2" in (provenance / "slurm.txt").read_text()
    assert "\nhpcrun" in (provenance / "packages.txt").read_text()
    assert (provenance / "modules.txt").read_text() == "\n"


def test_jobs_run_without_scontrol_on_the_nodes(user):
    bin_folder = user.home / "bin"
    bin_folder.mkdir()
    (bin_folder / "scontrol").write_text("#!/bin/bash\nexit 127\n")
    (bin_folder / "scontrol").chmod(0o755)
    site = user.home / "config/hpcrun/bare.toml"
    site.write_text(f'extends = "slurm"\nprepend_path.PATH = ["{bin_folder}"]\n')
    submission = user.json("submit", "--site", "bare", "--wait", "--", "true")
    assert submission["exit_code"] == 0
    provenance = Path(submission["run_dir"], "provenance")
    assert (provenance / "slurm.txt").read_text() == ""
    assert "\nhpcrun" in (provenance / "packages.txt").read_text()


@pytest.mark.parametrize(("option", "word"), [("--snapshot", "old"), ("--no-snapshot", "new")])
def test_a_snapshot_protects_a_pending_job_from_later_edits(user, option, word):
    repository = Repository(user.home / "my code")
    repository.write("sub dir/data.txt", "old data")
    repository.commit(**{"sub dir/train": "import pathlib; print('old code,', pathlib.Path('data.txt').read_text())\n"})
    script = repository.folder / "sub dir/train.py"
    submit_in_folder = (
        "sh",
        "-c",
        'cd "$1"; shift; exec hpcrun "$@"',
        "sh",
        script.parent,
        "submit",
        "--json",
        "--sbatch=--hold",
    )
    completed = user.call(*submit_in_folder, option, "-N", "2", "train.py")
    assert completed.returncode == 0, completed.stderr
    submission = json.loads(completed.stdout)
    script.write_text(script.read_text().replace("old", "new"))
    (script.parent / "data.txt").write_text("new data")
    assert user.call("scontrol", "release", submission["job_id"]).returncode == 0
    user.wait_for_end(submission["job_id"])
    assert f"{word} code, {word} data\n" in user.log(submission)
