"""The software of a job: selection of its container, and checks that container and Python environment exist."""

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
    from hpcrun.sites.site_model import Site
    from hpcrun.sites.software_tables import Container
    from hpcrun.spec import JobSpec


def select_container(request: Request, site: Site) -> Container | None:
    """Return the container of a job's ranks: the requested container, else the site's, else None.

    Raises:
        HpcrunError: The requested image is invalid.
    """
    requested_image = request.container
    if requested_image is False or not (requested_image or site.container.image):
        return None
    if not requested_image:
        return site.container
    if RUNTIMES[site.container.runtime].files and Path(requested_image).exists():
        requested_image = str(Path(requested_image).absolute())
    try:
        return replace(site.container, image=requested_image)
    except FieldError as error:
        hint = f"{site.container.runtime} runs images in site {site.name}; see docs/containers.md"
        if re.fullmatch(r"[a-z0-9_.-]+(/[a-z0-9_.-]+)*:[\w.-]+", requested_image):  # an image name as for docker run
            hint = f"did you mean --container=docker://{requested_image}?"
        raise HpcrunError(
            f"--container={requested_image}: there is no such file, and an image {error.reason}", hint=hint
        ) from None


def container_warnings(spec: JobSpec) -> tuple[str, ...]:
    """Return warnings about a job's container."""
    container = spec.container
    if (
        not container
        or not container.image
        or container.runtime not in {"apptainer", "singularity"}
        or "://" not in container.image
    ):
        return ()
    image = secrets.mask(container.image)
    pull_command = f"{container.runtime} pull image.sif {image}"
    return (f"each rank would download {image}: run `{pull_command}` once, and use the file",)


def require_software(spec: JobSpec) -> None:
    """Refuse a job if this host sees that files of its Python environment or container are missing.

    Raises:
        HpcrunError: A file or folder does not exist, although its parent folder exists.
    """
    site, container = spec.site, spec.container
    required_files = {
        "venv": (site.venv, "bin/activate", "python3 -m venv makes a virtual environment"),
        "uv": (site.uv, ".venv/bin/activate", "uv sync makes it"),
        "conda.root": (site.conda.root, "etc/profile.d/conda.sh", "it is what conda info --base prints"),
        "conda.env": (_path_or_none(site.conda.env), "", "conda env list shows all"),
        "spack.root": (site.spack.root, "share/spack/setup-env.sh", "the folder into which Spack was cloned"),
        "spack.env": (_path_or_none(site.spack.env), "", "spack env list shows all"),
    }
    if container and RUNTIMES[container.runtime].files:
        required_files["container.image"] = (
            _path_or_none(container.image),
            "",
            "--container names another, --no-container none",
        )
    for key, (folder, file, hint) in required_files.items():
        if folder and (path := _find_missing_path(folder, file)):
            raise HpcrunError(f"{key} = {folder!r}: there is no {path} here", hint=hint)
    if not container:
        for argv in {spec.argv, *(task.argv for task in spec.tasks)} - {()}:
            require_program(argv, spec)


def _path_or_none(text: str | None) -> str | None:
    return text if text and "://" not in text and ("/" in text or text.startswith(("~", "$"))) else None


def _find_missing_path(folder: str, file: str) -> Path | None:
    """Return the path of a file if it is missing; None if the file exists, or if this host cannot tell."""
    login_environment = {name: value for name, value in os.environ.items() if not name.startswith(("TMP", "SLURM_"))}
    text = Template(paths.expand_user(folder)).safe_substitute(login_environment)
    path = Path(text)
    if "$" in text or not path.is_absolute() or not path.parent.is_dir():
        return None
    return None if (path / file).exists() else path / file
