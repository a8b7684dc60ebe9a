"""The software of a job: its container or Python environment, and checks that they exist."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING

from hpcrun import paths, secrets
from hpcrun.containers import RUNTIMES
from hpcrun.errors import HpcrunError
from hpcrun.field_checks import FieldError
from hpcrun.job_program import require_program

if TYPE_CHECKING:
    from hpcrun.request import Request
    from hpcrun.sites.model import Site
    from hpcrun.sites.software_tables import Container
    from hpcrun.spec import JobSpec


def select_container(request: Request, site: Site) -> Container | None:
    """Select the container of a job's ranks: the requested one, or else the site's; None without a container.

    Raises:
        HpcrunError: The requested image is invalid.
    """
    requested = request.container
    if requested is False or not (requested or site.container.image):
        return None
    if not requested:
        return site.container
    if RUNTIMES[site.container.runtime].files and Path(requested).exists():
        requested = str(Path(requested).absolute())
    try:
        return replace(site.container, image=requested)
    except FieldError as error:
        hint = f"{site.container.runtime} runs images in site {site.name}; see docs/containers.md"
        if re.fullmatch(r"[a-z0-9_.-]+(/[a-z0-9_.-]+)*:[\w.-]+", requested):  # docker's form
            hint = f"did you mean --container=docker://{requested}?"
        raise HpcrunError(
            f"--container={requested}: there is no such file, and an image {error.reason}", hint=hint
        ) from None


def container_warnings(spec: JobSpec) -> tuple[str, ...]:
    """Return warnings about a job's container."""
    chosen = spec.container
    if (
        not chosen
        or not chosen.image
        or chosen.runtime not in {"apptainer", "singularity"}
        or "://" not in chosen.image
    ):
        return ()
    image = secrets.mask(chosen.image)
    pull = f"{chosen.runtime} pull image.sif {image}"
    return (f"each rank would download {image}: run `{pull}` once, and use the file",)


def require_software(spec: JobSpec) -> None:
    """Require the files and folders of the job's environment and container, as far as this host can see them.

    Raises:
        HpcrunError: One does not exist, although its parent folder does.
    """
    site, chosen = spec.site, spec.container
    required = {
        "venv": (site.venv, "bin/activate", "python3 -m venv makes a virtual environment"),
        "uv": (site.uv, ".venv/bin/activate", "uv sync makes it"),
        "conda.root": (site.conda.root, "etc/profile.d/conda.sh", "it is what conda info --base prints"),
        "conda.env": (_as_path(site.conda.env), "", "conda env list shows all"),
        "spack.root": (site.spack.root, "share/spack/setup-env.sh", "it is the folder that Spack was cloned into"),
        "spack.env": (_as_path(site.spack.env), "", "spack env list shows all"),
    }
    if chosen and RUNTIMES[chosen.runtime].files:
        required["container.image"] = (_as_path(chosen.image), "", "--container names another, --no-container none")
    for key, (place, file, hint) in required.items():
        if place and (path := _find_missing_path(place, file)):
            raise HpcrunError(f"{key} = {place!r}: there is no {path} here", hint=hint)
    if not chosen:
        for argv in {spec.argv, *(task.argv for task in spec.tasks)} - {()}:
            require_program(argv, spec)


def _as_path(text: str | None) -> str | None:
    return text if text and "://" not in text and ("/" in text or text.startswith(("~", "$"))) else None


def _find_missing_path(place: str, file: str) -> Path | None:
    """Return a missing path; None if it exists, or if this host may not see it or cannot expand it."""
    login_environment = {name: value for name, value in os.environ.items() if not name.startswith(("TMP", "SLURM_"))}
    text = Template(paths.expand_user(place)).safe_substitute(login_environment)
    path = Path(text)
    if "$" in text or not path.is_absolute() or not path.parent.is_dir():
        return None
    return None if (path / file).exists() else path / file
