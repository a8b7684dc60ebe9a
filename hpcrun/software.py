"""Where a job's programs come from: the site's Python environment or a container, and whether they are there."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING

from hpcrun import paths
from hpcrun.containers import RUNTIMES
from hpcrun.errors import HpcrunError
from hpcrun.resources import FieldError

if TYPE_CHECKING:
    from hpcrun.request import Request
    from hpcrun.sites.model import Site
    from hpcrun.sites.software_tables import Container
    from hpcrun.spec import JobSpec


def container(request: Request, site: Site) -> Container | None:
    """Decide which container a job's ranks run in: what was asked for, else the site's; None for none.

    Raises:
        HpcrunError: What was asked for is no image.
    """
    asked = request.container
    if asked is False or not (asked or site.container.image):
        return None
    if not asked:
        return site.container
    if RUNTIMES[site.container.runtime].files and Path(asked).exists():
        asked = str(Path(asked).absolute())
    try:
        return replace(site.container, image=asked)
    except FieldError as error:
        raise HpcrunError(
            f"--container={asked}: there is no such file here, and an image {error.reason}",
            hint=f"{site.container.runtime} runs images in site {site.name}; see docs/containers.md",
        ) from None


def warnings(spec: JobSpec) -> tuple[str, ...]:
    """Return what people should know of a job's container before it runs."""
    chosen = spec.container
    if (
        not chosen
        or not chosen.image
        or chosen.runtime not in {"apptainer", "singularity"}
        or "://" not in chosen.image
    ):
        return ()
    pull = f"{chosen.runtime} pull image.sif {chosen.image}"
    return (f"each rank would fetch {chosen.image}: do it once, `{pull}`, and name the file",)


def check(spec: JobSpec) -> None:
    """Refuse files and folders that a job names, and that are not where this machine would see them.

    Raises:
        HpcrunError: The folder around one is there, and it is not.
    """
    site, chosen = spec.here, spec.container
    places = {
        "venv": (site.venv, "bin/activate", "python3 -m venv makes a virtual environment"),
        "uv": (site.uv, ".venv/bin/activate", "uv sync makes it"),
        "conda.root": (site.conda.root, "etc/profile.d/conda.sh", "it is what conda info --base prints"),
        "conda.env": (_folder(site.conda.env), "", "conda env list shows all"),
        "spack.root": (site.spack.root, "share/spack/setup-env.sh", "it is the folder that Spack was cloned into"),
        "spack.env": (_folder(site.spack.env), "", "spack env list shows all"),
    }
    if chosen and RUNTIMES[chosen.runtime].files:
        places["container.image"] = (_folder(chosen.image), "", "--container names another, --no-container none")
    for key, (place, file, hint) in places.items():
        if place and (path := _missing(place, file)):
            raise HpcrunError(f"{key} = {place!r}: there is no {path} here", hint=hint)


def _folder(text: str | None) -> str | None:
    return text if text and "://" not in text and ("/" in text or text.startswith(("~", "$"))) else None


def _missing(place: str, file: str) -> Path | None:
    """Return the path that is not there; None also where this machine may not see it, or the job alone knows it."""
    same = {name: value for name, value in os.environ.items() if not name.startswith(("TMP", "SLURM_"))}
    text = Template(paths.expand_user(place)).safe_substitute(same)
    path = Path(text)
    if "$" in text or not path.is_absolute() or not path.parent.is_dir():
        return None
    return None if (path / file).exists() else path / file
