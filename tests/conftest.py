"""Fixtures that several folders of tests share."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import zip_longest
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from tests.cluster import Cluster, Config, unavailable_reason

# Two runs of one commit test the same values; `--hypothesis-profile random` tests many others.
settings.register_profile("repeated", derandomize=True, deadline=None)
settings.register_profile("random", max_examples=2000, deadline=None, suppress_health_check=list(HealthCheck))
settings.load_profile("repeated")

signal.signal(signal.SIGINT, signal.default_int_handler)  # `make test &` in a script ignores it, and so would programs

# Files with long tests, longest first. Those of SPLIT share no fixture of the module: all test processes run them.
SPLIT = (
    "mpi/test_architectures",
    "mpi/test_embeddings",
    "slurm/test_restart",
    "mpi/test_normalization",
    "mpi/test_backends",
    "mpi/test_custom_steps",
    "mpi/test_fit_features",
    "mpi/test_resuming",
    "mpi/test_run",
    "mpi/test_workloads",
    "mpi/test_transformer",
    "unit/test_hostile_records",
)
LONG = (
    *SPLIT,
    "mpi/test_pipeline_exact",
    "mpi/test_images_page",
    "slurm/test_jobs",
    "unit/test_quoting",
    "packaging/test_installers",
    "mpi/test_jax_workload",
    "mpi/test_images",
    "slurm/test_slow_prolog",
    "slurm/faults/test_links",
    "slurm/faults/test_daemons",
    "slurm/test_containers",
)


def unit_of(nodeid: str) -> str:
    """Return what one test process runs as a whole: a long test, or all tests of a file."""
    file, _, _ = nodeid.partition("::")
    return nodeid if _position(file) < len(SPLIT) else file


def _position(unit: str) -> int:
    name = unit.partition("::")[0].removeprefix("tests/").removesuffix(".py")
    return LONG.index(name) if name in LONG else len(LONG)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run the longest tests first, alternating between those of tests/slurm, which wait, and others, which compute."""
    units: dict[str, list[pytest.Item]] = {}
    for item in items:
        units.setdefault(unit_of(item.nodeid), []).append(item)
    longest_first = sorted(units, key=_position)
    waiting = [unit for unit in longest_first if "tests/slurm/" in unit]
    computing = [
        unit for unit in longest_first if "tests/mpi/" in unit or (_position(unit) < len(LONG) and unit not in waiting)
    ]
    alternating = [unit for pair in zip_longest(waiting, computing) for unit in pair if unit]
    items[:] = [item for unit in dict.fromkeys([*alternating, *longest_first]) for item in units[unit]]


@pytest.hookimpl(optionalhook=True)  # of pytest-xdist
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Let `--dist loadfile` distribute long tests one by one."""
    from xdist.scheduler import LoadFileScheduling

    class Scheduler(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return unit_of(nodeid)

    return Scheduler(config, log) if config.getoption("dist") == "loadfile" else None


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """Yield a real Slurm of two nodes with accounting; its nodes share `cluster.shared`, but not /tmp."""
    with running_cluster("t", accounting=True) as running:
        yield running


@pytest.fixture(scope="session")
def cluster_without_accounting() -> Iterator[Cluster]:
    """Yield a real Slurm of two nodes without slurmdbd."""
    with running_cluster("u", accounting=False) as running:
        yield running


@pytest.fixture(scope="session")
def cluster_of_three() -> Iterator[Cluster]:
    """Yield a real Slurm of three nodes without slurmdbd."""
    with running_cluster("v", accounting=False, nodes=3) as running:
        yield running


@contextmanager
def running_cluster(name: str, *, nodes: int = 2, **settings: Any) -> Iterator[Cluster]:
    """Use the cluster that HPCRUN_CLUSTER names if its configuration fits; otherwise start one and stop it afterwards.

    Each test process has its own clusters.
    """
    worker = os.environ.get("PYTEST_XDIST_WORKER", "").removeprefix("gw")
    config = Config(name + (chr(ord("a") + int(worker)) if worker else ""), nodes=nodes, **settings)
    if reason := unavailable_reason(config):
        pytest.skip(f"real Slurm: {reason}")
    if "HPCRUN_CLUSTER" in os.environ:
        running = Cluster.attach(os.environ["HPCRUN_CLUSTER"])
        flexible = ("name", "nodes", "gpus", "cpus", "real_memory", "shared_paths")
        same = {field: getattr(running.config, field) for field in flexible}
        if replace(config, **same) == running.config and running.config.nodes >= nodes:
            yield running
            return
    with Cluster(config) as running:
        yield running
