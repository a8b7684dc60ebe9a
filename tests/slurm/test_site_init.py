"""The site file that `hpcrun site init` writes of a real Slurm submits jobs as it is."""

import sys
from pathlib import Path

import pytest

from tests.slurm.lab import Lab

pytestmark = [pytest.mark.slurm, pytest.mark.thorough]  # tests/unit/test_site_init.py reads what other clusters say
HELLO = Path(__file__).parent / "hello.py"


def own(lab: Lab) -> dict[str, str]:
    """Return what the cluster's own documentation would have this user set."""
    return {"SCRATCH": str(lab.home), "HPCRUN_RUN_ROOT": ""}


def test_a_job_on_two_nodes_runs_by_the_site_file_unedited(lab):
    done = lab.hpcrun("site", "init", "bed", **own(lab))
    assert done.returncode == 0, done.stderr
    text = (lab.home / "config/hpcrun/bed.toml").read_text()
    assert f'description = "{lab.cluster.config.name}: 3 partitions, Slurm' in text
    assert 'run_root = "${SCRATCH}/hpcrun-runs"' in text
    assert lab.hpcrun("site", "check", "bed", **own(lab)).returncode == 0
    told = lab.hpcrun("submit", "--site", "bed", "-N", "2", "--wait", "--", sys.executable, HELLO, **own(lab))
    assert told.returncode == 0, told.stderr
    ranks = [line.split()[1:] for line in told.stdout.splitlines() if line.startswith("hello ")]
    first, second = lab.cluster.nodelist[:2]
    assert ranks == [[f"{rank}/8", first if rank < 4 else second] for rank in range(8)], told.stdout
    tested = lab.hpcrun("site", "test", "bed", **own(lab))
    assert tested.returncode == 0, tested.stdout + tested.stderr
    refused = lab.hpcrun("submit", "--site", "bed", "-N", "3", "--", "true", **own(lab))
    assert (refused.returncode, "more than partition main allows: 2 nodes" in refused.stderr) == (2, True)
