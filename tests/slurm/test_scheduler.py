"""Slurm passes the tests that all schedulers pass."""

import pytest

from tests.scheduler_conformance import SchedulerConformance

pytestmark = pytest.mark.slurm


class TestSlurm(SchedulerConformance):
    scheduler = "slurm"
    capabilities = frozenset({"sweep", "dependency", "requeue"})

    def make_user(self, request):
        return request.getfixturevalue("user")

    def submit_pending(self, user):
        return self.submit(user, "true", options=["--sbatch=--hold"])
