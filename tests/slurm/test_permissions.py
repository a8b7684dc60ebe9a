"""Modes of the files of a Slurm job under umask 002, in a run root that a group shares."""

import json
import stat
from pathlib import Path

import pytest

from tests.slurm.cluster_user import ClusterUser

pytestmark = pytest.mark.slurm


@pytest.mark.parametrize(
    ("site", "keys", "folders", "files"),
    [
        ("srun-mpich", "", 0o700, 0o600),
        pytest.param("mpiexec", 'share_runs = "read"\n', 0o755, 0o644, marks=pytest.mark.thorough),
    ],
)
def test_modes_of_files_in_a_shared_run_root(user: ClusterUser, site: str, keys: str, folders: int, files: int) -> None:
    (user.home / "own.toml").write_text(f'extends = "{site}"\n{keys}')
    (user.home / "config/hpcrun/own.toml").write_text(f'extends = "{site}"\n{keys}')
    (user.home / "runs").mkdir()
    (user.home / "runs").chmod(0o2775)
    program = ["-N", "2", "--ntasks-per-node", "1", "--", "sh", "-c", "umask; touch own-$SLURMD_NODENAME"]
    completed = user.call(
        "sh", "-c", 'umask 002; exec "$0" "$@"', "hpcrun", "submit", "--json", "--wait", "--site", "own", *program
    )
    (run,) = (user.home / "runs").iterdir()
    submission = json.loads(completed.stdout)
    assert "0002" in (run / f"{submission['job_id']}_0_log.out").read_text().splitlines(), completed.stderr
    modes = {
        path: stat.S_IMODE(path.stat().st_mode) & 0o777 for path in [run, *run.rglob("*")] if not path.is_symlink()
    }
    assert {
        f"{path} {mode:o}" for path, mode in modes.items() if mode != (folders if path.is_dir() else files)
    } == set()
    job_files = [Path(path) for path in user.home.glob("own-*")]
    assert {stat.S_IMODE(path.stat().st_mode) & 0o777 for path in job_files} == {0o664}
