"""Checks of Python environments, Spack and containers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hpcrun import launchers
from hpcrun.secrets import mask
from hpcrun.sites.lint.levels import finding_at

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hpcrun.finding import Finding
    from hpcrun.sites.model import Site


def unused_python_environment(site: Site) -> Iterator[Finding]:
    """Warn of an environment whose Python no job uses, because the key python has another path."""
    of_python = [key for key in site.activation_keys if not key.startswith("spack")]
    if site.python and "/" in site.python and of_python:
        key = of_python[0]
        says = f"python = {site.python!r} overrides the Python of {key}"
        yield finding_at(("python",), says, f"remove python, or {key}")


def missing_activation_command(site: Site) -> Iterator[Finding]:
    """Warn of conda and Spack without a key or module that provides the command."""
    wanted = {"conda": (site.conda.env, site.conda.root), "spack": (site.spack.env or site.spack.load, site.spack.root)}
    for command, (used, root) in wanted.items():
        if used and not (root or site.modules.load):
            says = f"nothing provides the command {command} in jobs"
            yield finding_at((command,), says, f"set {command}.root, or modules.load to a module that provides it")


def pyxis_without_srun(site: Site) -> Iterator[Finding]:
    """Warn of pyxis with a launcher other than srun, because pyxis is a plugin of srun."""
    if site.container.runtime == "pyxis" and not launchers.site_launcher(site).uses_slurm:
        says = f'container.runtime = "pyxis" is an extension of srun, but launcher = "{site.launcher_name}"'
        yield finding_at(("container", "runtime"), says, 'set launcher = "srun", or another container.runtime')


def image_fetched_by_each_rank(site: Site) -> Iterator[Finding]:
    """Warn of an image that every rank of every job would pull and convert."""
    image = site.container.image or ""
    if "://" in image and site.container.runtime in {"apptainer", "singularity"}:
        says = f"container.image = {mask(image)!r} is pulled by every rank of every job"
        yield finding_at(("container", "image"), says, f"{site.container.runtime} pull it once, and set the file")
