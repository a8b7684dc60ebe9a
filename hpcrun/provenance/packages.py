"""``python -m hpcrun.provenance.packages`` lists the installed packages in the format of ``pip freeze``.

The job script runs it with the job's own Python; it needs no pip, and is faster.
"""

from __future__ import annotations

import json
import platform
import re
import sys
from importlib.metadata import Distribution, distributions

from hpcrun.secrets import mask


def installed_packages() -> dict[str, tuple[str, Distribution]]:
    """Return the packages that Python finds, each with its name, by normalized name (PEP 503)."""
    found: dict[str, tuple[str, Distribution]] = {}
    for package in distributions():
        if name := package.metadata["Name"]:  # Python imports the first one on sys.path
            found.setdefault(re.sub(r"[-_.]+", "-", name.lower()), (name, package))
    return found


def freeze_lines() -> list[str]:
    """Return a line per package, sorted: ``name==version``, or ``name @ url`` if it was installed from a URL."""
    return [_freeze_line(*one) for one in sorted(installed_packages().values(), key=lambda one: one[0].lower())]


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
    """Print the packages."""
    print(f"# Python {platform.python_version()}, {sys.executable}", *freeze_lines(), sep="\n")


if __name__ == "__main__":
    main()
