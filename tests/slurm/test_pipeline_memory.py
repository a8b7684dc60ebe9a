"""A model that is too large for the memory of one rank trains in pipeline stages."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster import Cluster
from tests.conftest import running_cluster
from tests.slurm.cluster_user import ClusterUser
from tests.slurm.conftest import cluster_user

pytestmark = [pytest.mark.slurm, pytest.mark.thorough]


@pytest.fixture(scope="module")
def cluster_of_four_that_kills() -> Iterator[Cluster]:
    """Yield a real Slurm of four nodes that kills steps that use more than their memory."""
    with running_cluster("z", nodes=4, accounting=True, over_memory_kill=True) as running:
        yield running


@pytest.fixture
def user(cluster_of_four_that_kills: Cluster) -> Iterator[ClusterUser]:
    """Yield a user of this cluster."""
    yield from cluster_user(cluster_of_four_that_kills)


def test_stages_train_a_model_that_one_rank_has_no_memory_for(user):
    (user.home / "text.txt").write_text("Slurm trains a model on many ranks. " * 40)
    options = ("--wait", "--no-gpu", "--site", "srun-mpich", "--mem", "3600M")
    arguments = ("--size", "100m", "--text", user.home / "text.txt", "--epochs", "1", "--context", "32")
    alone = user.json("submit", "transformer", *options, "-N", "1", "--", *arguments)
    assert alone["state"] != "COMPLETED", user.log(alone)
    assert user.json("why", alone["job_id"])["name"] == "host-memory"
    stages = ("--stages", "4", "--micro-batches", "4")
    divided = user.json("submit", "transformer", *options, "-N", "4", "--", *arguments, *stages)
    assert divided["state"] == "COMPLETED", user.log(divided)
    result = json.loads((Path(divided["run_dir"]) / "result.json").read_text())
    assert result["parameters"] > 1e8
    assert result["hosts"] == list(user.cluster.nodelist)
    assert (Path(divided["run_dir"]) / "model.keras").stat().st_size > 4 * 1e8
