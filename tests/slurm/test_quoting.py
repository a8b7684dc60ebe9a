"""Hostile values on a real Slurm: sbatch reads each #SBATCH line as hpcrun intends."""

import pytest

from tests.slurm.cluster_user import ClusterUser

pytestmark = [pytest.mark.slurm, pytest.mark.thorough]  # tests/unit/test_quoting.py implements sbatch's rules
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
def test_sbatch_reads_a_value_literally(user: ClusterUser, text: str) -> None:
    submission = user.json("submit", f"--sbatch=--comment={text}", "--sbatch=--hold", "-J", text, "--", "true")
    output = user.call("squeue", "--noheader", "--jobs", submission["job_id"], "--format=%j\n%k\n%D").stdout
    assert output.split("\n")[:3] == [text, text, "1"]
