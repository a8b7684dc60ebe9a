"""``python -m hpcrun.provenance.packages`` lists the installed packages in the format of ``pip freeze``.

The job script runs this module with the job's Python; the module is faster than pip, and does not need pip.
"""

from __future__ import annotations

import json
import platform
import re
import sys
from importlib.metadata import Distribution, distributions

from hpcrun.secrets import mask


def installed_packages() -> dict[str, tuple[str, Distribution]]:
    """Return the name and the distribution of each installed package, by normalized name (PEP 503)."""
    packages: dict[str, tuple[str, Distribution]] = {}
    for package in distributions():
        if name := package.metadata["Name"]:  # of packages with the same name, Python imports the first on sys.path
            packages.setdefault(re.sub(r"[-_.]+", "-", name.lower()), (name, package))
    return packages


def freeze_lines() -> list[str]:
    """Return a line per package, sorted: ``name==version``, or ``name @ url`` if it was installed from a URL."""
    return [
        _freeze_line(*package) for package in sorted(installed_packages().values(), key=lambda item: item[0].lower())
    ]


def _freeze_line(name: str, package: Distribution) -> str:
    try:
        origin = json.loads(package.read_text("direct_url.json") or "{}")
        url = str(origin["url"])
    except (ValueError, TypeError, KeyError):
        return f"{name}=={package.version}"
    if "vcs_info" in origin:
        url = f"{origin['vcs_info'].get('vcs')}+{url}@{origin['vcs_info'].get('commit_id')}"
    return mask(f"{name} @ {url}")


def main() -> None:
    """Print the Python version and the installed packages."""
    print(f"# Python {platform.python_version()}, {sys.executable}", *freeze_lines(), sep="\n")


if __name__ == "__main__":
    main()
