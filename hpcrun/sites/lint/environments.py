"""Findings about where the jobs' programs come from: Python environments, Spack, containers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hpcrun.sites.lint.levels import finding_at

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hpcrun.finding import Finding
    from hpcrun.sites.model import Site


def unused_python_environment(site: Site) -> Iterator[Finding]:
    """Warn of an environment whose Python no job runs, because the site names another one by its path."""
    of_python = [key for key in site.activation_keys if not key.startswith("spack")]
    if site.python and "/" in site.python and of_python:
        key = of_python[0]
        says = f"python = {site.python!r} is what jobs run, not the Python of {key}"
        yield finding_at(("python",), says, f"remove python, or {key}")


def missing_activation_command(site: Site) -> Iterator[Finding]:
    """Warn of conda and Spack that no key and no module brings."""
    wanted = {"conda": (site.conda.env, site.conda.root), "spack": (site.spack.env or site.spack.load, site.spack.root)}
    for command, (used, root) in wanted.items():
        if used and not (root or site.modules.load):
            says = f"nothing brings the command {command} into jobs"
            yield finding_at((command,), says, f"set {command}.root, or modules.load to a module that has it")


def pyxis_without_srun(site: Site) -> Iterator[Finding]:
    """Warn of pyxis beside a launcher that is not srun, which alone it extends."""
    if site.container.runtime == "pyxis" and site.launcher_name != "srun":
        says = f'container.runtime = "pyxis" is an extension of srun, and launcher = "{site.launcher_name}"'
        yield finding_at(("container", "runtime"), says, 'set launcher = "srun", or another container.runtime')


def image_fetched_by_each_rank(site: Site) -> Iterator[Finding]:
    """Warn of an image that each rank of each job would fetch and convert."""
    image = site.container.image or ""
    if "://" in image and site.container.runtime in {"apptainer", "singularity"}:
        says = f"container.image = {image!r} is fetched by each rank of each job"
        yield finding_at(("container", "image"), says, f"{site.container.runtime} pull it once, and name the file")
