"""The tables of a site file that say where the jobs' programs come from: Python environments, Spack, containers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

from hpcrun.resources import FieldError, check_fields, one_line
from hpcrun.sites.limits import FORBID
from hpcrun.sites.tables import check_variable_name


@dataclass(frozen=True, kw_only=True)
class Conda:
    """A conda environment that every job activates."""

    __pydantic_config__: ClassVar = FORBID

    env: str | None = None
    """Its name, or its folder (which may name variables, as in ${WORK}/envs/tf)."""
    root: str | None = None
    """Where conda is, with etc/profile.d/conda.sh; not needed where one of the modules brings the command conda."""

    def __post_init__(self) -> None:
        check_fields(self, {"env": one_line, "root": one_line})
        if self.root and not self.env:
            raise FieldError("root", self.root, "there is no environment to activate: set conda.env too")


@dataclass(frozen=True, kw_only=True)
class Spack:
    """What every job loads with Spack."""

    __pydantic_config__: ClassVar = FORBID

    root: str | None = None
    """Where Spack is, with share/spack/setup-env.sh; not needed where one of the modules brings the command spack."""
    env: str | None = None
    """Spack environment to activate: its name, or its folder."""
    load: tuple[str, ...] = ()
    """Packages to load, in order, as `spack load` takes them."""

    def __post_init__(self) -> None:
        check_fields(self, {"root": one_line, "env": one_line, "load": one_line})
        if self.root and not (self.env or self.load):
            raise FieldError("root", self.root, "there is nothing to load: set spack.env or spack.load too")


def _check_bind(text: str) -> None:
    one_line(text)
    source, *more = text.split(":")
    absolute = all(part.startswith(("/", "~/", "${")) for part in (source, *more[:1]))
    if "," in text or len(more) > 2 or not absolute or more[1:] not in ([], ["ro"], ["rw"]):
        raise ValueError("a bind is SOURCE, SOURCE:TARGET or SOURCE:TARGET:ro, of absolute paths without commas")


@dataclass(frozen=True, kw_only=True)
class Container:
    """The container that ranks run in. Values may name variables of the job, as in ${SCRATCH}."""

    __pydantic_config__: ClassVar = FORBID

    runtime: Literal["apptainer", "singularity", "podman-hpc", "pyxis"] = "apptainer"
    """What starts containers here: apptainer, singularity, podman-hpc, or pyxis (an extension of Slurm's srun)."""
    image: str | None = None
    """Image of jobs that do not say otherwise, a file or a name that the runtime finds; without one, jobs run in a
    container only where --container names an image."""
    python: str = "python3"
    """Python interpreter inside the image."""
    hpcrun: Literal["bind", "image"] = "bind"
    """Whether the ranks import the hpcrun that submits (bound into the container), or the one that is in the image."""
    binds: tuple[str, ...] = ()
    """Further folders of the host that ranks see: SOURCE, SOURCE:TARGET or SOURCE:TARGET:ro."""
    environment: dict[str, str] = field(default_factory=dict)
    """Environment variables inside the container; they win over those of the site's environment."""
    args: tuple[str, ...] = ()
    """Further arguments of the runtime (of srun, for pyxis)."""
    gpu: bool = True
    """Whether the runtime brings the GPUs' driver into the container (--nv, --rocm, --gpu) where a job has GPUs."""
    home: bool | None = None
    """Whether the home folder is seen inside; where not given, as the runtime has it."""
    mpi: Literal["image", "host"] = "image"
    """Which MPI ranks use: the image's, which finds the launcher by PMI or PMIx; or the host's in its place."""

    def __post_init__(self) -> None:
        lines = dict.fromkeys(["image", "python", "args"], one_line)
        check_fields(self, {**lines, "binds": _check_bind, "environment": check_variable_name})
        if self.image and self.runtime in {"apptainer", "singularity"}:
            check_apptainer_image(self.image)
        if self.mpi == "host" and self.runtime != "podman-hpc" and "LD_LIBRARY_PATH" not in self.environment:
            what = "name the folders of the host's MPI in container.environment.LD_LIBRARY_PATH, and bind them"
            raise FieldError("mpi", self.mpi, what)


def check_apptainer_image(image: str) -> None:
    """Check that an image is named in a way that does not depend on where a job starts.

    Raises:
        FieldError: It is a relative path.
    """
    if "://" not in image and not image.startswith(("/", "~/", "${")):
        raise FieldError("image", image, "must be an absolute path, or begin with ~/, ${NAME} or docker://")
