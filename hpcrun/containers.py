"""What starts a container around each rank: a table entry for each runtime. No I/O here."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from hpcrun.errors import HpcrunError
from hpcrun.launchers import forwarded

if TYPE_CHECKING:
    from hpcrun.sites.software_tables import Container
    from hpcrun.spec import JobSpec

PACKAGE = "/hpcrun"
"""Where the ranks' Python finds the package hpcrun in the container."""
OF_THE_HOST = frozenset({"PATH", "LD_LIBRARY_PATH", "PYTHONPATH", "PYTHONHOME", "HOME", "CONDA_PREFIX", "VIRTUAL_ENV"})
"""Variables that are about the host's files."""
FAMILIES = (
    "HPCRUN_",
    "SLURM_",
    "PMI",
    "PALS_",
    "OMPI_",
    "PRTE_",
    "MPI",
    "I_MPI_",
    "NCCL_",
    "RCCL_",
    "UCX_",
    "FI_",
    "OMP_",
)
"""Beginnings of variables that ranks need in the container: their job's, their launcher's, and what tunes MPI."""


@dataclass(frozen=True)
class Runtime:
    """How a runtime is told what it shall do.

    Attributes:
        command: Its words before any options; empty where srun itself starts the container.
        directory: The option that says where the program starts.
        bind: The option that lets the program see a folder of the host.
        prefix: How the names of its own variables begin; a variable PREFIXENV_NAME is the program's. Empty where
            options say it.
        gpu: The option that brings the driver of a vendor's GPUs in.
        home: The options that show the home folder, or hide it.
        host_mpi: The option that puts the host's MPI in the place of the image's.
        files: Whether images are files, or may be.
    """

    command: tuple[str, ...]
    directory: str
    bind: str
    prefix: str = ""
    gpu: dict[str, str] = field(default_factory=dict)
    home: dict[bool, str] = field(default_factory=dict)
    host_mpi: tuple[str, ...] = ()
    files: bool = True


_NV = {"nvidia": "--nv", "amd": "--rocm"}
_PODMAN = ("podman-hpc", "run", "--rm")
_SRUN_HOME = {True: "--container-mount-home", False: "--no-container-mount-home"}
_SHOWN_HOME = {True: "--volume=${HOME}:${HOME}"}
RUNTIMES = {
    "apptainer": Runtime(("apptainer", "exec"), "--pwd", "--bind", "APPTAINER", _NV, {False: "--no-home"}),
    "singularity": Runtime(("singularity", "exec"), "--pwd", "--bind", "SINGULARITY", _NV, {False: "--no-home"}),
    "podman-hpc": Runtime(
        _PODMAN, "--workdir", "--volume", "", {"nvidia": "--gpu"}, _SHOWN_HOME, ("--mpi",), files=False
    ),
    "pyxis": Runtime((), "--container-workdir", "--container-mounts", home=_SRUN_HOME),
}


def options(spec: JobSpec, container: Container) -> list[str]:
    """Return the runtime's words before the image and the binds, in which ``${NAME}`` expands."""
    runtime = RUNTIMES[container.runtime]
    words = [*runtime.command, f"{runtime.directory}={spec.directory}"]
    if runtime.host_mpi and container.mpi == "image":
        words += ["--network=host", "--ipc=host", "--pid=host"]  # ranks of one node find one another
    words += runtime.host_mpi if container.mpi == "host" else ()
    vendor = runtime.gpu.get(spec.site.gpu.vendor or "nvidia")
    words += [vendor] if vendor and container.gpu and spec.has_gpus else []
    words += [runtime.home[container.home]] if container.home in runtime.home else []
    return [*words, *container.args]


def binds(spec: JobSpec, container: Container) -> list[str]:
    """Return what ranks see of the host, each as ``SOURCE:TARGET[:ro]``, in which ``${NAME}`` expands.

    The run directory, the folder that ranks start in, the program's folder where it is a script, and the site's binds.
    """
    return [f"{folder}:{folder}" for folder in _folders(spec, container)] + [_whole(bind) for bind in container.binds]


def _folders(spec: JobSpec, container: Container) -> list[Path]:
    argv = spec.tasks[0].argv if spec.tasks else spec.argv
    script = [Path(argv[1]).parent] if argv[0] == container.python and argv[1:] else []
    return list(dict.fromkeys([spec.run_dir, spec.directory, *(folder for folder in script if folder.is_absolute())]))


def _whole(bind: str) -> str:
    parts = [f"${{HOME}}/{part[2:]}" if part.startswith("~/") else part for part in bind.split(":")]
    return ":".join(parts if len(parts) > 1 else parts * 2)


def names(spec: JobSpec, container: Container) -> list[str]:
    """Return the names of the job's variables that ranks need in the container, whatever the image sets."""
    own = {name for name, _ in spec.environment}
    apart = {*OF_THE_HOST, *spec.site.prepend_path, *container.environment, *own}
    return [name for name in (*forwarded(spec), spec.site.gpu.visibility_variable) if name not in apart]


def check(spec: JobSpec, container: Container) -> None:
    """Refuse what the runtime cannot do.

    Raises:
        HpcrunError: Its ranks are started by another launcher, or a folder's name has what separates binds.
    """
    if container.runtime == "pyxis" and (spec.launcher, spec.reach) != ("srun", "slurm"):
        starts = "by no launcher" if spec.launcher == "none" else f"by {spec.launcher}"
        raise HpcrunError(
            f"pyxis is an extension of srun, and the ranks of this job are started {starts}",
            hint='--no-container; or set launcher = "srun", or another container.runtime, in the site file',
        )
    for folder in _folders(spec, container):
        if wrong := next((part for part in (":", ",", "${") if part in str(folder)), None):
            raise HpcrunError(
                f"{folder}: {container.runtime} cannot bind a folder with {wrong} in its name", hint="rename the folder"
            )
