"""Unit tests see no configuration, index, allocation or run directory but their own."""

import os

import pytest


@pytest.fixture(autouse=True)
def own_world(tmp_path_factory, monkeypatch):
    """Folders and environment of this test's own."""
    home = tmp_path_factory.mktemp("home")
    for name in list(os.environ):
        if name.startswith(("SLURM_", "SBATCH_", "HPCRUN_", "CARME_", "PBS_", "LSB_", "OAR_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(home / "config"))
    monkeypatch.setenv("XDG_STATE_HOME", str(home / "state"))
    monkeypatch.setenv("HPCRUN_RUN_ROOT", str(home / "runs"))
    return home
