"""Hostile values on a real Slurm: sbatch reads its lines as hpcrun means them."""

import pytest

from tests.slurm.lab import Lab

pytestmark = [pytest.mark.slurm, pytest.mark.thorough]  # tests/unit/test_quoting.py knows sbatch's rules
HOSTILE = [
    "$(canary) `canary`",
    "'\"'",
    "a\\",
    "\\'",
    "a # --nodes=99",
    " #SBATCH --nodes=99 ",
    "packjob Hetjob",
    "é%j*",
]


@pytest.mark.parametrize("text", HOSTILE)
def test_sbatch_reads_a_value_literally(lab: Lab, text: str) -> None:
    facts = lab.json("submit", f"--sbatch=--comment={text}", "--sbatch=--hold", "-J", text, "--", "true")
    told = lab.call("squeue", "--noheader", "--jobs", facts["job_id"], "--format=%j\n%k\n%D").stdout
    assert told.split("\n")[:3] == [text, text, "1"]
