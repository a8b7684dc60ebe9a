"""Checks of Python environments, Spack and containers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hpcrun import launchers
from hpcrun.secrets import mask
from hpcrun.sites.lint.levels import finding_at

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hpcrun.finding import Finding
    from hpcrun.sites.site_model import Site


def unused_python_environment(site: Site) -> Iterator[Finding]:
    """Warn of a Python environment that no job uses, because the key ``python`` names a different interpreter."""
    python_keys = [key for key in site.activation_keys if not key.startswith("spack")]
    if site.python and "/" in site.python and python_keys:
        key = python_keys[0]
        problem = f"python = {site.python!r} overrides the Python of {key}"
        yield finding_at(("python",), problem, f"remove python, or {key}")


def missing_activation_command(site: Site) -> Iterator[Finding]:
    """Warn of conda or Spack if no key or module provides the command ``conda`` or ``spack``."""
    settings = {
        "conda": (site.conda.env, site.conda.root),
        "spack": (site.spack.env or site.spack.load, site.spack.root),
    }
    for command, (used, root) in settings.items():
        if used and not (root or site.modules.load):
            problem = f"nothing provides the command {command} in jobs"
            yield finding_at((command,), problem, f"set {command}.root, or modules.load to a module that provides it")


def pyxis_without_srun(site: Site) -> Iterator[Finding]:
    """Warn of pyxis with a launcher other than srun, because pyxis is a plugin of srun."""
    if site.container.runtime == "pyxis" and not launchers.site_launcher(site).uses_slurm:
        problem = f'container.runtime = "pyxis" is an extension of srun, but launcher = "{site.launcher_name}"'
        yield finding_at(("container", "runtime"), problem, 'set launcher = "srun", or another container.runtime')


def image_fetched_by_each_rank(site: Site) -> Iterator[Finding]:
    """Warn of a container image that every rank of every job would pull and convert."""
    image = site.container.image or ""
    if "://" in image and site.container.runtime in {"apptainer", "singularity"}:
        problem = f"container.image = {mask(image)!r} is pulled by every rank of every job"
        yield finding_at(("container", "image"), problem, f"{site.container.runtime} pull it once, and set the file")
