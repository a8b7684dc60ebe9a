"""``python -m hpcrun.provenance.packages``: the packages that this Python has, as ``pip freeze`` lists them.

The job's script calls it, so that the job's own Python answers; pip need not be there, and would take longer.
"""

from __future__ import annotations

import json
import platform
import re
import sys
from importlib.metadata import Distribution, distributions

from hpcrun.secrets import mask


def packages() -> dict[str, tuple[str, Distribution]]:
    """Return the packages that Python finds, each with its own name, by their names in one form (PEP 503)."""
    found: dict[str, tuple[str, Distribution]] = {}
    for package in distributions():
        if name := package.metadata["Name"]:  # the first on sys.path is the one that is imported
            found.setdefault(re.sub(r"[-_.]+", "-", name.lower()), (name, package))
    return found


def frozen() -> list[str]:
    """Return a line for each package that Python finds, sorted: ``name==version``, or where it was installed from."""
    return [_line(*one) for one in sorted(packages().values(), key=lambda one: one[0].lower())]


def _line(name: str, package: Distribution) -> str:
    try:
        origin = json.loads(package.read_text("direct_url.json") or "{}")
        url = str(origin["url"])
    except (ValueError, TypeError, KeyError):
        return f"{name}=={package.version}"
    if "vcs_info" in origin:
        url = f"{origin['vcs_info'].get('vcs')}+{url}@{origin['vcs_info'].get('commit_id')}"
    return mask(f"{name} @ {url}")


def main() -> None:
    """Print them."""
    print(f"# Python {platform.python_version()}, {sys.executable}", *frozen(), sep="\n")


if __name__ == "__main__":
    main()
