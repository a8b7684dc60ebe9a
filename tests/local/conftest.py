"""Fixtures of tests that start jobs, or hpcrun as a process, on this host: those of the unit tests."""

from tests.unit.conftest import cli, fake_slurm, isolated_home, layers, shared_cache, shared_memory, unconfigured_slurm

__all__ = ["cli", "fake_slurm", "isolated_home", "layers", "shared_cache", "shared_memory", "unconfigured_slurm"]
