"""The tables of a site file for the software of jobs: Python environments, Spack, containers."""

from __future__ import annotations

from dataclasses import field
from typing import ClassVar, Literal

from hpcrun.field_checks import FieldError, check_fields, require_one_line
from hpcrun.frozen import frozen
from hpcrun.sites.limits import FORBID_UNKNOWN_KEYS
from hpcrun.sites.tables import check_variable_name


@frozen(kw_only=True)
class Conda:
    """A conda environment that every job activates."""

    __pydantic_config__: ClassVar = FORBID_UNKNOWN_KEYS

    env: str | None = None
    """Name of the environment, or its folder (which may contain variables, as in ${WORK}/envs/tf)."""
    root: str | None = None
    """Installation folder of conda, with etc/profile.d/conda.sh; not needed if a module provides conda."""

    def __post_init__(self) -> None:
        check_fields(self, {"env": require_one_line, "root": require_one_line})
        if self.root and not self.env:
            raise FieldError("root", self.root, "no environment to activate: set conda.env too")


@frozen(kw_only=True)
class Spack:
    """Spack packages and environments that every job loads."""

    __pydantic_config__: ClassVar = FORBID_UNKNOWN_KEYS

    root: str | None = None
    """Installation folder of Spack, with share/spack/setup-env.sh; not needed if a module provides spack."""
    env: str | None = None
    """Name or folder of the Spack environment to activate."""
    load: tuple[str, ...] = ()
    """Packages to load, in order, as arguments of `spack load`."""

    def __post_init__(self) -> None:
        check_fields(self, {"root": require_one_line, "env": require_one_line, "load": require_one_line})
        if self.root and not (self.env or self.load):
            raise FieldError("root", self.root, "nothing to load: set spack.env or spack.load too")


def _check_bind(text: str) -> None:
    require_one_line(text)
    source, *other_parts = text.split(":")
    are_absolute = all(part.startswith(("/", "~/", "${")) for part in (source, *other_parts[:1]))
    if "," in text or len(other_parts) > 2 or not are_absolute or other_parts[1:] not in ([], ["ro"], ["rw"]):
        raise ValueError("a bind is SOURCE, SOURCE:TARGET or SOURCE:TARGET:ro, of absolute paths without commas")


@frozen(kw_only=True)
class Container:
    """The container in which the ranks run. Values may contain variables of the job, as in ${SCRATCH}."""

    __pydantic_config__: ClassVar = FORBID_UNKNOWN_KEYS

    runtime: Literal["apptainer", "singularity", "podman-hpc", "pyxis"] = "apptainer"
    """Container runtime: apptainer, singularity, podman-hpc, or pyxis (an extension of Slurm's srun)."""
    image: str | None = None
    """Default image, a file or a name that the runtime resolves; without it, jobs run in a container only with
    --container."""
    python: str = "python3"
    """Python interpreter inside the image."""
    hpcrun: Literal["bind", "image"] = "bind"
    """The hpcrun that the ranks import: bind (the host's hpcrun, bound into the container), or image (the image's
    hpcrun)."""
    binds: tuple[str, ...] = ()
    """Additional folders of the host to bind: SOURCE, SOURCE:TARGET or SOURCE:TARGET:ro."""
    environment: dict[str, str] = field(default_factory=dict)
    """Environment variables inside the container; they override those of the site's environment."""
    args: tuple[str, ...] = ()
    """Additional arguments of the runtime (of srun, for pyxis)."""
    gpu: bool = True
    """Whether the runtime provides the GPU driver inside the container (--nv, --rocm, --gpu) in jobs with GPUs."""
    home: bool | None = None
    """Whether the home directory is mounted in the container; default: the runtime's default."""
    mpi: Literal["image", "host"] = "image"
    """The MPI library of the ranks: the image's, which connects to the launcher by PMI or PMIx, or the host's."""

    def __post_init__(self) -> None:
        line_checks = dict.fromkeys(["image", "python", "args"], require_one_line)
        check_fields(self, {**line_checks, "binds": _check_bind, "environment": check_variable_name})
        if self.image and self.runtime in {"apptainer", "singularity"}:
            check_apptainer_image(self.image)
        if self.mpi == "host" and self.runtime != "podman-hpc" and "LD_LIBRARY_PATH" not in self.environment:
            reason = "name the folders of the host's MPI in container.environment.LD_LIBRARY_PATH, and bind them"
            raise FieldError("mpi", self.mpi, reason)


def check_apptainer_image(image: str) -> None:
    """Check that the path of an image does not depend on the working directory.

    Raises:
        FieldError: The path is relative.
    """
    if "://" not in image and not image.startswith(("/", "~/", "${")):
        raise FieldError("image", image, "must be an absolute path, or begin with ~/, ${NAME} or docker://")
