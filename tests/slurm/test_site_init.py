"""The site file that `hpcrun site init` writes for a real Slurm runs jobs unedited."""

import sys
from pathlib import Path

import pytest

from tests.slurm.cluster_user import ClusterUser

pytestmark = [
    pytest.mark.slurm,
    pytest.mark.thorough,
]  # tests/unit/test_site_init.py uses recorded output of other clusters
HELLO = Path(__file__).parent / "hello.py"


def site_environment(user: ClusterUser) -> dict[str, str]:
    """Return the environment that the cluster's documentation tells users to set."""
    return {"SCRATCH": str(user.home), "HPCRUN_RUN_ROOT": ""}


def test_the_written_site_file_runs_jobs_unedited(user):
    completed = user.hpcrun("site", "init", "bed", **site_environment(user))
    assert completed.returncode == 0, completed.stderr
    text = (user.home / "config/hpcrun/bed.toml").read_text()
    assert f'description = "{user.cluster.config.name}: 3 partitions, Slurm' in text
    assert 'run_root = "${SCRATCH}/hpcrun-runs"' in text
    assert user.hpcrun("site", "check", "bed", **site_environment(user)).returncode == 0
    output = user.hpcrun(
        "submit", "--site", "bed", "-N", "2", "--wait", "--", sys.executable, HELLO, **site_environment(user)
    )
    assert output.returncode == 0, output.stderr
    ranks = [line.split()[1:] for line in output.stdout.splitlines() if line.startswith("hello ")]
    first, second = user.cluster.nodelist[:2]
    assert ranks == [[f"{rank}/8", first if rank < 4 else second] for rank in range(8)], output.stdout
    test_result = user.hpcrun("site", "test", "bed", **site_environment(user))
    assert test_result.returncode == 0, test_result.stdout + test_result.stderr
    rejected = user.hpcrun("submit", "--site", "bed", "-N", "3", "--", "true", **site_environment(user))
    assert (rejected.returncode, "more than partition main allows: 2 nodes" in rejected.stderr) == (2, True)
