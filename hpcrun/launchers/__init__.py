"""What starts the ranks: one small function and a table entry each. No I/O here."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from hpcrun.sites.tables import Mpi
    from hpcrun.spec import JobSpec


@dataclass(frozen=True)
class Launcher:
    """How ranks are started, and how each learns which one it is.

    Attributes:
        command: The launcher's words before the program, from the job and its hostfile.
        rank: The variable that has the rank in MPI_COMM_WORLD, or the number of the only one.
        local_rank: The same for the rank on its node.
        hostfile: The hostfile dialect it reads (`hpcrun hostfile --format`).
        ask: The signal that it passes on to its ranks, and waits for them to end.
        local_ranks: The same for the number of ranks on its node.
        wired: Variables by which its MPI finds the others, of which a rank must have one; empty where it always does.
    """

    command: Callable[[JobSpec, str], list[str]]
    rank: str
    local_rank: str
    hostfile: str
    ask: str
    local_ranks: str
    wired: str = ""


HOSTFILE = "$HPCRUN_RUN_DIR/hostfile"
"""The hostfile, as bash expands it within double quotes."""


def forwarded(spec: JobSpec) -> list[str]:
    """Return the names of variables that ranks on other nodes need, in order, each once."""
    names = ["PATH", "LD_LIBRARY_PATH", "PYTHONPATH", "PYTHONUNBUFFERED", "XLA_FLAGS", "TF_CPP_MIN_LOG_LEVEL"]
    names += [*spec.site.prepend_path, *spec.site.environment, *(name for name, _ in spec.environment)]
    names += [*map(data_variable, spec.site.data), "HPCRUN_RUN_DIR", "HPCRUN_JOB_ID"]
    names += [name for name, _ in job_variables(spec)]
    return list(dict.fromkeys(names))


def job_variables(spec: JobSpec) -> list[tuple[str, str]]:
    """Return the HPCRUN_* variables by which a rank knows its job, as (name, value)."""
    site, resources = spec.site, spec.resources
    variables = {
        "HPCRUN_NTASKS": str(resources.ranks),
        "HPCRUN_SITE_NAME": site.name,
        "HPCRUN_LAUNCHER": spec.launcher,
        "HPCRUN_MPI_TYPE": site.mpi.type or "",
        "HPCRUN_GPUS_PER_NODE": str(resources.gpus),
        "HPCRUN_LOG_LEVEL": spec.log_level,
    }
    if spec.fusion_threshold_kb is not None:
        variables["HPCRUN_FUSION_THRESHOLD_KB"] = str(spec.fusion_threshold_kb)
    return list(variables.items())


def data_variable(name: str) -> str:
    """Return the variable by which ranks find a data set of the site."""
    return f"HPCRUN_DATA_{name.upper().replace('-', '_')}"


def _srun(spec: JobSpec, _hostfile: str) -> list[str]:
    resources = spec.resources
    words = ["srun", f"--ntasks={resources.ranks}"]
    words += [f"--nodes={resources.nodes}"] if resources.nodes else []
    words += [f"--ntasks-per-node={resources.ntasks_per_node}"] if resources.ntasks_per_node else []
    # since Slurm 22.05 steps no longer inherit the job's --cpus-per-task (srun(1))
    words += [f"--cpus-per-task={resources.cpus_per_task}"] if resources.cpus_per_task else []
    words += [f"--mpi={spec.site.mpi.type}"] if spec.site.mpi.type else []
    ranks, masks = resources.ntasks_per_node or 0, spec.site.gpu.cpu_masks
    if resources.gpus and resources.gpus == ranks <= len(masks):
        words.append(f"--cpu-bind=mask_cpu:{','.join(masks[:ranks])}")
    return [*words, "--kill-on-bad-exit=1"]


def _mpirun(spec: JobSpec, hostfile: str) -> list[str]:
    words = ["mpirun"]
    if spec.reach == "ssh":
        mca, ssh = ("--mca", "rsh") if spec.site.mpi.library == "openmpi4" else ("--prtemca", "ssh")
        words += [mca, "plm", ssh, mca, "ras", "^slurm"]
    # a rank's threads need all cores of its share: Open MPI would bind each rank to one
    words += ["--bind-to", "none", "--map-by", "slot", "--hostfile", hostfile, "-n", str(spec.resources.ranks)]
    for name in forwarded(spec) if spec.reach == "ssh" else ():
        words += ["-x", name]
    return words


def _mpiexec(spec: JobSpec, hostfile: str) -> list[str]:
    where = {"slurm": ["-launcher", "slurm"], "ssh": ["-launcher", "ssh"], "host": ["-launcher", "fork"]}[spec.reach]
    return ["mpiexec", *where, "-f", hostfile, "-n", str(spec.resources.ranks)]


def _none(_spec: JobSpec, _hostfile: str) -> list[str]:
    return []


LAUNCHERS: dict[str, Launcher] = {
    "srun": Launcher(
        _srun,
        "SLURM_PROCID",
        "SLURM_LOCALID",
        "plain",
        "USR2",
        "SLURM_STEP_TASKS_PER_NODE",
        "PMI_RANK PMI_FD PMIX_RANK",
    ),
    "mpirun": Launcher(
        _mpirun,
        "OMPI_COMM_WORLD_RANK",
        "OMPI_COMM_WORLD_LOCAL_RANK",
        "openmpi",
        "USR2",
        "OMPI_COMM_WORLD_LOCAL_SIZE",
    ),
    "mpiexec": Launcher(_mpiexec, "PMI_RANK", "MPI_LOCALRANKID", "hydra", "TERM", "MPI_LOCALNRANKS"),
    "none": Launcher(_none, "0", "0", "plain", "TERM", "1"),
}


def over_ssh(mpi: Mpi) -> str:
    """Return the launcher that a site's MPI library has for nodes reached over ssh, or for this machine alone."""
    return "mpirun" if mpi.library.startswith("openmpi") else "mpiexec"


def command(spec: JobSpec) -> list[str]:
    """Return the launch line's words, up to the program; none where there is nothing to launch with.

    All are literal but `HOSTFILE`.
    """
    words = LAUNCHERS[spec.launcher].command(spec, HOSTFILE)
    return [*words, *spec.site.launcher_args] if words else []


def cpu_bind(spec: JobSpec) -> str | None:
    """Return what each rank is bound to, ``cores`` or ``sockets``; None where nothing is, or the launcher does it."""
    words = command(spec)
    own = any(re.match(r"--?(cpu[-_]bind|bind-to|map-by|cpus-per-rank)\b", word) for word in spec.site.launcher_args)
    own = own or any(word.startswith("--cpu-bind=") for word in words)
    return None if own or spec.cpu_bind == "none" or spec.resources.ranks == 1 else spec.cpu_bind
