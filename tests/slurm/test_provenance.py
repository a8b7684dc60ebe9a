"""What a job on a real Slurm writes down of itself, and which code it runs."""

import json
from pathlib import Path

import pytest

from tests.repository import Repository

pytestmark = [pytest.mark.slurm, pytest.mark.thorough]  # tests/unit/test_provenance.py looks at jobs of this machine


@pytest.mark.parametrize("program", ["true", "false"])
def test_a_job_keeps_slurms_view_modules_and_packages(lab, program):
    facts = lab.json("submit", "-N", "2", "--wait", "--", program)
    kept = Path(facts["run_dir"], "provenance")
    assert f"JobId={facts['job_id']} JobName={program}" in (kept / "slurm.txt").read_text()
    assert "NumNodes=2" in (kept / "slurm.txt").read_text()
    assert "\nhpcrun" in (kept / "packages.txt").read_text()
    assert (kept / "modules.txt").read_text() == "\n"


def test_a_cluster_without_scontrol_on_its_nodes_runs_jobs_all_the_same(lab):
    bin_folder = lab.home / "bin"
    bin_folder.mkdir()
    (bin_folder / "scontrol").write_text("#!/bin/bash\nexit 127\n")
    (bin_folder / "scontrol").chmod(0o755)
    site = lab.home / "config/hpcrun/bare.toml"
    site.write_text(f'extends = "slurm"\nprepend_path.PATH = ["{bin_folder}"]\n')
    facts = lab.json("submit", "--site", "bare", "--wait", "--", "true")
    assert facts["exit_code"] == 0
    kept = Path(facts["run_dir"], "provenance")
    assert (kept / "slurm.txt").read_text() == ""
    assert "\nhpcrun" in (kept / "packages.txt").read_text()


@pytest.mark.parametrize(("option", "word"), [("--snapshot", "old"), ("--no-snapshot", "new")])
def test_editing_after_submitting_changes_no_queued_job(lab, option, word):
    code = Repository(lab.home / "my code")
    code.write("sub dir/data.txt", "old data")
    code.commit(**{"sub dir/train": "import pathlib; print('old code,', pathlib.Path('data.txt').read_text())\n"})
    script = code.folder / "sub dir/train.py"
    submit = (
        "sh",
        "-c",
        'cd "$1"; shift; exec hpcrun "$@"',
        "sh",
        script.parent,
        "submit",
        "--json",
        "--sbatch=--hold",
    )
    done = lab.call(*submit, option, "-N", "2", "train.py")
    assert done.returncode == 0, done.stderr
    facts = json.loads(done.stdout)
    script.write_text(script.read_text().replace("old", "new"))
    (script.parent / "data.txt").write_text("new data")
    assert lab.call("scontrol", "release", facts["job_id"]).returncode == 0
    lab.wait_over(facts["job_id"])
    assert f"{word} code, {word} data\n" in lab.log(facts)
