"""The table of container runtimes, and the options with which a runtime starts a container for each rank."""

from __future__ import annotations

from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING

from hpcrun import launchers
from hpcrun.errors import HpcrunError
from hpcrun.frozen import frozen
from hpcrun.launchers.rank_variables import list_rank_variables

if TYPE_CHECKING:
    from hpcrun.sites.software_tables import Container
    from hpcrun.spec import JobSpec

HOST_VARIABLES = frozenset(
    {"PATH", "LD_LIBRARY_PATH", "PYTHONPATH", "PYTHONHOME", "HOME", "CONDA_PREFIX", "VIRTUAL_ENV"}
)
"""Environment variables that contain paths of the host."""
VARIABLE_PREFIXES = (
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
"""Prefixes of environment variables that ranks need in the container: those of the job, the launcher and MPI."""


@frozen
class Runtime:
    """A container runtime: its command and options.

    Attributes:
        command: The command before the options; empty if srun itself starts the container.
        directory: The option for the working directory.
        bind: The option that binds a folder of the host.
        prefix: The prefix of host variables that set variables in the container: with APPTAINER,
            APPTAINERENV_NAME sets NAME; empty if the runtime has options for this.
        gpu: The option that adds the GPU driver, by GPU vendor.
        home: The options that mount the home directory (True) or hide it (False).
        host_mpi: The option that replaces the image's MPI with the host's.
        files: Whether the runtime accepts image files.
    """

    command: tuple[str, ...]
    directory: str
    bind: str
    prefix: str = ""
    gpu: dict[str, str] = field(default_factory=dict)
    home: dict[bool, str] = field(default_factory=dict)
    host_mpi: tuple[str, ...] = ()
    files: bool = True


_GPU_OPTIONS = {"nvidia": "--nv", "amd": "--rocm"}
_PODMAN_COMMAND = ("podman-hpc", "run", "--rm")
_PYXIS_HOME_OPTIONS = {True: "--container-mount-home", False: "--no-container-mount-home"}
_PODMAN_HOME_OPTIONS = {True: "--volume=${HOME}:${HOME}"}
RUNTIMES = {
    "apptainer": Runtime(("apptainer", "exec"), "--pwd", "--bind", "APPTAINER", _GPU_OPTIONS, {False: "--no-home"}),
    "singularity": Runtime(
        ("singularity", "exec"), "--pwd", "--bind", "SINGULARITY", _GPU_OPTIONS, {False: "--no-home"}
    ),
    "podman-hpc": Runtime(
        _PODMAN_COMMAND, "--workdir", "--volume", "", {"nvidia": "--gpu"}, _PODMAN_HOME_OPTIONS, ("--mpi",), files=False
    ),
    "pyxis": Runtime((), "--container-workdir", "--container-mounts", home=_PYXIS_HOME_OPTIONS),
}


def runtime_options(spec: JobSpec, container: Container) -> list[str]:
    """Return the runtime's command and options, without image and binds; the job script expands ``${NAME}``."""
    runtime = RUNTIMES[container.runtime]
    runtime_argv = [*runtime.command, f"{runtime.directory}={spec.directory}"]
    if runtime.host_mpi and container.mpi == "image":
        # ranks on a node communicate through these folders
        runtime_argv += ["--network=host", "--ipc=host", "--pid=host"]
    runtime_argv += runtime.host_mpi if container.mpi == "host" else ()
    gpu_option = runtime.gpu.get(spec.site.gpu.vendor or "nvidia")
    runtime_argv += [gpu_option] if gpu_option and container.gpu and spec.has_gpus else []
    runtime_argv += [runtime.home[container.home]] if container.home in runtime.home else []
    return [*runtime_argv, *container.args]


def list_binds(spec: JobSpec, container: Container) -> list[str]:
    """Return the binds as ``SOURCE:TARGET[:ro]``; the job script expands ``${NAME}``.

    The bound folders are the run directory, the working directory, the script's folder, and the site's binds.
    """
    return [f"{folder}:{folder}" for folder in _bound_folders(spec, container)] + [
        _complete_bind(bind) for bind in container.binds
    ]


def _bound_folders(spec: JobSpec, container: Container) -> list[Path]:
    argv = spec.tasks[0].argv if spec.tasks else spec.argv
    script = [Path(argv[1]).parent] if argv[0] == container.python and argv[1:] else []
    return list(dict.fromkeys([spec.run_dir, spec.directory, *(folder for folder in script if folder.is_absolute())]))


def _complete_bind(bind: str) -> str:
    path_parts = [f"${{HOME}}/{part[2:]}" if part.startswith("~/") else part for part in bind.split(":")]
    return ":".join(path_parts if len(path_parts) > 1 else path_parts * 2)


def list_forwarded_variables(spec: JobSpec, container: Container) -> list[str]:
    """Return the names of the job's environment variables that override the image's variables."""
    user_names = {name for name, _ in spec.environment}
    excluded_names = {*HOST_VARIABLES, *spec.site.prepend_path, *container.environment, *user_names}
    return [
        name for name in (*list_rank_variables(spec), spec.site.gpu.visibility_variable) if name not in excluded_names
    ]


def require_supported(spec: JobSpec, container: Container) -> None:
    """Refuse a job whose launcher or folders the container runtime does not support.

    Raises:
        HpcrunError: The launcher is not supported, or a folder name contains a character that separates binds.
    """
    launcher = launchers.find_launcher(spec)
    if container.runtime == "pyxis" and not (launcher.uses_slurm and spec.transport == "slurm"):
        launcher_text = "without a launcher" if launcher.starts_one_process else f"by {launcher.name}"
        raise HpcrunError(
            f"pyxis is a plugin of srun, and this job starts its ranks {launcher_text}",
            hint='--no-container; or set launcher = "srun", or another container.runtime, in the site file',
        )
    if container.runtime == "pyxis" and spec.staged:
        raise HpcrunError(
            "--stage-in: pyxis starts the container before ranks can copy data to the node-local disk",
            hint="leave it out; or set another container.runtime, such as apptainer, in the site file",
        )
    for folder in _bound_folders(spec, container):
        if separator := next((part for part in (":", ",", "${") if part in str(folder)), None):
            raise HpcrunError(
                f"{folder}: {container.runtime} cannot bind a folder with {separator} in its name",
                hint="rename the folder",
            )
